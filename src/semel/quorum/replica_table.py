"""How far each replica of the metadata log has come, as its leader knows from their fetches.

Only positions that were found to be part of this log are noted here. What the table is asked for is told by
DescribeQuorum; a quorum of several voters takes its high watermark from it as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from semel.log.types import Offset
from semel.quorum.voters import ReplicaKey
from semel.wire.schema import NO_UUID

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for so long is not told of any more."""
_MOST_OBSERVERS = 1000


@dataclass
class Replica:
    """`end_offset` is where its log ended at its last fetch. Times are -1 until there is one."""

    end_offset: Offset
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    fetched_at_monotonic_ms: int = 0
    leader_end_at_last_fetch: Offset = 0


class ReplicaTable:
    """Full when someone makes up a thousand nodes: the one that was silent longest is forgotten."""

    def __init__(self) -> None:
        self._replicas: dict[ReplicaKey, Replica] = {}

    def fetched(self, key: ReplicaKey, offset: Offset, leader_end: Offset, wall_ms: int, monotonic_ms: int) -> None:
        """A replica has everything below `offset`, which is a position in this log."""
        replica = self._replicas.pop(key, None)
        if replica is None:
            if len(self._replicas) >= _MOST_OBSERVERS:
                del self._replicas[next(iter(self._replicas))]
            replica = Replica(offset)
        if offset >= leader_end:
            replica.last_caught_up_ms = wall_ms
        elif replica.last_fetch_ms >= 0 and offset >= replica.leader_end_at_last_fetch:
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
        replica.end_offset = offset
        replica.last_fetch_ms = wall_ms
        replica.fetched_at_monotonic_ms = monotonic_ms
        replica.leader_end_at_last_fetch = leader_end
        self._replicas[key] = replica

    def of(self, voter: ReplicaKey) -> Replica | None:
        """What is known of a voter; without a directory id, of the node that has fetched last under its id."""
        if voter.directory_id != NO_UUID and (known := self._replicas.get(voter)) is not None:
            return known
        return next((self._replicas[key] for key in reversed(self._replicas) if key.may_be(voter)), None)

    def known(self, monotonic_ms: int) -> dict[ReplicaKey, Replica]:
        """Those that have fetched lately."""
        since_ms = monotonic_ms - OBSERVER_SESSION_MS
        return {key: one for key, one in self._replicas.items() if one.fetched_at_monotonic_ms >= since_ms}
