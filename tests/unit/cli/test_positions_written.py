"""How places are written: --from, --to, times, durations, TOPIC/PARTITION."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import pytest

from semel.cli.positions import (
    Kind,
    Place,
    Position,
    at_least_one,
    at_least_zero,
    duration_ms,
    place,
    position,
    timestamp_ms,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", Position(Kind.EARLIEST)),
        ("latest", Position(Kind.LATEST)),
        ("0", Position(Kind.OFFSET, 0)),
        ("20261115", Position(Kind.OFFSET, 20261115)),
        ("-10", Position(Kind.BEFORE_END, 10)),
        ("10m", Position(Kind.AGE, 600_000)),
        ("500ms", Position(Kind.AGE, 500)),
        ("1d", Position(Kind.AGE, 86_400_000)),
        ("@1700000000000", Position(Kind.TIME, 1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Position(Kind.TIME, 1_700_000_000_000)),
        ("2023-11-14T23:13:20.5+01:00", Position(Kind.TIME, 1_700_000_000_500)),
    ],
)
def test_a_place_is_an_end_an_offset_a_time_or_an_age(text: str, meant: Position) -> None:
    assert position(text) == meant


@pytest.mark.parametrize("text", ["", "first", "-", "--1", "10x", "m", "@", "@x", "2026-13-01", "1.5", "１０"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="allowed: earliest, latest, an offset"):
        position(text)


def test_a_time_without_a_zone_is_local() -> None:
    assert timestamp_ms("2026-11-15T10:00") == round(datetime(2026, 11, 15, 10).timestamp() * 1000)
    assert timestamp_ms("2026-11-15T10:00+00:00") == round(datetime(2026, 11, 15, 10, tzinfo=UTC).timestamp() * 1000)


def test_an_age_counts_back_from_now_and_not_below_zero() -> None:
    assert position("2s").time_ms(10_000) == 8_000
    assert position("2s").time_ms(1_000) == 0
    assert position("@5").time_ms(10_000) == 5


def test_durations_have_a_unit() -> None:
    assert duration_ms("30s") == 30_000
    with pytest.raises(argparse.ArgumentTypeError, match="'30' is no duration"):
        duration_ms("30")


def test_a_partition_is_named_with_its_topic() -> None:
    assert place("payments/0") == Place("payments", 0)
    assert place("payments") == Place("payments", None)
    assert str(place("a.b-c_d/12")) == "a.b-c_d/12"
    for wrong in ("", "/0", "payments/", "payments/x", "payments/-1", "a/b/0"):
        with pytest.raises(argparse.ArgumentTypeError, match="allowed: TOPIC/PARTITION"):
            place(wrong)


def test_numbers_are_checked_where_they_are_given() -> None:
    assert at_least_one("3") == 3
    assert at_least_zero("0") == 0
    for wrong in ("0", "-1", "x", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="1 or more"):
            at_least_one(wrong)
    with pytest.raises(argparse.ArgumentTypeError, match="0 or more"):
        at_least_zero("-1")
