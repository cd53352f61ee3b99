"""Cuts the end off a log: a follower gives up what its leader does not have.

What is cut must not come back after a power loss behind or among what is appended later, and nothing beside the log may
say meanwhile that more was durable. So a cut goes in this order:
1. Everything that has to be known is read: where the cut falls, and the producers as they were there.
2. What speaks of the later offsets goes, durably: recovery point, producer snapshots. Until here nothing is lost, and a
   cut that nobody wants any more ends here.
3. The log is cut, in memory and in its files, in one step.
4. The cut becomes durable. Appends wait for that: who comes sooner (a term of leadership that has just begun) calls
   `finish_cut_now`.
A crash between any two of these leaves a log that begins as this one, ends somewhere behind the cut, and is cut again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from semel.host.descriptors import is_short
from semel.log.epochs import FILE_NAME as EPOCHS_FILE
from semel.log.errors import BrokenLog, CorruptSegment
from semel.log.indexes import AbortedTransaction
from semel.log.log import Log
from semel.log.producers import Producers
from semel.log.segment import NO_TIMESTAMP, Segment
from semel.log.snapshots import read_snapshot, remove_snapshot, snapshot_offsets, snapshot_path
from semel.log.types import Offset, ProducerId
from semel.records.batch import HEADER_BYTES, BatchHeader, read_header
from semel.records.control import ControlMarker, read_control
from semel.records.errors import RecordError

logger = logging.getLogger("semel.log")

_BATCHES_AT_ONCE = 256
_WARM_BYTES = 1 << 20
_SHORT_RETRY_S = 0.1


class _Tail(NamedTuple):
    """The segment that is to be the last one, as it will be."""

    number: int
    size_bytes: int
    next_offset: Offset
    first_timestamp_ms: int
    max_timestamp_ms: int
    max_timestamp_offset: Offset
    bytes_since_index: int
    offset_entries: bytearray
    time_entries: bytearray
    aborted: list[AbortedTransaction]


def _always() -> bool:
    return True


async def truncate_to(log: Log, offset: Offset, now_ms: int, is_wanted: Callable[[], bool] = _always) -> bool:
    """Cuts the log so that it ends at `offset`, or before the batch that holds it.

    `is_wanted` is asked in the same step in which the log is cut: False, and nothing is. Nobody may append meanwhile.
    Raises CorruptSegment when the producers below the cut cannot be told: only `restart_at` helps then.
    """
    if offset >= log.end_offset:
        log.epochs.truncate_end(log.end_offset)  # one that has begun here and has written nothing
        return True
    if offset <= log.segments[0].base_offset:
        return await restart_at(log, offset, is_wanted)
    async with log.cutting() as announce:
        if log.is_closed or not is_wanted():
            return False
        try:
            tail = await _tail(log, offset)
            producers, rows_at_last = await _producers_at(log, tail, now_ms)
            await announce(tail.next_offset, min(log.start_offset, tail.next_offset))
            await _remove_snapshots_after(log, tail.next_offset)
            await log.when_not_flushing()
            if log.is_closed or not is_wanted():
                return False
            _cut(log, tail, producers, rows_at_last)
            await _make_durable(log)
        except (OSError, ValueError):
            if not log.is_closed:  # else it was removed meanwhile, and its files with it
                raise
        return True


async def restart_at(log: Log, offset: Offset, is_wanted: Callable[[], bool] = _always) -> bool:
    """Drops everything: the log begins, and ends, at `offset`. As for `truncate_to`, it must still be wanted."""
    async with log.cutting() as announce:
        if log.is_closed or not is_wanted():
            return False
        try:
            await announce(offset, offset)
            await _remove_snapshots_after(log, -1)
            await log.when_not_flushing()
            if log.is_closed or not is_wanted():
                return False
            logger.warning("%s: begins again at offset %d, its end was %d", log.directory, offset, log.end_offset)
            _drop_all(log, offset)
            await _make_durable(log)
        except (OSError, ValueError):
            if not log.is_closed:
                raise
        return True


def finish_cut_now(log: Log) -> None:
    """Makes a cut durable that is not yet, blocking. It seldom is needed: only who appends while another term of this
    log is still cutting finds one."""
    if not log.has_unsynced_cut:
        return
    try:
        if log.segments:
            log.segments[-1].file.flush_now()
        if log.disk.exists(log.directory):
            log.disk.sync_dir_now(log.directory)
    except OSError as failure:
        log.note_failure(failure)
        raise BrokenLog(f"{log.directory} was cut, and that cannot be made durable: {failure}") from failure
    log.has_unsynced_cut = False


async def _make_durable(log: Log) -> None:
    while log.has_unsynced_cut:
        try:
            if log.segments:
                await log.segments[-1].flush()
            if log.disk.exists(log.directory):
                await log.disk.sync_dir(log.directory)
        except OSError as failure:
            if is_short(failure):  # the disk was not asked: nothing may be appended until it was
                await asyncio.sleep(_SHORT_RETRY_S)
                continue
            log.note_failure(failure)
            raise
        log.has_unsynced_cut = False


# -- what has to be known


async def _tail(log: Log, offset: Offset) -> _Tail:
    number = log.segment_number(offset)
    segment = log.segments[number]
    if segment.unchecked is not None:
        segment.unchecked.check_now()
    located = segment.locate(offset)
    size_bytes = segment.size_bytes if located is None else located.position
    # The batches behind the last index entry are read. If that does not lead to a batch, none of them is believed.
    entry = segment.offset_index.before_position(size_bytes)
    begin = segment.believed_position(entry)
    is_indexed = entry is None or begin == entry[1]
    indexed = segment.offset_index.count_before(size_bytes) if is_indexed else 0
    next_offset = segment.base_offset
    newest: tuple[int, Offset] | None = None
    turns = _Turns(segment)
    await turns.before(begin)
    for position, header, _ in segment.batches(begin):
        if position >= size_bytes:
            break
        await turns.before(position + header.size_bytes)
        next_offset = header.next_offset
        if newest is None or header.max_timestamp > newest[0]:
            newest = header.max_timestamp, header.last_offset
    times = segment.time_index.count_before(next_offset) if is_indexed else 0
    timed = segment.time_index.at(times - 1) if times else None
    if timed is not None and (newest is None or timed[0] >= newest[0]):
        newest = timed
    first = read_header(segment.file.read_at(0, HEADER_BYTES)) if size_bytes else None
    return _Tail(
        number,
        size_bytes,
        next_offset,
        NO_TIMESTAMP if first is None else first.max_timestamp,
        *((NO_TIMESTAMP, segment.base_offset) if newest is None else newest),
        size_bytes - begin,
        segment.offset_index.first_entries(indexed),
        segment.time_index.first_entries(times),
        [aborted for aborted in segment.aborted_index.entries() if aborted.last_offset < next_offset],
    )


class _Turns:
    """Who reads a segment from a position on gives others their turns, and does not wait for the disk on the loop."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._warm_until = 0
        self._count = 0

    async def before(self, position: int) -> None:
        """To be called before the first batch is read, and then after each with the position of the next."""
        segment = self._segment
        if position >= self._warm_until and position < segment.size_bytes:
            length = min(_WARM_BYTES, segment.size_bytes - position)
            if not segment.file.is_warm(position, length):
                await segment.file.warm(position, length)
            self._warm_until = position + length // 2
        self._count += 1
        if self._count % _BATCHES_AT_ONCE == 0:
            await asyncio.sleep(0)


