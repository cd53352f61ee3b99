"""A transaction outlives the broker: stopped, killed or without power between any two of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from broker_harness import Node, RawClient, batch_of, simulated
from transaction_harness import (
    TOPIC,
    V1,
    V2,
    check_replay_equals_live,
    known,
    markers,
    read_committed,
    started,
    with_transactions,
)

from semel.coordinator.txn.state import TransactionState

ways = pytest.mark.parametrize("way", ["stop", "kill", "power"])
generations = pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])


async def restarted(node: Node, way: str) -> RawClient:
    if way == "stop":
        await node.restart()
    elif way == "kill":
        await node.killed_and_started()
    else:
        await node.power_cut_and_started()
    check_replay_equals_live(node)
    return await node.client()


@ways
@generations
@simulated()
async def test_a_producer_does_not_notice_a_restart_between_any_two_steps(
    node: Node, versions: Mapping[str, int], way: str
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    steps = [lambda: producer.write(b"a"), lambda: producer.write(b"b"), producer.commit]
    if versions is V1:
        steps.insert(0, lambda: producer.add(0))
    for _ in range(2):
        for step in steps:
            assert await step() == 0
            producer.client = await restarted(node, way)
    await asyncio.sleep(0.5)
    assert await read_committed(producer.client) == [b"a", b"b"] * 2


@ways
@generations
@simulated()
async def test_an_open_transaction_holds_readers_back_after_a_restart_too(
    node: Node, versions: Mapping[str, int], way: str
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    if versions is V1:
        assert await producer.add(0) == 0
    assert await producer.write(b"open") == 0
    assert (await client.produce(TOPIC, batch_of(b"behind"))).error_code == 0
    client = producer.client = await restarted(node, way)
    assert known(node).state == TransactionState.ONGOING
    assert await read_committed(client) == []
    assert await producer.abort() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"behind"]


@ways
@simulated()
async def test_a_transaction_that_ran_out_of_time_while_the_broker_was_away_is_aborted(node: Node, way: str) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=5000)
    assert await producer.add(0) == 0
    assert await producer.write(b"open") == 0
    client = await restarted(node, way)
    await asyncio.sleep(20)
    assert known(node).state == TransactionState.COMPLETE_ABORT
    assert await read_committed(client) == []
    assert [kind for kind, _ in await markers(client)] == ["ABORT"]


@simulated()
async def test_the_aborted_list_is_the_same_after_a_restart(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    for number in range(6):
        await producer.transaction(b"%d" % number, commit=number % 2 == 0)
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"0", b"2", b"4"]
    for way in ("stop", "kill", "power"):
        assert await read_committed(await restarted(node, way)) == [b"0", b"2", b"4"]


@simulated()
async def test_compaction_drops_what_was_aborted(node: Node) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
        "delete.retention.ms": "0",
    }
    client = await with_transactions(node, configs=configs)
    producer = await started(client, V1)
    for number, commit in enumerate((True, False, True, False)):
        assert await producer.add(0) == 0
        assert await producer.write(b"value %d" % number, keys=[b"key %d" % number]) == 0
        assert await producer.end(commit=commit) == 0
        await asyncio.sleep(2)
    assert (await client.produce(TOPIC, batch_of(b"newest", keys=[b"k"]))).error_code == 0
    log = node.broker.topics.partition(TOPIC, 0).log
    before = log.size_bytes
    log.roll()
    await asyncio.sleep(120)
    assert log.size_bytes < before
    on_disk = b"".join(bytes(segment.file.read_at(0, segment.size_bytes)) for segment in log.segments)
    assert b"value 0" in on_disk
    assert b"value 2" in on_disk
    assert b"value 1" not in on_disk
    assert b"value 3" not in on_disk
    assert await read_committed(await node.client()) == [b"value 0", b"value 2", b"newest"]
