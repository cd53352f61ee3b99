"""Two logs: one is led, the other follows it; and whether they are alike."""

from __future__ import annotations

from log_samples import NOW_MS, batches_from, new_log, read

from semel.log.following import append_as_follower
from semel.log.log import Log
from semel.log.producers import Batch, Entry
from semel.sim.disk import SimDisk

NEWEST_EPOCH = 1 << 20


def follower_log(disk: SimDisk | None = None, **overrides: object) -> Log:
    return new_log(disk or SimDisk(9), **overrides)


def catch_up(follower: Log, leader: Log, *, max_bytes: int = 1 << 20, leader_epoch: int = NEWEST_EPOCH) -> None:
    """Appends all that the leader has, fetch by fetch."""
    while follower.end_offset < leader.end_offset:
        data = memoryview(read(leader, follower.end_offset, max_bytes))
        taken = 0
        while more := append_as_follower(follower, data[taken:], leader_epoch, NOW_MS):
            taken += more
        assert taken, f"nothing could be appended at offset {follower.end_offset}"


def producers_of(log: Log) -> dict[int, tuple[Entry, list[Batch]]]:
    """All that is known of the producers, but for when they were last seen, which each replica tells for itself."""
    return {
        entry.producer_id: (entry._replace(timestamp_ms=0), log.producers.window(entry.producer_id))
        for entry in log.producers.entries()
    }


def aborted_of(log: Log) -> list[tuple[int, int, int, int]]:
    return [tuple(aborted) for segment in log.segments for aborted in segment.aborted_index.entries()]


def assert_alike(one: Log, other: Log) -> None:
    """The same bytes, and the same conclusions from them."""
    start = max(one.start_offset, other.start_offset)
    assert one.end_offset == other.end_offset
    assert batches_from(one, start) == batches_from(other, start)
    assert producers_of(one) == producers_of(other)
    assert one.producers.oldest_open_offset() == other.producers.oldest_open_offset()
    assert aborted_of(one) == aborted_of(other)
    assert one.epochs.entries == other.epochs.entries
    assert one.last_stable_offset == other.last_stable_offset or one.high_watermark != other.high_watermark


def assert_finds(log: Log) -> None:
    """Every offset and every time leads to where it stands, whatever the indexes went through."""
    for header, data in batches_from(log, log.start_offset):
        for offset in (header.base_offset, header.last_offset):
            assert read(log, offset, 1).startswith(data), f"offset {offset} leads elsewhere"
        found = log.offset_for_timestamp(header.max_timestamp)
        assert found is not None
        assert found.timestamp_ms >= header.max_timestamp
        assert found.offset <= header.last_offset
    newest = max((header.max_timestamp for header, _ in batches_from(log, log.start_offset)), default=None)
    found = log.offset_of_max_timestamp()
    assert (None if found is None else found.timestamp_ms) == newest
