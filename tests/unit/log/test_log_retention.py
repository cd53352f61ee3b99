"""Which segments have outlived their topic's settings."""

from __future__ import annotations

from typing import Any

from log_samples import NOW_MS, batch, new_log, write

from semel.log.log import Log
from semel.log.retention import expired_segments, wants_roll
from semel.sim.loop import run


def filled(count: int = 6, *, age_ms: int = 0, **overrides: Any) -> Log:
    """One batch in each segment, a hundred milliseconds apart, and an empty active one."""
    log = new_log(**overrides)
    for number in range(count):
        write(log, batch(b"x" * 100, timestamp_ms=NOW_MS - age_ms + number * 100))
        log.roll()
    run(log.settle())
    log.high_watermark = log.end_offset
    return log


def expired(log: Log, now_ms: int = NOW_MS) -> list[int]:
    return [segment.base_offset for segment in expired_segments(log, now_ms)]


def test_segments_go_by_the_age_of_their_newest_record() -> None:
    log = filled(retention_ms=250)
    assert expired(log, NOW_MS + 250) == []
    assert expired(log, NOW_MS + 251) == [0]
    assert expired(log, NOW_MS + 451) == [0, 1, 2]
    assert expired(log, NOW_MS + 100_000) == [0, 1, 2, 3, 4, 5]


def test_an_old_segment_behind_a_young_one_stays() -> None:
    log = new_log(retention_ms=100)
    for timestamp in (0, 5000, 0):
        write(log, batch(b"x", timestamp_ms=NOW_MS + timestamp))
        log.roll()
    run(log.settle())
    log.high_watermark = 3
    assert expired(log, NOW_MS + 1000) == [0]


def test_segments_go_by_size_while_enough_is_left() -> None:
    size = filled(1).size_bytes
    assert expired(filled(6, retention_bytes=6 * size)) == []
    assert expired(filled(6, retention_bytes=4 * size)) == [0, 1]
    assert expired(filled(6, retention_bytes=4 * size + 1)) == [0]
    assert expired(filled(6, retention_bytes=0)) == [0, 1, 2, 3, 4, 5]


def test_without_limits_nothing_goes() -> None:
    log = filled(retention_ms=-1, retention_bytes=-1)
    assert expired(log, NOW_MS + 10**12) == []


def test_what_is_not_committed_yet_stays() -> None:
    log = filled(retention_ms=100)
    log.high_watermark = 2
    assert expired(log, NOW_MS + 100_000) == [0, 1]


def test_what_was_sealed_while_others_were_settled_stays() -> None:
    """Its producers are in no snapshot yet: without it, recovery would not know them."""
    log = filled(2, retention_ms=100)
    write(log, batch(b"x", timestamp_ms=NOW_MS))
    log.roll()
    log.high_watermark = log.end_offset
    assert expired(log, NOW_MS + 100_000) == [0, 1]


def test_what_lies_before_the_start_of_the_log_goes_whatever_the_policy() -> None:
    log = filled(cleanup_policy="compact", retention_ms=1)
    assert expired(log, NOW_MS + 100_000) == [], "a compacted topic does not delete by age"
    log.advance_start(3)
    assert expired(log) == [0, 1, 2]


def test_compact_and_delete_does_both() -> None:
    log = filled(cleanup_policy="compact,delete", retention_ms=250)
    assert expired(log, NOW_MS + 251) == [0]


def test_a_segment_without_timestamps_never_grows_old() -> None:
    log = new_log(retention_ms=1)
    write(log, batch(b"x", timestamp_ms=-1))
    log.roll()
    log.high_watermark = 1
    assert expired(log, NOW_MS) == []


def test_an_active_segment_is_rolled_when_all_of_it_is_old() -> None:
    log = new_log(retention_ms=100)
    write(log, batch(b"x"))
    log.high_watermark = 1
    assert not wants_roll(log, NOW_MS + 100)
    assert wants_roll(log, NOW_MS + 101)
    write(log, batch(b"y", timestamp_ms=NOW_MS + 50))
    assert not wants_roll(log, NOW_MS + 101), "it holds a young record"
    log.high_watermark = 2
    assert wants_roll(log, NOW_MS + 151)
    log.high_watermark = 1
    assert not wants_roll(log, NOW_MS + 151), "its last record is not committed"


def test_an_empty_active_segment_is_not_rolled() -> None:
    assert not wants_roll(filled(retention_ms=1), NOW_MS + 100_000)
    assert not wants_roll(new_log(retention_ms=1), NOW_MS)
