"""Appends to the log of a follower: batches as their leader wrote them.

Offsets, leader epochs and sequences were judged by the leader, so nothing is judged anew but what the way here may have
spoiled: the frame, the checksum, and that offsets go on. All that follows from a batch (indexes, producers, aborted
transactions, leader epochs, rolls) is kept as for an append of the leader, so that this log can be led at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from semel.log.errors import Refused
from semel.log.log import Log
from semel.log.segment import MAX_RELATIVE_OFFSET
from semel.log.truncation import finish_cut_now
from semel.log.types import Epoch, Offset
from semel.records.batch import BatchHeader, check_crc, whole_batches
from semel.records.control import ControlMarker, read_control
from semel.records.errors import CorruptBatch, RecordError
from semel.wire.errors import ErrorCode

# Of small batches: about 3 ms of work.
_BATCHES_AT_ONCE = 256


class _Taken(NamedTuple):
    """A batch that may be written: where it stands in the buffer, and what it is."""

    position: int
    header: BatchHeader
    marker: ControlMarker | None


def append_as_follower(
    log: Log, batches: memoryview, leader_epoch: Epoch, now_ms: int, *, most_batches: int = _BATCHES_AT_ONCE
) -> int:
    """Appends the batches that are whole, unchanged. Returns how many bytes it has taken: go on behind them.

    Nothing is taken of a batch that is cut off, nor of one with a leader epoch above `leader_epoch`: its leader has
    written it in a later term, and read it for an answer of this one (KAFKA-18723). Raises Refused when a batch is
    damaged or does not follow, or the disk refuses; what came before it is written then.
    """
    assert not log.pending, "a follower has no producers"
    finish_cut_now(log)
    run = _Run(log, batches, now_ms)
    try:
        for taken in _whole(batches, log.end_offset, leader_epoch, most_batches):
            run.add(taken)
    finally:
        run.write()
    return run.written_bytes


def _whole(batches: memoryview, expected: Offset, leader_epoch: Epoch, most_batches: int) -> Iterator[_Taken]:
    count = 0
    try:
        for position, header in whole_batches(batches):
            if count == most_batches or header.partition_leader_epoch > leader_epoch:
                return
            count += 1
            if not check_crc(batches, position, header):
                raise CorruptBatch("CRC-32C does not match")
            # A gap is what compaction has left. The numbers of an index reach no farther than this.
            if not expected <= header.base_offset <= header.last_offset <= expected + MAX_RELATIVE_OFFSET:
                raise CorruptBatch(f"its offsets are {header.base_offset} to {header.last_offset}")
            yield _Taken(position, header, _marker(batches, position, header))
            expected = header.next_offset
    except CorruptBatch as error:
        text = f"the leader sent a bad batch where offset {expected} comes next: {error}"
        raise Refused(ErrorCode.CORRUPT_MESSAGE, text) from error


def _marker(batches: memoryview, position: int, header: BatchHeader) -> ControlMarker | None:
    if not header.is_control:
        return None
    try:
        return read_control(batches[position : position + header.size_bytes], header)
    except RecordError:  # of a kind that we do not know: recovery takes it for none, too
        return None


class _Run:
    """Neighbours that go into one segment are written in one call of the disk, from where they were received."""

    def __init__(self, log: Log, batches: memoryview, now_ms: int) -> None:
        self.written_bytes = 0
        self._log = log
        self._batches = batches
        self._now_ms = now_ms
        self._run: list[_Taken] = []
        self._run_bytes = 0

    def add(self, taken: _Taken) -> None:
        if self._run and not self._goes_with_the_others(taken.header):
            self.write()
        self._run.append(taken)
        self._run_bytes += taken.header.size_bytes

    def _goes_with_the_others(self, header: BatchHeader) -> bool:
        segments, config = self._log.segments, self._log.config
        # The first batch of a segment is written alone: what is full is told by what the first one was like.
        return bool(segments and segments[-1].size_bytes) and not segments[-1].is_full(
            self._run_bytes + header.size_bytes,
            header.last_offset,
            header.max_timestamp,
            self._now_ms,
            config.segment_bytes,
            config.segment_index_bytes,
            config.segment_ms,
        )

    def write(self) -> None:
        if not self._run:
            return
        log, run = self._log, self._run
        self._run = []
        first = run[0]
        try:
            segment = log.segment_for(
                first.header.size_bytes, first.header.last_offset, first.header.max_timestamp, self._now_ms
            )
        except OSError as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk refused a segment: {error.strerror}") from error
        start, size_bytes = first.position, self._run_bytes
        at = segment.write([self._batches[start : start + size_bytes]])
        for _, header, marker in run:
            segment.note_batch(header, at, log.config.index_interval_bytes)
            at += header.size_bytes
            log.note_written(segment, header.partition_leader_epoch, header.base_offset)
            if header.is_idempotent:
                ended = log.producers.replay(header, marker, self._now_ms)
                if ended is not None and ended.aborted:
                    log.note_aborted(segment, ended)
        self._run_bytes = 0
        self.written_bytes += size_bytes
