"""`semel.testing.Cluster`: several real nodes, whose links can be cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic
from semel.client.errors import SemelError
from semel.client.producer.producer import Producer
from semel.testing import CLIENTS, Cluster
from semel.views.cluster import ClusterView, look_at
from slow_turns import check_turns

PATIENCE_S = 40.0
SETTINGS = {
    "broker.session.timeout.ms": 1500,
    "broker.heartbeat.interval.ms": 200,
    "replica.lag.time.max.ms": 2000,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, settings=SETTINGS) as cluster:
        yield cluster
        cluster.stop()
        check_turns(cluster.directory.glob("node-*.log"))


async def _until(cluster: Cluster, is_so: str) -> ClusterView:
    """Looks at the cluster until an attribute of the view is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        while True:
            view = await look_at(admin)
            if getattr(view, is_so):
                return view
            assert time.monotonic() < deadline_s, view.document()
            await asyncio.sleep(0.1)


async def test_a_cluster_replicates_and_goes_on_without_a_node(cluster: Cluster) -> None:
    async with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics(NewTopic("payments", 1, 3))
        assert (await producer.send_and_wait("payments", b"1")).offset == 0
        leader = (await admin.describe_topics("payments"))["payments"].partitions[0].leader_id
        cluster.kill(leader)
        assert not cluster.nodes[leader].is_running
        assert (await producer.send_and_wait("payments", b"2")).offset == 1
        other = (await admin.describe_topics("payments"))["payments"].partitions[0].leader_id
        assert other != leader
        await asyncio.to_thread(cluster.start_node, leader)
    view = await _until(cluster, "is_healthy")
    assert {node.node_id for node in view.nodes} >= {1, 2, 3}


async def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    async with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics(NewTopic("cut", 1, 3))
        await producer.send_and_wait("cut", b"1")
        partition = (await admin.describe_topics("cut"))["cut"].partitions[0]
        follower = next(node_id for node_id in partition.replicas if node_id != partition.leader_id)
        cluster.isolate(follower)
        await producer.send_and_wait("cut", b"2")
        troubled = await _until(cluster, "under_replicated")
        assert all(follower not in one.in_sync for one in troubled.under_replicated)
        await producer.send_and_wait("cut", b"3")
        cluster.heal()
    view = await _until(cluster, "is_healthy")
    assert not view.under_replicated


async def test_clients_can_be_cut_off_from_a_node(cluster: Cluster) -> None:
    address = cluster.nodes[2].address
    async with Admin(bootstrap_servers=address, request_timeout_ms=500, default_api_timeout_ms=1000) as admin:
        await admin.list_topics()
        for other in (1, 2, 3):
            cluster.cut(CLIENTS, other)
        with pytest.raises(SemelError):
            await admin.list_topics()
        cluster.heal()
        await admin.list_topics()


async def test_a_paused_node_goes_on(cluster: Cluster) -> None:
    cluster.pause(3)
    await asyncio.sleep(0.5)
    cluster.resume(3)
    await _until(cluster, "is_healthy")


def test_what_is_no_node_is_told(cluster: Cluster) -> None:
    with pytest.raises(KeyError, match="node 9 is not in the cluster, its nodes are 1, 2, 3"):
        cluster.kill(9)
    with pytest.raises(KeyError):
        cluster.cut(1, 9)
    assert cluster.brokers == [1, 2, 3]
    assert cluster.controllers == [1, 2, 3]
    assert cluster.controller_id() in cluster.controllers


async def test_what_is_slow_between_nodes_is_slow_for_those_who_wait_for_both(cluster: Cluster) -> None:
    async with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics(NewTopic("slow", assignment={0: [1, 2]}))
        await producer.send_and_wait("slow", b"1")
        cluster.delay(1, 2, 0.4)
        began_s = time.monotonic()
        await producer.send_and_wait("slow", b"2")
        assert time.monotonic() - began_s >= 0.4
        cluster.heal()
        await producer.send_and_wait("slow", b"3")
