"""One fetch request, from its first try to its answer: batches as file ranges, what is news in a session, refusals.

A try reads every partition of the session that may have something to tell; when too little is there it is parked
(`parked_fetch.py`) and tried again when one of them has more. One that has many to look at is a task that reads them in
slices (`long_fetch.py`). `replica_fetching.py` is the same for followers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import cast

from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.fetch_sessions import FetchSession, Key, Told
from semel.broker.leader_hints import LeaderHints
from semel.broker.node_info import NodeInfo
from semel.broker.read_failures import ReadFailures
from semel.broker.topics import Topics
from semel.host.api import FileRange
from semel.log.errors import CorruptSegment, Refused
from semel.log.log import Cold, Log
from semel.metrics.counts_kernel import TopicCounts
from semel.replication.partition import NO_EPOCH, Fetched, Partition
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
)

_READ_COMMITTED = 1


class Fetch:
    """Of a reader that sees what is committed."""

    def __init__(
        self,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession,
        node: NodeInfo,
        cluster: ClusterView,
        topics: Topics,
        read_failures: ReadFailures,
    ) -> None:
        self._request = request
        self._context = context
        self._session = session
        self._node = node
        self._cluster = cluster
        self._topics = topics
        self._read_failures = read_failures
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._partitions: dict[Key, Partition] = {}
        # What the last try has found, and which ranges are pinned for it.
        self._found: dict[Key, Fetched | ErrorCode] = {}
        self._pinned: list[FileRange] = []
        self._size_bytes = 0
        self._must_answer = False
        self.cold: list[Cold] = []

    @property
    def is_complete(self) -> bool:
        request = self._request
        return (
            self._must_answer
            or self._size_bytes >= request.min_bytes
            or request.max_wait_ms <= 0
            or not self._session.partitions
        )

    def read(self, *, warmed: bool = False) -> None:
        """Reads partitions of the session, until the byte limit of the request."""
        for _ in self.reading(warmed=warmed):
            pass

    def reading(self, *, warmed: bool = False) -> Iterator[Key]:
        """The same, partition by partition: it may be left alone after each that it yields, which it has read."""
        self.release()
        before, self._found = self._found, {}
        left = min(self._request.max_bytes, self._node.config.int("fetch.max.bytes"))
        session = self._session
        for key in list(session.unsettled):
            wanted = session.partitions.get(key)
            if wanted is None:  # forgotten meanwhile
                continue
            found = self._read_one(key, wanted, left, before.get(key), warmed)
            if found is None:
                session.note_read(key, self._partitions[key])
                yield key
                continue
            self._found[key] = found
            if not isinstance(found, Fetched) or found.diverging is not None:
                self._must_answer = True
            elif isinstance(found.records, FileRange):
                left -= len(found.records)
                self._size_bytes += len(found.records)
                self._pinned.append(found.records)
            elif found.records is not None:
                self.cold.append(found.records)
            yield key

    def _read_one(
        self,
        key: Key,
        wanted: FetchRequestPartition,
        left_bytes: int,
        before: Fetched | ErrorCode | None,
        warmed: bool,
    ) -> Fetched | ErrorCode | None:
        """None: the reader knows all of it. `before`: what the last try has found."""
        try:
            partition = self._partition(key)
            if isinstance(before, Fetched) and self._is_still_at_end(before, partition.log):
                return before
            try:
                return self._read(key, wanted, partition, left_bytes, warmed)
            except CorruptSegment as damage:
                self._read_failures.damaged(damage, partition)
                return ErrorCode.CORRUPT_MESSAGE
        except Refused as refusal:
            return refusal.code
        except OSError as error:
            self._read_failures.unreadable(error)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def _read(
        self, key: Key, wanted: FetchRequestPartition, partition: Partition, left_bytes: int, warmed: bool
    ) -> Fetched | None:
        partition.check_epoch(wanted.current_leader_epoch)
        if self._knows_all(key, wanted, partition.log):
            return None
        return partition.fetch(
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, max(left_bytes, 0)),
            read_committed=self._read_committed,
            at_least_one=self._size_bytes == 0,
            last_fetched_epoch=wanted.last_fetched_epoch,
            warmed=warmed,
        )

    def _is_still_at_end(self, before: Fetched, log: Log) -> bool:
        """Whether a reader who has found nothing would find nothing again. What is stable moves with the high
        watermark."""
        return (
            before.records is None
            and before.diverging is None
            and before.high_watermark == log.high_watermark
            and before.log_start_offset == log.start_offset
        )

    def _knows_all(self, key: Key, wanted: FetchRequestPartition, log: Log) -> bool:
        """Whether the reader is at the end, and was told in this session what else there is to tell."""
        told = self._session.told.get(key)
        if told is None or not self._session.session_id or wanted.last_fetched_epoch != NO_EPOCH:
            return False
        return (
            wanted.fetch_offset == (log.last_stable_offset if self._read_committed else log.high_watermark)
            and told.high_watermark == log.high_watermark
            and told.log_start_offset == log.start_offset
            and not told.had_error
        )

    def _partition(self, key: Key) -> Partition:
        """One that was found is asked for again when it is closed: its topic may have been made anew."""
        known = self._partitions.get(key)
        if known is not None and not known.is_closed:
            return known
        found = self._partitions[key] = self._find(key)
        return found

    def _find(self, key: Key) -> Partition:
        topic, index = key
        if isinstance(topic, bytes):
            topic = self._cluster.topic_of_id(topic).name
        self._context.authorise_topic(Operation.READ, topic)
        return self._topics.partition(topic, index)

    def wait(self, waiter: object, wake: Callable[[], None]) -> None:
        """After each try that has not found enough: whatever changes in any partition wakes."""
        for key in self._session.unsettled:
            self.watch(key)
        self.call(waiter, wake)

    def watch(self, key: Key) -> None:
        partition = self._partitions.get(key)
        if partition is not None:
            self._session.watch(key, partition)

    def call(self, waiter: object, wake: Callable[[], None]) -> None:
        """Calls `wake` when there is news of a partition that is watched."""
        self._session.wait(waiter, wake)

    def leave(self, waiter: object) -> None:
        self._session.leave(waiter)

    def release(self) -> None:
        """What was found is given back; that there was nothing at all is remembered."""
        if self._pinned:
            for found in self._pinned:
                found.release()
            self._pinned, self._found = [], {}
        self._size_bytes = 0
        self._must_answer = False
        self.cold = []

    def response(self) -> FetchResponse:
        telling = self.telling()
        while True:
            try:
                next(telling)
            except StopIteration as end:
                return cast(FetchResponse, end.value)

    def telling(self) -> Generator[None, None, FetchResponse]:
        """Makes the answer, and stops after each partition of it."""
        session = self._session
        topics: dict[str | bytes, list[FetchResponsePartition]] = {}
        hints: LeaderHints | None = None
        for key, found in self._found.items():
            if isinstance(found, Fetched):
                result = _result(key[1], found)
            else:
                hints = hints or LeaderHints(self._cluster, self._context.listener)
                result = _refused(key, found, hints)
            if not session.session_id or self._is_news(key, result):
                topics.setdefault(key[0], []).append(result)
            if isinstance(result.records, FileRange):
                self._count(self._partitions[key].log.counts, len(result.records))
            if result.records and key in session.unsettled:
                session.unsettled.move_to_end(key)
            yield
        return FetchResponse(
            session_id=session.session_id,
            responses=[
                FetchResponseTopic(topic_id=topic, partitions=partitions)
                if isinstance(topic, bytes)
                else FetchResponseTopic(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
            node_endpoints=[]
            if hints is None
            else [
                NodeEndpoint(node_id=found.node_id, host=found.host, port=found.port, rack=found.rack)
                for found in hints.endpoints()
            ],
        )

    def _count(self, counts: TopicCounts, size_bytes: int) -> None:
        counts.bytes_out += size_bytes

    def _is_news(self, key: Key, result: FetchResponsePartition) -> bool:
        """In a session only partitions with data, errors or changed offsets are mentioned, and new ones once."""
        told = self._session.told.get(key)
        now = Told(result.high_watermark, result.log_start_offset, bool(result.error_code))
        self._session.told[key] = now
        return told != now or now.had_error or bool(result.records) or result.diverging_epoch is not None


def _refused(key: Key, code: ErrorCode, hints: LeaderHints) -> FetchResponsePartition:
    topic, index = key
    result = FetchResponsePartition(partition_index=index, error_code=code, high_watermark=-1, records=b"")
    leader = hints.leader(topic, index, code)
    if leader is not None:
        result.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
    return result


def _result(index: int, fetched: Fetched) -> FetchResponsePartition:
    result = FetchResponsePartition(
        partition_index=index,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=None,
        records=fetched.records if isinstance(fetched.records, FileRange) else b"",
    )
    if fetched.aborted is not None:
        result.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in fetched.aborted
        ]
    if fetched.diverging is not None:
        epoch, end_offset = fetched.diverging
        result.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return result
