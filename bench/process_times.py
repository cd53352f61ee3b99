"""Seconds of CPU that a process and all its descendants have used, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root_pid: int) -> float:
    """With those of descendants that have ended and were waited for."""
    times: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name may hold spaces and brackets: what follows it is plain.
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        times[pid] = sum(map(int, fields[11:15])) / _TICKS
        children[int(fields[1])].append(pid)
    total, waiting = 0.0, [root_pid]
    while waiting:
        pid = waiting.pop()
        total += times.get(pid, 0.0)
        waiting += children[pid]
    return total
