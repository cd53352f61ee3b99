"""Produce (0), versions 3-13: writes batches, each partition on its own; what transactions add is in
`broker/transactional_produce`.

An ordinary batch is written in one step; any other takes the long path: it is opened and judged record by record, and
may have to wait for a thread or for its transaction. Requests that are like the one before do not come here
(`lane_kernel`). Records that are the reason why their batch is refused are named (KIP-467), up to a thousand in an
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import NamedTuple

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.transaction_errors import note_fenced
from semel.broker.leader_hints import LeaderHints
from semel.broker.produce_refusals import endpoints_of, leader_of, refused_after_append
from semel.broker.router import Committing
from semel.broker.topics import Topics
from semel.broker.transaction_membership import Joined
from semel.broker.transactional_produce import TransactionVerifier
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.coordinator.txn.decisions import Identity
from semel.host.api import Jobs
from semel.log.errors import RecordsRefused, Refused
from semel.log.log import Appended
from semel.log.record_refusals import MOST_NAMED
from semel.log.types import Epoch, Offset, ProducerId
from semel.log.validate import Validated
from semel.records.compression import Codec
from semel.replication.partition import ACKS_ALL, Partition
from semel.rpc.served import CloseConnection
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    RecordError,
    TopicProduceData,
    TopicProduceResponse,
)

_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE = ACKS_ALL, 1, 0
_ATTRIBUTES_AT = 22
_CODEC_BITS = 7
_ZSTD_SINCE = 7
_TOPIC_IDS_SINCE = 13
# A compressed batch from this size on is opened away from the loop.
_OPEN_ELSEWHERE_BYTES = 128 << 10


def _codec(records: memoryview) -> int:
    return records[_ATTRIBUTES_AT] & _CODEC_BITS if len(records) > _ATTRIBUTES_AT else 0


def handle(
    request: ProduceRequest,
    context: RequestContext,
    *,
    cluster: ClusterView,
    topics: Topics,
    verifier: TransactionVerifier,
    jobs: Jobs,
    slices: Slices,
) -> ProduceResponse | Committing | Coroutine[None, None, ProduceResponse | None] | None:
    produce = _Produce(request, context, cluster, topics, verifier, jobs, slices)
    if context.is_long:
        return _in_slices(produce, request, slices)
    answers: list[TopicProduceResponse] = []
    left: list[_Left] = []
    for topic in request.topic_data:
        results: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            result = produce.ordinary(topic, data)
            if result is None:
                result = PartitionProduceResponse(index=data.index)
                left.append(_Left(topic, data, results, len(results)))
            results.append(result)
        answers.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    response = ProduceResponse(responses=answers)
    if left:
        if produce.has_to_wait(left):
            _keep_records(left)
            return produce.long_later(left, response)
        produce.long(left)
    if request.acks == _ACKS_NONE:
        return None
    response.node_endpoints = produce.node_endpoints()
    if not produce.waits_for:
        return response
    return Committing(response, produce.waits_for, lambda: produce.after_failure(response))


async def _in_slices(produce: _Produce, request: ProduceRequest, slices: Slices) -> ProduceResponse | None:
    """The same for many partitions: others are served in between."""
    answers: list[TopicProduceResponse] = []
    left: list[_Left] = []
    has_to_wait = False
    for topic in request.topic_data:
        results: list[PartitionProduceResponse] = []
        answers.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
        for data in topic.partition_data:
            result = produce.ordinary(topic, data)
            if result is None:
                result = PartitionProduceResponse(index=data.index)
                left.append(_Left(topic, data, results, len(results)))
                has_to_wait = has_to_wait or produce.has_to_wait(left[-1:])
            results.append(result)
            if slices.step():
                await slices.next()
    await produce.long_in_slices(left, has_to_wait=has_to_wait)
    await produce.committed()
    if request.acks == _ACKS_NONE:
        return None
    return ProduceResponse(responses=answers, node_endpoints=produce.node_endpoints())


class _Written(NamedTuple):
    """What of a long request has to be committed before it is answered."""

    topic: TopicProduceData
    result: PartitionProduceResponse
    partition: Partition
    last_offset: Offset


class _Left(NamedTuple):
    """A partition that is left to the long path, and where its result belongs."""

    topic: TopicProduceData
    data: PartitionProduceData
    results: list[PartitionProduceResponse]
    place: int


def _keep_records(left: list[_Left]) -> None:
    """A frame that came in one piece lies in the buffer that all connections read into: while this request waits for a
    thread, the next read would write over its records."""
    for _, data, _, _ in left:
        if data.records is not None:
            data.records = memoryview(bytearray(data.records))


class _Produce:
    """One request."""

    __slots__ = (
        "_cluster",
        "_context",
        "_hints",
        "_jobs",
        "_joined",
        "_request",
        "_room",
        "_slices",
        "_topics",
        "_verifier",
        "_waiting",
        "_written_in_slices",
        "waits_for",
    )

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        cluster: ClusterView,
        topics: Topics,
        verifier: TransactionVerifier,
        jobs: Jobs,
        slices: Slices,
    ) -> None:
        self._request = request
        self._context = context
        self._cluster = cluster
        self._topics = topics
        self._verifier = verifier
        self._jobs = jobs
        self._joined: Joined | None = None
        self._slices = slices
        self._hints: LeaderHints | None = None
        self._room = MOST_NAMED  # for records that are named in the answer
        self.waits_for: list[asyncio.Future[None]] = []
        self._waiting: list[tuple[TopicProduceData, PartitionProduceResponse]] = []  # for each what its result is
        # Of a long request, instead of these two.
        self._written_in_slices: list[_Written] | None = [] if context.is_long else None

    # -- the ordinary path

    def ordinary(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse | None:
        """The result of a partition whose batch is ordinary, or that is refused; None is for the long path."""
        partition: Partition | None = None
        records = data.records
        try:
            partition = self._target(topic, data)
            rules = partition.rules_for(self._request.acks)
            if rules is None or not isinstance(records, memoryview) or records.readonly:
                return None
            may_join = None if self._request.transactional_id is None else self._may_join(partition)
            base_offset = partition.append_ordinary(records, rules, may_join)
        except Refused as refusal:
            return self._refused(topic, data, partition, refusal)
        if base_offset is None:
            return None
        return self._written(topic, data, partition, Appended(base_offset, partition.log.end_offset - 1))

    def _may_join(self, partition: Partition) -> Callable[[ProducerId, Epoch], bool]:
        transactional_id, version = self._request.transactional_id or "", self._context.version

        def may_join(producer_id: ProducerId, producer_epoch: Epoch) -> bool:
            claimed = Identity(producer_id, producer_epoch)
            return self._verifier.may_write_at_once(transactional_id, claimed, partition, version)

        return may_join

    # -- the long path

    def has_to_wait(self, left: list[_Left]) -> bool:
        """For its transaction, or for a thread that opens a large compressed batch."""
        transactional_id = self._request.transactional_id
        if transactional_id is not None and self._verifier.has_to_wait(transactional_id, self._context.version):
            return True
        return any(
            data.records is not None and len(data.records) >= _OPEN_ELSEWHERE_BYTES and _codec(data.records)
            for _, data, _, _ in left
        )

    async def long_later(self, left: list[_Left], response: ProduceResponse) -> ProduceResponse | None:
        """The connection waits meanwhile, so its order is kept."""
        self._joined = joined = self._verifier.membership.joined()
        try:
            await self._join(left, joined)
            self.long(left)
        finally:
            joined.close()
        if self._request.acks == _ACKS_NONE:
            return None
        response.node_endpoints = self.node_endpoints()
        if self.waits_for:
            await asyncio.wait(self.waits_for)
            self.after_failure(response)
        return response

    async def long_in_slices(self, left: list[_Left], *, has_to_wait: bool) -> None:
        self._joined = joined = self._verifier.membership.joined()
        try:
            if has_to_wait:
                await self._join(left, joined)
            for one in left:
                self.long([one])
                if self._slices.step():
                    await self._slices.next()
        finally:
            joined.close()

    async def _join(self, left: list[_Left], joined: Joined) -> None:
        """Large compressed batches are judged in a thread first, and partitions join a transaction."""
        joining: dict[Identity, list[tuple[PartitionProduceData, Partition]]] = {}
        room = self._room
        for topic, data, _, _ in left:
            try:
                partition = self._target(topic, data)
                batch = data.records = await self._validated(partition, data.records or b"")
                if batch.header.is_transactional:
                    claimed = Identity(batch.header.producer_id, batch.header.producer_epoch)
                    joining.setdefault(claimed, []).append((data, partition))
            except Refused as refusal:
                room = _name_within(room, refusal)  # now, lest they are all in memory until the answer is made
                data.records = refusal
            if self._slices.step():
                await self._slices.next()
        if self._request.transactional_id is not None:
            for claimed, members in joining.items():
                partitions = [partition for _, partition in members]
                try:
                    await self._verifier.join(
                        self._request.transactional_id, claimed, partitions, self._context.version, joined
                    )
                except Refused as refusal:
                    for data, _ in members:
                        data.records = refusal

    async def committed(self) -> None:
        """Of a long request: waits once for each partition, and tells all of its results what came of it."""
        written = self._written_in_slices or []
        ends: dict[Partition, Offset] = {}
        for one in written:
            ends[one.partition] = max(one.last_offset, ends.get(one.partition, 0))
        refused: dict[Partition, Refused] = {}
        for partition, last_offset in ends.items():
            try:
                await _committed(partition, last_offset, self._request.timeout_ms)
            except Refused as refusal:
                refused[partition] = refusal
        for one in written:
            if one.partition in refused:
                place = self._place(one.topic)
                refused_after_append(one.result, refused[one.partition], place, self._leader_hints())
            if self._slices.step():
                await self._slices.next()

    async def _validated(self, partition: Partition, records: memoryview | bytes) -> Validated:
        if len(records) >= _OPEN_ELSEWHERE_BYTES:
            return await self._jobs.run_in_thread(partition.validate, records)
        return partition.validate(records)

    def long(self, left: list[_Left]) -> None:
        for topic, data, results, place in left:
            results[place] = self._judged(topic, data)

    def _judged(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        partition: Partition | None = None
        try:
            partition = self._target(topic, data)
            records = data.records
            batch = records if isinstance(records, Validated) else partition.validate(records or b"")
            if batch.header.is_transactional:
                self._verifier.verify(
                    self._request.transactional_id, batch.header, partition, self._context.version, self._joined
                )
            return self._written(topic, data, partition, self._appended(partition, batch))
        except Refused as refusal:
            return self._refused(topic, data, partition, refusal)

    def _appended(self, partition: Partition, batch: Validated) -> Appended:
        try:
            return partition.append(batch, self._request.acks)
        except Refused as refusal:
            transactional_id = self._request.transactional_id
            if transactional_id is None:
                raise
            version = self._context.version
            raise self._verifier.explained(transactional_id, batch.header, version, refusal) from refusal

    # -- both

    def _target(self, topic: TopicProduceData, data: PartitionProduceData) -> Partition:
        """Where a batch is to go, if it may go there. The one place that authorises a produce."""
        name = self._name(topic)
        self._context.authorise_topic(Operation.WRITE, name)
        _check_request(self._request, self._context, data)
        if name in INTERNAL_TOPICS:
            # Its coordinator would not know of it until the next start.
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by its coordinator only")
        return self._topics.partition(name, data.index)

    def _written(
        self, topic: TopicProduceData, data: PartitionProduceData, partition: Partition, appended: Appended
    ) -> PartitionProduceResponse:
        result = PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=partition.log.start_offset,
        )
        if self._request.acks == _ACKS_ALL:
            if self._written_in_slices is not None:
                self._written_in_slices.append(_Written(topic, result, partition, appended.last_offset))
                return result
            committed = partition.when_committed(appended.last_offset, self._request.timeout_ms)
            if committed is not None:
                self.waits_for.append(committed)
                self._waiting.append((topic, result))
        return result

    def after_failure(self, response: ProduceResponse) -> ProduceResponse:
        """The answer when all that it waited for is over: with what was refused."""
        for committed, (topic, result) in zip(self.waits_for, self._waiting, strict=True):
            error = committed.exception()
            if isinstance(error, Refused):
                refused_after_append(result, error, self._place(topic), self._leader_hints())
            elif error is not None:
                raise error
        response.node_endpoints = self.node_endpoints()
        return response

    def _name(self, topic: TopicProduceData) -> str:
        if self._context.version >= _TOPIC_IDS_SINCE:
            return self._cluster.topic_of_id(topic.topic_id).name
        return topic.name

    def _refused(
        self, topic: TopicProduceData, data: PartitionProduceData, partition: Partition | None, refusal: Refused
    ) -> PartitionProduceResponse:
        note_fenced(refusal)
        if partition is not None:
            partition.log.counts.refused += 1
        if self._request.acks == _ACKS_NONE:
            # Nobody reads an answer: losing the connection is the only way to say that something went wrong.
            raise CloseConnection(f"produce with acks=0 failed: {refusal}") from refusal
        self._room = _name_within(self._room, refusal)
        return PartitionProduceResponse(
            index=data.index,
            error_code=refusal.code,
            base_offset=-1,
            log_start_offset=-1 if partition is None else partition.log.start_offset,
            error_message=refusal.text,
            record_errors=_record_errors(refusal),
            current_leader=self._current_leader(topic, data.index, refusal.code),
        )

    def _current_leader(self, topic: TopicProduceData, index: int, code: ErrorCode) -> LeaderIdAndEpoch | None:
        return leader_of(self._place(topic), index, code, self._leader_hints())

    def _place(self, topic: TopicProduceData) -> str | bytes:
        return topic.topic_id if self._context.version >= _TOPIC_IDS_SINCE else topic.name

    def _leader_hints(self) -> LeaderHints:
        self._hints = self._hints or LeaderHints(self._cluster, self._context.listener)
        return self._hints

    def node_endpoints(self) -> list[NodeEndpoint]:
        return endpoints_of(self._hints)


async def _committed(partition: Partition, last_offset: Offset, timeout_ms: int) -> None:
    if partition.is_closed and last_offset >= partition.log.high_watermark:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is not led here any more, and may not have been committed")
    committed = partition.when_committed(last_offset, timeout_ms)
    if committed is not None:
        await committed


def _name_within(room: int, refusal: Refused) -> int:
    """Lets a refusal name so many records at most. Returns how many others of the same request may name."""
    if not isinstance(refusal, RecordsRefused):
        return room
    del refusal.records[room:]
    return room - len(refusal.records)


def _record_errors(refusal: Refused) -> list[RecordError]:
    if not isinstance(refusal, RecordsRefused):
        return []
    return [RecordError(batch_index=one.batch_index, batch_index_error_message=one.text) for one in refusal.records]


def _check_request(request: ProduceRequest, context: RequestContext, data: PartitionProduceData) -> None:
    """What is wrong with the request as a whole is answered for each of its partitions."""
    if request.acks not in (_ACKS_ALL, _ACKS_LEADER, _ACKS_NONE):
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}, it can be -1, 0 or 1")
    if isinstance(data.records, Refused):
        raise data.records
    if isinstance(data.records, Validated):
        return
    if data.records is None:
        raise Refused(ErrorCode.INVALID_RECORD, "there are no records for this partition")
    if context.version < _ZSTD_SINCE and _codec(data.records) == Codec.ZSTD:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {_ZSTD_SINCE} or later, not {context.version}"
        )
    if request.transactional_id is not None:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
