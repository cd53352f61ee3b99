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
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.list_transactions import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse

_LABELS = {state.label for state in TransactionState}


async def handle(
    request: ListTransactionsRequest,
    context: RequestContext,
    *,
    transactions: TransactionCoordinator,
    clock: Clock,
    slices: Slices,
) -> ListTransactionsResponse:
    if transactions.shards.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except BadPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = clock.wall_ms()
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    listed: list[ListedTransaction] = []
    for transaction in list(transactions.transactions()):
        if (
            _is_wanted(transaction, states, producers, request.duration_filter, now_ms)
            and (pattern is None or pattern.matches(transaction.transactional_id))
            and _is_allowed(transaction, context)
        ):
            listed.append(
                ListedTransaction(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.label,
                )
            )
        if slices.step():
            await slices.next()
    await transactions.committed()
    unknown = [state for state in dict.fromkeys(request.state_filters) if state not in _LABELS]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _is_wanted(transaction: Transaction, states: set[str], producers: set[int], duration_ms: int, now_ms: int) -> bool:
    """No states, no producers and a negative duration stand for all."""
    if states and transaction.state.label not in states:
        return False
    if producers and transaction.producer_id not in producers:
        return False
    if duration_ms >= 0:
        return transaction.started_ms >= 0 and now_ms - transaction.started_ms > duration_ms
    return True


def _is_allowed(transaction: Transaction, context: RequestContext) -> bool:
    try:
        context.authorise(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    except Refused:
        return False
    return True
