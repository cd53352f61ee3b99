"""Which brokers are alive: soft state of the active controller, from their heartbeats.

A session belongs to one registration, and ends when nothing was heard for `broker.session.timeout.ms` by the monotonic
clock. Time in which the controller itself did not run counts for nobody: a node that was paused for a minute would
fence a whole cluster otherwise, whose heartbeats lie in its sockets.
"""

from __future__ import annotations

from dataclasses import dataclass

from semel.controller.image import MetadataImage

# Sessions are looked at so many times during a timeout.
CHECKS_PER_TIMEOUT = 8
_UNKNOWN = -1


@dataclass
class _Session:
    epoch: int
    heard_ms: int | None  # nothing was heard of this registration yet, or its session is over
    metadata_offset: int = _UNKNOWN
    registered_at: int = 0  # the offset of its RegisterBrokerRecord, or one after it
    shutdown_offset: int | None = None


class Sessions:
    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._brokers: dict[int, _Session] = {}
        self._checked_ms: int | None = None

    @property
    def check_interval_ms(self) -> int:
        return max(1, self.timeout_ms // CHECKS_PER_TIMEOUT)

    def begin(self, image: MetadataImage, end_offset: int, now_ms: int, *, own_node: int | None = None) -> None:
        """This controller is active from now on. Whoever is unfenced has a session, or one that died meanwhile would
        never be fenced (KAFKA-18138); who is fenced has none, or its restart would be refused (KAFKA-19130). A broker
        of this very process has not registered yet: what the image knows of is an earlier one."""
        self._brokers = {
            node_id: _Session(
                broker.broker_epoch,
                None if broker.fenced or node_id == own_node else now_ms,
                registered_at=end_offset - 1,
            )
            for node_id, broker in image.brokers.items()
        }
        self._checked_ms = now_ms

    def register(self, node_id: int, epoch: int, offset: int) -> None:
        """A registration has been decided, with the offset of its record. An amended one keeps its session."""
        known = self._brokers.get(node_id)
        if known is None or known.epoch != epoch:
            self._brokers[node_id] = _Session(epoch, None, registered_at=offset)
        else:
            known.registered_at = offset

    def touch(self, node_id: int, epoch: int, metadata_offset: int, now_ms: int) -> None:
        session = self._brokers.get(node_id)
        if session is not None and session.epoch == epoch:
            session.heard_ms = now_ms
            session.metadata_offset = metadata_offset

    def has_session(self, node_id: int, epoch: int, now_ms: int) -> bool:
        session = self._brokers.get(node_id)
        if session is None or session.epoch != epoch or session.heard_ms is None:
            return False
        return now_ms - session.heard_ms <= self.timeout_ms

    def registered_at(self, node_id: int) -> int:
        return self._brokers[node_id].registered_at

    def expired(self, now_ms: int) -> list[int]:
        """The brokers whose sessions are over. Called `CHECKS_PER_TIMEOUT` times a timeout: when a call comes late by
        more than another such interval, all sessions are longer by that."""
        late_ms = 0 if self._checked_ms is None else now_ms - self._checked_ms - self.check_interval_ms
        self._checked_ms = now_ms
        over: list[int] = []
        for node_id, session in self._brokers.items():
            if session.heard_ms is not None:
                if late_ms > self.check_interval_ms:
                    session.heard_ms = min(now_ms, session.heard_ms + late_ms)
                if now_ms - session.heard_ms > self.timeout_ms:
                    over.append(node_id)
        return over

    def end(self, node_id: int) -> None:
        """The broker is fenced because it was silent, or has said that it stops: another may register in its place."""
        session = self._brokers.get(node_id)
        if session is not None:
            session.heard_ms = None
            session.shutdown_offset = None

    def remove(self, node_id: int) -> None:
        self._brokers.pop(node_id, None)

    # -- controlled shutdown

    def begin_shutdown(self, node_id: int, offset: int) -> None:
        """The broker leads nothing from this offset of the log on; a later call does not move it."""
        session = self._brokers[node_id]
        if session.shutdown_offset is None:
            session.shutdown_offset = offset

    def forget_shutdown(self, node_id: int) -> None:
        self._brokers[node_id].shutdown_offset = None

    def shutdown_offset(self, node_id: int) -> int | None:
        return self._brokers[node_id].shutdown_offset

    def all_have_seen(self, offset: int, image: MetadataImage) -> bool:
        """Whether every active broker has applied the log up to this offset, as far as it has told."""
        return all(
            session.metadata_offset >= offset for node_id, session in self._brokers.items() if image.is_active(node_id)
        )
