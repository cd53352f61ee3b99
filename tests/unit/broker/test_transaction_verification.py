"""What may be written: nothing that no marker will ever end, and nothing into a transaction that is over (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from broker_harness import Node, batch_of, simulated
from transaction_harness import (
    OLD,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    hold_markers,
    known,
    read_all,
    read_committed,
    started,
    with_transactions,
)

from semel.wire.errors import ErrorCode

NOT_IN_TRANSACTION = {10: ErrorCode.INVALID_TXN_STATE, 11: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("version", [7, 10, 11])
@simulated()
async def test_a_partition_that_is_not_in_the_open_transaction_is_not_written(node: Node, version: int) -> None:
    client = await with_transactions(node, 2)
    producer = await started(client, {**V1, "produce": version})
    expected = NOT_IN_TRANSACTION[max(version, 10)]
    assert await producer.write(b"nothing is open") == expected
    assert await producer.add(0) == 0
    assert await producer.write(b"another partition", partition=1) == expected
    assert await read_all(client, 0) == []
    assert await read_all(client, 1) == []
    producer.sequences.clear()
    assert await producer.write(b"in it") == 0
    assert node.broker.topics.partition(TOPIC, 1).log.end_offset == 0


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("versions", [OLD, V1, V2], ids=["old clients", "first", "second"])
@simulated()
async def test_a_late_produce_after_the_end_writes_nothing(
    node: Node, versions: Mapping[str, int], commit: bool
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    if versions is not V2:
        assert await producer.add(0) == 0
    assert await producer.write(b"in time") == 0
    late = producer.batch(b"late")
    assert await producer.end(commit=commit) == 0
    await asyncio.sleep(0.1)
    code = (await producer.send(late, on=await node.client())).error_code
    assert code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await read_all(client) == [b"in time"]


@pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
@simulated()
async def test_a_late_produce_does_not_slip_in_between_the_decision_and_its_marker(
    node: Node, versions: Mapping[str, int]
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    if versions is V1:
        assert await producer.add(0) == 0
    assert await producer.write(b"in time") == 0
    late = producer.batch(b"late")
    may_write = hold_markers(node)
    assert await producer.commit() == 0
    assert (await producer.send(late, on=await node.client())).error_code != 0
    may_write.set()
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"in time"]


@simulated()
async def test_the_second_generation_joins_by_writing(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    assert await producer.write(b"a") == 0
    assert known(node).partitions == {(TOPIC, 0)}
    assert known(node).bumps_epoch


@pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
@simulated()
async def test_nothing_is_written_before_its_partition_has_joined_durably(
    node: Node, versions: Mapping[str, int]
) -> None:
    """Two writes at once: the first one makes the partition join; the second one finds it joined, but not durably.
    If it were written, a power cut could leave it in the log with nobody who knows that it has to be ended."""
    client = await with_transactions(node)
    producer = await started(client, versions)
    node.hold_flushes(1000)
    if versions is V1:
        client.send(producer.add_request(0), versions["add"])
    else:
        client.send(producer.produce_request({0: producer.batch(b"a")}), versions["produce"])
    await asyncio.sleep(0.1)
    other = await node.client()
    second = other.send(producer.produce_request({0: producer.batch(b"b")}), versions["produce"])
    await asyncio.sleep(0.5)
    assert node.broker.topics.partition(TOPIC, 0).log.end_offset == 0
    assert not second.done()
    await asyncio.sleep(5)
    assert second.done()
    node.let_flushes_go()


@simulated()
async def test_a_batch_outside_of_the_transaction_of_its_producer_is_refused(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"a") == 0
    plain = batch_of(b"plain", producer_id=producer.producer_id, epoch=producer.epoch, sequence=1)
    assert (await client.produce(TOPIC, plain)).error_code == ErrorCode.INVALID_TXN_STATE


@simulated()
async def test_a_transactional_batch_without_a_transactional_id_is_refused(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert (await client.produce(TOPIC, producer.batch(b"a"))).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
@simulated()
async def test_nobody_writes_into_the_transaction_of_another_id(node: Node, versions: Mapping[str, int]) -> None:
    client = await with_transactions(node)
    owner = await started(client, versions)
    stranger = await started(client, versions, "stranger")
    if versions is V1:
        assert await owner.add(0) == 0
    assert await owner.write(b"mine") == 0
    stranger.producer_id, stranger.epoch, stranger.sequences = owner.producer_id, owner.epoch, owner.sequences
    assert await stranger.write(b"not mine") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await read_all(client) == [b"mine"]


@simulated(settings={"transaction.partition.verification.enable": "false"})
async def test_verification_can_be_switched_off(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.write(b"a") == 0


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@simulated()
async def test_clients_do_not_write_into_the_topics_of_the_coordinators(node: Node, topic: str) -> None:
    from semel.coordinator.topic_names import OFFSETS_TOPIC

    client = await with_transactions(node)
    await node.broker.roles.internal_topics.ensure(OFFSETS_TOPIC)
    answer = await client.produce(topic, batch_of(b"v", keys=[b"k"]))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.broker.topics.partition(topic, 0).log.end_offset == 0


@simulated()
async def test_a_large_compressed_batch_is_verified_too(node: Node) -> None:
    """It is opened away from the loop; the look at the transaction comes after that."""
    import os

    client = await with_transactions(node, configs={"max.message.bytes": "10000000"})
    producer = await started(client, V1)
    value = os.urandom(300_000)
    assert await producer.write(value, codec=1) == ErrorCode.TRANSACTION_ABORTABLE
    producer.sequences.clear()
    assert await producer.add(0) == 0
    assert await producer.write(value, codec=1) == 0


@simulated()
async def test_a_new_instance_writes_from_sequence_zero_and_the_old_one_nothing_more(node: Node) -> None:
    client = await with_transactions(node)
    for versions in (V1, V2):
        old = await started(client, versions, f"id-{versions['end']}")
        await old.transaction(b"old")
        new = TransactionalProducer(client, versions, old.transactional_id)
        assert await new.init() == 0
        assert new.producer_id == old.producer_id
        assert await old.add(0) == ErrorCode.PRODUCER_FENCED
        assert await old.write(b"zombie") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.commit() == ErrorCode.PRODUCER_FENCED
        await new.transaction(b"new")
    await asyncio.sleep(0.1)
    assert await read_all(client) == [b"old", b"new"] * 2
