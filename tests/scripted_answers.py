"""What scripted brokers answer when they are left alone, and the logs that their produces fill.

The rules for sequences are those of the articles, naively: the next sequence, or a repetition of one of the last five
batches; a new epoch begins at 0, and so does a producer that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from semel.records.batch import check_crc, whole_batches
from semel.records.read import read_records
from semel.records.sequences import next_sequence
from semel.wire.apis import API
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from semel.wire.spec.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse
from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel.wire.spec.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from scripted_broker import Asked

REMEMBERED_BATCHES = 5
FIRST_WITH_TOPIC_IDS = 13


class Topic:
    """`leaders` and `epochs` by partition; an error instead of partitions when `error_code` is set."""

    def __init__(self, name: str, leaders: list[int]) -> None:
        self.name = name
        self.leaders = leaders
        self.epochs = [0] * len(leaders)
        self.error_code = 0
        self.topic_id = b"\0" * 8 + name.encode()[:8].ljust(8, b"\1")

    def move(self, partition: int, leader_id: int) -> None:
        self.leaders[partition] = leader_id
        self.epochs[partition] += 1

    def grow(self, *leaders: int) -> None:
        self.leaders += leaders
        self.epochs += [0] * len(leaders)


class Sent(NamedTuple):
    """A batch as it came over the wire."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    sequence: int
    values: tuple[bytes | None, ...]
    is_transactional: bool
    payload: bytes

    @property
    def name(self) -> tuple[int, int, int]:
        return self.producer_id, self.epoch, self.sequence


class _ProducerState(NamedTuple):
    epoch: int
    batches: tuple[tuple[int, int, int], ...]
    """Base sequence, count and base offset of the last ones."""


class Logs:
    """What the partitions hold. With `judges` unset every batch is taken; where it is lenient, any sequence of a
    producer that it does not know, as in Kafka 4."""

    def __init__(self) -> None:
        self.is_lenient = False
        self.values: dict[tuple[str, int], list[bytes | None]] = {}
        self.judges = True
        self._producers: dict[tuple[str, int, int], _ProducerState] = {}

    def __call__(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return self.values.get((topic, partition), [])

    def forget_producers(self) -> None:
        self._producers.clear()

    def append(self, batch: Sent) -> tuple[int, int]:
        """Error code and base offset."""
        log = self.values.setdefault((batch.topic, batch.partition), [])
        key = (batch.topic, batch.partition, batch.producer_id)
        if batch.producer_id >= 0 and self.judges:
            state = self._producers.get(key)
            if state is not None:
                for sequence, count, offset in state.batches if state.epoch == batch.epoch else ():
                    if (sequence, count) == (batch.sequence, len(batch.values)):
                        return ErrorCode.NONE, offset
            code = ErrorCode.NONE if state is None and self.is_lenient else _judged(state, batch)
            if code != ErrorCode.NONE:
                return code, -1
            kept = state.batches if state is not None and state.epoch == batch.epoch else ()
            entry = (batch.sequence, len(batch.values), len(log))
            self._producers[key] = _ProducerState(batch.epoch, (*kept, entry)[-REMEMBERED_BATCHES:])
        log.extend(batch.values)
        return ErrorCode.NONE, len(log) - len(batch.values)


def _judged(state: _ProducerState | None, batch: Sent) -> int:
    if state is None:
        return ErrorCode.NONE if batch.sequence == 0 else ErrorCode.UNKNOWN_PRODUCER_ID
    if batch.epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if batch.epoch > state.epoch:
        return ErrorCode.NONE if batch.sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    last, count, _ = state.batches[-1]
    is_next = batch.sequence == next_sequence(last, count)
    return ErrorCode.NONE if is_next else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def sent_in(request: ProduceRequest, topics: Mapping[str, Topic], version: int) -> list[Sent]:
    found = []
    for topic in request.topic_data:
        name = topic.name if version < FIRST_WITH_TOPIC_IDS else _name_of(topics, topic.topic_id)
        for part in topic.partition_data:
            data = bytes(part.records)  # type: ignore[arg-type]
            ((_, header),) = whole_batches(data)
            assert check_crc(data, 0, header)
            found.append(
                Sent(
                    name,
                    part.index,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    tuple(record.value for record in read_records(data, header)),
                    header.is_transactional,
                    data,
                )
            )
    return found


def _name_of(topics: Mapping[str, Topic], topic_id: bytes) -> str:
    return next((topic.name for topic in topics.values() if topic.topic_id == topic_id), "?")


# -- produce


def produce_answer(asked: Asked, logs: Logs, **fields: Any) -> ProduceResponse:
    whole = _of_the_whole(fields)
    results = {}
    for batch in asked.sent:
        code, offset = logs.append(batch)
        results[batch.topic, batch.partition] = PartitionProduceResponse(
            index=batch.partition, error_code=code, base_offset=offset, log_start_offset=0, **fields
        )
    return _in_form_of(asked, results, **whole)


def refused(asked: Asked, logs: Logs, code: int, partition: int | None = None, **fields: Any) -> ProduceResponse:
    """One partition, or all, refused; the others are written. Fields of the whole answer may be given too."""
    whole = _of_the_whole(fields)
    results = {}
    for batch in asked.sent:
        if partition in (None, batch.partition):
            result = PartitionProduceResponse(index=batch.partition, error_code=code, base_offset=-1, **fields)
        else:
            written, offset = logs.append(batch)
            result = PartitionProduceResponse(index=batch.partition, error_code=written, base_offset=offset)
        results[batch.topic, batch.partition] = result
    return _in_form_of(asked, results, **whole)


def _of_the_whole(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields.pop(name) for name in ("throttle_time_ms", "node_endpoints") if name in fields}


def _in_form_of(
    asked: Asked, results: dict[tuple[str, int], PartitionProduceResponse], **whole: Any
) -> ProduceResponse:
    topics = []
    for topic in asked.body.topic_data:
        name = topic.name or _name_of(asked.broker.cluster.topics, topic.topic_id)
        parts = [results[name, part.index] for part in topic.partition_data]
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
    return ProduceResponse(responses=topics, **whole)


def _produce(asked: Asked) -> ProduceResponse | None:
    answer = produce_answer(asked, asked.broker.cluster.logs)
    if asked.body.acks == 0:
        asked.answer_with(b"")
        return None
    return answer


# -- the rest


def _api_versions(asked: Asked) -> ApiVersionsResponse:
    cluster = asked.broker.cluster
    served = {key: (api.min_version, api.max_version) for key, api in API.items()} | cluster.limits
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in served.items()],
        finalized_features=[
            FinalizedFeature(name=name, max_version_level=level) for name, level in cluster.features.items()
        ],
    )


