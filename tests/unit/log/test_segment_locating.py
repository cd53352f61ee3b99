"""Where a batch stands: the index and what is remembered only make it quicker to find, for every offset."""

from __future__ import annotations

from random import Random

import pytest

from semel.config import BrokerConfig, topic_config
from semel.host.api import Disk, File
from semel.log.log import Log
from semel.log.segment import Segment
from semel.records.batch import read_header
from semel.records.build import build_batch
from semel.sim.disk import SimDisk

NOW_MS = 1_700_000_000_000


def filled(random: Random, *, sizes: list[int], batches: int) -> Segment:
    disk: Disk = SimDisk(random.randrange(1 << 30))
    log = Log(disk, "/t-0", topic_config({"index.interval.bytes": "500"}, BrokerConfig()), start_offset=1000)
    for _ in range(batches):
        batch = build_batch([b"." * random.choice(sizes)] * random.randint(1, 3), base_timestamp_ms=NOW_MS)
        log.append(batch, read_header(batch), 0, NOW_MS)
    return log.segments[-1]


@pytest.mark.parametrize("sizes", [[1], [600, 900], [1, 10, 700, 20_000]])
def test_every_offset_is_found_where_a_look_at_all_batches_finds_it(sizes: list[int]) -> None:
    for seed in range(10):
        random = Random(seed)
        segment = filled(random, sizes=sizes, batches=60)
        heads = list(segment.heads(0))
        assert segment.offset_index.count > 1
        for offset in range(segment.base_offset, segment.next_offset):
            expected = next(head for head in heads if head.last_offset >= offset)
            assert segment.locate(offset) == expected
        assert segment.locate(segment.next_offset) is None


class Counting:
    """A file that counts how often it is read."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.reads = 0

    def read_at(self, position: int, length: int) -> bytes:
        self.reads += 1
        return self._file.read_at(position, length)


def test_who_reads_on_costs_one_look_where_every_batch_is_in_the_index() -> None:
    segment = filled(Random(1), sizes=[20_000], batches=40)
    counting = Counting(segment.file)
    segment.file = counting  # type: ignore[assignment]
    found = list(segment.heads(0))
    for head in found[3:-3]:
        counting.reads = 0
        assert segment.locate(head.base_offset) == head
        assert counting.reads == 1