Rows = dict[ProducerId, bytes]


async def _producers_at(log: Log, tail: _Tail, now_ms: int) -> tuple[Producers | None, tuple[Offset, Rows] | None]:
    """The producers as they were at the cut, None if they are as they are now; and where the last segment begins."""
    base_offset = log.segments[tail.number].base_offset
    if not log.keeps_unsettled(tail.number + 1) and not await _has_producers_after(log, tail):
        return None, None
    producers, begin = Producers(), log.segments[0].base_offset
    offsets = snapshot_offsets(log.disk.list_dir(log.directory))
    for offset in reversed([offset for offset in offsets if offset <= base_offset]):
        rows = read_snapshot(log.disk, log.directory, offset)
        if rows is not None:
            producers.load(rows)
            begin = offset
            break
    rows_at_last = producers.rows()
    for number in range(log.segment_number(begin), tail.number + 1):
        if number == tail.number:
            rows_at_last = producers.rows()
        turns = _Turns(log.segments[number])
        await turns.before(0)
        for position, header, batch in log.segments[number].batches():
            if number == tail.number and position >= tail.size_bytes:
                break
            await turns.before(position + header.size_bytes)
            if header.base_offset >= begin and header.is_idempotent:
                producers.replay(header, _marker(header, batch), now_ms)
    return producers, (base_offset, rows_at_last)


