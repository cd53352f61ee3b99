"""A write waits until its own transaction is durable, however many others are being written at the same time."""

from __future__ import annotations

import asyncio

from broker_harness import Node, simulated
from transaction_harness import ID, TOPIC, V1, coordinator, known, started, with_transactions


@simulated(settings={"transaction.state.log.num.partitions": "1"})
async def test_a_transaction_behind_another_that_is_not_durable_is_not_durable_either(node: Node) -> None:
    """Both are in one partition of the coordinator: the high watermark stands at the first, the second is beyond it."""
    client = await with_transactions(node)
    first = await started(client, V1, "first")
    second = await started(client, V1, "second")
    assert coordinator(node).is_settled("second")
    node.hold_flushes(1000)
    client.send(first.add_request(0), V1["add"])
    other = await node.client()
    other.send(second.add_request(0), V1["add"])
    await asyncio.sleep(0.1)
    shard = coordinator(node).shards.for_key("second")
    assert shard.state.offsets["second"] > shard.partition.log.high_watermark
    assert not coordinator(node).is_settled("first")
    assert not coordinator(node).is_settled("second")
    write = (await node.client()).send(second.produce_request({0: second.batch(b"early")}), V1["produce"])
    await asyncio.sleep(0.2)
    assert node.broker.topics.partition(TOPIC, 0).log.end_offset == 0
    await asyncio.sleep(10)
    assert write.done()
    assert coordinator(node).is_settled("second")
    node.let_flushes_go()


@simulated(settings={"transactional.id.expiration.ms": "3600000"})
async def test_nothing_is_kept_of_an_id_that_has_expired(node: Node) -> None:
    client = await with_transactions(node)
    await (await started(client, V1)).transaction(b"a")
    connections = coordinator(node).shards.for_key(ID).connections
    assert len(connections) == 1
    await asyncio.sleep(2 * 3600 + 60)
    assert not coordinator(node).transactions()
    assert not len(connections)


@simulated()
async def test_an_id_that_has_done_nothing_has_no_start(node: Node) -> None:
    client = await with_transactions(node)
    await started(client, V1)
    assert known(node).started_ms == -1
