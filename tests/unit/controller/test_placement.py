"""Where replicas go, and how many there are when nobody says."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from cluster_image import Cluster, cluster_config, directory
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.broker.internal_topic_rules import new_topic
from semel.config import BrokerConfig
from semel.controller.image import TOPIC_RESOURCE
from semel.controller.placement import Place, place
from semel.controller.topics import DEFAULT_COUNT, NewTopic, create_partitions, create_topic
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

# -- placement


def places(*racks: str | None, fenced: str = "") -> list[Place]:
    """Brokers from 1 on, each in a rack."""
    return [Place(node_id, rack, str(node_id) in fenced) for node_id, rack in enumerate(racks, 1)]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Place], int, int, int]:
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=8))
    brokers = [Place(node_id, rack, draw(st.booleans())) for node_id, rack in enumerate(racks, 1)]
    return brokers, draw(st.integers(1, 12)), draw(st.integers(1, len(brokers))), draw(st.integers(0, 1 << 32))


@given(clusters())
@settings(max_examples=300, deadline=None)
def test_replicas_are_on_different_brokers_and_an_unfenced_one_leads(
    cluster: tuple[list[Place], int, int, int],
) -> None:
    brokers, partitions, factor, seed = cluster
    if all(one.is_fenced for one in brokers):
        with pytest.raises(Refused):
            place(brokers, partitions, factor, Random(seed))
        return
    placed = place(brokers, partitions, factor, Random(seed))
    assert placed == place(brokers, partitions, factor, Random(seed))
    assert len(placed) == partitions
    by_id = {one.node_id: one for one in brokers}
    racks = {one.rack for one in brokers}
    unfenced = sum(not one.is_fenced for one in brokers)
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert not by_id[replicas[0]].is_fenced
        assert len({by_id[one].rack for one in replicas}) == min(factor, len(racks))
        if len(racks) == 1:
            assert sum(not by_id[one].is_fenced for one in replicas) == min(factor, unfenced)
    leading = Counter(replicas[0] for replicas in placed)
    least, most = partitions // unfenced, -(-partitions // unfenced)
    assert all(least <= leading[one.node_id] <= most for one in brokers if not one.is_fenced)


@pytest.mark.parametrize("racks", [(None,) * 6, ("a", "b", "c", "a", "b", "c")])
def test_brokers_hold_equally_many_replicas(racks: tuple[str | None, ...]) -> None:
    placed = place(places(*racks), 60, 3, Random(1))
    held = Counter(one for replicas in placed for one in replicas)
    assert set(held.values()) == {30}
    assert len(set(map(frozenset, placed))) > 6, "not always the same together"


def test_topics_of_one_partition_do_not_all_begin_at_the_same_broker() -> None:
    random = Random(1)
    leaders = Counter(place(places(None, None, None), 1, 3, random)[0][0] for _ in range(300))
    assert all(60 < leaders[node_id] < 140 for node_id in (1, 2, 3))


def test_a_node_alone_needs_no_chance() -> None:
    random = Random(1)
    before = random.getstate()
    assert place(places(None), 3, 1, random) == [(1,)] * 3
    assert random.getstate() == before


@pytest.mark.parametrize(("brokers", "factor"), [(places(None, None), 3), (places(None, fenced="1"), 1), ([], 1)])
def test_too_few_brokers_are_refused(brokers: list[Place], factor: int) -> None:
    with pytest.raises(Refused) as refusal:
        place(brokers, 1, factor, Random(1))
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


# -- topics on a cluster


def made(cluster: Cluster, name: str = "n", **wanted: Any) -> Any:
    creation = create_topic(cluster.image, cluster.config, Random(1), NewTopic(name, **wanted))
    cluster.apply(*creation.records)
    return cluster.image.topics[name]


def test_a_topic_is_in_sync_where_brokers_are_active() -> None:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    cluster.fence(2)
    cluster.change(4, in_controlled_shutdown=1)
    topic = made(cluster, partitions=4, replication_factor=3)
    for state in topic.partitions.values():
        assert sorted(state.replicas) == [1, 2, 3]
        assert sorted(state.isr) == [1, 3]
        assert state.leader == state.replicas[0]
        assert (state.leader_epoch, state.partition_epoch) == (0, 0)
        assert state.directories == tuple(directory(one) for one in state.replicas)


@pytest.mark.parametrize(
    ("assignment", "code"),
    [
        ({0: [1, 2, 3], 1: [2, 3, 1]}, 0),
        ({0: [2, 1]}, 0),
        ({0: [1, 2], 1: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 9]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({1: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_assignment_names_brokers_one_of_which_is_there(assignment: dict[int, list[int]], code: int) -> None:
    cluster = Cluster()
    cluster.fence(2)
    if code:
        with pytest.raises(Refused) as refusal:
            made(cluster, assignments=assignment)
        assert refusal.value.code == code
    else:
        topic = made(cluster, assignments=assignment)
        assert [list(state.replicas) for state in topic.partitions.values()] == list(assignment.values())
        assert all(
            state.leader == next(one for one in state.replicas if one != 2) for state in topic.partitions.values()
        )


def test_more_partitions_get_as_many_replicas_as_the_first() -> None:
    cluster = Cluster(brokers=range(1, 6))
    cluster.partition(replicas=[4, 5, 1, 2], isr=[1, 2], adding=(4, 5), removing=(1, 2))
    arguments = cluster.image, cluster.config, Random(1), "t"
    cluster.apply(*create_partitions(*arguments, 3, None))
    assert [len(cluster.state(index).replicas) for index in range(3)] == [4, 2, 2]
    for assignments in ([[1]], [[1, 2, 3]], [[1, 1]], [[1, 9]], [[1, 2], [1, 2]]):
        with pytest.raises(Refused) as refusal:
            create_partitions(*arguments, 4, assignments)
        assert refusal.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.apply(*create_partitions(*arguments, 4, [[3, 1]]))
    assert cluster.state(3).replicas == (3, 1)


# -- safe defaults

ALONE = BrokerConfig({"node.id": "1"})


@pytest.mark.parametrize(
    ("brokers", "given_settings", "wanted", "replicas", "in_sync"),
    [
        (3, {}, {}, 3, "2"),
        (5, {}, {}, 3, "2"),
        (2, {}, {}, 1, None),
        (3, {}, {"replication_factor": 1}, 1, None),
        (3, {}, {"replication_factor": 2}, 2, None),
        (3, {}, {"replication_factor": 3}, 3, "2"),
        (3, {}, {"configs": {"min.insync.replicas": "1"}}, 3, "1"),
        (3, {"default_replication_factor": "1"}, {}, 1, None),
        (3, {"default_replication_factor": "2"}, {}, 2, None),
        (3, {"min_insync_replicas": "1"}, {}, 3, None),
        (3, {"min_insync_replicas": "3"}, {}, 3, None),
    ],
)
@pytest.mark.parametrize("elr", [False, True])
def test_in_a_cluster_of_three_a_topic_outlives_one_of_them(
    brokers: int, given_settings: dict[str, str], wanted: dict[str, Any], replicas: int, in_sync: str | None, elr: bool
) -> None:
    cluster = Cluster(brokers=range(1, brokers + 1), elr=elr, **given_settings)
    if elr:  # as the controller itself begins a log
        value = cluster.config.text("min.insync.replicas")
        assert value is not None
        cluster.config = cluster.config.with_overrides(cluster={"min.insync.replicas": value}, node={})
    topic = made(cluster, **wanted)
    assert len(topic.partitions[0].replicas) == replicas
    assert cluster.image.config(TOPIC_RESOURCE, "n").get("min.insync.replicas") == in_sync


def test_a_broker_that_is_down_counts_as_one_of_three() -> None:
    cluster = Cluster()
    cluster.fence(3)
    assert sorted(made(cluster).partitions[0].replicas) == [1, 2, 3]


def test_what_was_set_for_the_cluster_wins() -> None:
    cluster = Cluster()
    cluster.config = cluster.config.with_overrides(cluster={"min.insync.replicas": "3"}, node={})
    made(cluster)
    assert cluster.image.config(TOPIC_RESOURCE, "n") == {}


@pytest.mark.parametrize(
    ("topic", "brokers", "given_settings", "replicas", "in_sync"),
    [
        (OFFSETS_TOPIC, 3, {}, 3, "2"),
        (OFFSETS_TOPIC, 1, {}, 1, "1"),
        (OFFSETS_TOPIC, 3, {"min_insync_replicas": "1"}, 3, "1"),
        (OFFSETS_TOPIC, 3, {"offsets_topic_replication_factor": "1"}, 1, "1"),
        (OFFSETS_TOPIC, 3, {"offsets_topic_replication_factor": "2"}, 2, "1"),
        (TRANSACTIONS_TOPIC, 3, {}, 3, "2"),
        (TRANSACTIONS_TOPIC, 2, {}, 2, "2"),
        (TRANSACTIONS_TOPIC, 3, {"transaction_state_log_replication_factor": "1"}, 1, "1"),
        (TRANSACTIONS_TOPIC, 3, {"transaction_state_log_min_isr": "3"}, 3, "3"),
    ],
)
def test_the_topics_of_coordinators_outlive_one_of_three(
    topic: str, brokers: int, given_settings: dict[str, str], replicas: int, in_sync: str
) -> None:
    cluster = Cluster(brokers=range(1, brokers + 1), **given_settings)
    wanted = new_topic(NewTopic(topic), cluster.config, cluster.image)
    assert (wanted.replication_factor, wanted.configs["min.insync.replicas"]) == (replicas, in_sync)


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_a_number_of_replicas_that_was_asked_for_is_waited_for(topic: str) -> None:
    """Made while brokers are still on their way, the topic would be on the first of them for ever."""
    name = "offsets_topic" if topic == OFFSETS_TOPIC else "transaction_state_log"
    cluster = Cluster(brokers=(1, 2), **{f"{name}_replication_factor": "3"})
    cluster.register(3, fenced=True)
    with pytest.raises(Refused, match="2 brokers are there") as refusal:
        new_topic(NewTopic(topic), cluster.config, cluster.image)
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert new_topic(NewTopic(topic, DEFAULT_COUNT, 2), cluster.config, cluster.image).replication_factor == 2
    cluster.change(3, fenced=-1)
    assert new_topic(NewTopic(topic), cluster.config, cluster.image).replication_factor == 3


def test_on_a_node_alone_there_is_one_of_everything() -> None:
    cluster = Cluster(level=7, elr=False)
    cluster.config = ALONE
    topic = made(cluster)
    assert topic.partitions[0].replicas == (1,), "others that the log knows of cannot be there"
    assert cluster.image.config(TOPIC_RESOURCE, "n") == {}
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        wanted = new_topic(NewTopic(name), ALONE, cluster.image)
        assert (wanted.replication_factor, wanted.configs["min.insync.replicas"]) == (1, "1")
    given_factor = BrokerConfig({"node.id": "1", "offsets.topic.replication.factor": "3"})
    assert new_topic(NewTopic(OFFSETS_TOPIC), given_factor, cluster.image).replication_factor == 1
    assert not cluster_config().layout.is_alone
