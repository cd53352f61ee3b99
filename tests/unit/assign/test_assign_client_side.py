"""The assignors of clients, with the examples of the articles."""

from __future__ import annotations

from semel.assign.round_robin import assign_round_robin
from semel.assign.sticky import assign_cooperative_sticky, assign_sticky
from semel.assign.subscription import Subscription


def members(**topics: str) -> dict[str, Subscription[str]]:
    return {name: Subscription(frozenset(wanted.split())) for name, wanted in topics.items()}


def text(assignment: dict[str, set[tuple[str, int]]]) -> dict[str, str]:
    return {name: " ".join(f"{topic}p{index}" for topic, index in sorted(owned)) for name, owned in assignment.items()}


def test_round_robin_deals_out_one_by_one() -> None:
    given = assign_round_robin(members(c0="t0 t1", c1="t0 t1"), {"t0": 3, "t1": 3})
    assert text(given) == {"c0": "t0p0 t0p2 t1p1", "c1": "t0p1 t1p0 t1p2"}


def test_round_robin_passes_over_who_does_not_want_a_topic() -> None:
    given = assign_round_robin(members(c0="t0", c1="t0 t1", c2="t0 t1 t2"), {"t0": 1, "t1": 2, "t2": 3})
    assert text(given) == {"c0": "t0p0", "c1": "t1p0", "c2": "t1p1 t2p0 t2p1 t2p2"}


def test_sticky_evens_that_out() -> None:
    given = assign_sticky(members(c0="t0", c1="t0 t1", c2="t0 t1 t2"), {"t0": 1, "t1": 2, "t2": 3})
    assert text(given) == {"c0": "t0p0", "c1": "t1p0 t1p1", "c2": "t2p0 t2p1 t2p2"}


def test_topics_that_are_not_there_are_no_harm() -> None:
    assert assign_round_robin(members(a="gone", b=""), {"t": 3}) == {"a": set(), "b": set()}
    assert assign_cooperative_sticky(members(a="gone", b=""), {"t": 3}) == {"a": set(), "b": set()}
    assert assign_round_robin({}, {"t": 3}) == {}


def test_cooperative_sticky_moves_in_two_steps() -> None:
    topics = frozenset(["t"])
    owned = frozenset(("t", index) for index in range(4))
    first = assign_cooperative_sticky({"a": Subscription(topics, owned), "b": Subscription(topics)}, {"t": 4})
    assert len(first["a"]) == 2
    assert first["b"] == set()
    second = assign_cooperative_sticky(
        {"a": Subscription(topics, frozenset(first["a"])), "b": Subscription(topics)}, {"t": 4}
    )
    assert second["a"] == first["a"]
    assert second["b"] == owned - first["a"]
