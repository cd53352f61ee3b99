from __future__ import annotations

import pytest

from semel.records.sequences import next_sequence, sequence_distance

LAST = 2**31 - 1


@pytest.mark.parametrize(
    ("sequence", "count", "after"),
    [(0, 1, 1), (5, 0, 5), (LAST, 1, 0), (LAST, 2, 1), (LAST - 4, 10, 5), (0, LAST, LAST)],
)
def test_zero_follows_the_last_sequence(sequence: int, count: int, after: int) -> None:
    assert next_sequence(sequence, count) == after
    assert sequence_distance(sequence, after) == count


def test_what_lies_behind_is_far_ahead() -> None:
    assert sequence_distance(10, 9) == LAST
    assert sequence_distance(1, LAST) > 2**30
    assert sequence_distance(LAST, 1) == 2
