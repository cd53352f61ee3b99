"""How far each replica of the metadata log has come, as its leader knows from their fetches.

Only positions that were found to be part of this log are noted here. What the table is asked for is told by
DescribeQuorum; a quorum of several voters takes its high watermark from it as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from semel.log.types import Offset

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for so long is not told of any more."""
_MOST_OBSERVERS = 1000


@dataclass
class Replica:
    """`end_offset` is where its log ended at its last fetch. Times are -1 until there is one."""

    directory_id: bytes
    end_offset: Offset
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    fetched_at_monotonic_ms: int = 0
    leader_end_at_last_fetch: Offset = 0


class ReplicaTable:
    """By node id. Full when someone makes up a thousand nodes: the one that was silent longest is forgotten."""

    def __init__(self) -> None:
        self._replicas: dict[int, Replica] = {}

    def fetched(
        self, node_id: int, directory_id: bytes, offset: Offset, leader_end: Offset, wall_ms: int, monotonic_ms: int
    ) -> None:
        """A replica has everything below `offset`, which is a position in this log."""
        replica = self._replicas.pop(node_id, None)
        if replica is None or replica.directory_id != directory_id:
            if len(self._replicas) >= _MOST_OBSERVERS:
                del self._replicas[next(iter(self._replicas))]
            replica = Replica(directory_id, offset)
        if offset >= leader_end:
            replica.last_caught_up_ms = wall_ms
        elif replica.last_fetch_ms >= 0 and offset >= replica.leader_end_at_last_fetch:
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
        replica.end_offset = offset
        replica.last_fetch_ms = wall_ms
        replica.fetched_at_monotonic_ms = monotonic_ms
        replica.leader_end_at_last_fetch = leader_end
        self._replicas[node_id] = replica

    def known(self, monotonic_ms: int) -> dict[int, Replica]:
        """Those that have fetched lately."""
        since_ms = monotonic_ms - OBSERVER_SESSION_MS
        return {node_id: one for node_id, one in self._replicas.items() if one.fetched_at_monotonic_ms >= since_ms}
