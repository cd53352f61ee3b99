# cython: language_level=3, boundscheck=False, wraparound=False
"""Ordinary batches and produce requests, from their bytes to the log: what nearly all of a busy client are.

An ordinary batch is a plain one in perfect order that is the next one of its producer or the first of its epoch, in its
transaction if it is in one, and that the active segment has room for; an ordinary request has one of them, for one
partition, behind the same bytes as last time. Nothing else is known here: whatever differs in any way is refused,
nothing has changed then, and the decoder, `validate` and `producers` say what is wrong, if there is anything. Requests
that come together are judged one by one and written together, log by log (`Gathering`).
Compiled or plain Python, with the same results; indexes are checked here, because compiled code does not.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

from crc32c import crc32c

from semel.log.errors import BrokenLog, Refused
from semel.records.errors import InvalidRecord
from semel.records.kernel import walk_records

compiled: bool = cython.compiled

_FRAME_START = cython.declare(cython.longlong, 4)
_CORRELATION_AT = cython.declare(cython.longlong, 4)
_CORRELATION_END = cython.declare(cython.longlong, 8)
_HEADER_BYTES = cython.declare(cython.longlong, 61)
_LENGTH_FIELD_END = cython.declare(cython.longlong, 12)
_LARGEST_LENGTH_BYTES = cython.declare(cython.longlong, 4)
_LARGEST_SPAN_MS = cython.declare(cython.longlong, 2**62)
_SEQUENCE_MASK = cython.declare(cython.longlong, 2**31 - 1)
_MAX_RELATIVE_OFFSET = cython.declare(cython.longlong, 2**31 - 1)
_INDEX_ENTRY_BYTES = cython.declare(cython.longlong, 8)
# A producer's row, as `producers` has it: the newest batch, then up to four older ones.
_ENTRY_BYTES = cython.declare(cython.longlong, 46)
_OLDER_BYTES = cython.declare(cython.longlong, 16)
_ROW_BYTES = cython.declare(cython.longlong, 110)
_NO_OFFSET = cython.declare(cython.longlong, -1)
_NO_TIMESTAMP = cython.declare(cython.longlong, -1)
_NOT_ORDINARY = cython.declare(cython.longlong, -1)
_PLAIN = cython.declare(cython.longlong, 0)
_TRANSACTIONAL = cython.declare(cython.longlong, 0x10)
_TRANSACTION_AT = cython.declare(cython.longlong, 38)
_row = cython.declare(bytearray, bytearray(110))  # where a row is made
_joined = cython.declare(bytearray, bytearray(32 << 10))  # where small batches are put together


@cython.cclass
class SegmentEnd:
    """Where a segment ends: the numbers that every append changes, and the step that changes them."""

    base_offset = cython.declare(cython.longlong, visibility="public")
    next_offset = cython.declare(cython.longlong, visibility="public")
    size_bytes = cython.declare(cython.longlong, visibility="public")
    first_timestamp_ms = cython.declare(cython.longlong, visibility="public")
    max_timestamp_ms = cython.declare(cython.longlong, visibility="public")
    max_timestamp_offset = cython.declare(cython.longlong, visibility="public")
    bytes_since_index = cython.declare(cython.longlong, visibility="public")
    offset_index = cython.declare(object, visibility="public")
    time_index = cython.declare(object, visibility="public")
    file = cython.declare(object, visibility="public")

    @cython.ccall
    def write(self, batches: list) -> cython.longlong:
        """Puts batches behind the others and returns where they stand, if they are all there. `note` must follow."""
        try:
            self.file.write_at(self.size_bytes, *batches)
        except OSError as error:
            self.take_back_write(error)
            raise
        return self.size_bytes

    @cython.ccall
    def note(
        self,
        last_offset: cython.longlong,
        max_timestamp_ms: cython.longlong,
        position: cython.longlong,
        size_bytes: cython.longlong,
        index_interval_bytes: cython.longlong,
    ) -> object:
        """Counts a batch that stands at `position` in: offsets, timestamps, indexes."""
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
        return None

    @cython.ccall
    def is_full(
        self,
        size_bytes: cython.longlong,
        last_offset: cython.longlong,
        timestamp_ms: cython.longlong,
        now_ms: cython.longlong,
        most_bytes: cython.longlong,
        most_index_bytes: cython.longlong,
        most_ms: cython.ulonglong,
    ) -> cython.bint:
        """Whether the next batch is for another segment; `most` are the limits of one."""
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

    start_offset = cython.declare(cython.longlong, visibility="public")
    end_offset = cython.declare(cython.longlong, visibility="public")
    high_watermark = cython.declare(cython.longlong, visibility="public")
    config = cython.declare(object, visibility="public")
    segments = cython.declare(list, visibility="public")
    epochs = cython.declare(object, visibility="public")
    producers = cython.declare(object, visibility="public")
    # Segments that were written to since they were flushed.
    dirty = cython.declare(list, visibility="public")
    # Batches that were judged, of so many bytes: written, or given up, before anything else is done to the log.
    gathered = cython.declare(list, visibility="public")
    gathered_bytes = cython.declare(cython.longlong, visibility="public")

    @cython.ccall
    def note_written(self, segment: SegmentEnd, leader_epoch: cython.longlong, base_offset: cython.longlong) -> object:
        entries: list = self.epochs.entries
        if not entries or entries[len(entries) - 1][0] < leader_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        if not self.dirty or self.dirty[len(self.dirty) - 1] is not segment:
            self.dirty.append(segment)
        self.end_offset = segment.next_offset
        return None

    @cython.cfunc
    def write_gathered(self, leader_epoch: cython.longlong, index_interval_bytes: cython.longlong) -> object:
        """All in one call of the disk. If that raises what the segment says, nothing is appended."""
        gathered: list = self.gathered
        segment: SegmentEnd = self.segments[len(self.segments) - 1]
        rows: dict = self.producers.live_rows
        one: Gathered
        position: cython.longlong
        bytes_to_write: cython.longlong = self.gathered_bytes
        self.gathered = []
        self.gathered_bytes = 0
        try:
            position = segment.write(_bytes_of(gathered, bytes_to_write))
        except BaseException:  # whoever tries again begins with what was sent
            for one in gathered:
                one.take_offsets_back()
            raise
        for one in gathered:
            segment.note(one.last_offset, one.greatest_ms, position, one.size_bytes, index_interval_bytes)
            position += one.size_bytes
            if one.row is not None:
                rows[one.producer_id] = one.row
                if one.begins_transaction:
                    self.producers.begin_transaction(one.producer_id, one.base_offset)
            one.is_written = True
        one = gathered[0]
        self.note_written(segment, leader_epoch, one.base_offset)
        return None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _address(view: cython.uchar[::1]) -> cython.p_uchar:
    """Of its first byte, if it has any; it is for the reader to know how many it has."""
    return cython.address(view[0]) if cython.compiled else view


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _number(data: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    """A signed number of up to 8 bytes."""
    value: cython.longlong = data[at]
    index: cython.int
    if value >= 0x80:
        value -= 0x100
    for index in range(1, size):
        value = value * 0x100 + data[at + index]
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(data: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong, size: cython.int) -> cython.void:
    while size > 0:
        size -= 1
        data[at + size] = value & 0xFF
        value >>= 8


@cython.cfunc
@cython.inline
def _is_in_transaction(row: bytes) -> cython.bint:
    data: cython.p_const_uchar = row
    return _number(data, _TRANSACTION_AT, 8) != _NO_OFFSET


@cython.cfunc
def _next_row(
    row: bytes,
    producer_epoch: cython.longlong,
    sequence: cython.longlong,
    last_offset_delta: cython.longlong,
    base_offset: cython.longlong,
    now_ms: cython.longlong,
    attributes: cython.longlong,
) -> bytes | None:
    """The row after the next batch in order; None when the batch is not that."""
    before: cython.p_const_uchar = row
    size: cython.Py_ssize_t = len(row)
    kept: cython.Py_ssize_t
    index: cython.Py_ssize_t
    last_sequence: cython.longlong
    epoch: cython.longlong
    if size < _ENTRY_BYTES:
        return None
    epoch = _number(before, 8, 2)
    last_sequence = _number(before, 10, 4)
    if producer_epoch < epoch:
        return None
    if attributes != _TRANSACTIONAL and _is_in_transaction(row):
        return None
    if producer_epoch > epoch or last_sequence < 0:
        # The first of an epoch, which a marker may have raised: nothing that came before is remembered.
        if sequence != 0:
            return None
        kept = _ENTRY_BYTES
    else:
        if sequence != (last_sequence + 1) & _SEQUENCE_MASK:
            return None
        kept = min(size + _OLDER_BYTES, _ROW_BYTES)
    after: cython.p_uchar = _row
    for index in range(_ENTRY_BYTES):
        after[index] = before[index]
    _put(after, 8, producer_epoch, 2)
    _put(after, 10, (sequence + last_offset_delta) & _SEQUENCE_MASK, 4)
    _put(after, 14, base_offset + last_offset_delta, 8)
    _put(after, 22, last_offset_delta, 4)
    _put(after, 26, now_ms, 8)
    if attributes == _TRANSACTIONAL and not _is_in_transaction(row):
        _put(after, _TRANSACTION_AT, base_offset, 8)
    if kept > _ENTRY_BYTES:
        for index in range(_OLDER_BYTES):  # its last sequence, last offset and offset delta lie side by side
            after[_ENTRY_BYTES + index] = before[10 + index]
    for index in range(_ENTRY_BYTES + _OLDER_BYTES, kept):
        after[index] = before[index - _OLDER_BYTES]
    return bytes(after[:kept])


@cython.cfunc
def _bytes_of(gathered: list, size_bytes: cython.longlong) -> list:
    """What is to be written. Small batches are put together: that takes less than to tell the system of each."""
    one: Gathered
    at: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    if len(gathered) == 1 or size_bytes > len(_joined):
        return [one.buffer[one.start : one.start + one.size_bytes] for one in gathered]
    joined: cython.p_uchar = _joined
    for one in gathered:
        if cython.compiled:
            for index in range(one.size_bytes):
                joined[at + index] = one.data[one.start + index]
        else:
            _joined[at : at + one.size_bytes] = one.data[one.start : one.start + one.size_bytes]
        at += one.size_bytes
    return [memoryview(_joined)[:at]]


@cython.cfunc
def _row_of(log: LogEnd, producer_id: cython.longlong) -> object:
    """As it will be when those that are gathered are written."""
    rows: dict = log.producers.live_rows
    one: Gathered
    index: cython.Py_ssize_t
    for index in range(len(log.gathered) - 1, -1, -1):  # mostly the last one is its own: they came in one read
        one = log.gathered[index]
        if one.producer_id == producer_id:
            return one.row
    return rows.get(producer_id)


@cython.final
@cython.cclass
class OrdinaryBatch:
    """What makes a batch an ordinary one, with the settings of its topic."""

    config = cython.declare(object, visibility="readonly")
    max_batch_bytes: cython.longlong
    before_ms: cython.longlong
    after_ms: cython.longlong
    needs_keys: cython.bint
    index_interval_bytes: cython.longlong
    segment_bytes: cython.longlong
    segment_index_bytes: cython.longlong
    segment_ms: cython.longlong
    attributes: cython.longlong
    is_in_transaction: object
    at: cython.Py_ssize_t  # where `number` reads
    is_odd: cython.bint  # there was no number, or none of those that `number` reads

    def __init__(self, config: object, is_in_transaction: object = None) -> None:
        """If it is a transactional one, `is_in_transaction(producer_id, producer_epoch)` says whether it may be written
        now. Only then is it asked, when nothing else stands in the way."""
        self.config = config
        self.attributes = _PLAIN if is_in_transaction is None else _TRANSACTIONAL
        self.is_in_transaction = is_in_transaction
        self.max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.before_ms = min(config.message_timestamp_before_max_ms, _LARGEST_SPAN_MS)
        self.after_ms = min(config.message_timestamp_after_max_ms, _LARGEST_SPAN_MS)
        self.needs_keys = "compact" in config.cleanup_policy
        self.index_interval_bytes = config.index_interval_bytes
        self.segment_bytes = config.segment_bytes
        self.segment_index_bytes = config.segment_index_bytes
        self.segment_ms = config.segment_ms

    @cython.ccall
    def append(
        self, log: LogEnd, batch: memoryview, leader_epoch: cython.longlong, now_ms: cython.longlong
    ) -> cython.longlong:
        """Its first offset, or -1: it is not ordinary. A disk that refuses raises what the segment says, and nothing is
        appended."""
        view: cython.uchar[::1] = batch
        one: Gathered = Gathered()
        if not self.takes(one, log, batch, _address(view), 0, len(view), leader_epoch, now_ms):
            return _NOT_ORDINARY
        log.write_gathered(leader_epoch, self.index_interval_bytes)
        return one.base_offset

    @cython.cfunc
    def takes(
        self,
        one: Gathered,
        log: LogEnd,
        buffer: memoryview,
        data: cython.p_uchar,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        leader_epoch: cython.longlong,
        now_ms: cython.longlong,
    ) -> cython.bint:
        """Whether a batch within a buffer, whose bytes are `data`, is an ordinary one. Then it is among those that the
        log has gathered. Behind others that are not written yet, none is taken that may be too much for the segment."""
        if not log.segments or log.config is not self.config or not _HEADER_BYTES <= size <= self.max_batch_bytes:
            return False
        last_offset_delta: cython.longlong = _number(data, start + 23, 4)
        greatest: cython.longlong = _number(data, start + 35, 8)
        producer_id: cython.longlong = _number(data, start + 43, 8)
        producer_epoch: cython.longlong = _number(data, start + 51, 2)
        sequence: cython.longlong = _number(data, start + 53, 4)
        count: cython.longlong = _number(data, start + 57, 4)
        base_offset: cython.longlong = log.end_offset
        segment: SegmentEnd = log.segments[len(log.segments) - 1]
        if log.gathered:
            if not self.has_room_behind(segment, len(log.gathered)):
                return False
            before: Gathered = log.gathered[len(log.gathered) - 1]
            base_offset = before.last_offset + 1
        if (
            _number(data, start, 8) != 0
            or _number(data, start + 8, 4) + _LENGTH_FIELD_END != size
            or data[start + 16] != 2
            or _number(data, start + 21, 2) != self.attributes
            or count <= 0
            or count != last_offset_delta + 1
            or segment.is_full(
                log.gathered_bytes + size,
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
            known = _row_of(log, producer_id)
            if known is None or producer_epoch < 0 or sequence < 0:
                return False
            one.row = _next_row(
                known, producer_epoch, sequence, last_offset_delta, base_offset, now_ms, self.attributes
            )
            if one.row is None:
                return False
            if self.attributes == _TRANSACTIONAL:
                one.begins_transaction = not _is_in_transaction(known)
        elif producer_id != -1 or self.attributes == _TRANSACTIONAL:
            return False
        if not self.are_ordinary(buffer, data, start, size, count, greatest, now_ms):
            return False
        # Last, because its partition may join the transaction by it.
        if self.attributes == _TRANSACTIONAL and not self.is_in_transaction(producer_id, producer_epoch):
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
        log.gathered.append(one)
        log.gathered_bytes += size
        return True

    @cython.cfunc
    def has_room_behind(self, segment: SegmentEnd, gathered: cython.longlong) -> cython.bint:
        """Whether what the segment says of its room will still be true when those that are gathered are written."""
        entries: cython.longlong = segment.offset_index.count
        return (
            segment.first_timestamp_ms != _NO_TIMESTAMP
            and (entries + gathered) * _INDEX_ENTRY_BYTES < self.segment_index_bytes
        )

    @cython.cfunc
    def are_ordinary(
        self,
        buffer: memoryview,
        data: cython.p_const_uchar,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        count: cython.longlong,
        greatest: cython.longlong,
        now_ms: cython.longlong,
    ) -> cython.bint:
        """The records, which no bit has been lost of."""
        least: cython.longlong
        greatest_found: cython.longlong
        null_keys: cython.longlong
        if crc32c(buffer[start + 21 : start + size]) != _number(data, start + 17, 4) & 0xFFFFFFFF:
            return False
        earliest: cython.longlong = now_ms - self.before_ms
        if greatest > now_ms + self.after_ms:
            return False
        if self.are_plain(data, start, start + size, count, greatest, earliest):
            return True
        try:
            least, greatest_found, null_keys = walk_records(
                buffer[start : start + size], _HEADER_BYTES, count, count - 1, False, _number(data, start + 27, 8)
            )
        except InvalidRecord:
            return False
        return greatest_found == greatest and not (null_keys and self.needs_keys) and least >= earliest

    @cython.cfunc
    @cython.exceptval(check=False)
    def are_plain(
        self,
        data: cython.p_const_uchar,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.longlong,
        greatest: cython.longlong,
        earliest: cython.longlong,
    ) -> cython.bint:
        """Records without headers, as nearly all are: what `walk_records` would find in order. If not, it is asked."""
        base_timestamp: cython.longlong = _number(data, start + 27, 8)
        timestamp: cython.longlong
        greatest_found: cython.longlong = -1
        size: cython.longlong
        index: cython.longlong
        record_end: cython.Py_ssize_t
        if base_timestamp < 0 or base_timestamp > _LARGEST_SPAN_MS:
            return False
        self.is_odd = False
        self.at = start + _HEADER_BYTES
        for index in range(count):
            size = self.number(data, end)
            if size < 0 or size > end - self.at:
                return False
            record_end = self.at + size
            self.at += 1  # attributes: no bit of them has a meaning
            timestamp = base_timestamp + self.number(data, record_end)
            if timestamp > greatest_found or index == 0:
                greatest_found = timestamp
            if timestamp < earliest or self.number(data, record_end) != index:
                return False
            size = self.number(data, record_end)
            if size < 0 and (size < -1 or self.needs_keys):
                return False
            self.step_over(size, record_end)
            size = self.number(data, record_end)
            if size < -1:
                return False
            self.step_over(size, record_end)
            if self.number(data, record_end) != 0 or self.at != record_end or self.is_odd:
                return False
        return self.at == end and greatest_found == greatest

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def step_over(self, size: cython.longlong, end: cython.Py_ssize_t) -> cython.void:
        if size > end - self.at:
            self.is_odd = True
        elif size > 0:
            self.at += size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number(self, data: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.longlong:
        """A zigzag varint of 32 bits before `end`."""
        raw: cython.ulonglong = 0
        byte: cython.ulonglong
        place: cython.int
        for place in range(5):
            if self.at >= end:
                break
            byte = data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if raw > 0xFFFFFFFF:
                    break
                return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)
        self.is_odd = True
        return 0


@cython.final
@cython.cclass
class OrdinaryProduce:
    """What makes a request of one client for one partition an ordinary one."""

    prefix: bytes
    prefix_bytes: cython.Py_ssize_t
    has_compact_length: cython.bint
    suffix_bytes: cython.Py_ssize_t
    batch: OrdinaryBatch

    def __init__(
        self,
        prefix: bytes,
        has_compact_length: cython.bint,
        suffix_bytes: cython.Py_ssize_t,
        batch: OrdinaryBatch,
    ) -> None:
        """`prefix` is the frame up to the length of the records, a compact one or an int32; the correlation id in it
        does not count. After the records come `suffix_bytes` zeros."""
        if len(prefix) < _CORRELATION_END or suffix_bytes < 0:
            raise ValueError(f"a frame does not begin with {prefix!r} and end with {suffix_bytes} bytes")
        self.prefix = prefix
        self.prefix_bytes = len(prefix)
        self.has_compact_length = has_compact_length
        self.suffix_bytes = suffix_bytes
        self.batch = batch

    def append(
        self, log: LogEnd, frame: memoryview, leader_epoch: cython.longlong, now_ms: cython.longlong
    ) -> cython.longlong:
        """As that of its batch."""
        view: cython.uchar[::1] = frame
        start: cython.Py_ssize_t = self.batch_start(_address(view), 0, len(view))
        if start < 0:
            return _NOT_ORDINARY
        return self.batch.append(log, frame[start : len(view) - self.suffix_bytes], leader_epoch, now_ms)

    @cython.cfunc
    def takes(
        self,
        one: Gathered,
        log: LogEnd,
        buffer: memoryview,
        data: cython.p_uchar,
        frame_start: cython.Py_ssize_t,
        frame_end: cython.Py_ssize_t,
        leader_epoch: cython.longlong,
        now_ms: cython.longlong,
    ) -> cython.bint:
        """As that of its batch, of a frame within a buffer."""
        start: cython.Py_ssize_t = self.batch_start(data, frame_start, frame_end)
        if start < 0:
            return False
        size: cython.Py_ssize_t = frame_end - self.suffix_bytes - start
        return self.batch.takes(one, log, buffer, data, start, size, leader_epoch, now_ms)

    @cython.cfunc
    @cython.exceptval(-2)
    def batch_start(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, frame_end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Where the batch begins, if the frame is as the last one; else -1."""
        at: cython.Py_ssize_t = start + self.prefix_bytes
        end: cython.Py_ssize_t = frame_end - self.suffix_bytes
        index: cython.Py_ssize_t
        length: cython.longlong = 0
        prefix: cython.p_const_uchar = self.prefix
        if end - at < _LARGEST_LENGTH_BYTES:
            return -1
        for index in range(_CORRELATION_AT):
            if data[start + index] != prefix[index]:
                return -1
        for index in range(_CORRELATION_END, self.prefix_bytes):
            if data[start + index] != prefix[index]:
                return -1
        for index in range(end, frame_end):
            if data[index] != 0:
                return -1
        if self.has_compact_length:
            for index in range(4):  # 28 bits hold the length of any batch that may be that long
                length |= cython.cast(cython.longlong, data[at] & 0x7F) << (7 * index)
                at += 1
                if data[at - 1] < 0x80:
                    break
            length -= 1
        else:
            length = _number(data, at, 4)
            at += 4
        return at if length == end - at else -1


