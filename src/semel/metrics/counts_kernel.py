# cython: language_level=3, boundscheck=False, wraparound=False
"""Counters that the fast paths write: of one topic, and of how long something took.

Numbers only grow; who shows them computes rates. Compiled or plain Python, with the same results. C types stand in the
.pxd file.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

compiled: bool = cython.compiled

_FIRST_BOUND_NS = cython.declare(cython.longlong, 100_000)
_BUCKETS = cython.declare(cython.Py_ssize_t, 20)

# Upper bounds of the buckets: 0.1 ms, and each twice the one before. The last bucket has no bound.
BOUNDS_S: tuple[float, ...] = tuple(2**place / 10_000 for place in range(19))


@cython.cclass
class TopicCounts:
    """What went into one topic and out of it on this node."""

    batches_in: int
    records_in: int
    bytes_in: int
    bytes_out: int
    # To followers.
    replication_bytes_out: int
    # Batches that were there already: a retry of the producer was answered, and not written again.
    duplicates: int
    # Batches that were refused.
    refused: int

    def __init__(self) -> None:
        self.batches_in = self.records_in = self.bytes_in = 0
        self.bytes_out = self.replication_bytes_out = 0
        self.duplicates = self.refused = 0

    def add_batches(self, batches: cython.longlong, records: cython.longlong, size_bytes: cython.longlong) -> None:
        self.batches_in += batches
        self.records_in += records
        self.bytes_in += size_bytes


@cython.cclass
class Times:
    """How often something took how long."""

    counts: list[int]  # by bucket
    total_ns: int

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.total_ns = 0

    def observe(self, taken_ns: cython.longlong, times: cython.longlong = 1) -> None:
        """`times` of them took so long, each."""
        place: cython.Py_ssize_t = 0
        bound_ns: cython.longlong = _FIRST_BOUND_NS
        while taken_ns > bound_ns and place < _BUCKETS - 1:
            bound_ns *= 2
            place += 1
        self.counts[place] += times
        self.total_ns += taken_ns * times

    @property
    def count(self) -> int:
        return sum(self.counts)
