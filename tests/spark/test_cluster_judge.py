"""The judge of what comes out of a cluster sees what is lost, what is there twice, and what is not in order."""

from __future__ import annotations

import pytest
from cluster_world import KEYS, Verdict, judge, numbered_rows

SENT = numbered_rows(0, 5 * KEYS)
GOOD = sorted(((key, value.upper()) for key, value in SENT), key=lambda row: row[0])


def swapped(first: int, second: int) -> list[tuple[bytes, bytes]]:
    rows = list(GOOD)
    rows[first], rows[second] = rows[second], rows[first]
    return rows


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (GOOD, Verdict(0, 0, 0, 0)),
        (GOOD[1:], Verdict(1, 0, 0, 0)),
        (GOOD[:-3], Verdict(3, 0, 0, 0)),
        ([*GOOD, GOOD[0]], Verdict(0, 1, 0, 0)),
        ([*GOOD, *GOOD, *GOOD], Verdict(0, 2 * len(GOOD), 0, 0)),
        ([*GOOD, (b"key-0", b"KEY-0/9000")], Verdict(0, 0, 1, 0)),
        (swapped(0, 1), Verdict(0, 0, 0, 1)),
        (swapped(4, 5), Verdict(0, 0, 0, 0)),
        ([], Verdict(len(SENT), 0, 0, 0)),
    ],
    ids=["good", "first lost", "last lost", "one twice", "all thrice", "strange", "disorder", "other keys", "nothing"],
)
def test_the_judge_tells_what_is_wrong(found: list[tuple[bytes | None, bytes]], verdict: Verdict) -> None:
    assert judge(SENT, found) == verdict
    assert verdict.is_good == (verdict == Verdict(0, 0, 0, 0))
