# cython: language_level=3, boundscheck=False, wraparound=False
"""Which batches are ordinary: nearly all that a busy client sends.

An ordinary batch is uncompressed and in perfect order, the next one of its producer or the first of its epoch, in its
transaction if it is in one, and the active segment has room for it. Nothing else is known here: a batch that differs
in any way is not taken, nothing has changed then, and `validate` and `producers` say what is wrong, if anything is.
Compiled or plain Python, with the same results; indexes are checked here, because compiled code does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

from crc32c import crc32c

from semel.records.errors import InvalidRecord
from semel.records.kernel import walk_records

if cython.compiled:
    from cython.cimports.semel.log.append_kernel import LogEnd, PendingAppend, SegmentEnd, address_of
    from cython.cimports.semel.log.row_kernel import follows, is_in_transaction, next_row, number
else:
    from semel.log.append_kernel import LogEnd, PendingAppend, SegmentEnd, address_of
    from semel.log.row_kernel import follows, is_in_transaction, next_row, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.config import TopicConfig

compiled: bool = cython.compiled

_HEADER_BYTES = cython.declare(cython.longlong, 61)
_LENGTH_FIELD_END = cython.declare(cython.longlong, 12)
_LARGEST_SPAN_MS = cython.declare(cython.longlong, 2**62)
_LARGEST_RAW = cython.declare(cython.ulonglong, 2**32 - 1)
_INDEX_ENTRY_BYTES = cython.declare(cython.longlong, 8)
_NO_TIMESTAMP = cython.declare(cython.longlong, -1)
_PLAIN = cython.declare(cython.longlong, 0)
_TRANSACTIONAL = cython.declare(cython.longlong, 0x10)


@cython.final
@cython.cclass
class OrdinaryRules:
    """What makes a batch an ordinary one, with the settings of its topic."""

    config: TopicConfig
    index_interval_bytes: int
    max_batch_bytes: int
    before_ms: int
    after_ms: int
    needs_keys: bool
    segment_bytes: int
    segment_index_bytes: int
    segment_ms: int

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.before_ms = min(config.message_timestamp_before_max_ms, _LARGEST_SPAN_MS)
        self.after_ms = min(config.message_timestamp_after_max_ms, _LARGEST_SPAN_MS)
        self.needs_keys = "compact" in config.cleanup_policy
        self.index_interval_bytes = config.index_interval_bytes
        self.segment_bytes = config.segment_bytes
        self.segment_index_bytes = config.segment_index_bytes
        self.segment_ms = config.segment_ms

    def append(
        self,
        log: LogEnd,
        batch: memoryview,
        leader_epoch: cython.longlong,
        now_ms: cython.longlong,
        may_join: Callable[[int, int], bool] | None = None,
    ) -> int | None:
        """Appends an ordinary batch and returns its first offset; None if it is not ordinary. If the disk refuses, that
        raises what the segment says, and nothing is appended."""
        one: PendingAppend = PendingAppend()
        if not self.take(one, log, batch, address_of(batch), 0, len(batch), leader_epoch, now_ms, may_join):
            return None
        log.write_pending(leader_epoch, self.index_interval_bytes)
        return one.base_offset

    def take(
        self,
        one: PendingAppend,
        log: LogEnd,
        buffer: memoryview,
        data: cython.p_uchar,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        leader_epoch: cython.longlong,
        now_ms: cython.longlong,
        may_join: Callable[[int, int], bool] | None,
    ) -> bool:
        """Takes a batch within a buffer, whose bytes are `data`, if it is ordinary: then it is among the log's pending
        ones. `may_join(producer_id, producer_epoch)` is given for a transactional batch, and says whether it may be
        written now; it is asked only when nothing else is in the way. Behind other pending batches, none is taken that
        may be too much for the segment."""
        if not log.segments or log.config is not self.config or not _HEADER_BYTES <= size <= self.max_batch_bytes:
            return False
        is_transactional: cython.bint = may_join is not None
        last_offset_delta: cython.longlong = number(data, start + 23, 4)
        greatest: cython.longlong = number(data, start + 35, 8)
        producer_id: cython.longlong = number(data, start + 43, 8)
        producer_epoch: cython.longlong = number(data, start + 51, 2)
        sequence: cython.longlong = number(data, start + 53, 4)
        count: cython.longlong = number(data, start + 57, 4)
        base_offset: cython.longlong = log.end_offset
        segment: SegmentEnd = log.segments[len(log.segments) - 1]
        if log.pending:
            if not self.has_room_behind(segment, len(log.pending)):
                return False
            before: PendingAppend = log.pending[len(log.pending) - 1]
            base_offset = before.last_offset + 1
        if (
            number(data, start, 8) != 0
            or number(data, start + 8, 4) + _LENGTH_FIELD_END != size
            or data[start + 16] != 2
            or number(data, start + 21, 2) != (_TRANSACTIONAL if is_transactional else _PLAIN)
            or count <= 0
            or count != last_offset_delta + 1
            or segment.is_full(
                log.pending_bytes + size,
                base_offset + last_offset_delta,
                greatest,
                now_ms,
                self.segment_bytes,
                self.segment_index_bytes,
                self.segment_ms,
            )
        ):
            return False
        one.row = None
        one.begins_transaction = False
        if producer_id >= 0:
            known: bytes = log.row_of(producer_id)
            if producer_epoch < 0 or sequence < 0 or not follows(known, producer_epoch, sequence, is_transactional):
                return False
            one.row = next_row(
                known,
                producer_id,
                producer_epoch,
                sequence,
                last_offset_delta,
                base_offset,
                now_ms,
                is_transactional,
            )
            one.begins_transaction = is_transactional and not is_in_transaction(known)
        elif producer_id != -1 or is_transactional:
            return False
        if not self.are_whole(buffer, data, start, size, count, greatest, now_ms):
            return False
        # Last, because its partition may join the transaction by it.
        if may_join is not None and not may_join(producer_id, producer_epoch):
            return False
        one.is_written = False
        one.buffer = buffer
        one.data = data
        one.start = start
        one.size_bytes = size
        one.base_offset = base_offset
        one.last_offset = base_offset + last_offset_delta
        one.greatest_ms = greatest
        one.producer_id = producer_id
        one.give_offsets(leader_epoch)
        log.pending.append(one)
        log.pending_bytes += size
        return True

    def has_room_behind(self, segment: SegmentEnd, pending: cython.longlong) -> bool:
        """Whether what the segment says of its room will still be true when the pending batches are written."""
        entries: cython.longlong = segment.offset_index.count
        return (
            segment.first_timestamp_ms != _NO_TIMESTAMP
            and (entries + pending) * _INDEX_ENTRY_BYTES < self.segment_index_bytes
        )

    def are_whole(
        self,
        buffer: memoryview,
        data: cython.p_const_uchar,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        count: cython.longlong,
        greatest: cython.longlong,
        now_ms: cython.longlong,
    ) -> bool:
        """Whether the CRC matches and the records are as the header says."""
        least: cython.longlong
        greatest_found: cython.longlong
        null_keys: cython.longlong
        if crc32c(buffer[start + 21 : start + size]) != number(data, start + 17, 4) & 0xFFFFFFFF:
            return False
        earliest: cython.longlong = now_ms - self.before_ms
        if greatest > now_ms + self.after_ms:
            return False
        if self.are_plain(data, start, start + size, count, greatest, earliest):
            return True
        try:
            least, greatest_found, null_keys = walk_records(
                buffer[start : start + size], _HEADER_BYTES, count, count - 1, False, number(data, start + 27, 8)
            )
        except InvalidRecord:
            return False
        return greatest_found == greatest and not (null_keys and self.needs_keys) and least >= earliest

    def are_plain(
        self,
        data: cython.p_const_uchar,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        greatest: cython.longlong,
        earliest: cython.longlong,
    ) -> bool:
        """Whether these are records without headers, as nearly all are, in which `walk_records` would find nothing
        wrong. If not, it is asked."""
        base_timestamp: cython.longlong = number(data, start + 27, 8)
        timestamp: cython.longlong
        greatest_found: cython.longlong = -1
        read: cython.longlong
        index: cython.longlong
        record_end: cython.Py_ssize_t
        at: cython.Py_ssize_t = start + _HEADER_BYTES
        if base_timestamp < 0 or base_timestamp > _LARGEST_SPAN_MS:
            return False
        for index in range(count):
            read = _varint(data, at, end)
            at += read & 7
            if read < 0 or (read >> 3) > end - at:
                return False
            record_end = at + (read >> 3)
            at += 1  # attributes: no bit of them has a meaning
            read = _varint(data, at, record_end)
            at += read & 7
            timestamp = base_timestamp + (read >> 3)
            if timestamp > greatest_found or index == 0:
                greatest_found = timestamp
            if timestamp < earliest or not read & 7:
                return False
            read = _varint(data, at, record_end)
            at += read & 7
            if read >> 3 != index:
                return False
            read = _varint(data, at, record_end)
            at += read & 7
            if read < 0:
                if read >> 3 != -1 or self.needs_keys:
                    return False
            else:
                at += read >> 3
            read = _varint(data, at, record_end)
            at += read & 7
            if read < 0:
                if read >> 3 != -1:
                    return False
            else:
                at += read >> 3
            if _varint(data, at, record_end) != 1:  # no headers: a zero of one byte
                return False
            at += 1
            if at != record_end:
                return False
        return at == end and greatest_found == greatest


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """A zigzag varint of 32 bits that ends before `end`: its value times eight, plus how many bytes it takes; 0 if
    there is none. Called for each field of each record, so it is a function: methods are not inlined."""
    raw: cython.ulonglong = 0
    byte: cython.ulonglong
    place: cython.int
    for place in range(5):
        if at + place >= end:
            return 0
        byte = data[at + place]
        raw |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if raw > _LARGEST_RAW:
                return 0
            return (cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)) * 8 + place + 1
    return 0
