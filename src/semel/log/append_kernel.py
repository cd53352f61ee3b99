# cython: language_level=3, boundscheck=False, wraparound=False
"""Where a segment and a log end, and the append of ordinary batches, from their bytes to the disk.

Two steps. A batch is first taken: it gets its offsets, and waits among the log's `pending` ones. Then all that are
pending are written in one call of the disk, and only after that do log, producers and indexes change. If the write
fails, every batch is again as it was sent, and nothing else has changed.
Rule: between the two steps nothing else may be done to the log. Who takes a batch sees to it that the write follows.
Compiled or plain Python, with the same results. C types stand in the .pxd file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

if cython.compiled:
    from cython.cimports.semel.log.row_kernel import number, put
    from cython.cimports.semel.metrics.counts_kernel import TopicCounts
else:
    from semel.log.row_kernel import number, put
    from semel.metrics.counts_kernel import TopicCounts

from semel.log.row_kernel import NO_ROW

if TYPE_CHECKING:
    from semel.config import TopicConfig
    from semel.host.api import File
    from semel.log.epochs import LeaderEpochs
    from semel.log.indexes import OffsetIndex, TimeIndex
    from semel.log.producers import Producers

compiled: bool = cython.compiled

_MAX_RELATIVE_OFFSET = cython.declare(cython.longlong, 2**31 - 1)
_INDEX_ENTRY_BYTES = cython.declare(cython.longlong, 8)
_NO_TIMESTAMP = cython.declare(cython.longlong, -1)
_LEADER_EPOCH_AT = cython.declare(cython.longlong, 12)
_joined = cython.declare(bytearray, bytearray(32 << 10))  # where small batches are put together


@cython.cclass
class SegmentEnd:
    """Where a segment ends: the numbers that every append changes, and the step that changes them."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    bytes_since_index: int
    offset_index: OffsetIndex
    time_index: TimeIndex
    file: File

    def take_back_write(self, error: OSError) -> NoReturn:
        """Undoes a write that the disk refused, and raises what is to be said of it."""
        raise error

    def write(self, batches: list) -> int:
        """Writes batches behind the others and returns where they stand. `note` must follow."""
        try:
            self.file.write_at(self.size_bytes, *batches)
        except OSError as error:
            self.take_back_write(error)
            raise
        return self.size_bytes

    def note(
        self,
        last_offset: cython.longlong,
        max_timestamp_ms: cython.longlong,
        position: cython.longlong,
        size_bytes: cython.longlong,
        index_interval_bytes: cython.longlong,
    ) -> None:
        """Counts in a batch that stands at `position`: offsets, timestamps, indexes."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.first_timestamp_ms == _NO_TIMESTAMP:
            self.first_timestamp_ms = max_timestamp_ms
        if self.bytes_since_index > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size_bytes
        if position + size_bytes > self.size_bytes:  # else a scan counts in what is there already
            self.size_bytes = position + size_bytes
        self.next_offset = last_offset + 1

    def is_full(
        self,
        size_bytes: cython.longlong,
        last_offset: cython.longlong,
        timestamp_ms: cython.longlong,
        now_ms: cython.longlong,
        most_bytes: cython.longlong,
        most_index_bytes: cython.longlong,
        most_ms: cython.ulonglong,
    ) -> bool:
        """Whether the next batch belongs into a new segment. `most_...` are the limits of one segment."""
        entries: cython.longlong = self.offset_index.count
        if self.size_bytes == 0:
            return False
        if (
            self.size_bytes + size_bytes > most_bytes
            or last_offset - self.base_offset > _MAX_RELATIVE_OFFSET
            or entries * _INDEX_ENTRY_BYTES >= most_index_bytes
        ):
            return True
        if timestamp_ms == _NO_TIMESTAMP:
            timestamp_ms = now_ms
        if self.first_timestamp_ms == _NO_TIMESTAMP or timestamp_ms <= self.first_timestamp_ms:
            return False
        # Two numbers of 64 bits may lie further apart than one of them can say, with a sign.
        age_ms: cython.ulonglong = cython.cast(cython.ulonglong, timestamp_ms) - cython.cast(
            cython.ulonglong, self.first_timestamp_ms
        )
        return age_ms > most_ms


@cython.cclass
class LogEnd:
    """Where a log ends, and what an append notes besides."""

    start_offset: int
    end_offset: int
    # How far the log is committed. Only `replication/term_kernel.py` moves it.
    high_watermark: int
    config: TopicConfig
    segments: list[Any]  # a list is not invariant enough for what extends SegmentEnd
    epochs: LeaderEpochs
    producers: Producers
    # Segments that were written to since they were flushed.
    dirty: list[Any]
    # Batches that were taken and are not written yet, and how many bytes they are.
    pending: list[PendingAppend]
    pending_bytes: int
    # Of its topic.
    counts: TopicCounts

    def note_written(self, segment: SegmentEnd, leader_epoch: cython.longlong, base_offset: cython.longlong) -> None:
        """Counts in what now ends `segment` and was not there before `base_offset`."""
        entries: list[Any] = self.epochs.entries
        if not entries or entries[len(entries) - 1][0] < leader_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        if not self.dirty or self.dirty[len(self.dirty) - 1] is not segment:
            self.dirty.append(segment)
        self.end_offset = segment.next_offset

    def write_pending(self, leader_epoch: cython.longlong, index_interval_bytes: cython.longlong) -> None:
        """Writes all pending batches in one call of the disk. If that raises, nothing is appended."""
        pending: list[PendingAppend] = self.pending
        segment: SegmentEnd = self.segments[len(self.segments) - 1]
        rows: dict[int, bytes] = self.producers.live_rows
        one: PendingAppend
        position: cython.longlong
        bytes_to_write: cython.longlong = self.pending_bytes
        self.pending = []
        self.pending_bytes = 0
        try:
            position = segment.write(self.bytes_of(pending, bytes_to_write))
        except BaseException:  # the next attempt begins with what was sent
            for one in pending:
                one.take_offsets_back()
            raise
        for one in pending:
            segment.note(one.last_offset, one.greatest_ms, position, one.size_bytes, index_interval_bytes)
            position += one.size_bytes
            if one.row is not None:
                rows[one.producer_id] = one.row
                if one.begins_transaction:
                    self.producers.begin_transaction(one.producer_id, one.base_offset)
            one.is_written = True
        one = pending[0]
        self.note_written(segment, leader_epoch, one.base_offset)
        self.counts.add_batches(len(pending), self.end_offset - one.base_offset, bytes_to_write)

    def bytes_of(self, pending: list, size_bytes: cython.longlong) -> list:
        """What is to be written. Small batches are joined: one copy costs less than one more part of a system call."""
        one: PendingAppend
        at: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t
        if len(pending) == 1 or size_bytes > len(_joined):
            return [one.buffer[one.start : one.start + one.size_bytes] for one in pending]
        joined: cython.p_uchar = _joined
        for one in pending:
            if cython.compiled:
                for index in range(one.size_bytes):
                    joined[at + index] = one.data[one.start + index]
            else:
                _joined[at : at + one.size_bytes] = one.data[one.start : one.start + one.size_bytes]
            at += one.size_bytes
        return [memoryview(_joined)[:at]]

    def row_of(self, producer_id: cython.longlong) -> bytes:
        """The row of a producer as it will be when the pending batches are written."""
        one: PendingAppend
        index: cython.Py_ssize_t
        for index in range(len(self.pending) - 1, -1, -1):  # mostly the last one is its own: they came in one read
            one = self.pending[index]
            if one.producer_id == producer_id and one.row is not None:
                return one.row
        rows: dict[int, bytes] = self.producers.live_rows
        return rows.get(producer_id, NO_ROW)


@cython.cclass
class PendingAppend:
    """A batch that is the next one of its log, and has its offsets in its bytes already."""

    buffer: memoryview
    data: cython.p_uchar  # the bytes of the buffer
    start: int  # of the batch, in the buffer
    size_bytes: int
    base_offset: int
    last_offset: int
    greatest_ms: int
    sent_epoch: int
    producer_id: int
    row: bytes | None  # of its producer, if it has one, once it is written
    begins_transaction: bool
    is_written: bool

    def give_offsets(self, leader_epoch: cython.longlong) -> None:
        self.sent_epoch = number(self.data, self.start + _LEADER_EPOCH_AT, 4)
        put(self.data, self.start, self.base_offset, 8)
        put(self.data, self.start + _LEADER_EPOCH_AT, leader_epoch, 4)

    def take_offsets_back(self) -> None:
        put(self.data, self.start, 0, 8)
        put(self.data, self.start + _LEADER_EPOCH_AT, self.sent_epoch, 4)


def address_of(view) -> cython.p_uchar:  # type: ignore[no-untyped-def]
    """The address of the first byte. The caller checks the length."""
    address: cython.p_uchar = cython.address(view[0]) if cython.compiled else view
    return address
