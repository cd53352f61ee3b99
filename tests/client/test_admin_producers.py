"""The admin on running brokers: transactions and their producers, with librdkafka's producer in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ForeignProducer

from semel.client.admin.admin import Admin
from semel.client.admin.values import OffsetSpec
from semel.client.errors import BrokerRefused
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode

TIMEOUT_S = 30


@pytest.fixture
async def admin(address: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=address) as made:
        yield made


def in_transaction(address: str, transactional_id: str, topic: str) -> ForeignProducer:
    """A producer with one record in an open transaction."""
    producer = ForeignProducer(
        {"bootstrap.servers": address, "transactional.id": transactional_id, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


async def last_stable(admin: Admin, place: TopicPartition) -> int:
    return (await admin.list_offsets([place], OffsetSpec.LATEST, isolation_level="read_committed"))[place].offset


async def test_an_open_transaction_is_seen_from_both_sides(
    admin: Admin, address: str, topic: str, unique: Callable[[str], str]
) -> None:
    transactional_id, place = unique("id"), TopicPartition(topic, 0)
    producer = in_transaction(address, transactional_id, topic)
    listed = (await admin.list_transactions(states=["Ongoing"]))[transactional_id]
    described = (await admin.describe_transactions(transactional_id))[transactional_id]
    assert described.producer_id == listed.producer_id
    assert (described.state, described.timeout_ms) == ("Ongoing", 60_000)
    assert described.partitions == {place}
    assert described.started_ms is not None
    (state,) = (await admin.describe_producers(place))[place]
    assert (state.producer_id, state.transaction_start) == (described.producer_id, 0)
    ((found,),) = (await admin.find_open_transactions(place)).values()
    assert (found.transactional_id, found.is_hanging, found.start_offset) == (transactional_id, False, 0)
    assert await last_stable(admin, place) == 0
    assert transactional_id in await admin.list_transactions(producer_ids=[state.producer_id])
    assert transactional_id not in await admin.list_transactions(longer_than_ms=3_600_000)
    assert list(await admin.list_transactions(pattern=transactional_id)) == [transactional_id]
    producer.commit_transaction(TIMEOUT_S)
    with pytest.raises(BrokerRefused) as failed:
        await admin.describe_transactions(unique("nobody"))
    assert failed.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_a_transaction_is_ended_in_a_partition_without_its_coordinator(
    admin: Admin, address: str, topic: str, unique: Callable[[str], str]
) -> None:
    place = TopicPartition(topic, 0)
    producer = in_transaction(address, unique("id"), topic)
    (state,) = (await admin.describe_producers(place))[place]
    await admin.abort_transaction(place, state)
    assert await last_stable(admin, place) == 2, "the record and its marker"
    (state,) = (await admin.describe_producers(place))[place]
    assert state.transaction_start is None
    producer.abort_transaction(TIMEOUT_S)


async def test_a_fenced_producer_cannot_commit(
    admin: Admin, address: str, topic: str, unique: Callable[[str], str]
) -> None:
    transactional_id, place = unique("id"), TopicPartition(topic, 0)
    producer = in_transaction(address, transactional_id, topic)
    before = (await admin.describe_transactions(transactional_id))[transactional_id]
    fenced = (await admin.fence_producers([transactional_id]))[transactional_id]
    assert fenced.producer_id == before.producer_id
    assert fenced.producer_epoch > before.producer_epoch
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    assert await admin.find_open_transactions(place) == {place: ()}
    assert await last_stable(admin, place) == 2
