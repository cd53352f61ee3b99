"""AddOffsetsToTxn (25), versions 0-4: the offsets of a group become part of a transaction of the first generation."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.broker.handlers.transaction_errors import code_for
from semel.broker.internal_topics import InternalTopics
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def handle(
    request: AddOffsetsToTxnRequest,
    context: RequestContext,
    *,
    transactions: TransactionCoordinator,
    internal_topics: InternalTopics,
) -> AddOffsetsToTxnResponse:
    try:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        partition = await internal_topics.offsets_partition(request.group_id)
        await transactions.add_partitions(
            request.transactional_id,
            Identity(request.producer_id, request.producer_epoch),
            [partition],
            second_generation=False,
            connection=context.connection.number,
        )
    except Refused as refusal:
        return AddOffsetsToTxnResponse(error_code=code_for(refusal, context.version))
    return AddOffsetsToTxnResponse()
