"""EndTxn (26), versions 0-5: commits or aborts. Answered when the decision is durable and the markers written.

From version 5 on (the second generation of the protocol) the end raises the epoch, and the answer carries it.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.broker.handlers.transaction_errors import code_for
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse

_SECOND_GENERATION_SINCE = 5


async def handle(
    request: EndTxnRequest, context: RequestContext, *, transactions: TransactionCoordinator
) -> EndTxnResponse:
    second_generation = context.version >= _SECOND_GENERATION_SINCE
    try:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        told = await transactions.end(
            request.transactional_id,
            Identity(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            second_generation=second_generation,
            connection=None if second_generation else context.connection.number,
        )
    except Refused as refusal:
        return EndTxnResponse(error_code=code_for(refusal, context.version))
    return EndTxnResponse(producer_id=told.producer_id, producer_epoch=told.epoch)
