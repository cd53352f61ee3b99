"""Where a batch stands: the index and what is remembered only make it quicker to find, for every offset."""

from __future__ import annotations

from random import Random

import pytest

from semel.config import BrokerConfig, topic_config
from semel.host.api import Disk, File
from semel.log.log import Log
from semel.log.segment import Located, Segment
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


def check_every_offset(segment: Segment, heads: list[Located]) -> None:
    for offset in range(segment.base_offset, segment.next_offset):
        assert segment.locate(offset) == next(head for head in heads if head.last_offset >= offset)
    assert segment.locate(segment.next_offset) is None


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("sizes", [[1], [600, 900], [1, 10, 700, 20_000]])
def test_every_offset_is_found_where_a_look_at_all_batches_finds_it(sizes: list[int], sealed: bool) -> None:
    for seed in range(10):
        segment = filled(Random(seed), sizes=sizes, batches=60)
        assert segment.offset_index.count > 1
        if sealed:
            segment.seal()
        check_every_offset(segment, list(segment.heads(0)))


@pytest.mark.parametrize("sizes", [[1], [20_000], [1, 10, 700, 20_000]])
def test_no_bit_of_the_index_of_a_sealed_segment_leads_past_a_batch(sizes: list[int]) -> None:
    for seed in range(60):
        random = Random(seed)
        segment = filled(random, sizes=sizes, batches=60)
        segment.seal()
        index = segment._disk.open(segment.path.replace(".log", ".index"))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(index.size())
            index.write_at(at, bytes([index.read_at(at, 1)[0] ^ 1 << random.randrange(8)]))
        check_every_offset(segment, list(segment.heads(0)))


def test_a_sealed_segment_whose_index_was_cut_is_read_without_it() -> None:
    for left in (0, 1, 8, 20):
        segment = filled(Random(left), sizes=[1, 20_000], batches=60)
        segment.seal()
        segment._disk.open(segment.path.replace(".log", ".index")).truncate(left)
        check_every_offset(segment, list(segment.heads(0)))


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


def test_any_batch_of_a_sealed_segment_costs_two_looks_at_most_where_every_batch_is_in_the_index() -> None:
    """At the batch that is likely, and at one that the index says is before it: a batch of one record ends where it
    begins, so the index leads to itself, which is looked at before it is believed."""
    segment = filled(Random(1), sizes=[20_000], batches=40)
    segment.seal()
    segment.file = counting = Counting(segment.file)  # type: ignore[assignment]
    for head in list(segment.heads(0))[3:-3]:
        for offset in range(head.base_offset, head.last_offset + 1):
            counting.reads = 0
            assert segment.locate(offset) == head
            assert counting.reads <= (2 if offset == head.last_offset else 1)
