# cython: language_level=3, boundscheck=False, wraparound=False
"""An ordinary produce request, judged in one call: what nearly every small request of a busy client is.

Ordinary is: one partition, the same bytes before the records as last time, one plain batch in perfect order that is the
next one of its producer. `read` knows nothing else: whatever differs in any way gets None, nothing has changed then,
and the decoder, `log/validate` and `log/producers` say what is wrong with it, if anything is. Compiled or plain Python,
with the same results; indexes are checked here, because compiled code does not. No I/O.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

from crc32c import crc32c

from semel.records.errors import InvalidRecord
from semel.records.kernel import walk_records

compiled: bool = cython.compiled

JudgedProduce = tuple  # what `read` returns

_CORRELATION_AT = cython.declare(cython.longlong, 4)
_CORRELATION_END = cython.declare(cython.longlong, 8)
_HEADER_BYTES = cython.declare(cython.longlong, 61)
_LARGEST_SPAN_MS = cython.declare(cython.longlong, 2**62)
_TWO_TO_32 = cython.declare(cython.longlong, 2**32)
_SEQUENCE_MASK = cython.declare(cython.longlong, 2**31 - 1)
# A producer's row, as `log/producers` has it: the newest batch, then up to four older ones.
_ENTRY_BYTES = cython.declare(cython.longlong, 46)
_OLDER_BYTES = cython.declare(cython.longlong, 16)
_ROW_BYTES = cython.declare(cython.longlong, 110)
_NO_OFFSET = cython.declare(cython.longlong, -1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int16(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = (data[at] << 8) | data[at + 1]
    return value - 0x10000 if value >= 0x8000 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uint32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = (data[at] << 8) | data[at + 1]
    low: cython.longlong = (data[at + 2] << 8) | data[at + 3]
    return (high << 16) | low


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = _uint32(data, at)
    return value - _TWO_TO_32 if data[at] >= 0x80 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return _int32(data, at) * _TWO_TO_32 + _uint32(data, at + 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong, size: cython.int) -> cython.void:
    while size > 0:
        size -= 1
        out[at + size] = value & 0xFF
        value >>= 8


@cython.cfunc
def _next_row(
    row: cython.const[cython.uchar][::1],
    producer_epoch: cython.longlong,
    sequence: cython.longlong,
    last_offset_delta: cython.longlong,
    base_offset: cython.longlong,
    now_ms: cython.longlong,
) -> bytes | None:
    """The row after the next batch in order outside of transactions; None when the batch is not that."""
    size: cython.Py_ssize_t = len(row)
    kept: cython.Py_ssize_t
    index: cython.Py_ssize_t
    last_sequence: cython.longlong
    if size < _ENTRY_BYTES:
        return None
    last_sequence = _int32(row, 10)
    if _int16(row, 8) != producer_epoch or last_sequence < 0 or _int64(row, 38) != _NO_OFFSET:
        return None
    if sequence != (last_sequence + 1) & _SEQUENCE_MASK:
        return None
    kept = min(size + _OLDER_BYTES, _ROW_BYTES)
    made: bytearray = bytearray(kept)
    out: cython.uchar[::1] = memoryview(made)
    for index in range(_ENTRY_BYTES):
        out[index] = row[index]
    _put(out, 10, (sequence + last_offset_delta) & _SEQUENCE_MASK, 4)
    _put(out, 14, base_offset + last_offset_delta, 8)
    _put(out, 22, last_offset_delta, 4)
    _put(out, 26, now_ms, 8)
    for index in range(_OLDER_BYTES):  # its last sequence, last offset and offset delta lie side by side
        out[_ENTRY_BYTES + index] = row[10 + index]
    for index in range(_ENTRY_BYTES + _OLDER_BYTES, kept):
        out[index] = row[index - _OLDER_BYTES]
    return bytes(made)


@cython.final
@cython.cclass
class OrdinaryProduce:
    """What makes a request of one client for one partition an ordinary one."""

    prefix: cython.const[cython.uchar][::1]
    prefix_bytes: cython.Py_ssize_t
    has_compact_length: cython.bint
    suffix_bytes: cython.Py_ssize_t
    max_batch_bytes: cython.longlong
    before_ms: cython.longlong
    after_ms: cython.longlong
    needs_keys: cython.bint

    def __init__(
        self,
        prefix: bytes,
        has_compact_length: cython.bint,
        suffix_bytes: cython.Py_ssize_t,
        max_batch_bytes: cython.longlong,
        before_ms: cython.longlong,
        after_ms: cython.longlong,
        needs_keys: cython.bint,
    ) -> None:
        """`prefix` is the frame up to the length of the records, a compact one or an int32; the correlation id in it
        does not count. After the records come `suffix_bytes` zeros. Timestamps may lie so far from now."""
        if len(prefix) < _CORRELATION_END or suffix_bytes < 0:
            raise ValueError(f"a frame does not begin with {prefix!r} and end with {suffix_bytes} bytes")
        self.prefix = prefix
        self.prefix_bytes = len(prefix)
        self.has_compact_length = has_compact_length
        self.suffix_bytes = suffix_bytes
        self.max_batch_bytes = max_batch_bytes
        self.before_ms = min(before_ms, _LARGEST_SPAN_MS)
        self.after_ms = min(after_ms, _LARGEST_SPAN_MS)
        self.needs_keys = needs_keys

    def read(
        self, frame: memoryview, rows: dict, base_offset: cython.longlong, now_ms: cython.longlong
    ) -> tuple | None:
        """(batch, correlation id, last offset delta, greatest timestamp, producer id, the producer's row after it), or
        None. A batch without a producer has id -1 and no row. `rows` are those of `log/producers`."""
        data: cython.const[cython.uchar][::1] = frame
        start: cython.Py_ssize_t = self.batch_start(data)
        if start < 0:
            return None
        size: cython.Py_ssize_t = len(data) - self.suffix_bytes - start
        last_offset_delta: cython.longlong = _int32(data, start + 23)
        producer_id: cython.longlong = _int64(data, start + 43)
        producer_epoch: cython.longlong = _int16(data, start + 51)
        sequence: cython.longlong = _int32(data, start + 53)
        count: cython.longlong = _int32(data, start + 57)
        if (
            _int64(data, start) != 0
            or _int32(data, start + 8) + 12 != size
            or data[start + 16] != 2
            or _int16(data, start + 21) != 0
            or count <= 0
            or count != last_offset_delta + 1
        ):
            return None
        row = None
        if producer_id >= 0:
            known = rows.get(producer_id)
            if known is None or producer_epoch < 0 or sequence < 0:
                return None
            row = _next_row(known, producer_epoch, sequence, last_offset_delta, base_offset, now_ms)
            if row is None:
                return None
        elif producer_id != -1:
            return None
        least: cython.longlong
        greatest: cython.longlong
        null_keys: cython.longlong
        batch = frame[start : start + size]
        if crc32c(batch[21:]) != _uint32(data, start + 17):
            return None
        try:
            least, greatest, null_keys = walk_records(
                batch, _HEADER_BYTES, count, last_offset_delta, False, _int64(data, start + 27)
            )
        except InvalidRecord:
            return None
        if greatest != _int64(data, start + 35) or (null_keys and self.needs_keys):
            return None
        if least < now_ms - self.before_ms or greatest > now_ms + self.after_ms:
            return None
        return batch, _int32(data, _CORRELATION_AT), last_offset_delta, greatest, producer_id, row

    @cython.cfunc
    @cython.exceptval(-2)
    def batch_start(self, data: cython.const[cython.uchar][::1]) -> cython.Py_ssize_t:
        """Where the batch begins, if the frame is as the last one and long enough for a batch header; else -1."""
        at: cython.Py_ssize_t = self.prefix_bytes
        end: cython.Py_ssize_t = len(data) - self.suffix_bytes
        index: cython.Py_ssize_t
        length: cython.longlong = 0
        if end - at < _HEADER_BYTES + 5:
            return -1
        for index in range(_CORRELATION_AT):
            if data[index] != self.prefix[index]:
                return -1
        for index in range(_CORRELATION_END, at):
            if data[index] != self.prefix[index]:
                return -1
        for index in range(end, len(data)):
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
            length = _int32(data, at)
            at += 4
        return at if length == end - at and length <= self.max_batch_bytes and length >= _HEADER_BYTES else -1