@cython.final
@cython.cclass
class Reply:
    """The answer to a success, encoded once, with gaps."""

    form: bytearray
    base_at: cython.Py_ssize_t
    start_at: cython.Py_ssize_t

    def __init__(self, form: bytes, base_at: cython.Py_ssize_t, start_at: cython.Py_ssize_t) -> None:
        """Its correlation id is where that of every response is. Where its first offset stands, and where the log's;
        -1: it is not told."""
        if len(form) < _CORRELATION_END or not 0 <= base_at <= len(form) - 8 or not -1 <= start_at <= len(form) - 8:
            raise ValueError(f"no offsets can be put at {base_at} and {start_at} of {len(form)} bytes")
        self.form = bytearray(form)
        self.base_at = base_at
        self.start_at = start_at

    @cython.ccall
    def to(self, correlation_id: cython.longlong, base_offset: cython.longlong, start_offset: cython.longlong) -> bytes:
        data: cython.p_uchar = self.form
        _put(data, _CORRELATION_AT, correlation_id, 4)
        _put(data, self.base_at, base_offset, 8)
        if self.start_at >= 0:
            _put(data, self.start_at, start_offset, 8)
        return bytes(self.form)


@cython.final
@cython.cclass
class Gathering:
    """Requests of many connections that are answered together."""

    lanes: dict
    waiting: list
    now_ms: cython.longlong

    def __init__(self, lanes: dict) -> None:
        """`lanes`: by the bytes of a request after its correlation id and before its records; `quick` of one is a
        quick lane's `gather`."""
        self.lanes = lanes
        self.waiting = []

    @cython.cfunc
    def settle(self) -> object:
        """Writes them, one call for each log; makes the answers; then tells those that want to know, has answers wait
        for their flush, and leaves what could not be written to the longer way."""
        waiting: list = self.waiting
        first_of_logs: list = []
        one: Gathered
        lane: QuickLane
        self.waiting = []
        for one in waiting:
            lane = one.lane
            if lane.log.gathered:
                first_of_logs.append(one)
                lane.write_gathered()
            one.make(lane)
        for one in first_of_logs:
            lane = one.lane
            lane.tell(one)
        for one in waiting:
            if one.several is not None:
                if not one.is_written:
                    one.several.send_in_turn()
            elif not one.is_written:
                one.go_the_longer_way()
            else:
                lane = one.lane
                if lane.waits:
                    one.answer = one.connection.answer_when(one.commits_of([one]), one.answer)
        return None


