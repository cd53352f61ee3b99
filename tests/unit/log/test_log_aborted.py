"""What a read_committed reader is told of aborted transactions."""

from __future__ import annotations

import random

from log_samples import batch, load, mark, new_log, write

from semel.host.api import FileRange
from semel.log.log import Log
from semel.records.batch import whole_batches
from semel.records.control import ControlType
from semel.sim.disk import SimDisk


def told(log: Log, offset: int, max_bytes: int) -> tuple[set[tuple[int, int, int]], int]:
    found = log.read(offset, max_bytes, log.end_offset, at_least_one=True, warmed=True)
    assert isinstance(found, FileRange)
    aborted = {(a.producer_id, a.first_offset, a.last_offset) for a in log.aborted_between(offset, found)}
    upper = [header for _, header in whole_batches(found.read())][-1].next_offset
    found.release()
    return aborted, upper


def fill(log: Log, random: random.Random, turns: int) -> list[tuple[int, int, int]]:
    """Transactions of three producers, mixed; returns the aborted ones."""
    sequences: dict[int, int] = {1: 0, 2: 0, 3: 0}
    began: dict[int, int] = {}
    aborted = []
    for _ in range(turns):
        producer = random.choice((1, 2, 3))
        if producer in began and random.random() < 0.4:
            kind = random.choice((ControlType.ABORT, ControlType.COMMIT))
            at = mark(log, kind, producer).base_offset
            if kind == ControlType.ABORT:
                aborted.append((producer, began[producer], at))
            del began[producer]
        else:
            at = write(
                log, batch(b"x" * 30, producer=producer, sequence=sequences[producer], transactional=True)
            ).base_offset
            sequences[producer] += 1
            began.setdefault(producer, at)
    return aborted


def test_every_aborted_transaction_that_touches_the_range_is_told_and_no_other_kind() -> None:
    for seed in range(12):
        disk = SimDisk()
        log = new_log(disk, segment_bytes=700)
        aborted = fill(log, random.Random(seed), 80)
        assert len(aborted) > 5
        for restarted in (False, True):
            if restarted:
                log, _ = load(disk.after_kill(), segment_bytes=700)
            for offset in range(0, log.end_offset, 3):
                for max_bytes in (1, 400, 10_000):
                    got, upper = told(log, offset, max_bytes)
                    needed = {a for a in aborted if a[2] >= offset and a[1] < upper}
                    assert needed <= got
                    assert got <= set(aborted)
                    assert all(transaction[2] >= offset for transaction in got)


def test_the_search_ends_once_the_log_was_stable_past_the_range() -> None:
    log = new_log()
    for number in range(6):
        write(log, batch(b"x", producer=1, sequence=number, transactional=True))
        mark(log, ControlType.ABORT, 1)
    assert told(log, 0, 1)[0] == {(1, 0, 1)}


def test_a_long_transaction_is_told_though_later_ones_ended_before_it() -> None:
    log = new_log()
    write(log, batch(b"long", producer=1, sequence=0, transactional=True))
    for number in range(6):
        write(log, batch(b"x", producer=2, sequence=number, transactional=True))
        mark(log, ControlType.ABORT, 2)
    mark(log, ControlType.ABORT, 1)
    assert (1, 0, 13) in told(log, 0, 1)[0]


def test_the_transaction_index_is_written_when_the_segment_is_sealed() -> None:
    disk = SimDisk()
    log = new_log(disk)
    write(log, batch(b"x", producer=1, sequence=0, transactional=True))
    mark(log, ControlType.ABORT, 1)
    path = log.segments[0].aborted_index.path
    assert not disk.exists(path), "an append costs one write, to the log"
    log.roll()
    assert len(disk.read_file(path)) == 34
