"""Assignors through the interface that programs see: the article's four examples, Java's answers, claims, settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from semel.client.consumer.membership.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    PartitionCounts,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscriptions,
    assignors_for,
)
from semel.client.consumer.membership.protocol import Assignment, Subscription
from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity


def wanting(**topics: str) -> dict[str, Subscription]:
    return {name: Subscription(tuple(wanted.split())) for name, wanted in topics.items()}


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """`t0p1 t1p0`"""
    return tuple(TopicPartition(one.rpartition("p")[0], int(one.rpartition("p")[2])) for one in text.split())


def text(assignment: Mapping[str, Assignment]) -> dict[str, str]:
    return {
        name: " ".join(f"{topic}p{index}" for topic, index in given.partitions) for name, given in assignment.items()
    }


def identity(generation: int) -> GroupIdentity:
    return GroupIdentity("g", generation, "m")


# -- the article


def test_range_as_in_the_article() -> None:
    given = RangeAssignor().assign({"t0": 3, "t1": 3}, wanting(C0="t0 t1", C1="t0 t1"))
    assert text(given) == {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"}


def test_round_robin_as_in_the_article() -> None:
    given = RoundRobinAssignor().assign({"t0": 3, "t1": 3}, wanting(C0="t0 t1", C1="t0 t1"))
    assert text(given) == {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}


UNLIKE = {"t0": 1, "t1": 2, "t2": 3}, wanting(C0="t0", C1="t0 t1", C2="t0 t1 t2")


def test_round_robin_with_different_subscriptions_as_in_the_article() -> None:
    assert text(RoundRobinAssignor().assign(*UNLIKE)) == {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}


def test_sticky_as_in_the_article() -> None:
    assert text(StickyAssignor().assign(*UNLIKE)) == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


class WeightedAssignor(Assignor):
    """As the article suggests for user data: members say how much they can take."""

    name = "weighted"

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight
        self.heard: list[tuple[Assignment, int]] = []

    def subscription(self, topics: frozenset[str]) -> bytes | None:
        return bytes([self.weight])

    def assign(self, partitions: PartitionCounts, subscriptions: Subscriptions) -> Mapping[str, Assignment]:
        strongest = max(subscriptions, key=lambda name: (subscriptions[name].user_data or b"\0", name))
        every = [TopicPartition(topic, index) for topic, count in partitions.items() for index in range(count)]
        return {strongest: Assignment(tuple(every), b"you are the strongest")}

    def on_assignment(self, assignment: Assignment, identity: GroupIdentity) -> None:
        self.heard.append((assignment, identity.generation_id))


def test_an_assignor_of_the_program_uses_its_own_data() -> None:
    weak, strong = WeightedAssignor(1), WeightedAssignor(5)
    told = {
        name: Subscription(("t",), assignor.subscription(frozenset(["t"])))
        for name, assignor in {"weak": weak, "strong": strong}.items()
    }
    assert text(weak.assign({"t": 2}, told)) == {"strong": "tp0 tp1"}


# -- what Kafka 4.1.1's own assignors answered to the same questions

SEVERAL_TOPICS = (
    {"t0": 5, "t1": 1, "t2": 4},
    {
        "m1": Subscription(("t0", "t1", "t2")),
        "m3": Subscription(("t0", "t2"), instance_id="i2"),
        "m2": Subscription(("t2",), instance_id="i1"),
        "m4": Subscription(("t0", "gone")),
    },
)
JAVA_RANGE = {"m1": "t0p2 t0p3 t1p0 t2p3", "m2": "t2p0 t2p1", "m3": "t0p0 t0p1 t2p2", "m4": "t0p4"}
JAVA_ROUND_ROBIN = {"m1": "t0p1 t0p4 t1p0 t2p2", "m2": "t2p0 t2p3", "m3": "t0p0 t0p3 t2p1", "m4": "t0p2"}


def test_range_over_several_topics_is_java_s() -> None:
    assert text(RangeAssignor().assign(*SEVERAL_TOPICS)) == JAVA_RANGE


def test_round_robin_over_several_topics_is_java_s() -> None:
    assert text(RoundRobinAssignor().assign(*SEVERAL_TOPICS)) == JAVA_ROUND_ROBIN


# -- stickiness and claims


def sticky_member(topics: str, before: str, generation: int) -> Subscription:
    assignor = StickyAssignor()
    assignor.on_assignment(Assignment(partitions(before)), identity(generation))
    return Subscription(tuple(topics.split()), assignor.subscription(frozenset(topics.split())))


def test_sticky_says_nothing_before_its_first_assignment() -> None:
    assert StickyAssignor().subscription(frozenset(["t"])) is None


def test_sticky_keeps_what_members_had_when_another_joins() -> None:
    given = StickyAssignor().assign(
        {"t": 4},
        {"a": sticky_member("t", "tp0 tp3", 1), "b": sticky_member("t", "tp1 tp2", 1), "c": Subscription(("t",))},
    )
    kept = {name: set(given[name].partitions) for name in given}
    assert kept["a"] <= set(partitions("tp0 tp3"))
    assert kept["b"] <= set(partitions("tp1 tp2"))
    assert len(kept["c"]) == 1


def test_sticky_believes_the_newer_of_two_claims() -> None:
    old, new = sticky_member("t", "tp0 tp1", 3), sticky_member("t", "tp1", 4)
    given = StickyAssignor().assign({"t": 2}, {"old": old, "new": new})
    assert text(given) == {"old": "tp0", "new": "tp1"}
    given = StickyAssignor().assign({"t": 2}, {"new": new, "old": old})
    assert text(given) == {"old": "tp0", "new": "tp1"}


def test_sticky_reads_the_data_of_old_clients_without_a_generation() -> None:
    whole = sticky_member("t", "tp1", 4).user_data
    assert whole is not None
    old = Subscription(("t",), whole[:-4])
    given = StickyAssignor().assign({"t": 2}, {"a": Subscription(("t",)), "z": old})
    assert text(given) == {"a": "tp0", "z": "tp1"}


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\xff\xff"])
def test_data_that_cannot_be_read_is_no_claim(garbage: bytes) -> None:
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        given = assignor.assign({"t": 2}, {"a": Subscription(("t",), garbage), "b": Subscription(("t",), garbage)})
        assert sorted(len(one.partitions) for one in given.values()) == [1, 1]


def cooperative(topics: str, owned: str, generation: int = -1, user_data: bytes | None = None) -> Subscription:
    return Subscription(tuple(topics.split()), user_data, partitions(owned), generation)


def test_cooperative_sticky_gives_nobody_what_another_still_has() -> None:
    members = {"a": cooperative("t", "tp0 tp1 tp2 tp3", 1), "b": cooperative("t", "")}
    first = CooperativeStickyAssignor().assign({"t": 4}, members)
    assert len(first["a"].partitions) == 2
    assert first["b"].partitions == ()
    members["a"] = members["a"]._replace(owned=first["a"].partitions)
    second = CooperativeStickyAssignor().assign({"t": 4}, members)
    assert second["a"] == first["a"]
    assert set(second["a"].partitions) | set(second["b"].partitions) == set(partitions("tp0 tp1 tp2 tp3"))


def test_cooperative_sticky_holds_back_what_a_straggler_claims_from_an_older_generation() -> None:
    """The straggler does not keep it, but neither is it given away before the straggler has let go."""
    members = {"old": cooperative("t", "tp0 tp1", 3), "new": cooperative("t", "tp1", 4)}
    given = CooperativeStickyAssignor().assign({"t": 2}, members)
    assert text(given) == {"old": "tp0", "new": ""}


def test_cooperative_sticky_takes_a_generation_from_the_data_of_older_clients() -> None:
    def told(generation: int) -> bytes | None:
        assignor = CooperativeStickyAssignor()
        assignor.on_assignment(Assignment(), identity(generation))
        return assignor.subscription(frozenset())

    members = {"a": cooperative("t", "tp0", user_data=told(3)), "b": cooperative("t", "tp0 tp1", user_data=told(4))}
    given = CooperativeStickyAssignor().assign({"t": 3}, members)
    assert partitions("tp0")[0] not in given["a"].partitions


def test_two_claims_of_one_generation_count_as_none() -> None:
    claimed = sticky_member("t", "tp0", 4)
    assert text(StickyAssignor().assign({"t": 2}, {"b": claimed, "a": claimed})) == {"a": "tp0", "b": "tp1"}
    members = {"a": cooperative("t", "tp0 tp1", 4), "b": cooperative("t", "tp0 tp1", 4)}
    given = CooperativeStickyAssignor().assign({"t": 2}, members)
    assert text(given) == {"a": "", "b": ""}


# -- the setting


def test_assignors_are_named_by_kafka_s_names_classes_and_objects() -> None:
    own = WeightedAssignor(3)
    strategy: list[Any] = ["range", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", own]
    assert [type(one) for one in assignors_for(strategy)] == [
        RangeAssignor,
        CooperativeStickyAssignor,
        WeightedAssignor,
    ]
    assert assignors_for(own) == [own]
    assert [one.name for one in assignors_for(WeightedAssignor)] == ["weighted"]
    assert [one.name for one in assignors_for("roundrobin, sticky")] == ["roundrobin", "sticky"]


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ("rnage", "did you mean range"),
        ("nearest-rack", "there are range, roundrobin, sticky, cooperative-sticky"),
        ([], "at least one"),
        (["range", RangeAssignor], "'range' is there twice"),
        (object(), "lacks subscription, assign, on_assignment, name, is_cooperative"),
        (7, "int is no assignor"),
    ],
)
def test_what_is_no_assignor_is_refused_with_a_reason(strategy: Any, says: str) -> None:
    with pytest.raises(BadSetting, match="partition_assignment_strategy") as caught:
        assignors_for(strategy)
    assert says in str(caught.value)


def test_each_consumer_has_assignors_of_its_own() -> None:
    """They remember things."""
    assert assignors_for("sticky")[0] is not assignors_for("sticky")[0]
