"""Which offsets a batch reads, and by how many tasks. Pure functions over offsets by partition.

A range is [start, end) in offsets, not in records: transactions, compaction and markers leave some offsets out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from semel.client.metadata import TopicPartition
from semel.spark.offsets import Offsets


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """What one task reads; sent to it pickled."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.place} from offset {self.start} to before {self.end}"


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges that are not empty, in order of topic and partition."""
    return [
        OffsetRange(*place, starts[place], end) for place, end in sorted(ends.items()) if end > starts.get(place, end)
    ]


def limited(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Ends such that about `most` offsets lie before them: each partition gets its share of what is there.

    One with little to read gets at least one offset, so that it is never starved by the others.
    """
    sizes = {place: end - starts[place] for place, end in ends.items() if end > starts.get(place, end)}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    admitted = dict(ends)
    for place, size in sizes.items():
        admitted[place] = starts[place] + max(1, most * size // total)
    return admitted


def available(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are to read."""
    return sum(max(0, end - starts.get(place, end)) for place, end in ends.items())


@dataclass
class Patience:
    """Whether to wait for more records before the next batch: for `fewest` of them, but not for ever."""

    fewest: int
    longest_ms: float
    last_batch_ms: float = -math.inf

    def waits(self, count: int, now_ms: float) -> bool:
        """A batch that is let through counts as the last one."""
        if count < self.fewest and now_ms - self.last_batch_ms < self.longest_ms:
            return True
        self.last_batch_ms = now_ms
        return False


def split(ranges: Iterable[OffsetRange], fewest: int | None, max_size: int | None) -> list[OffsetRange]:
    """Ranges for tasks: none larger than `max_size`, and then about `fewest` of them, the large ones cut further."""
    parts = [range_ for range_ in ranges if range_.size > 0]
    if max_size is not None:
        parts = [part for range_ in parts for part in _cut(range_, -(-range_.size // max_size))]
    if fewest is None or len(parts) >= fewest:
        return parts
    total = sum(part.size for part in parts)
    small = {part for part in parts if _share(part.size, total, fewest) == 1}
    large_total = total - sum(part.size for part in small)
    large_fewest = max(fewest - len(small), 1)
    return [
        piece
        for part in parts
        for piece in _cut(part, 1 if part in small else _share(part.size, large_total, large_fewest))
    ]


def _share(size: int, total: int, count: int) -> int:
    """How many of `count` tasks a range gets."""
    return max(1, math.floor(size / total * count + 0.5))


def _cut(range_: OffsetRange, count: int) -> list[OffsetRange]:
    """Pieces of nearly the same size; none is empty."""
    count = min(count, range_.size)
    bounds = [range_.start + range_.size * part // count for part in range(count + 1)]
    return [OffsetRange(range_.topic, range_.partition, bounds[part], bounds[part + 1]) for part in range(count)]
