"""DescribeTransactions (65), version 0: state, producer, age and partitions of transactional ids."""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.context import RequestContext
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.transactions import TopicPartition
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)


async def handle(
    request: DescribeTransactionsRequest,
    context: RequestContext,
    *,
    transactions: TransactionCoordinator,
    slices: Slices,
) -> DescribeTransactionsResponse:
    described: list[DescribedTransaction] = []
    for name in dict.fromkeys(request.transactional_ids):
        described.append(_described(transactions, context, name))
        if slices.step():
            await slices.next()
    await transactions.committed()
    return DescribeTransactionsResponse(transaction_states=described)


def _described(
    transactions: TransactionCoordinator, context: RequestContext, transactional_id: str
) -> DescribedTransaction:
    try:
        context.authorise(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        known = transactions.shards.for_key(transactional_id).state.by_id.get(transactional_id)
        if known is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id!r}")
    except Refused as refusal:
        return DescribedTransaction(error_code=refusal.code, transactional_id=transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=_topics(context, known.partitions),
    )


def _topics(context: RequestContext, partitions: frozenset[TopicPartition]) -> list[TransactionTopic]:
    """Those that the principal may know."""
    by_topic: dict[str, list[int]] = {}
    visible = {
        topic
        for topic in {topic for topic, _ in partitions}
        if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    }
    for topic, index in sorted(one for one in partitions if one[0] in visible):
        by_topic.setdefault(topic, []).append(index)
    return [TransactionTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
