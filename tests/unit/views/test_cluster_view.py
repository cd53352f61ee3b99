"""A cluster as a document, from what an admin answers: nodes up, fenced and down, and partitions in trouble."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from semel.cli.cluster_status import show
from semel.cli.output import Output
from semel.client.admin.admin import Admin
from semel.client.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    QuorumDescription,
    QuorumReplica,
    Reassignment,
)
from semel.client.errors import Disconnected, UnsupportedByBroker
from semel.client.metadata import NO_NODE, Node, Partition, Topic, TopicPartition
from semel.views import cluster as view_module
from semel.views.cluster import ClusterView, look_at


class FakeAdmin:
    """Three brokers and a controller. Tests change what they are about."""

    def __init__(self) -> None:
        self.fenced: frozenset[int] = frozenset()
        self.nodes = {number: Node(number, "127.0.0.1", 25000 + number) for number in (1, 2, 3)}
        self.partitions = {
            0: Partition(0, 1, 4, (1, 2, 3), (1, 2, 3)),
            1: Partition(1, 2, 4, (2, 3, 1), (2, 3, 1)),
        }
        self.ends = {1: {0: 100, 1: 50}, 2: {0: 100, 1: 50}, 3: {0: 100, 1: 50}}
        self.silent: set[int] = set()
        self.has_quorum = True
        self.has_controller = True
        self.moving: dict[TopicPartition, Reassignment] = {}

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        return ClusterDescription("a-cluster", 1, self.nodes, self.fenced)

    async def describe_quorum(self) -> QuorumDescription:
        if not self.has_quorum:
            raise UnsupportedByBroker("no")
        if not self.has_controller:
            raise Disconnected("gone")
        observers = {number: QuorumReplica(number, 90 + number) for number in self.nodes}
        return QuorumDescription(3000, 7, 93, {3000: QuorumReplica(3000, 95)}, observers)

    async def list_topics(self, *, include_internal: bool = False) -> dict[str, Topic]:
        return {"payments": Topic("payments", b"x" * 16, False, self.partitions)}

    async def list_partition_reassignments(self) -> dict[TopicPartition, Reassignment]:
        return self.moving

    async def replica_ends(self, node_id: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if node_id in self.silent:
            await asyncio.sleep(60)
        if node_id not in self.ends:
            raise Disconnected("gone")
        return {place: self.ends[node_id][place.partition] for place in partitions}

    async def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        return {resource: {"min.insync.replicas": ConfigEntry("min.insync.replicas", "2")} for resource in resources}


async def _look(admin: FakeAdmin) -> ClusterView:
    return await look_at(cast(Admin, admin))


async def test_a_cluster_in_order() -> None:
    view = await _look(FakeAdmin())
    assert view.is_healthy
    assert (view.controller, view.controller_epoch) == (3000, 7)
    assert (view.topics, view.partitions, view.replicas) == (1, 2, 6)
    assert [(node.node_id, node.state, node.leads, node.follows, node.lacks) for node in view.nodes] == [
        (1, "up", 1, 1, 0),
        (2, "up", 1, 1, 0),
        (3, "up", 0, 2, 0),
        (3000, "active", 0, 0, None),
    ]
    assert [node.metadata_lacks for node in view.nodes] == [2, 1, 0, 0]
    assert view.nodes[3].roles == ("controller",)


async def test_a_follower_that_lags_with_what_it_lacks() -> None:
    admin = FakeAdmin()
    admin.partitions[0] = Partition(0, 1, 5, (1, 2, 3), (1, 2))
    admin.ends[3] = {0: 60, 1: 48}
    view = await _look(admin)
    assert not view.is_healthy
    assert view.nodes[2].lacks == 42
    assert view.nodes[2].out_of_sync == 1
    (one,) = view.under_replicated
    assert (one.topic, one.partition, one.leader, one.leader_epoch) == ("payments", 0, 1, 5)
    assert one.lacks == {3: 40}
    assert one.min_in_sync == 2
    assert not one.is_below_min
    assert not view.offline


async def test_nodes_that_are_fenced_or_gone() -> None:
    admin = FakeAdmin()
    del admin.nodes[3], admin.ends[3]
    admin.fenced = frozenset({2})
    admin.partitions[0] = Partition(0, 1, 5, (1, 2, 3), (1,))
    admin.partitions[1] = Partition(1, NO_NODE, 5, (2, 3), (2,))
    view = await _look(admin)
    assert [(node.node_id, node.state) for node in view.nodes] == [
        (1, "up"),
        (2, "fenced"),
        (3, "down"),
        (3000, "active"),
    ]
    assert [one.partition for one in view.below_min] == [0, 1]
    assert [one.partition for one in view.offline] == [1]
    assert view.under_replicated[0].lacks == {2: 0, 3: None}
    assert view.nodes[2].lacks is None, "nobody knows"


async def test_a_node_that_does_not_answer_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "PATIENCE_S", 0.05)
    admin = FakeAdmin()
    admin.silent = {3}
    view = await asyncio.wait_for(_look(admin), 5)
    assert view.nodes[2].lacks is None
    assert view.nodes[1].lacks == 0


async def test_where_the_quorum_is_not_told_the_rest_is() -> None:
    admin = FakeAdmin()
    admin.has_quorum = False
    view = await _look(admin)
    assert view.is_healthy
    assert view.controller is None
    assert [node.metadata_lacks for node in view.nodes] == [None, None, None]


async def test_a_controller_that_does_not_answer_is_no_good_news() -> None:
    admin = FakeAdmin()
    admin.has_controller = False
    view = await _look(admin)
    assert not view.has_controller
    assert not view.is_healthy
    assert "no controller answers" in _printed(view)


def _printed(view: ClusterView) -> str:
    stream = io.StringIO()
    show(Output(stream, stream), view)
    return stream.getvalue()


async def test_people_read_it_at_eighty_columns() -> None:
    admin = FakeAdmin()
    admin.partitions[0] = Partition(0, 1, 5, (1, 2, 3), (1,))
    admin.partitions[1] = Partition(1, NO_NODE, 5, (2, 3, 1), (2,))
    admin.ends[3] = {0: 60, 1: 50}
    admin.moving = {TopicPartition("payments", 0): Reassignment((1, 2, 3), (3,), ())}
    text = _printed(await _look(admin))
    assert max(len(line) for line in text.splitlines()) <= 80
    lines = text.splitlines()
    assert lines[0] == "cluster a-cluster, controller 3000 in epoch 7"
    assert "1 partition has no leader: nobody can read or write" in lines
    assert "2 partitions have too few replicas in sync: writes with acks=all are refused" in lines
    assert "1 partition has replicas that come or go" in lines
    assert any("2: 0 records, 3: 40 records" in line for line in lines)
    admin.partitions = FakeAdmin().partitions
    assert "all replicas are in sync" in _printed(await _look(admin))


async def test_programs_read_it_as_json() -> None:
    admin = FakeAdmin()
    admin.partitions[0] = Partition(0, 1, 5, (1, 2, 3), (1, 2))
    admin.moving = {TopicPartition("payments", 0): Reassignment((1, 2, 3), (3,), ())}
    document: Any = json.loads(json.dumps((await _look(admin)).document()))
    assert document["is_healthy"] is False
    assert document["under_replicated"][0]["lacks"] == {"3": 0}
    assert document["nodes"][3] == {
        "id": 3000,
        "roles": ["controller"],
        "state": "active",
        "address": None,
        "rack": None,
        "leads": 0,
        "follows": 0,
        "out_of_sync": 0,
        "lacks": None,
        "metadata_lacks": 0,
    }
    assert document["moving"] == [
        {"topic": "payments", "partition": 0, "replicas": [1, 2, 3], "adding": [3], "removing": []}
    ]
