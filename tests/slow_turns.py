"""What nodes have said of the turns of their loops when they stopped: few may take long.

Only processor time is judged: on a busy machine any turn may take long by the clock. One that was killed says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MOST = 20
"""In one life of a node: what is made for the first time, and a collection of garbage, may take that long."""
LONGEST_MS = 60.0
_TOLD = re.compile(r"turns of the loop over 5 ms: (\d+) by processor time, longest ([\d.]+) ms")


class Told(NamedTuple):
    node: str
    count: int
    longest_ms: float


def told_by(logs: Iterable[Path]) -> list[Told]:
    """Of each clean stop, in the logs of nodes."""
    return [
        Told(path.stem, int(count), float(longest_ms))
        for path in logs
        for count, longest_ms in _TOLD.findall(path.read_text(errors="replace"))
    ]


def check_turns(logs: Iterable[Path]) -> None:
    told = told_by(logs)
    assert told, "no node has stopped cleanly"
    slow = [one for one in told if one.count > MOST or one.longest_ms > LONGEST_MS]
    assert not slow, f"turns of the loop over 5 ms, by processor time: {slow}"
