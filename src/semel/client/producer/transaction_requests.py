"""The requests of transactions, and the one code that an answer about many partitions comes down to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from semel.client.errors import is_retriable
from semel.client.metadata import TopicPartition
from semel.client.producer.batch import Identity
from semel.client.values import GroupIdentity, OffsetAndMetadata
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


def add_partitions(
    transactional_id: str, identity: Identity, partitions: Iterable[tuple[str, int]]
) -> AddPartitionsToTxnRequest:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic.items()
        ],
    )


def add_partitions_code(answer: AddPartitionsToTxnResponse) -> int:
    return _worst(
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    )


def commit_offsets(
    transactional_id: str,
    identity: Identity,
    group: GroupIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        by_topic.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=entries) for topic, entries in by_topic.items()],
    )


def commit_offsets_code(answer: TxnOffsetCommitResponse) -> int:
    return _worst(partition.error_code for topic in answer.topics for partition in topic.partitions)


def _worst(codes: Iterable[int]) -> int:
    """What the whole request is treated as: a final error before one that may pass, and that before none. A part that
    was not tried because of another one says nothing of its own."""
    found = {code for code in codes if code != ErrorCode.NONE}
    told = found - {ErrorCode.OPERATION_NOT_ATTEMPTED} or found
    final = sorted(code for code in told if not is_retriable(code))
    return next(iter(final or sorted(told)), ErrorCode.NONE)
