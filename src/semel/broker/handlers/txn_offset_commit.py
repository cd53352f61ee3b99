"""TxnOffsetCommit (28), versions 0-5: a group's offsets in a transaction, fenced by generation and member (KIP-447).

From version 5 on the group's partition joins the transaction by itself; before, AddOffsetsToTxn has to have come first.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.broker import Broker
from semel.broker.context import RequestContext
from semel.broker.handlers.transaction_errors import note_fenced
from semel.coordinator.txn.decisions import Identity, TimedOut
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_SECOND_GENERATION_SINCE = 5
_ABORTABLE_SINCE = 4

Codes = dict[tuple[str, int], ErrorCode]


async def handle(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    offsets = [
        (
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    codes: Codes = {}
    try:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        for topic, index, *_ in offsets:
            codes[topic, index] = _readable(broker, context, topic, index)
        await _join_transaction(broker, request, context)
        good = [offset for offset in offsets if codes[offset[0], offset[1]] == ErrorCode.NONE]
        codes |= await broker.groups.commit_in_transaction(
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
            request.producer_id,
            request.producer_epoch,
            good,
        )
    except Refused as refusal:
        codes = {(topic, index): _code_for(refusal, context.version) for topic, index, *_ in offsets}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _readable(broker: Broker, context: RequestContext, topic: str, index: int) -> ErrorCode:
    try:
        context.authorise_topic(Operation.READ, topic)
        broker.topics.partition(topic, index)
    except Refused as refusal:
        return refusal.code
    return ErrorCode.NONE


async def _join_transaction(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
    partition = await broker.offsets_partition(request.group_id)
    claimed = Identity(request.producer_id, request.producer_epoch)
    if context.version >= _SECOND_GENERATION_SINCE:
        await broker.transactions.add_partitions(request.transactional_id, claimed, [partition], second_generation=True)
    else:
        settled = broker.transactions.when_settled(request.transactional_id)
        if settled is not None:
            await settled
        broker.transactions.check_offsets(request.transactional_id, claimed, context.connection.number)
    # Looked at after every wait: the transaction may have been ended meanwhile.
    if not broker.transactions.holds(request.transactional_id, claimed, partition):
        raise Refused(
            ErrorCode.TRANSACTION_ABORTABLE, f"the offsets of {request.group_id!r} are not part of an open transaction"
        )


def _code_for(refusal: Refused, version: int) -> ErrorCode:
    """Fencing is INVALID_PRODUCER_EPOCH for this API in every version."""
    note_fenced(refusal)
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if refusal.code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH if isinstance(refusal, TimedOut) else ErrorCode.INVALID_TXN_STATE
    return refusal.code
