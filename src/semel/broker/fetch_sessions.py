"""Incremental fetch sessions (KIP-227): a consumer says once which partitions it reads, then only what changed.

A session is found by id and stepped by epoch, so a request that was lost or sent twice is noticed. The cache holds a
bounded number of sessions; when it is full, one that has not been used for two minutes makes room, or the new one is
not kept, which the client understands.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition

NO_SESSION = 0
_FINAL_EPOCH, _INITIAL_EPOCH = -1, 0
_LARGEST_EPOCH = (1 << 31) - 1
_EVICTABLE_AFTER_MS = 120_000

# Topic name (or id, from version 13 on) and partition.
Key: TypeAlias = tuple[str | bytes, int]


@dataclass
class Told:
    """What the client was last told of a partition; a change is news."""

    high_watermark: int = -1
    log_start_offset: int = -1
    had_error: bool = False


@dataclass
class FetchSession:
    """`partitions` in the order in which they are read: those that gave data move to the end, so that none starves."""

    session_id: int = NO_SESSION
    epoch: int = _FINAL_EPOCH
    is_incremental: bool = False
    uses_ids: bool = False
    partitions: OrderedDict[Key, FetchRequestPartition] = field(default_factory=OrderedDict)
    told: dict[Key, Told] = field(default_factory=dict)
    used_ms: int = 0


class FetchSessions:
    def __init__(self, random: Random, slots: int) -> None:
        self._random = random
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, uses_ids: bool, now_ms: int) -> FetchSession:
        """The session that a request belongs to, brought up to date with it; raises Refused for an unknown one."""
        if request.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = FetchSession(uses_ids=uses_ids, used_ms=now_ms)
            _update(session, request)
            if request.session_epoch == _INITIAL_EPOCH and session.partitions:
                self._keep(session, now_ms)
            return session
        known = self._sessions.get(request.session_id)
        if known is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if request.session_epoch != known.epoch:
            raise Refused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {known.session_id} is at epoch {known.epoch}, not {request.session_epoch}",
            )
        if known.uses_ids != uses_ids:
            raise Refused(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a fetch session goes on with topic names or ids as it began"
            )
        _update(known, request)
        known.epoch = 1 if known.epoch == _LARGEST_EPOCH else known.epoch + 1
        known.is_incremental = True
        known.used_ms = now_ms
        self._sessions.move_to_end(known.session_id)
        return known

    def _keep(self, session: FetchSession, now_ms: int) -> None:
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < _EVICTABLE_AFTER_MS:
                return
            del self._sessions[oldest.session_id]
        while session.session_id == NO_SESSION or session.session_id in self._sessions:
            session.session_id = self._random.randrange(1, 1 << 31)
        session.epoch = 1
        self._sessions[session.session_id] = session


def _update(session: FetchSession, request: FetchRequest) -> None:
    for forgotten in request.forgotten_topics_data:
        topic = forgotten.topic_id if session.uses_ids else forgotten.topic
        for index in forgotten.partitions:
            session.partitions.pop((topic, index), None)
            session.told.pop((topic, index), None)
    for wanted in request.topics:
        name = wanted.topic_id if session.uses_ids else wanted.topic
        for partition in wanted.partitions:
            session.partitions[name, partition.partition] = partition
