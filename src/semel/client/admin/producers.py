"""Producers of partitions, as their leaders remember them, and transactions that hang there.

A transaction hangs when a partition waits for a marker that no coordinator will write. Readers of committed records
stop in front of it. `find_open_transactions` tells which transaction holds which partition back, `abort_transaction`
ends one that hangs.
"""

from __future__ import annotations

from collections.abc import Iterable

from semel.client.admin.admin_requests import Places, by_topic
from semel.client.admin.group_values import OpenTransaction, OpenTransactions, ProducerState, TransactionDescription
from semel.client.admin.outcome import AdminErrors, Sheet
from semel.client.admin.transactions import TransactionsPart
from semel.client.errors import BadSetting, BrokerRefused
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from semel.wire.spec.describe_producers import ProducerState as WireProducerState
from semel.wire.spec.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_NEVER_ENDED = 0
"""The coordinator's epoch to give where a partition has not seen any yet."""


class ProducersPart(TransactionsPart):
    async def describe_producers(self, partitions: Places) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that the leaders of partitions remember, with their epochs and open transactions."""
        sheet: Sheet[TopicPartition, tuple[ProducerState, ...]] = Sheet(
            await self._ask.partitions(partitions), lambda place: f"describing the producers of {place}", final=()
        )

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = DescribeProducersRequest(
                topics=[
                    DescribeProducersTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic(places).items()
                ]
            )
            answer = await self._ask.cluster.call(node_id, request, DescribeProducersResponse)
            for topic in answer.topics:
                for found in topic.partitions:
                    place = TopicPartition(topic.name, found.partition_index)
                    if sheet.accepts(place, found.error_code, found.error_message):
                        sheet.done(place, tuple(_producer(state) for state in found.active_producers))

        return await self._ask.work_off(sheet, self._ask.to_leaders(sheet), ask)

    async def find_open_transactions(self, partitions: Places) -> OpenTransactions:
        """The open transactions of partitions, oldest first, each with what its coordinator knows of it.

        The first one of a partition holds its last stable offset back. `is_hanging` is told of a transaction only if it
        was open before and after the coordinators were asked: one that ends meanwhile does not hang.
        """
        producers = await self.describe_producers(partitions)
        found = {place: _open(place, states) for place, states in producers.items()}
        producer_ids = {one.producer.producer_id for some in found.values() for one in some}
        if not producer_ids:
            return dict.fromkeys(found, ())
        transactions = await self._transactions_of(producer_ids)
        found = {
            place: [OpenTransaction(place, one.producer, transactions.get(one.producer.producer_id)) for one in some]
            for place, some in found.items()
        }
        suspects = [place for place, some in found.items() if any(one.is_hanging for one in some)]
        if suspects:
            again = await self.describe_producers(suspects)
            for place in suspects:
                still = {(one.producer.producer_id, one.start_offset) for one in _open(place, again[place])}
                found[place] = [
                    one
                    for one in found[place]
                    if not one.is_hanging or (one.producer.producer_id, one.start_offset) in still
                ]
        return {place: tuple(some) for place, some in found.items()}

    async def _transactions_of(self, producer_ids: Iterable[int]) -> dict[int, TransactionDescription]:
        listed = await self.list_transactions(producer_ids=producer_ids)
        try:
            described = await self.describe_transactions(listed)
        except AdminErrors as errors:
            # One that has expired since it was listed knows its transaction no more.
            if any(error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for error in errors.errors.values()):
                raise
            described = dict(errors.results)
        except BrokerRefused as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            described = {}
        return {one.producer_id: one for one in described.values()}

    async def abort_transaction(self, partition: TopicPartition, producer: ProducerState) -> None:
        """Writes an abort marker for an open transaction of a producer, as `describe_producers` told of it, whatever
        its coordinator thinks: for a transaction that hangs.

        A marker is not written twice on suspicion: after an answer that was lost, the partition is asked first whether
        this transaction is still open. A later one of the same producer is left alone.
        """
        await self._end_transaction(partition, producer, is_commit=False)

    async def commit_transaction(self, partition: TopicPartition, producer: ProducerState) -> None:
        """As `abort_transaction`, with a commit marker: for a transaction that hangs although its coordinator has
        committed it (`OpenTransaction.may_be_committed`)."""
        await self._end_transaction(partition, producer, is_commit=True)

    async def _end_transaction(self, partition: TopicPartition, producer: ProducerState, *, is_commit: bool) -> None:
        verb = "commit" if is_commit else "abort"
        if producer.transaction_start is None:
            raise BadSetting(
                f"{verb}_transaction: producer {producer.producer_id} has no open transaction in {partition}"
            )
        place = TopicPartition(*partition)
        doing = f"{'committing' if is_commit else 'aborting'} the transaction of producer {producer.producer_id}"
        sheet: Sheet[TopicPartition, None] = Sheet([place], lambda place: f"{doing} in {place}", final=())
        epoch = producer.coordinator_epoch
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    transaction_result=is_commit,
                    coordinator_epoch=_NEVER_ENDED if epoch is None else epoch,
                    topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
                )
            ]
        )

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            if place in sheet.unsure and not await self._is_still_open(place, producer):
                sheet.done(place, None)
                return
            answer = await self._ask.cluster.call(node_id, request, WriteTxnMarkersResponse)
            for marker in answer.markers:
                for topic in marker.topics:
                    for result in topic.partitions:
                        told = TopicPartition(topic.name, result.partition_index)
                        if sheet.accepts(told, result.error_code):
                            sheet.done(told, None)

        await self._ask.work_off(sheet, self._ask.to_leaders(sheet), ask)

    async def _is_still_open(self, place: TopicPartition, producer: ProducerState) -> bool:
        states = (await self.describe_producers(place))[place]
        return any(
            state.producer_id == producer.producer_id and state.transaction_start == producer.transaction_start
            for state in states
        )


def _producer(state: WireProducerState) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
        transaction_start=state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    )


def _open(place: TopicPartition, states: Iterable[ProducerState]) -> list[OpenTransaction]:
    opened = [OpenTransaction(place, state, None) for state in states if state.transaction_start is not None]
    return sorted(opened, key=lambda one: one.start_offset)
