"""Brokers that replicate, as whole nodes with a controller: what is acknowledged outlives the leader."""

from __future__ import annotations

import asyncio

from broker_harness import RawClient, batch_of, fetch_request, partition_of, produce_request
from cluster_harness import Cluster, ClusterNode, in_a_cluster, until

from semel.controller.image import PartitionState
from semel.wire.errors import ErrorCode

SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def state(cluster: Cluster, topic: str = "t") -> PartitionState:
    return cluster.controller.broker.image.topics[topic].partitions[0]


def leader(cluster: Cluster) -> ClusterNode:
    return next(node for node in cluster.brokers if node.node_id == state(cluster).leader)


def log_of(node: ClusterNode) -> bytes:
    return b"".join(one.file.read_at(0, one.size_bytes) for one in node.broker.topics.log("t", 0).segments)


async def made(cluster: Cluster) -> None:
    client = await cluster.brokers[0].client()
    assert (await client.create_topic("t")).error_code == 0
    await cluster.same_metadata()
    client.close()


async def written(cluster: Cluster, value: bytes) -> RawClient:
    """To whoever leads, until it is acknowledged."""
    async with asyncio.timeout(60):
        while True:
            client = await leader(cluster).client()
            result = await client.produce("t", batch_of(value))
            if result.error_code == 0:
                return client
            await asyncio.sleep(0.1)


@in_a_cluster(brokers=3, settings=SETTINGS)
async def test_what_is_acknowledged_is_on_three_disks(cluster: Cluster) -> None:
    await made(cluster)
    for number in range(5):
        await written(cluster, b"%d" % number)
        assert len({log_of(node) for node in cluster.brokers}) == 1
    assert {len(log_of(node)) > 0 for node in cluster.brokers} == {True}


@in_a_cluster(brokers=3, settings=SETTINGS)
async def test_a_leader_that_dies_takes_nothing_with_it(cluster: Cluster) -> None:
    await made(cluster)
    for number in range(3):
        await written(cluster, b"%d" % number)
    old = leader(cluster)
    await old.lose_power()
    await until(lambda: state(cluster).leader not in (-1, old.node_id))
    client = await written(cluster, b"3")
    assert await client.values("t") == [b"0", b"1", b"2", b"3"]
    await old.start()
    await until(lambda: len(state(cluster).isr) == 3)
    await written(cluster, b"4")
    assert len({log_of(node) for node in cluster.brokers}) == 1


@in_a_cluster(brokers=3, settings={**SETTINGS, "replica.lag.time.max.ms": "4000"})
async def test_with_too_few_in_sync_nothing_is_taken(cluster: Cluster) -> None:
    await made(cluster)
    await written(cluster, b"0")
    leading = leader(cluster)
    others = [node for node in cluster.brokers if node is not leading]
    for node in others:
        await node.kill()
    await until(lambda: state(cluster).isr == (leading.node_id,))
    await asyncio.sleep(1)
    client = await leading.client()
    refused = await client.produce("t", batch_of(b"x"))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    await others[0].start()
    await until(lambda: len(state(cluster).isr) == 2)
    client = await written(cluster, b"1")
    assert await client.values("t") == [b"0", b"1"]


@in_a_cluster(brokers=3, settings=SETTINGS)
async def test_a_clean_stop_hands_over_and_who_waits_is_told_the_next_leader(cluster: Cluster) -> None:
    await made(cluster)
    await written(cluster, b"0")
    old = leader(cluster)
    client = await old.client()
    stopping = asyncio.ensure_future(old.stop())
    answers = []
    while not stopping.done():
        answer = client.send(produce_request("t", batch_of(b"x")), 12)
        answers.append(answer)
        await asyncio.sleep(0.005)
    await stopping
    told = [one.result().responses[0].partition_responses[0] for one in answers if one.done() and not one.exception()]
    assert {one.error_code for one in told} <= {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    acknowledged = sum(one.error_code == 0 for one in told)
    await until(lambda: state(cluster).leader not in (-1, old.node_id))
    client = await written(cluster, b"after")
    values = await client.values("t")
    assert values[0] == b"0"
    assert values[-1] == b"after"
    assert values.count(b"x") >= acknowledged


@in_a_cluster(brokers=3, settings=SETTINGS)
async def test_readers_at_followers_are_sent_to_the_leader(cluster: Cluster) -> None:
    await made(cluster)
    await written(cluster, b"0")
    follower = next(node for node in cluster.brokers if node is not leader(cluster))
    client = await follower.client()
    response = await client.ask(fetch_request({("t", 0): 0}), 12)
    found = partition_of(response, "t")
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found.current_leader.leader_id == state(cluster).leader  # type: ignore[union-attr]
