"""Requests of an earlier transaction that come late, over another connection, must not touch a later one.

Found by Jepsen to hold for Kafka itself in the first generation. Here a coordinator request of the first generation
that comes over an older connection than its producer uses now is known to be late.
"""

from __future__ import annotations

import asyncio

import pytest
from broker_harness import Node, RawClient, simulated
from transaction_harness import (
    OLD,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    coordinator,
    known,
    read_all,
    read_committed,
    started,
    with_transactions,
)

from semel.coordinator.txn.state import TransactionState
from semel.wire.errors import ErrorCode


async def reconnected(node: Node, producer: TransactionalProducer) -> RawClient:
    """The producer gives up its connection and opens another; what it sent over the old one may still arrive."""
    old, producer.client = producer.client, await node.client()
    await producer.client.producer_id()  # a connection counts from its first request on
    return old


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("versions", [OLD, V1], ids=["old clients", "first"])
@simulated()
async def test_a_late_end_of_the_first_generation_does_not_end_the_next_transaction(
    node: Node, versions: dict[str, int], commit: bool
) -> None:
    client = await with_transactions(node)
    producer = await started(await node.client(), versions)
    assert await producer.add(0) == 0
    assert await producer.write(b"first") == 0
    late = producer.end_request(commit=commit)
    old = await reconnected(node, producer)
    assert await producer.end(commit=commit) == 0, "the retry that was carried out"
    assert await producer.add(0) == 0
    assert await producer.write(b"second") == 0
    answer = await old.ask(late, versions["end"])
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert known(node).state == TransactionState.ONGOING
    assert await producer.write(b"second, more") == 0
    assert await producer.abort() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == ([b"first"] if commit else [])


@simulated()
async def test_a_late_join_of_the_first_generation_does_not_open_another_transaction(node: Node) -> None:
    await with_transactions(node, 2)
    producer = await started(await node.client(), V1)
    late = producer.add_request(1)
    old = await reconnected(node, producer)
    assert await producer.add(0) == 0
    assert await producer.abort() == 0
    await asyncio.sleep(0.1)
    answer = await old.ask(late, V1["add"])
    code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert code == ErrorCode.NOT_COORDINATOR
    assert known(node).state == TransactionState.COMPLETE_ABORT


@simulated()
async def test_a_late_join_of_offsets_does_not_open_another_transaction(node: Node) -> None:
    await with_transactions(node)
    producer = await started(await node.client(), V1)
    assert await producer.add_offsets("group") == 0
    old = await reconnected(node, producer)
    assert await producer.abort() == 0
    await asyncio.sleep(0.1)
    assert await producer.add_offsets("group", on=old) == ErrorCode.NOT_COORDINATOR
    assert known(node).state == TransactionState.COMPLETE_ABORT


@simulated()
async def test_a_join_that_waited_for_the_last_end_is_late_if_its_producer_has_gone_on_elsewhere(node: Node) -> None:
    await with_transactions(node, 2)
    producer = await started(await node.client(), V1)
    await producer.transaction(b"a")
    known_before = known(node)
    assert known_before.state.is_prepared or known_before.state == TransactionState.COMPLETE_COMMIT
    old = await reconnected(node, producer)
    assert await producer.add(0) == 0
    assert await producer.add(1, on=old) == ErrorCode.NOT_COORDINATOR
    assert known(node).partitions == {(TOPIC, 0)}


@pytest.mark.parametrize("commit", [True, False])
@simulated()
async def test_a_late_end_of_the_second_generation_does_not_end_the_next_transaction(node: Node, commit: bool) -> None:
    client = await with_transactions(node)
    producer = await started(await node.client(), V2)
    assert await producer.write(b"first") == 0
    late = producer.end_request(commit=commit)
    old = await reconnected(node, producer)
    assert await producer.end(commit=commit) == 0
    assert await producer.write(b"second") == 0
    answer = await old.ask(late, V2["end"])
    assert answer.error_code == ErrorCode.PRODUCER_FENCED
    assert known(node).state == TransactionState.ONGOING
    assert await producer.abort() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == ([b"first"] if commit else [])


@simulated()
async def test_a_late_produce_of_the_second_generation_does_not_leak_into_the_next_transaction(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    assert await producer.write(b"first") == 0
    late = producer.batch(b"late, never acknowledged")
    assert await producer.abort() == 0
    assert await producer.write(b"second") == 0
    assert (await producer.send(late, on=await node.client())).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await read_all(client) == [b"first", b"second"]
    assert await read_committed(client) == [b"second"]


@simulated()
async def test_a_late_produce_of_the_first_generation_is_stopped_by_its_sequence(node: Node) -> None:
    """A client that gave a batch up must not use its sequence again (KIP-360): so the late one leaves a gap."""
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"first") == 0
    late = producer.batch(b"late, never acknowledged")
    assert await producer.abort() == 0
    assert await producer.init(keeps_identity=True) == 0
    assert await producer.add(0) == 0
    assert await producer.write(b"second") == 0
    assert (await producer.send(late, on=await node.client())).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"second"]


@pytest.mark.parametrize("versions", [OLD, V1], ids=["old clients", "first"])
@simulated()
async def test_a_zombie_on_a_newer_connection_does_not_lock_the_real_producer_out(
    node: Node, versions: dict[str, int]
) -> None:
    await with_transactions(node)
    zombie = await started(await node.client(), versions)
    producer = await started(await node.client(), versions)
    await reconnected(node, zombie)
    fenced = ErrorCode.PRODUCER_FENCED if versions is V1 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.add(0) == fenced
    assert await zombie.commit() == fenced
    assert await zombie.add_offsets("group") == fenced
    if versions is V1:
        assert await zombie.init(keeps_identity=True) == fenced
    await producer.transaction(b"mine")


@simulated()
async def test_where_a_producer_was_initialised_says_nothing_of_where_it_goes_on(node: Node) -> None:
    """A client may ask for its id over one connection and keep another, older one for its coordinator."""
    await with_transactions(node)
    producer = TransactionalProducer(await node.client(), V1)
    await producer.client.producer_id()
    coordinator_connection = producer.client
    producer.client = await node.client()
    assert await producer.init() == 0
    producer.client = coordinator_connection
    await producer.transaction(b"a")


@simulated()
async def test_connections_are_remembered_for_real_producers_only(node: Node) -> None:
    client = await with_transactions(node)
    for number in range(50):
        made_up = TransactionalProducer(client, V1, f"made up {number}")
        assert await made_up.commit() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await made_up.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not any(len(shard.connections) for shard in coordinator(node).shards.loaded())


@simulated()
async def test_two_instances_that_start_at_once_get_different_epochs_and_one_is_fenced(node: Node) -> None:
    await with_transactions(node)
    instances = [TransactionalProducer(await node.client(), V1) for _ in range(5)]
    assert await asyncio.gather(*(instance.init() for instance in instances)) == [0] * 5
    assert sorted(instance.epoch for instance in instances) == [0, 1, 2, 3, 4]
    assert len({instance.producer_id for instance in instances}) == 1
    for instance in instances:
        assert await instance.add(0) == (0 if instance.epoch == 4 else ErrorCode.PRODUCER_FENCED)
