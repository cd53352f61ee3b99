"""A fetch of a follower: it reads up to the end of the log, and where it reads from is what it has.

The order of checks is Kafka's: the leader epoch comes before whether it has a replica at all, because a new replica may
ask before this node has heard of it (KAFKA-14078). Where it is counts once for each request, with the first try.
"""

from __future__ import annotations

from typing import Any

from semel.broker.fetch_sessions import Key
from semel.broker.fetching import Fetch
from semel.log.errors import Refused
from semel.log.log import Log
from semel.log.types import Epoch
from semel.metrics.counts_kernel import TopicCounts
from semel.replication.partition import NO_EPOCH, Fetched, FollowerFetch, Partition
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, ReplicaState


def replica_of(request: FetchRequest) -> ReplicaState:
    """Who asks: a negative id is no node."""
    return request.replica_state or ReplicaState(replica_id=request.replica_id)


class ReplicaFetch(Fetch):
    def __init__(self, request: FetchRequest, *others: Any) -> None:
        super().__init__(request, *others)
        self._replica = replica_of(request)
        self._counted: set[Key] = set()

    def _read(
        self, key: Key, wanted: FetchRequestPartition, partition: Partition, left_bytes: int, warmed: bool
    ) -> Fetched | None:
        asked = FollowerFetch(
            self._replica.replica_id,
            self._replica.replica_epoch,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
            min(wanted.partition_max_bytes, max(left_bytes, 0)),
        )
        counts = key not in self._counted
        self._counted.add(key)
        fetched = partition.fetch_as_replica(asked, at_least_one=self._size_bytes == 0, counts=counts, warmed=warmed)
        told = self._session.told.get(key)
        if told is not None and told.log_start_offset != fetched.log_start_offset:
            self._must_answer = True  # somebody waits for its records to go
        return None if fetched.diverging is None and self._has_all(key, wanted, partition) else fetched

    def _is_still_at_end(self, before: Fetched, log: Log) -> bool:
        return False  # it costs as little to look

    def _has_all(self, key: Key, wanted: FetchRequestPartition, partition: Partition) -> bool:
        """Whether it is at the end, and was told in this session what else there is to tell. One that is not in sync is
        looked at each time, for it may join."""
        log: Log = partition.log
        told, replicas = self._session.told.get(key), partition.replicas
        return (
            told is not None
            and bool(self._session.session_id)
            and wanted.fetch_offset == log.end_offset
            and told.high_watermark == log.high_watermark
            and told.log_start_offset == log.start_offset
            and not told.had_error
            and replicas is not None
            and replicas.is_in_sync(self._replica.replica_id)
        )

    def _count(self, counts: TopicCounts, size_bytes: int) -> None:
        counts.replication_bytes_out += size_bytes

    def _find(self, key: Key) -> Partition:
        topic, index = key
        if isinstance(topic, bytes):
            topic = self._cluster.topic_of_id(topic).name
        try:
            return self._topics.partition(topic, index)
        except Refused as refusal:
            if refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                known = self._cluster.partition(topic, index).leader_epoch
                _check_epoch(self._session.partitions[key].current_leader_epoch, known)
            raise


def _check_epoch(asked: Epoch, known: Epoch) -> None:
    """As the leader does, on a node that does not lead."""
    if asked in (NO_EPOCH, known):
        return
    code = ErrorCode.FENCED_LEADER_EPOCH if asked < known else ErrorCode.UNKNOWN_LEADER_EPOCH
    raise Refused(code, f"leader epoch {asked}, and it is {known} here")
