"""AddPartitionsToTxn (24), versions 0-5: partitions join a transaction of the first generation before they are written.

From version 4 on it is for brokers: many transactions in one request, added or only verified. Clients name offsets by
AddOffsetsToTxn, never by the topic that keeps them.
"""

from __future__ import annotations

import asyncio
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
    """For a broker, which has judged itself what its clients may do. What is decided here is committed for all of them
    at once, and nobody waits for a transaction that is still being ended."""
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
    except Refused as refusal:
        return AddPartitionsToTxnResponse(error_code=refusal.code)
    answers = await asyncio.gather(*(_for_broker(cluster, transactions, one, context, slices) for one in wanted))
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, codes)
        )
        for transaction, codes in zip(wanted, answers, strict=True)
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _for_broker(
    cluster: ClusterView,
    transactions: TransactionCoordinator,
    wanted: AddPartitionsToTxnTransaction,
    context: RequestContext,
    slices: Slices,
) -> Codes:
    places = _places(wanted)
    transactional_id, claimed = wanted.transactional_id, Identity(wanted.producer_id, wanted.producer_epoch)
    try:
        if wanted.verify_only:
            # Nothing is written in a transaction that a power cut, or another coordinator, could not know of.
            await transactions.settled(transactional_id)
            verified: Codes = {}
            for place in places:
                is_in = transactions.holds(transactional_id, claimed, place)
                verified[place] = ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE
                if slices.step():
                    await slices.next()
            return verified
        bad = await _bad_places(cluster, places, slices)
        if bad:
            return {place: bad.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
        await transactions.add_partitions(transactional_id, claimed, places, second_generation=True, waits=False)
    except Refused as refusal:
        return dict.fromkeys(places, code_for(refusal, context.version))
    return dict.fromkeys(places, ErrorCode.NONE)


async def _add(
    cluster: ClusterView,
    transactions: TransactionCoordinator,
    wanted: AddPartitionsToTxnTransaction,
    context: RequestContext,
    slices: Slices,
) -> Codes:
    """All of the partitions, or none."""
    places = _places(wanted)
    try:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, wanted.transactional_id)
        bad = await _bad_places(cluster, places, slices, client=context)
        if bad:
            return {place: bad.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
        await transactions.add_partitions(
            wanted.transactional_id,
            Identity(wanted.producer_id, wanted.producer_epoch),
            places,
            second_generation=False,
            connection=context.connection.number,
        )
    except Refused as refusal:
        return dict.fromkeys(places, code_for(refusal, context.version))
    return dict.fromkeys(places, ErrorCode.NONE)


def _places(wanted: AddPartitionsToTxnTransaction) -> list[tuple[str, int]]:
    return list(dict.fromkeys((topic.name, index) for topic in wanted.topics for index in topic.partitions))


async def _bad_places(
    cluster: ClusterView, places: list[tuple[str, int]], slices: Slices, *, client: RequestContext | None = None
) -> Codes:
    """What cannot join a transaction. A broker has asked itself what its client may write, and adds offsets, too."""
    bad: Codes = {}
    for number, (topic, index) in enumerate(places):
        if number and slices.step():
            await slices.next()
        try:
            if client is not None:
                client.authorise_topic(Operation.WRITE, topic)
            if topic == TRANSACTIONS_TOPIC or (topic in INTERNAL_TOPICS and client is not None):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{topic} is written by its coordinator only")
            cluster.partition(topic, index)
        except Refused as refusal:
            bad[topic, index] = refusal.code
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
