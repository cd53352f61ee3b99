"""ListTransactions (66), versions 0-2: the transactions of this coordinator, by state, producer, age and name."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.group.topic_patterns import BadPattern, TopicPattern
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import Transaction
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.list_transactions import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse

_LABELS = {state.label for state in TransactionState}


async def handle(
    request: ListTransactionsRequest, context: RequestContext, *, transactions: TransactionCoordinator, clock: Clock
) -> ListTransactionsResponse:
    if transactions.shards.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except BadPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = clock.wall_ms()
    response = ListTransactionsResponse(
        unknown_state_filters=[state for state in request.state_filters if state not in _LABELS],
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for transaction in transactions.transactions()
            if _is_wanted(transaction, request, now_ms)
            and (pattern is None or pattern.matches(transaction.transactional_id))
            and _is_allowed(transaction, context)
        ],
    )
    await transactions.committed()
    return response


def _is_wanted(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and transaction.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter >= 0:
        return transaction.started_ms >= 0 and now_ms - transaction.started_ms > request.duration_filter
    return True


def _is_allowed(transaction: Transaction, context: RequestContext) -> bool:
    try:
        context.authorise(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    except Refused:
        return False
    return True
