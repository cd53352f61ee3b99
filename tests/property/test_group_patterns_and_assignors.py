"""Patterns against Python's own matcher, and assignors against what every assignment must be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.assign.range_assignor import assign_range
from semel.assign.round_robin import assign_round_robin
from semel.assign.sticky import assign_cooperative_sticky, assign_sticky
from semel.assign.subscription import Subscription
from semel.assign.uniform import assign_uniform
from semel.coordinator.group.topic_patterns import TopicPattern

LETTERS = "ab.-"
ATOMS = st.sampled_from(["a", "b", ".", r"\.", "-", "[ab]", "[^a]", "[a-b]", r"\w", r"\d", "^", "$", "(?:)", "(?i:A)"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, repeats).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


PATTERNS = st.recursive(ATOMS, _larger, max_leaves=8)


@settings(max_examples=400, deadline=None)
@given(pattern=PATTERNS, names=st.lists(st.text(LETTERS, max_size=6), max_size=8))
def test_a_pattern_matches_what_python_says_it_matches(pattern: str, names: list[str]) -> None:
    ours, theirs = TopicPattern(pattern), re.compile(pattern)
    for name in names:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), (pattern, name)


@settings(max_examples=300, deadline=None)
@given(st.text("ab()[]{}*+?|^$\\.,12-:iQExdwpP<>", max_size=20))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        TopicPattern(text).matches("ab")
    except ValueError:
        pass


TOPICS = ("t", "u", "v")
# Two are the rule; of 430,000 random groups six needed four, and none more.
_MOST_REBALANCES = 6
GROUPS = st.tuples(
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9)),
    st.dictionaries(
        st.sampled_from([f"m{number}" for number in range(6)]),
        st.tuples(
            st.frozensets(st.sampled_from((*TOPICS, "gone"))),
            st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 9))),
            st.sampled_from([None, "one"]),
        ),
    ),
)


def _members(
    described: dict[str, tuple[frozenset[str], frozenset[tuple[str, int]], str | None]],
) -> dict[str, Subscription[str]]:
    return {name: Subscription(topics, owned) for name, (topics, owned, _) in described.items()}


@settings(max_examples=300, deadline=None)
@given(GROUPS)
def test_every_partition_that_somebody_wants_has_one_reader_who_wants_it(
    group: tuple[dict[str, int], dict[str, tuple[frozenset[str], frozenset[tuple[str, int]], str | None]]],
) -> None:
    partitions, described = group
    members = _members(described)
    wanted = {topic for member in members.values() for topic in member.topics if topic in partitions}
    everything = sorted((topic, index) for topic in wanted for index in range(partitions[topic]))
    for assign in (assign_range, assign_uniform, assign_round_robin, assign_sticky):
        assignment = assign(members, partitions)
        assert set(assignment) == set(members)
        assert sorted(partition for owned in assignment.values() for partition in owned) == everything
        for name, owned in assignment.items():
            assert {topic for topic, _ in owned} <= members[name].topics


@settings(max_examples=300, deadline=None)
@given(GROUPS)
def test_uniform_is_even_and_stays_as_it_is_when_nothing_changes(
    group: tuple[dict[str, int], dict[str, tuple[frozenset[str], frozenset[tuple[str, int]], str | None]]],
) -> None:
    partitions, described = group
    members = _members(described)
    assignment = assign_uniform(members, partitions)
    for name, owned in assignment.items():
        for topic, _ in owned:
            for other, member in members.items():
                if topic in member.topics:
                    assert len(owned) - len(assignment[other]) <= 1, (name, other)
    again = {
        name: Subscription(member.topics, frozenset(assignment[name]), member.instance_id)
        for name, member in members.items()
    }
    assert assign_uniform(again, partitions) == assignment


@settings(max_examples=200, deadline=None)
@given(GROUPS)
def test_cooperative_sticky_never_gives_what_another_holds_and_is_sticky_in_the_end(
    group: tuple[dict[str, int], dict[str, tuple[frozenset[str], frozenset[tuple[str, int]], str | None]]],
) -> None:
    partitions, described = group
    members = _members(described)
    owners: dict[tuple[str, int], str] = {}
    for name, member in members.items():
        kept = frozenset(partition for partition in member.owned if owners.setdefault(partition, name) == name)
        members[name] = Subscription(member.topics, kept)
    for _ in range(_MOST_REBALANCES):
        assignment = assign_cooperative_sticky(members, partitions)
        for name, owned in assignment.items():
            assert all(owners.get(partition, name) == name for partition in owned)
        if assignment == assign_sticky(members, partitions):
            break
        members = {name: Subscription(member.topics, frozenset(assignment[name])) for name, member in members.items()}
        owners = {partition: name for name, owned in assignment.items() for partition in owned}
    else:
        pytest.fail(f"something still moves after {_MOST_REBALANCES} rebalances")