@cython.final
@cython.freelist(64)
@cython.cclass
class Gathered:
    """A batch that is the next one of its log, and has its offsets in its bytes; and the answer to its request, once it
    is made, if it came by a lane."""

    buffer: memoryview
    data: cython.p_uchar
    start: cython.Py_ssize_t  # of the batch, in the buffer, whose bytes are `data`
    size_bytes: cython.Py_ssize_t
    base_offset: cython.longlong
    last_offset: cython.longlong
    greatest_ms: cython.longlong
    sent_epoch: cython.longlong
    producer_id: cython.longlong
    row: object  # of its producer, if it has one, once it is written
    begins_transaction: cython.bint
    is_written: cython.bint
    error: object  # why it could not be written
    gathering: Gathering
    lane: object
    connection: object
    frame_start: cython.Py_ssize_t
    frame_end: cython.Py_ssize_t
    answer: object
    is_made = cython.declare(cython.bint, visibility="public")
    # Of those that came in one read with it, what can `send_in_turn`, or None: it came alone.
    several = cython.declare(object, visibility="public")

    @cython.cfunc
    def give_offsets(self, leader_epoch: cython.longlong) -> object:
        self.sent_epoch = _number(self.data, self.start + 12, 4)
        _put(self.data, self.start, self.base_offset, 8)
        _put(self.data, self.start + 12, leader_epoch, 4)
        return None

    @cython.cfunc
    def take_offsets_back(self) -> object:
        _put(self.data, self.start, 0, 8)
        _put(self.data, self.start + 12, self.sent_epoch, 4)
        return None

    def made(self) -> bytes | None:
        """The answer. None: the connection has been answered otherwise, or will be."""
        if not self.is_made:
            self.gathering.settle()
        return self.answer

    def commits_of(self, answers: list) -> list:
        """What has to be done before the answers to these, which came in one read, may leave."""
        one: Gathered
        lane: QuickLane
        last_offsets: dict = {}
        for one in answers:
            lane = one.lane
            if lane.waits and one.is_written:
                last_offsets[lane.partition] = one.last_offset
        commits: list = [partition.when_committed(last_offset) for partition, last_offset in last_offsets.items()]
        return [commit for commit in commits if commit is not None]

    def answer_or_longer_way(self) -> bytes | None:
        """The answer of one that is made; if it was not written, what the longer way has to say at once."""
        if not self.is_written:
            self.go_the_longer_way()
        return self.answer

    @cython.cfunc
    def make(self, lane: QuickLane) -> object:
        self.is_made = True
        if self.is_written:
            correlation_id: cython.longlong = _number(self.data, self.frame_start + _CORRELATION_AT, 4)
            self.answer = lane.reply.to(correlation_id, self.base_offset, lane.log.start_offset)
        return None

    @cython.cfunc
    def go_the_longer_way(self) -> object:
        if isinstance(self.error, Refused):  # by the disk; the longer way has words for it
            self.answer = self.connection.serve_alone(self.buffer[self.frame_start : self.frame_end])
        else:
            self.connection.not_served(self.error)
        return None


