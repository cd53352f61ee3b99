"""What an answer to a fetch means for each partition: records to hold, a new leader, a reset, a problem to raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from semel.client.cluster import Cluster
from semel.client.consumer.fetch_session import Key
from semel.client.consumer.fetched import Fetched
from semel.client.consumer.isolation import AbortedTransactions
from semel.client.consumer.positions import Event, PartitionReaders, Reading
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import CorruptRecords, OffsetOutOfRange, error_for
from semel.client.metadata import NO_NODE, Node
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchResponse, FetchResponsePartition

if TYPE_CHECKING:
    from semel.client.consumer.fetcher import AskedPartition

logger = logging.getLogger("semel.client")

_LEADER_MAY_HAVE_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_NEW_SESSION_HELPS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_TRY_AGAIN = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})


class FetchAnswers:
    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        readings: PartitionReaders,
        *,
        later: Callable[[Reading], None],
        moved: Callable[[], None],
        unplaced: Callable[[], None],
    ) -> None:
        """`later`: to be asked again after a pause; `moved`: at another node; `unplaced`: without a position."""
        self._cluster = cluster
        self._settings = settings
        self._readings = readings
        self._later = later
        self._moved = moved
        self._unplaced = unplaced

    def check_session_error(self, code: int, was_full: bool) -> None:
        """The session's own errors need a new session, nothing else; others, and those of a new one, need a pause."""
        if code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
            self._cluster.stale()
        if was_full or code not in _NEW_SESSION_HELPS:
            raise error_for(code, "fetching")

    def take(self, node_id: int, asked: Mapping[Key, AskedPartition], response: FetchResponse) -> bool:
        """Whether there is anything for poll to look at."""
        nodes = [Node(entry.node_id, entry.host, entry.port, entry.rack) for entry in response.node_endpoints]
        found = False
        for topic in response.responses:
            for entry in topic.partitions:
                asking = asked.get((topic.topic_id, entry.partition_index)) or asked.get(
                    (topic.topic, entry.partition_index)
                )
                if asking is None or asking.reading.version != asking.version:
                    continue
                reading = asking.reading
                if reading.fetch_position[0] != asking.offset:
                    continue
                if entry.error_code == ErrorCode.NONE:
                    self._succeeded(reading, asking.offset, entry)
                else:
                    self._refused(reading, asking.offset, entry, node_id, nodes)
                self._readings.enqueue(reading)
                found = found or reading.is_queued
        return found

    # -- good answers

    def _succeeded(self, reading: Reading, offset: int, entry: FetchResponsePartition) -> None:
        reading.high_watermark = entry.high_watermark
        reading.last_stable_offset = entry.last_stable_offset
        if entry.log_start_offset >= 0:
            reading.log_start_offset = entry.log_start_offset
        if entry.preferred_read_replica >= 0:
            now_s = asyncio.get_running_loop().time()
            reading.preferred_node = entry.preferred_read_replica
            reading.preferred_until_s = now_s + self._settings.metadata_max_age_ms / 1000
            self._moved()
        if entry.records:
            self._hold(reading, offset, entry)
        else:
            reading.calm()

    def _hold(self, reading: Reading, offset: int, entry: FetchResponsePartition) -> None:
        aborted = None
        if self._settings.reads_committed:
            transactions = entry.aborted_transactions or ()
            aborted = AbortedTransactions((one.producer_id, one.first_offset) for one in transactions)
        fetched = Fetched(
            reading.partition,
            memoryview(entry.records or b""),
            offset,
            aborted=aborted,
            checks_crcs=self._settings.check_crcs,
        )
        if fetched.end_offset <= offset:
            fetched.step()
            if fetched.problem is None:  # only a piece of a batch: asking again at once would bring the same
                self._later(reading)
                return
        reading.calm()
        reading.fetched.append(fetched)
        self._readings.move_to_end(reading)

    # -- refusals

    def _refused(
        self, reading: Reading, offset: int, entry: FetchResponsePartition, node_id: int, nodes: list[Node]
    ) -> None:
        code = entry.error_code
        was_preferred = reading.preferred_node == node_id and self._cluster.leader_of(*reading.partition) != node_id
        reading.preferred_node = NO_NODE
        if code in _LEADER_MAY_HAVE_MOVED:
            leader = entry.current_leader
            if leader is None or not self._cluster.learn_leader(
                *reading.partition, leader.leader_id, leader.leader_epoch, nodes
            ):
                self._cluster.stale()
                self._later(reading)
        elif code in _TRY_AGAIN:
            self._later(reading)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower may be behind, and what is held may be all that is left: the leader decides, in the end.
            if was_preferred or reading.has_something():
                self._later(reading)
            else:
                self._out_of_range(reading, offset)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            text = f"{reading.partition}, offset {offset}: the broker cannot read what it holds here"
            problem = CorruptRecords(text, partition=reading.partition, offset=offset, code=code)
            problem.next_offset = offset + 1
            reading.problem = problem
        else:
            reading.problem = error_for(code, f"reading {reading.partition} from offset {offset}")

    def _out_of_range(self, reading: Reading, offset: int) -> None:
        text = f"{reading.partition} does not hold offset {offset}"
        if self._settings.reset_policy.is_none:
            reading.problem = OffsetOutOfRange(
                text, partition=reading.partition, offset=offset, code=ErrorCode.OFFSET_OUT_OF_RANGE
            )
        else:
            logger.warning("%s: going on by auto_offset_reset=%s", text, self._settings.auto_offset_reset)
            reading.unplace(Event.NO_OFFSET)
            self._unplaced()
