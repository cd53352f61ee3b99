"""What a broker's refusal of a batch says about where the batch is, and about the next attempt."""

from __future__ import annotations

from semel.client.errors import OutOfOrderSequence, RefusedWithOthers, SemelError, error_for
from semel.client.producer.batch import ProducerBatch, RecordErrors
from semel.wire.errors import ErrorCode
from semel.wire.spec.produce import PartitionProduceResponse

WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""The batch is in the log: now, or since an attempt whose answer was lost."""

MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Somebody else may lead the partition now."""

PERHAPS_WRITTEN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""The leader may have written the batch, and have lost its followers, its disk or its role afterwards."""

OUT_OF_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""The batch does not follow what the leader has of this producer."""

OUT_OF_EPOCH = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""A producer without transactions cannot be fenced by another: it gets over these with the next epoch."""


def doubtful(batch: ProducerBatch) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"{batch.topic}-{batch.partition}: a batch before this one is missing, and an answer to this one was lost: "
        "it may have been written, so it is not sent again under another name"
    )


def record_errors(batch: ProducerBatch, result: PartitionProduceResponse, problem: SemelError) -> RecordErrors | None:
    """Tells the records that the broker found bad from those that came with them (KIP-467); None if it named none.

    The one code of the answer is that of a record only where it is the only one named, as Java and librdkafka have it.
    The others were certainly not written, unless an earlier attempt was not answered: then they share `problem`.
    """
    told = {one.batch_index: one.batch_index_error_message for one in result.record_errors}
    told = {index: text for index, text in told.items() if 0 <= index < batch.count}
    if not told:
        return None
    code = result.error_code if len(told) == 1 else ErrorCode.INVALID_RECORD
    place = f"{batch.topic}-{batch.partition}"
    named = {
        index: error_for(code, f"{place}, record {index} of the batch", text or result.error_message)
        for index, text in told.items()
    }
    others: SemelError = problem
    if not batch.in_doubt:
        others = RefusedWithOthers(f"{place}: {len(told)} of the {batch.count} records in the batch were refused")
    return RecordErrors(named, others)