@cython.final
@cython.cclass
class QuickLane:
    """Ordinary produce requests from their bytes to their answers. Who may write, and who is told of it, are asked for
    each, as on the longer way."""

    gathering: Gathering
    ordinary: OrdinaryProduce
    reply: Reply
    key: bytes
    partition: object
    log: LogEnd
    may_write: object
    waits: cython.bint
    always_tells: cython.bint
    buffer: memoryview
    data: cython.uchar[::1]

    def __init__(
        self,
        gathering: Gathering,
        ordinary: OrdinaryProduce,
        reply: Reply,
        partition: object,
        may_write: object,
        waits: cython.bint,
    ) -> None:
        """`may_write(principal)`, or None: all may. `waits`: for a flush, before it answers. A partition of
        `replication` has what it needs."""
        self.gathering = gathering
        self.ordinary = ordinary
        self.reply = reply
        self.partition = partition
        self.key = ordinary.prefix[_CORRELATION_END:]
        self.log = partition.log
        self.may_write = may_write
        self.waits = waits
        self.always_tells = partition.flushes_in_turns
        self.buffer = memoryview(b"")

    def gather(
        self, connection: object, buffer: memoryview, start: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> Gathered | None:
        """A promise to answer `count` bytes of the buffer, if they are one whole frame, which stays there until then.
        None: nothing was done. The connection has a `principal` and a `lane`, tells what it `has_outstanding`, can
        `answer_when` something is done, may be told that a request is `not_served`, and can `serve_alone` what turned
        out to be for the longer way."""
        if buffer is not self.buffer:  # it is the same one, always, and need not be asked for its memory each time
            self.data = buffer
            self.buffer = buffer
        data: cython.p_uchar = _address(self.data)
        if count < _FRAME_START + _CORRELATION_END or start < 0 or count > len(self.data) - start:
            return None
        if _number(data, start, 4) != count - _FRAME_START or self.partition.is_closed:
            return None
        if not self.waits and connection.has_outstanding:
            return None
        if self.may_write is not None and not self.may_write(connection.principal):
            return None
        if not self.gathering.waiting:
            self.gathering.now_ms = self.partition.clock.wall_ms()
        one: Gathered = Gathered()
        if not self.ordinary.takes(
            one,
            self.log,
            buffer,
            data,
            start + _FRAME_START,
            start + count,
            self.partition.leader_epoch,
            self.gathering.now_ms,
        ):
            return self.gather_on_another(connection, buffer, start, count)
        one.gathering = self.gathering
        one.lane = self
        one.connection = connection
        one.frame_start = start + _FRAME_START
        one.frame_end = start + count
        one.answer = one.error = one.several = None
        one.is_made = False
        self.gathering.waiting.append(one)
        return one

    @cython.cfunc
    def gather_on_another(
        self, connection: object, buffer: memoryview, start: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> Gathered | None:
        """On the lane of such requests, if they have one: a connection may go from partition to partition."""
        begin: cython.Py_ssize_t = start + _FRAME_START + _CORRELATION_END
        end: cython.Py_ssize_t = start + _FRAME_START + self.ordinary.prefix_bytes
        key: bytes = bytes(buffer[begin : min(end, start + count)])
        if key == self.key:  # it is not ordinary
            return None
        lane = self.gathering.lanes.get(key)
        if lane is None:
            return None
        connection.lane = lane.quick
        return connection.lane(connection, buffer, start, count)

    @cython.cfunc
    def write_gathered(self) -> object:
        """Also those that came by other lanes."""
        gathered: list = self.log.gathered
        one: Gathered
        try:
            self.log.write_gathered(self.partition.leader_epoch, self.ordinary.batch.index_interval_bytes)
        except Exception as error:
            for one in gathered:
                one.error = error
        return None

    @cython.cfunc
    def tell(self, first: Gathered) -> object:
        """Of all that were written with it, or could not be."""
        partition = self.partition
        try:
            if not first.is_written:
                if isinstance(first.error, BrokenLog):
                    partition.on_broken(first.error)
            elif self.always_tells or partition.watchers or self.log.high_watermark != first.base_offset:
                partition.tell_appended()
            else:
                self.log.high_watermark = self.log.end_offset
        except Exception as error:
            first.connection.not_served(error)
        return None
