"""AddPartitionsToTxn (24), versions 0-5: partitions join a transaction of the first generation before they are written.

From version 4 on it is for brokers: many transactions in one request, added or only verified. Clients name offsets by
AddOffsetsToTxn, never by the topic that keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.transaction_errors import code_for
from semel.coordinator.topic_names import INTERNAL_TOPICS, TRANSACTIONS_TOPIC
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_BATCHED_SINCE = 4

Codes = dict[tuple[str, int], ErrorCode]


async def handle(
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
    *,
    cluster: ClusterView,
    transactions: TransactionCoordinator,
    slices: Slices,
) -> AddPartitionsToTxnResponse:
    if context.version >= _BATCHED_SINCE:
        return await _batched(cluster, transactions, request.transactions, context, slices)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = await _add(cluster, transactions, transaction, context, slices)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(transaction.topics, codes))


async def _batched(
    cluster: ClusterView,
    transactions: TransactionCoordinator,
    wanted: Sequence[AddPartitionsToTxnTransaction],
    context: RequestContext,
    slices: Slices,
) -> AddPartitionsToTxnResponse:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return AddPartitionsToTxnResponse(error_code=refusal.code)
    results = []
    for transaction in wanted:
        codes = await _add(cluster, transactions, transaction, context, slices)
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, codes)
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add(
    cluster: ClusterView,
    transactions: TransactionCoordinator,
    wanted: AddPartitionsToTxnTransaction,
    context: RequestContext,
    slices: Slices,
) -> Codes:
    """All of the partitions, or none."""
    partitions = list(dict.fromkeys((topic.name, index) for topic in wanted.topics for index in topic.partitions))
    claimed = Identity(wanted.producer_id, wanted.producer_epoch)
    try:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, wanted.transactional_id)
        if wanted.verify_only:
            verified: Codes = {}
            for partition in partitions:
                verified[partition] = _verified(transactions, wanted.transactional_id, claimed, partition)
                if slices.step():
                    await slices.next()
            return verified
        bad = await _bad_partitions(cluster, partitions, context, slices)
        if bad:
            return {p: bad.get(p, ErrorCode.OPERATION_NOT_ATTEMPTED) for p in partitions}
        is_batched = context.version >= _BATCHED_SINCE
        await transactions.add_partitions(
            wanted.transactional_id,
            claimed,
            partitions,
            second_generation=is_batched,
            connection=None if is_batched else context.connection.number,
        )
    except Refused as refusal:
        return dict.fromkeys(partitions, code_for(refusal, context.version))
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _verified(
    transactions: TransactionCoordinator, transactional_id: str, claimed: Identity, partition: tuple[str, int]
) -> ErrorCode:
    is_in = transactions.holds(transactional_id, claimed, partition)
    return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE


async def _bad_partitions(
    cluster: ClusterView, partitions: list[tuple[str, int]], context: RequestContext, slices: Slices
) -> Codes:
    bad: Codes = {}
    for topic, index in partitions:
        try:
            context.authorise_topic(Operation.WRITE, topic)
            if topic == TRANSACTIONS_TOPIC or (topic in INTERNAL_TOPICS and context.version < _BATCHED_SINCE):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{topic} is written by its coordinator only")
            cluster.partition(topic, index)
        except Refused as refusal:
            bad[topic, index] = refusal.code
        if slices.step():
            await slices.next()
    return bad


def _results(topics: Sequence[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
