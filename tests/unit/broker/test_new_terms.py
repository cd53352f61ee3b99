"""The leader epoch of a partition is raised while the node runs: a new term begins, and nobody holds on to the old."""

from __future__ import annotations

import asyncio

import pytest
from broker_harness import Node, batch_of, fetch_request, simulated
from short_ways import counted_produces
from transaction_harness import V2, coordinator, read_committed, started, with_transactions

from semel.coordinator.topic_names import TRANSACTIONS_TOPIC
from semel.sim import link
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import PartitionChangeRecord


async def raise_epoch(node: Node, topic: str, index: int = 0) -> None:
    topic_id = node.broker.topics.by_name[topic].topic_id
    leader = node.broker.image.topics[topic].partitions[index].leader
    await node.broker.controller.metadata.write(
        [PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader)]
    )


@simulated()
async def test_a_new_epoch_is_a_new_term_and_producers_go_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "WHOLE_CHUNK_CHANCE", 1)
    lanes = counted_produces(monkeypatch)
    client = await node.client()
    await client.create_topic("t")
    producer_id = await client.producer_id()
    for number in range(3):
        await client.produce("t", batch_of(b"before", producer_id=producer_id, sequence=number))
    old = node.broker.topics.partition("t", 0)
    await raise_epoch(node, "t")
    new = node.broker.topics.partition("t", 0)
    assert (new is old, old.is_closed, new.leader_epoch) == (False, True, old.leader_epoch + 1)
    served = lanes.served
    for number in range(3, 6):
        result = await client.produce("t", batch_of(b"after", producer_id=producer_id, sequence=number))
        assert (result.error_code, result.base_offset) == (0, number)
    assert lanes.served == served + 2, "the first makes a lane of the new term"
    assert await client.values("t") == [b"before"] * 3 + [b"after"] * 3


@simulated()
async def test_a_fetch_that_waits_goes_over_to_the_new_term(node: Node) -> None:
    client, producer = await node.client(), await node.client()
    await client.create_topic("t")
    await producer.produce("t", batch_of(b"a"))
    held = client.send(fetch_request({("t", 0): 1}, max_wait_ms=1_000_000), 12)
    await asyncio.sleep(1)
    assert not held.done()
    await raise_epoch(node, "t")
    await asyncio.sleep(1)
    assert not held.done()
    assert len(node.broker.topics.partition("t", 0).watchers) == 1, "it waits at the new term"
    await producer.produce("t", batch_of(b"b"))
    await asyncio.sleep(1)
    assert held.done()


@simulated()
async def test_a_coordinator_loads_its_shard_anew_and_ends_what_was_begun(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    assert await producer.write(b"in a transaction") == 0
    shard = coordinator(node).shards.for_key(producer.transactional_id)
    await raise_epoch(node, TRANSACTIONS_TOPIC, shard.partition.index)
    assert await producer.commit() == ErrorCode.NONE
    anew = coordinator(node).shards.for_key(producer.transactional_id)
    assert anew is not shard
    assert anew.epoch == shard.epoch + 1
    await asyncio.sleep(1)
    assert await read_committed(client) == [b"in a transaction"]