def _metadata(asked: Asked) -> MetadataResponse:
    cluster = asked.broker.cluster
    wanted = list(cluster.topics) if asked.body.topics is None else [topic.name for topic in asked.body.topics]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.name, port=broker.port)
            for broker in cluster.brokers.values()
        ],
        cluster_id="scripted",
        controller_id=1,
        topics=[_described(cluster.topics.get(name), name) for name in wanted],
    )


def _described(topic: Topic | None, name: str) -> MetadataResponseTopic:
    if topic is None or topic.error_code:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        return MetadataResponseTopic(name=name, error_code=code)
    return MetadataResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else 0,
            )
            for index, (leader, epoch) in enumerate(zip(topic.leaders, topic.epochs, strict=True))
        ],
    )


def _init_producer_id(asked: Asked) -> InitProducerIdResponse:
    cluster, body = asked.broker.cluster, asked.body
    if body.producer_id >= 0:
        return InitProducerIdResponse(producer_id=body.producer_id, producer_epoch=body.producer_epoch + 1)
    cluster.next_producer_id += 1
    return InitProducerIdResponse(producer_id=cluster.next_producer_id, producer_epoch=0)


def _find_coordinator(asked: Asked) -> FindCoordinatorResponse:
    cluster = asked.broker.cluster
    broker = cluster.brokers.get(cluster.coordinator_id)
    host, port = (broker.name, broker.port) if broker is not None else ("", -1)
    found = {"node_id": cluster.coordinator_id, "host": host, "port": port}
    if asked.version < 4:
        return FindCoordinatorResponse(**found)
    return FindCoordinatorResponse(coordinators=[Coordinator(key=key, **found) for key in asked.body.coordinator_keys])


def add_partitions_answer(asked: Asked, code: int = 0) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in asked.body.v3_and_below_topics
        ]
    )


def commit_offsets_answer(asked: Asked, code: int = 0) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in asked.body.topics
        ]
    )


def _end_txn(asked: Asked) -> EndTxnResponse:
    if asked.version < 5:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=asked.body.producer_id, producer_epoch=asked.body.producer_epoch + 1)


DEFAULTS: dict[type[Request], Callable[[Asked], Response | None]] = {
    ApiVersionsRequest: _api_versions,
    MetadataRequest: _metadata,
    InitProducerIdRequest: _init_producer_id,
    FindCoordinatorRequest: _find_coordinator,
    ProduceRequest: _produce,
    AddPartitionsToTxnRequest: add_partitions_answer,
    AddOffsetsToTxnRequest: lambda asked: AddOffsetsToTxnResponse(),
    TxnOffsetCommitRequest: commit_offsets_answer,
    EndTxnRequest: _end_txn,
}
