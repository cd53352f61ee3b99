"""The assignors of the broker: range and uniform."""

from __future__ import annotations

import pytest

from semel.assign.range_assignor import assign_range
from semel.assign.subscription import Subscription
from semel.assign.uniform import assign_uniform


def members(**topics: str) -> dict[str, Subscription[str]]:
    return {name: Subscription(frozenset(wanted.split())) for name, wanted in topics.items()}


def text(assignment: dict[str, set[tuple[str, int]]]) -> dict[str, str]:
    return {name: " ".join(f"{topic}{index}" for topic, index in sorted(owned)) for name, owned in assignment.items()}


def test_range_cuts_each_topic_into_consecutive_pieces() -> None:
    given = assign_range(members(c0="t0- t1-", c1="t0- t1-"), {"t0-": 3, "t1-": 3})
    assert text(given) == {"c0": "t0-0 t0-1 t1-0 t1-1", "c1": "t0-2 t1-2"}


def test_range_gives_nothing_to_members_beyond_the_partition_count() -> None:
    assert text(assign_range(members(a="t", b="t", c="t"), {"t": 2})) == {"a": "t0", "b": "t1", "c": ""}


def test_range_goes_by_instance_so_that_a_restart_changes_nothing() -> None:
    before = {"x": Subscription(frozenset(["t"]), instance_id="1"), "a": Subscription(frozenset(["t"]))}
    after = {"z": Subscription(frozenset(["t"]), instance_id="1"), "a": Subscription(frozenset(["t"]))}
    assert assign_range(before, {"t": 2})["x"] == assign_range(after, {"t": 2})["z"] == {("t", 0)}


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
def test_topics_that_are_not_there_and_members_that_want_nothing_are_no_harm(assign: object) -> None:
    assert callable(assign)
    assert assign(members(a="gone", b=""), {"t": 3}) == {"a": set(), "b": set()}
    assert assign({}, {"t": 3}) == {}


def test_uniform_evens_out_over_all_topics() -> None:
    given = assign_uniform(members(a="t u", b="t u"), {"t": 1, "u": 1})
    assert sorted(len(owned) for owned in given.values()) == [1, 1]


def test_uniform_takes_only_what_must_move_when_a_member_joins() -> None:
    owned = frozenset(("t", index) for index in range(6))
    before = {"a": Subscription(frozenset(["t"]), owned), "b": Subscription(frozenset(["t"]))}
    given = assign_uniform(before, {"t": 6})
    assert len(given["a"]) == len(given["b"]) == 3
    assert given["a"] < owned


def test_uniform_gives_a_leaver_s_partitions_to_the_others_who_keep_theirs() -> None:
    a, b = frozenset([("t", 0), ("t", 1)]), frozenset([("t", 2), ("t", 3)])
    topics = frozenset(["t"])
    given = assign_uniform({"a": Subscription(topics, a), "b": Subscription(topics, b)}, {"t": 6})
    assert given["a"] > a
    assert given["b"] > b


def test_uniform_with_different_subscriptions_is_as_even_as_they_allow() -> None:
    # The example of the article: C0 reads t0, C1 t0 and t1, C2 all three.
    given = assign_uniform(members(c0="t0-", c1="t0- t1-", c2="t0- t1- t2-"), {"t0-": 1, "t1-": 2, "t2-": 3})
    assert text(given) == {"c0": "t0-0", "c1": "t1-0 t1-1", "c2": "t2-0 t2-1 t2-2"}
