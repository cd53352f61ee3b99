"""Transactions as their coordinators know them: list, describe, and fence the producers of transactional ids."""

from __future__ import annotations

from collections.abc import Iterable

from semel.client.admin.admin_requests import AdminPart, names_of
from semel.client.admin.group_values import FencedProducer, ListedTransaction, TransactionDescription
from semel.client.admin.outcome import Sheet
from semel.client.coordinators import CoordinatorKind
from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.wire.spec.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.list_transactions import ListTransactionsRequest, ListTransactionsResponse

_DURATION_SINCE = 1
_PATTERN_SINCE = 2
_LAST_WITHOUT_2PC = 5
_FENCING_TIMEOUT_MS = 1000
"""Nobody will use the epoch that fencing gives, so this matters to nobody; it must be allowed by every broker."""


class TransactionsPart(AdminPart):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> dict[str, ListedTransaction]:
        """Transactions by transactional id: all that we may see, or those that fit every filter. `states` are Kafka's
        (Ongoing, Empty, ...), `pattern` is a regular expression (RE2) for the whole id."""
        request = ListTransactionsRequest(
            state_filters=names_of(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        at_least = _PATTERN_SINCE if pattern is not None else _DURATION_SINCE if longer_than_ms is not None else 0
        listed = await self._ask.every_node(
            "listing the transactions", request, ListTransactionsResponse, _listed, at_least=at_least
        )
        unknown = {state for states_unknown, _ in listed.values() for state in states_unknown}
        if unknown:
            raise BadSetting(f"list_transactions: the broker does not know the states {', '.join(sorted(unknown))}")
        transactions = {one.transactional_id: one for _, found in listed.values() for one in found}
        return {name: transactions[name] for name in sorted(transactions)}

    async def describe_transactions(self, transactional_ids: str | Iterable[str]) -> dict[str, TransactionDescription]:
        """State, producer, age and partitions of what transactional ids do now."""
        sheet: Sheet[str, TransactionDescription] = Sheet(
            names_of(transactional_ids), lambda name: f"describing transactional id {name!r}"
        )

        async def ask(node_id: int, items: list[str]) -> None:
            request = DescribeTransactionsRequest(transactional_ids=items)
            answer = await self._ask.cluster.call(node_id, request, DescribeTransactionsResponse)
            for found in answer.transaction_states:
                if sheet.accepts(found.transactional_id, found.error_code):
                    sheet.done(found.transactional_id, _described(found, node_id))

        return await self._ask.work_off(sheet, self._ask.to_coordinators(CoordinatorKind.TRANSACTION, sheet), ask)

    async def fence_producers(self, transactional_ids: str | Iterable[str]) -> dict[str, FencedProducer]:
        """Fences whoever produces under transactional ids now, and aborts what is open, as a new producer would. To
        repeat it is safe: it fences again. An id that was never used is known afterwards."""
        sheet: Sheet[str, FencedProducer] = Sheet(
            names_of(transactional_ids), lambda name: f"fencing the producers of {name!r}"
        )

        async def ask(node_id: int, items: list[str]) -> None:
            for name in items:
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_FENCING_TIMEOUT_MS)
                answer = await self._ask.cluster.call(
                    node_id, request, InitProducerIdResponse, at_most=_LAST_WITHOUT_2PC
                )
                if sheet.accepts(name, answer.error_code):
                    sheet.done(name, FencedProducer(answer.producer_id, answer.producer_epoch))

        return await self._ask.work_off(sheet, self._ask.to_coordinators(CoordinatorKind.TRANSACTION, sheet), ask)


def _listed(answer: ListTransactionsResponse) -> tuple[list[str], list[ListedTransaction]]:
    """States that were asked for and are not known, and what was found."""
    return list(answer.unknown_state_filters), [
        ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state)
        for one in answer.transaction_states
    ]


def _described(found: DescribedTransaction, coordinator_id: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=found.transactional_id,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        started_ms=found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        partitions=frozenset(
            TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions
        ),
        coordinator_id=coordinator_id,
    )
