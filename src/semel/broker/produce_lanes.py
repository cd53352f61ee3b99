"""A shorter way for produce requests that are like the one before: one partition, the same bytes up to the records.

The long way (`router`, `handlers/produce`) serves the first request of its kind, and every one that is not ordinary in
some respect: what a client did wrong is never judged here. Authorisation is asked for each request as there, and the
coordinator, if it is part of a transaction; a lane ends with its partition, and with the settings it was made for. The
lane that a connection used last answers the next request like it in one call (`QuickLane`), or gives it to the lane
that does; those of one round over the connections are written together.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, cast

from semel.broker.authoriser import AllowAll, Authoriser, Operation, ResourceType
from semel.broker.context import authorise
from semel.broker.transactional_produce import may_write_at_once
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.log.produce_kernel import Gathered, Gathering, OrdinaryBatch, OrdinaryProduce, QuickLane, Reply
from semel.replication.partition import Partition
from semel.rpc.served import Answer, Parts, Ready, ServedConnection
from semel.wire.frame import response_parts
from semel.wire.primitives import encode_uvarint
from semel.wire.spec.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from semel.broker.broker import Broker

_MOST_LANES = 10_000
_CORRELATION = Struct(">i")
_CORRELATION_AT, _CORRELATION_END = 4, 8
_ACKS_ALL, _ACKS_LEADER = -1, 1
_TOPIC_IDS_SINCE = 13
# Numbers that occur nowhere else in a response: where they stand, the true ones are put.
_BASE_OFFSET, _START_OFFSET = 0x1B2C3D4E5F607182, 0x2C3D4E5F60718293


class _Lane:
    """Requests of one kind: how they are told, where they go, how they are answered."""

    __slots__ = ("answers", "config", "ordinary", "partition", "quick", "transactional_id", "waits")

    def __init__(
        self,
        partition: Partition,
        transactional_id: str | None,
        ordinary: OrdinaryProduce,
        answers: _Answers,
        waits: bool,
        quick: Callable[[ServedConnection, memoryview, int, int], Gathered | None],
    ) -> None:
        self.partition = partition
        self.transactional_id = transactional_id
        self.config = partition.config
        self.ordinary = ordinary
        self.answers = answers
        self.waits = waits
        self.quick = quick  # serves them in one call


class _Answers:
    """The answers to one kind of request."""

    __slots__ = ("_index", "_name", "_topic_id", "_version", "success")

    def __init__(self, request: ProduceRequest, version: int) -> None:
        topic = request.topic_data[0]
        self._name = topic.name
        self._topic_id = topic.topic_id
        self._index = topic.partition_data[0].index
        self._version = version
        told = PartitionProduceResponse(index=self._index, base_offset=_BASE_OFFSET, log_start_offset=_START_OFFSET)
        form = b"".join(self._encoded(0, told))  # type: ignore[arg-type]
        # Before version 5 the start of the log is not told.
        self.success = Reply(form, form.index(_BASE_OFFSET.to_bytes(8)), form.find(_START_OFFSET.to_bytes(8)))

    def _encoded(self, correlation_id: int, result: PartitionProduceResponse) -> Parts:
        told = TopicProduceResponse(name=self._name, topic_id=self._topic_id, partition_responses=[result])
        return cast(Parts, response_parts(correlation_id, ProduceResponse(responses=[told]), self._version))

    def refused(self, correlation_id: int, refusal: Refused, start_offset: int) -> Parts:
        result = PartitionProduceResponse(
            index=self._index,
            error_code=refusal.code,
            base_offset=-1,
            log_start_offset=start_offset,
            error_message=refusal.text,
        )
        return self._encoded(correlation_id, result)


class ProduceLanes:
    """All lanes of a node, by the bytes of a request after its correlation id and before its records."""

    def __init__(self, broker: Broker, authoriser: Authoriser) -> None:
        self._broker = broker
        self._authoriser = authoriser
        self._lanes: dict[bytes, _Lane] = {}
        self._gathering = Gathering(self._lanes)

    def serve(self, connection: ServedConnection, frame: memoryview) -> Answer:
        """The answer to an ordinary request; None is for the long way."""
        lane = self._lanes.get(bytes(frame[_CORRELATION_END : connection.lane_bytes]))
        if lane is None:
            return None
        partition = lane.partition
        log = partition.log
        if log.config is not lane.config or partition.is_closed:
            del self._lanes[bytes(frame[_CORRELATION_END : connection.lane_bytes])]
            connection.lane = None
            return None
        connection.lane = lane.quick
        (correlation_id,) = _CORRELATION.unpack_from(frame, _CORRELATION_AT)
        start_offset = -1
        try:
            authorise(self._authoriser, connection.principal, Operation.WRITE, ResourceType.TOPIC, partition.topic)
            if not self._may_use(lane.transactional_id, connection.principal):
                return None
            start_offset = log.start_offset
            base_offset = partition.append_ordinary(frame, lane.ordinary)
        except Refused as refusal:
            return lane.answers.refused(correlation_id, refusal, start_offset)
        if base_offset is None:
            return None
        parts: Parts = [lane.answers.success.to(correlation_id, base_offset, start_offset)]
        last_offset = log.end_offset - 1
        if lane.waits and last_offset >= log.high_watermark:
            committed = partition.when_committed(last_offset)
            if committed is not None:
                return Ready(parts, committed)
        return parts

    def _may_use(self, transactional_id: str | None, principal: str) -> bool:
        return transactional_id is None or self._authoriser.authorise(
            principal, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )

    def learn(self, connection: ServedConnection, frame: memoryview, request: ProduceRequest, version: int) -> None:
        """After the long way: the next request may be like this one."""
        if (
            len(request.topic_data) != 1
            or len(request.topic_data[0].partition_data) != 1
            or request.acks not in (_ACKS_ALL, _ACKS_LEADER)
            or frame.readonly
        ):
            return
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        if not isinstance(data.records, memoryview):  # judged elsewhere already
            return
        is_flexible = version >= ProduceRequest.flexible_from
        suffix_bytes = 3 if is_flexible else 0  # no tags: of the partition, of the topic, of the request
        length = encode_uvarint(len(data.records) + 1) if is_flexible else len(data.records).to_bytes(4)
        records_at = len(frame) - suffix_bytes - len(data.records)
        prefix_bytes = records_at - len(length)
        if any(frame[len(frame) - suffix_bytes :]) or frame[prefix_bytes:records_at] != length:
            return
        prefix = bytes(frame[:prefix_bytes])
        key = prefix[_CORRELATION_END:]
        connection.lane_bytes = prefix_bytes
        connection.short_way = self.serve
        if key in self._lanes:
            return
        topics, transactional_id = self._broker.topics, request.transactional_id
        try:
            name = topics.topic_of_id(topic.topic_id).name if version >= _TOPIC_IDS_SINCE else topic.name
            partition = topics.partition(name, data.index)
        except Refused:
            return
        config = partition.config
        batch = partition.ordinary_for(request.acks)
        if name in INTERNAL_TOPICS or batch is None:
            return
        if transactional_id is not None:
            batch = OrdinaryBatch(config, self._is_in_transaction(transactional_id, partition, version))
        ordinary = OrdinaryProduce(prefix, is_flexible, suffix_bytes, batch)
        if len(self._lanes) >= _MOST_LANES:
            self._lanes.clear()
        waits = request.acks == _ACKS_ALL and config.flush_messages == 1
        answers = _Answers(request, version)
        may_write = None if type(self._authoriser) is AllowAll else self._may_write(transactional_id, name)
        quick = QuickLane(self._gathering, ordinary, answers.success, partition, may_write, waits).gather
        self._lanes[key] = _Lane(partition, transactional_id, ordinary, answers, waits, quick)

    def _may_write(self, transactional_id: str | None, topic: str) -> Callable[[str], bool]:
        def may_write(principal: str) -> bool:
            may = self._authoriser.authorise(principal, Operation.WRITE, ResourceType.TOPIC, topic)
            return may and self._may_use(transactional_id, principal)

        return may_write

    def _is_in_transaction(
        self, transactional_id: str, partition: Partition, version: int
    ) -> Callable[[int, int], bool]:
        broker, place = self._broker, (partition.topic, partition.index)

        def is_in_transaction(producer_id: int, producer_epoch: int) -> bool:
            return may_write_at_once(broker, transactional_id, Identity(producer_id, producer_epoch), place, version)

        return is_in_transaction
