"""Where to begin in a partition that has no position: `auto.offset.reset`, also by duration (KIP-1106)."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.client.errors import BadSetting

EARLIEST = -2
LATEST = -1
"""The timestamps that stand for the two ends of a log in ListOffsets."""

_ALLOWED = "earliest, latest, none, or by_duration:PnDTnHnMnS such as by_duration:PT1H"
_DURATION = re.compile(
    r"p(?:(?P<days>\d{1,9})d)?(?:t(?:(?P<hours>\d{1,9})h)?(?:(?P<minutes>\d{1,9})m)?"
    r"(?:(?P<seconds>\d{1,12})(?:\.(?P<fraction>\d{1,9}))?s)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class ResetPolicy(NamedTuple):
    """`end` is one of the log's ends, `duration_ms` how long before now; neither: there is no policy."""

    end: int | None = None
    duration_ms: int | None = None

    @staticmethod
    def parse(text: str) -> ResetPolicy:
        name = text.strip().lower()
        if name in _NAMED:
            return _NAMED[name]
        prefix, _, duration = name.partition(":")
        if prefix != "by_duration":
            raise BadSetting(f"auto_offset_reset: {text!r} is not allowed; allowed: {_ALLOWED}")
        return ResetPolicy(duration_ms=_duration_ms(text, duration))

    @property
    def is_none(self) -> bool:
        return self.end is None and self.duration_ms is None

    def timestamp_ms(self, now_ms: int) -> int:
        """What to ask ListOffsets for."""
        if self.end is not None:
            return self.end
        return max(now_ms - (self.duration_ms or 0), 0)


_NAMED = {"earliest": ResetPolicy(EARLIEST), "latest": ResetPolicy(LATEST), "none": ResetPolicy()}


def _duration_ms(text: str, duration: str) -> int:
    found = _DURATION.fullmatch(duration)
    if found is None or not any(found.groupdict().values()) or duration.endswith("t"):
        raise BadSetting(f"auto_offset_reset: {text!r} is not allowed; allowed: {_ALLOWED}")
    total = sum(int(found[unit] or 0) * scale_ms for unit, scale_ms in _UNITS_MS.items())
    return total + int((found["fraction"] or "0").ljust(3, "0")[:3])
