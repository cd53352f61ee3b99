"""What the articles say of transactions, as examples on a running broker: all or nothing, and one writer per id."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from proxied_broker import committed_values, connect

from semel.client.errors import IllegalState, ProducerFenced, RestartProducerError, SemelError
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.client.values import GroupIdentity
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse

READ_COMMITTED = 1


def last_stable_offset(address: str, topic: str, partition: int) -> tuple[int, int]:
    """Up to where committed data can be read, and up to where all can."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        isolation_level=READ_COMMITTED,
        topics=[
            FetchRequestTopic(
                topic=topic, partitions=[FetchRequestPartition(partition=partition, partition_max_bytes=1 << 20)]
            )
        ],
    )
    with connect(address) as client:
        part = client.call(request, 11, FetchResponse).responses[0].partitions[0]
    return part.last_stable_offset, part.high_watermark


async def test_nothing_of_an_open_transaction_is_stable_until_it_is_committed(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    async with Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            for partition in range(3):
                await producer.send_and_wait(topic, b"part of it", partition=partition)
            assert [last_stable_offset(address, topic, partition) for partition in range(3)] == [(0, 1)] * 3
        await producer.begin()  # the markers are there before the next transaction writes
        await producer.send_and_wait(topic, b"next", partition=0)
        assert last_stable_offset(address, topic, 0) == (2, 3)
        await producer.abort()


async def test_a_transaction_block_that_raises_is_aborted(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    async with Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        await producer.init_transactions()
        with pytest.raises(ZeroDivisionError):
            await _fail_half_way(producer, topic)
        async with producer.transaction():
            await producer.send(topic, b"whole", partition=0)
    assert committed_values(address, topic) == [b"whole"]


async def _fail_half_way(producer: Producer, topic: str) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, b"half", partition=0)
        raise ZeroDivisionError


async def test_a_producer_whose_id_was_taken_over_is_fenced(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    transactional_id = unique("id")
    async with (
        Producer(bootstrap_servers=address, transactional_id=transactional_id) as old,
        Producer(bootstrap_servers=address, transactional_id=transactional_id) as new,
    ):
        await old.init_transactions()
        await old.begin()
        await old.send_and_wait(topic, b"left open", partition=0)
        await new.init_transactions()
        assert last_stable_offset(address, topic, 0) == (2, 2), "what it left open is aborted"
        with pytest.raises(ProducerFenced):
            await old.commit()
        with pytest.raises(RestartProducerError):
            await old.begin()
        async with new.transaction():
            await new.send(topic, b"goes on", partition=0)


async def test_a_fenced_producer_cannot_write_either(address: str, topic: str, unique: Callable[[str], str]) -> None:
    transactional_id = unique("id")
    async with (
        Producer(bootstrap_servers=address, transactional_id=transactional_id) as old,
        Producer(bootstrap_servers=address, transactional_id=transactional_id) as new,
    ):
        await old.init_transactions()
        await new.init_transactions()
        await old.begin()
        with pytest.raises(ProducerFenced):
            await (await old.send(topic, b"too late", partition=0))
        with pytest.raises(SemelError):
            await old.send(topic, b"still too late", partition=0)


async def test_offsets_of_a_consumer_that_commits_by_itself_are_refused(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    async with Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        await producer.init_transactions()
        await producer.begin()
        identity = GroupIdentity(unique("group"), auto_commits=True)
        with pytest.raises(SemelError, match="enable_auto_commit"):
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, identity)
        await producer.abort()


async def test_calls_out_of_turn_say_what_to_call_instead(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    async with Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        with pytest.raises(IllegalState, match="init_transactions"):
            await producer.send(topic, b"too early")
        await producer.init_transactions()
        with pytest.raises(IllegalState, match="begin"):
            await producer.commit()
        with pytest.raises(IllegalState, match="begin"):
            await producer.send(topic, b"outside")
        await producer.begin()
        with pytest.raises(IllegalState):
            await producer.begin()
        await producer.abort()


async def test_without_a_transactional_id_there_are_no_transactions(address: str) -> None:
    async with Producer(bootstrap_servers=address) as producer:
        with pytest.raises(IllegalState, match="transactional_id"):
            await producer.init_transactions()
