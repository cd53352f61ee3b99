"""Where in a topic: how a position is written, and which partition `TOPIC/PARTITION` means."""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from semel.views.refusals import Misasked

WHERE = (
    "earliest, latest, an offset, -N (N before the end), a time (2026-11-15T10:00, or @ and milliseconds since 1970) "
    "or an age (10m, 2h, 1d)"
)
_AGE = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DIGITS = re.compile(r"[0-9]+")


class Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"
    AGE = "age"


class Position(NamedTuple):
    """`value` is an offset, a number of records, a time in milliseconds since 1970, or an age in milliseconds."""

    kind: Kind
    value: int = 0

    def time_ms(self, now_ms: int) -> int:
        """Of a time or an age."""
        return self.value if self.kind is Kind.TIME else max(now_ms - self.value, 0)


def position(text: str) -> Position:
    """Raises Misasked; its sentence says what is allowed."""
    if text in ("earliest", "latest"):
        return Position(Kind(text))
    if _DIGITS.fullmatch(text):
        return Position(Kind.OFFSET, int(text))
    if text.startswith("-") and _DIGITS.fullmatch(text[1:]):
        return Position(Kind.BEFORE_END, int(text[1:]))
    if _AGE.fullmatch(text):
        return Position(Kind.AGE, duration_ms(text))
    try:
        return Position(Kind.TIME, timestamp_ms(text))
    except Misasked:
        raise Misasked(f"{text!r} is not allowed; allowed: {WHERE}") from None


def timestamp_ms(text: str) -> int:
    """A time in ISO 8601, local if it does not say otherwise, or `@` and milliseconds since 1970."""
    try:
        if text.startswith("@"):
            return int(text[1:])
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        allowed = "2026-11-15T10:00, 2026-11-15T10:00:00.5Z, or @ and milliseconds since 1970"
        raise Misasked(f"{text!r} is no time; allowed: {allowed}") from None


def duration_ms(text: str) -> int:
    found = _AGE.fullmatch(text)
    if found is None:
        raise Misasked(f"{text!r} is no duration; allowed: 500ms, 30s, 10m, 2h, 1d")
    return int(found[1]) * _UNITS_MS[found[2]]


class Place(NamedTuple):
    """`TOPIC/PARTITION`; without a number all partitions of the topic are meant."""

    topic: str
    partition: int | None = None

    def __str__(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}/{self.partition}"


def place(text: str) -> Place:
    topic, separator, number = text.partition("/")
    if not topic or (separator and not _DIGITS.fullmatch(number)):
        raise Misasked(f"{text!r} is not allowed; allowed: TOPIC/PARTITION, such as payments/0")
    return Place(topic, int(number) if separator else None)
