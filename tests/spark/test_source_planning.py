"""Offsets in checkpoints, limits, and how ranges are cut for tasks. Pure functions."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.spark.offsets import Offsets, from_checkpoint, to_checkpoint
from semel.spark.planning import OffsetRange, Patience, available, limited, ranges_between, split

A0, A1, A10, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 10), TopicPartition("b", 0))

offsets_by_partition = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 20)), st.integers(0, 10**6), min_size=1
)


# -- checkpoints


def test_a_checkpoint_has_the_form_of_sparks_own_source() -> None:
    written = to_checkpoint({B0: 1, A10: 7, A1: 2, A0: 5})

    assert json.dumps(written, separators=(",", ":")) == '{"a":{"0":5,"1":2,"10":7},"b":{"0":1}}'


def test_a_checkpoint_of_sparks_own_source_is_read() -> None:
    assert from_checkpoint(json.loads('{"b":{"0":1},"a":{"10":7,"1":2}}')) == {B0: 1, A10: 7, A1: 2}


@given(offsets_by_partition)
def test_what_was_written_is_read_again(offsets: Offsets) -> None:
    assert from_checkpoint(json.loads(json.dumps(to_checkpoint(offsets)))) == offsets


@pytest.mark.parametrize("offset", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}])
def test_a_checkpoint_of_another_source_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(BadSetting, match="is not one of this source"):
        from_checkpoint(offset)


# -- limits


def test_each_partition_gets_its_share_of_a_limit() -> None:
    assert limited({A0: 0, A1: 100, B0: 5}, {A0: 300, A1: 200, B0: 5}, 40) == {A0: 30, A1: 110, B0: 5}


def test_one_with_little_to_read_is_not_starved() -> None:
    assert limited({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10) == {A0: 9, A1: 1}


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert limited({A0: 3, A1: 0}, {A0: 5, A1: 8}, 10) == {A0: 5, A1: 8}


@given(offsets_by_partition, st.integers(1, 1000), st.data())
def test_a_limit_always_moves_on_and_is_exceeded_by_the_starving_alone(
    ends: Offsets, most: int, data: st.DataObject
) -> None:
    starts = {place: data.draw(st.integers(0, end)) for place, end in ends.items()}

    admitted = limited(starts, ends, most)

    assert admitted.keys() == ends.keys()
    assert all(starts[place] <= admitted[place] <= ends[place] for place in ends)
    assert all(admitted[place] > starts[place] for place in ends if ends[place] > starts[place])
    assert available(starts, admitted) <= most + len(ends)


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    patience = Patience(fewest=10, longest_ms=1000)

    assert not patience.waits(1, now_ms=0)  # nothing has been read yet, so the longest time is over
    assert patience.waits(9, now_ms=999)
    assert not patience.waits(10, now_ms=999)
    assert patience.waits(9, now_ms=1998)
    assert not patience.waits(9, now_ms=1999)
    assert patience.waits(0, now_ms=2000)


# -- ranges


def test_ranges_are_in_order_and_never_empty() -> None:
    found = ranges_between({B0: 0, A10: 4, A1: 3, A0: 9}, {B0: 2, A10: 4, A1: 5, A0: 3})

    assert found == [OffsetRange("a", 1, 3, 5), OffsetRange("b", 0, 0, 2)]


def test_a_partition_is_one_task_unless_asked_otherwise() -> None:
    ranges = [OffsetRange("a", 0, 0, 1000), OffsetRange("a", 1, 5, 6)]

    assert split(ranges, None, None) == ranges
    assert split(ranges, 2, None) == ranges


def test_large_ranges_are_cut_when_more_tasks_are_wanted() -> None:
    ranges = [OffsetRange("a", 0, 0, 1), OffsetRange("a", 1, 0, 10), OffsetRange("b", 0, 100, 10_100)]

    parts = split(ranges, 4, None)

    assert parts[:2] == ranges[:2]
    assert [(part.start, part.end) for part in parts[2:]] == [(100, 5100), (5100, 10_100)]


def test_no_task_reads_more_than_it_may() -> None:
    parts = split([OffsetRange("a", 0, 10, 35)], None, 10)

    assert [(part.start, part.end) for part in parts] == [(10, 18), (18, 26), (26, 35)]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 200),
)
def test_however_ranges_are_cut_nothing_is_lost_or_twice(
    sizes: list[tuple[int, int]], fewest: int | None, max_size: int | None
) -> None:
    ranges = [OffsetRange("a", number, start, start + size) for number, (start, size) in enumerate(sizes)]

    parts = split(ranges, fewest, max_size)

    assert all(part.size > 0 for part in parts)
    assert max_size is None or all(part.size <= max_size for part in parts)
    for whole in ranges:
        pieces = [part for part in parts if part.partition == whole.partition]
        if whole.size:
            assert [pieces[0].start, *(piece.end for piece in pieces)] == [
                *(piece.start for piece in pieces),
                whole.end,
            ]
            assert pieces[0].start == whole.start


def test_a_range_is_small_when_it_is_sent() -> None:
    sent = pickle.dumps(OffsetRange("a-topic-with-a-usual-name", 17, 10**12, 10**12 + 5))

    assert len(sent) < 250
    assert pickle.loads(sent).end == 10**12 + 5
