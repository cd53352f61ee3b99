"""Where replicas go when topics get more or fewer of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.client.admin.replica_plans import plan_replicas
from semel.client.metadata import Node, Partition, Topic, TopicPartition


def _nodes(*racks: str | None) -> dict[int, Node]:
    return {number: Node(number, "h", 1, rack) for number, rack in enumerate(racks, 1)}


def _topic(name: str, *replicas: tuple[int, ...], leader: int | None = None, in_sync: tuple[int, ...] = ()) -> Topic:
    partitions = {
        number: Partition(number, leader or nodes[0], 1, nodes, in_sync or nodes)
        for number, nodes in enumerate(replicas)
    }
    return Topic(name, b"x" * 16, False, partitions)


def _plan(topics: list[Topic], nodes: dict[int, Node], factor: int) -> dict[TopicPartition, list[int]]:
    return plan_replicas(topics, topics, nodes, factor)


def test_from_one_node_to_three_everything_is_everywhere() -> None:
    topics = [_topic("payments", (1,), (1,)), _topic("__consumer_offsets", (1,))]
    plan = _plan(topics, _nodes(None, None, None), 3)
    assert len(plan) == 3
    assert {tuple(sorted(replicas)) for replicas in plan.values()} == {(1, 2, 3)}
    assert all(replicas[0] == 1 for replicas in plan.values()), "preferred leaders do not change"


def test_new_replicas_are_spread_over_the_nodes() -> None:
    plan = _plan([_topic("t", *[(1,)] * 6)], _nodes(None, None, None, None), 2)
    assert Counter(replicas[1] for replicas in plan.values()) == {2: 2, 3: 2, 4: 2}


def test_a_rack_that_the_partition_is_not_in_comes_first() -> None:
    plan = _plan([_topic("t", (1,), (1,))], _nodes("a", "a", "b", "b"), 2)
    assert [replicas[1] for replicas in plan.values()] == [3, 4]


def test_partitions_that_have_enough_are_left_alone() -> None:
    assert _plan([_topic("t", (2, 1, 3))], _nodes(None, None, None), 3) == {}


def test_of_too_many_those_go_that_are_not_in_sync_and_never_the_leader() -> None:
    nodes = _nodes(None, None, None)
    lagging = _topic("t", (1, 2, 3), leader=3, in_sync=(3, 1))
    assert _plan([lagging], nodes, 2) == {TopicPartition("t", 0): [1, 3]}
    assert _plan([_topic("t", (1, 2, 3), leader=3)], nodes, 1) == {TopicPartition("t", 0): [3]}


def test_more_replicas_than_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="3 replicas need 3 nodes, and 2 are up"):
        _plan([_topic("t", (1,))], _nodes(None, None), 3)


def test_replicas_on_nodes_that_are_down_stay_and_may_leave_too_few_others() -> None:
    nodes = _nodes(None, None, None)
    assert _plan([_topic("t", (9, 1))], nodes, 3) == {TopicPartition("t", 0): [9, 1, 2]}
    assert _plan([_topic("t", (1,), (2,))], {1: nodes[1], 2: nodes[2]}, 2) == {
        TopicPartition("t", 0): [1, 2],
        TopicPartition("t", 1): [2, 1],
    }


@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=5, unique=True), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_every_partition_gets_exactly_so_many_and_keeps_what_it_can(replicas: list[list[int]], factor: int) -> None:
    topic = _topic("t", *(tuple(nodes) for nodes in replicas))
    plan = _plan([topic], _nodes("a", "a", "b", "b", "c"), factor)
    for number, nodes in enumerate(replicas):
        wanted = plan.get(TopicPartition("t", number), nodes)
        assert len(wanted) == len(set(wanted)) == factor
        assert wanted[0] == nodes[0], "the leader, which is the first here, stays the first"
        if factor >= len(nodes):
            assert wanted[: len(nodes)] == nodes
        else:
            assert set(wanted) <= set(nodes)
