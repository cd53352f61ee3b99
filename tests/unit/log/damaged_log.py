"""A log with sealed segments and aborted transactions, stopped or killed, to be damaged; and what it held."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from log_samples import NOW_MS, batch, offsets_from, settings, write
from test_log_store import ROOT, Stand

from semel.host.api import FileRange
from semel.log.log import Log
from semel.records.control import ControlType
from semel.sim.disk import SimDisk

DIRECTORY = f"{ROOT}/events-0"
SETTINGS: dict[str, object] = {"segment_bytes": 700, "index_interval_bytes": 1}
ROUNDS = 12


class Known(NamedTuple):
    """What a reader can find out about a log."""

    start_offset: int
    end_offset: int
    offsets: list[int]
    aborted: list[tuple[int, ...]]
    by_time: list[int | None]
    epochs: list[tuple[int, int]]
    producers: list[object]


class Damaged(NamedTuple):
    disk: SimDisk
    known: Known
    bases: list[int]

    def path(self, number: int, suffix: str) -> str:
        return f"{DIRECTORY}/{self.bases[number]:020d}{suffix}"

    def aborted_paths(self) -> list[str]:
        names = self.disk.list_dir(DIRECTORY)
        return [f"{DIRECTORY}/{name}" for name in names if name.endswith(".txnindex")]


def known_of(log: Log) -> Known:
    aborted = set()
    for offset in range(log.start_offset, log.end_offset):
        found = log.read(offset, 1 << 20, log.end_offset, at_least_one=True, warmed=True)
        assert isinstance(found, FileRange)
        aborted |= set(log.aborted_between(offset, found))
        found.release()
    times = [log.offset_for_timestamp(NOW_MS + number) for number in range(ROUNDS + 1)]
    return Known(
        log.start_offset,
        log.end_offset,
        offsets_from(log, log.start_offset),
        sorted(aborted),
        [None if one is None else one.offset for one in times],
        list(log.epochs.entries),
        [
            (entry._replace(timestamp_ms=0), log.producers.window(entry.producer_id))
            for entry in sorted(log.producers.entries())
        ],
    )


def start(disk: SimDisk) -> tuple[Stand, Log]:
    stand = Stand(disk)
    stand.open()
    return stand, stand.store.load("events", 0, "A" * 22, settings(**SETTINGS))


async def damageable(*, is_clean: bool) -> Damaged:
    """Every round is a millisecond later, and aborts a transaction."""
    stand, log = start(SimDisk())
    for number in range(ROUNDS):
        epoch, now_ms = number // 5, NOW_MS + number
        write(log, batch(b"plain", producer=1, sequence=number, timestamp_ms=now_ms), leader_epoch=epoch)
        data = batch(b"x" * 80, producer=7, sequence=number, transactional=True, timestamp_ms=now_ms)
        write(log, data, leader_epoch=epoch)
        log.append_marker(ControlType.ABORT, 7, 0, 0, epoch, now_ms)
        await stand.commit(log)
        await asyncio.sleep(0.2)  # what was rolled is settled
    await stand.store.checkpoint()
    await stand.store.mark_flushed()
    assert len(log.segments) > 4
    assert sum(bool(segment.aborted_index.entries()) for segment in log.segments) > 3
    known, bases = known_of(log), [segment.base_offset for segment in log.segments]
    if is_clean:
        await stand.store.close()
    return Damaged(stand.disk.after_kill(), known, bases)


__all__ = ["DIRECTORY", "Damaged", "Known", "damageable", "known_of", "start"]