async def _has_producers_after(log: Log, tail: _Tail) -> bool:
    """Whether a producer wrote anything of what is to go. Where that cannot be read, it may have."""
    if not len(log.producers):
        return False
    position = tail.size_bytes
    try:
        for segment in log.segments[tail.number :]:
            turns = _Turns(segment)
            await turns.before(position)
            for at, header, _ in segment.batches(position):
                if header.is_idempotent:
                    return True
                await turns.before(at + header.size_bytes)
            position = 0
    except CorruptSegment as damage:
        logger.warning("%s: it is to be cut", damage)
        return True
    return False


def _marker(header: BatchHeader, batch: memoryview) -> ControlMarker | None:
    if not header.is_control:
        return None
    try:
        return read_control(batch, header)
    except RecordError:
        return None


# -- the cut


async def _remove_snapshots_after(log: Log, offset: Offset) -> None:
    if not log.disk.exists(log.directory):
        return
    gone = [found for found in snapshot_offsets(log.disk.list_dir(log.directory)) if found > offset]
    for found in gone:
        log.disk.remove(snapshot_path(log.directory, found))
    if gone:
        await log.disk.sync_dir(log.directory)
    for found in gone:  # durably last: a snapshot that is there again has its window beside it
        remove_snapshot(log.disk, log.directory, found)


def _cut(log: Log, tail: _Tail, producers: Producers | None, rows_at_last: tuple[Offset, Rows] | None) -> None:
    segment = log.segments[tail.number]
    segment.file.size()  # has a descriptor from here on: what fails now is the disk
    logger.info("%s: cut from offset %d to %d", log.directory, log.end_offset, tail.next_offset)
    try:
        for later in reversed(log.segments[tail.number + 1 :]):
            later.remove()
        if segment.size_bytes > tail.size_bytes:
            segment.truncate(tail.size_bytes)
        segment.offset_index.reopen(tail.offset_entries)
        segment.time_index.reopen(tail.time_entries)
        segment.aborted_index.reopen(tail.aborted)
    except OSError as error:
        raise BrokenLog(f"{log.directory} cannot be cut at offset {tail.next_offset}: {error}") from error
    segment.next_offset = tail.next_offset
    segment.first_timestamp_ms = tail.first_timestamp_ms
    segment.max_timestamp_ms = tail.max_timestamp_ms
    segment.max_timestamp_offset = tail.max_timestamp_offset
    segment.bytes_since_index = tail.bytes_since_index
    log.cut_end(tail.number + 1, rows_at_last)
    if producers is not None:
        log.producers.take_over(producers)


def _drop_all(log: Log, offset: Offset) -> None:
    try:
        for segment in reversed(log.segments):
            segment.remove()
        if log.disk.exists(f"{log.directory}/{EPOCHS_FILE}"):
            log.disk.remove(f"{log.directory}/{EPOCHS_FILE}")
    except OSError as error:
        raise BrokenLog(f"{log.directory} cannot be emptied: {error}") from error
    log.begin_again(offset)
    log.producers.take_over(Producers())


__all__ = ["finish_cut_now", "restart_at", "truncate_to"]
