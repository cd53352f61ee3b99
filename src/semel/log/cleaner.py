"""Chooses what to compact next and carries it out: the work away from the loop, the swap on it."""

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import BrokenExecutor
from typing import Any

from semel.config import BrokerConfig
from semel.host.api import Disk, Jobs
from semel.host.complaints import Complaints
from semel.log.compaction import CompactionResult, CompactionTask, compact
from semel.log.compaction_swap import clear_work, swap
from semel.log.errors import Refused
from semel.log.listing import list_settled, unlist
from semel.log.log import Log
from semel.log.producers import NO_SEQUENCE
from semel.log.segment import Segment
from semel.log.types import Offset

logger = logging.getLogger("semel.log")


def cleanable_segments(log: Log, now_ms: int) -> list[Segment]:
    """Sealed segments that are settled, stable, committed, and older than `min.compaction.lag.ms`."""
    cleanable: list[Segment] = []
    for segment in log.removable_before(log.last_stable_offset):
        if not log.is_settled(segment):  # sealed while others were being settled
            break
        if log.config.min_compaction_lag_ms and now_ms - segment.max_timestamp_ms < log.config.min_compaction_lag_ms:
            break
        cleanable.append(segment)
    return cleanable


def dirty_ratio(segments: list[Segment], first_dirty_offset: Offset) -> float:
    """How much of what can be compacted has not been yet."""
    total = sum(segment.size_bytes for segment in segments)
    dirty = sum(segment.size_bytes for segment in segments if segment.next_offset > first_dirty_offset)
    return dirty / total if total else 0.0


def compaction_task(log: Log, first_dirty_offset: Offset, now_ms: int, config: BrokerConfig) -> CompactionTask | None:
    """What to do for this log now, if it is worth doing."""
    if not log.config.compacts:
        return None
    segments = cleanable_segments(log, now_ms)
    dirty = [segment for segment in segments if segment.next_offset > first_dirty_offset]
    if not dirty:
        return None
    is_overdue = now_ms - dirty[0].max_timestamp_ms > log.config.max_compaction_lag_ms
    if dirty_ratio(segments, first_dirty_offset) < log.config.min_cleanable_dirty_ratio and not is_overdue:
        return None
    return CompactionTask(
        directory=log.directory,
        bases=[segment.base_offset for segment in segments],
        end_offset=segments[-1].next_offset,
        first_dirty_offset=first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        map_bytes=config.int("log.cleaner.dedupe.buffer.size"),
        aborted=[aborted for segment in log.segments for aborted in segment.aborted_index.entries()],
        producers={
            entry.producer_id: (entry.epoch, entry.last_offset)
            for entry in log.producers.entries()
            if entry.last_sequence != NO_SEQUENCE
        },
    )


async def run_compaction(
    disk: Disk, jobs: Jobs, log: Log, task: CompactionTask, complaints: Complaints | None = None
) -> CompactionResult | None:
    """Compacts and swaps. None when the log was closed or cut meanwhile, or there was no room: nothing is changed."""
    try:
        result = await jobs.run(compact, disk, task)
    except (OSError, Refused, BrokenExecutor) as error:
        # Nothing in use was touched, and a full disk is no reason to stop: it is tried again.
        complaints = complaints or Complaints(logger)
        complaints.say("compaction", logging.ERROR, "%s: not compacted this time: %s", log.directory, error)
        clear_work(disk, log.directory)
        return None
    count = len(result.old_bases)
    old = log.segments[:count]
    if log.is_closed or [segment.base_offset for segment in old] != result.old_bases:
        clear_work(disk, log.directory)
        return None
    # Half-way through the swap neither the old files nor the new ones are what has to be there.
    await unlist(log, result.old_bases)
    if log.is_closed:
        return None
    await _to_its_end(swap(disk, log.directory, result.old_bases, lambda: _reopen(disk, log, old, result)))
    await list_settled(log)
    logger.info(
        "%s: compacted %d records to %d, %d bytes to %d",
        log.directory,
        result.records_before,
        result.records_after,
        result.bytes_before,
        result.bytes_after,
    )
    return result


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Carries `work` out even if whoever waits for it is cancelled, who then ends after it.

    A clean stop lists the files of a log when its tasks have ended. A manifest that is still on its way then would move
    other files there at the next start.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _reopen(disk: Disk, log: Log, old: list[Segment], result: CompactionResult) -> None:
    following = log.segments[len(old)].base_offset
    made = [Segment(disk, log.directory, base, is_new=False, is_active=False) for base in result.new_bases]
    for segment, end in zip(made, [*result.new_bases[1:], following], strict=True):
        segment.next_offset = end
        last_time = segment.time_index.last()
        if last_time is not None:
            segment.max_timestamp_ms, segment.max_timestamp_offset = last_time
    log.replace_segments(old, made)
