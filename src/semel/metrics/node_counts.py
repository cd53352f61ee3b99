"""What a node counts besides its topics: requests, flushes, changes of in-sync replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from semel.metrics.counts_kernel import Times


class RequestCounts:
    """Answered requests by API key: how many, and how long each took from its bytes to its answer."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.times: dict[int, Times] = {}
        # By API key and error code. One answer may carry several.
        self.errors: Counter[tuple[int, int]] = Counter()

    def answered(self, api_key: int, taken_ns: int, times: int = 1) -> None:
        known = self.times.get(api_key)
        if known is None:
            known = self.times[api_key] = Times()
        known.observe(taken_ns, times)

    def of(self, api_key: int) -> Times:
        """To be written to directly, by who serves one API alone."""
        return self.times.setdefault(api_key, Times())


class FlushCounts:
    """Flushes of logs: how long each took, and how many records they made durable."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.times = Times()
        self.records = 0

    def flushed(self, began_ns: int, records: int) -> None:
        self.times.observe(self.now_ns() - began_ns)
        self.records += records


class IsrCounts:
    """Changes of in-sync replicas that the controller has agreed to."""

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0

    def changed(self, before: int, after: int) -> None:
        if after < before:
            self.shrinks += 1
        elif after > before:
            self.expands += 1


class NodeCounts:
    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.requests = RequestCounts(now_ns)
        self.flushes = FlushCounts(now_ns)
        self.isr = IsrCounts()
