# cython: language_level=3, boundscheck=False, wraparound=False
"""Every loop over the records of a batch: encode, walk, read, list keys, copy a subset, fill Arrow columns.

One source: compiled by Cython where a C compiler is at hand, plain Python otherwise, with the same results. Compiled,
indexes are no longer checked by the language, so they are checked here: a cursor parses a record whole, holding every
length in it against the bytes that remain, before anyone looks at its fields; and every write is measured beforehand.
No I/O. It is one long file because it is one compiled module.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

import struct

from semel.records.errors import BatchTooLarge, InvalidRecord

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize
    from cython.cimports.cpython.object import PyObject, PyTypeObject
    from cython.cimports.libc.string import memcpy

compiled: bool = cython.compiled

# length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each
_SMALLEST_RECORD_BYTES = cython.declare(cython.longlong, 7)
_SMALLEST_HEADER_BYTES = cython.declare(cython.longlong, 2)
_BATCH_HEADER_BYTES = cython.declare(cython.longlong, 61)
_LENGTH_FIELD_END = cython.declare(cython.longlong, 12)
_LARGEST_BATCH_BYTES = cython.declare(cython.longlong, 2**31 - 1)
# the most that two numbers, a length and a timestamp delta, can grow when a record's timestamp gets a new base
_LARGEST_GROWTH_BYTES = cython.declare(cython.longlong, 4 + 9)
_LARGEST_COLUMN_BYTES = cython.declare(cython.longlong, 2**31 - 1)  # what Arrow's 32-bit offsets can tell
_SMALLEST_BUFFER_BYTES = cython.declare(cython.longlong, 64)
_LARGEST_TIMESTAMP = cython.declare(cython.longlong, 2**63 - 1)

# how the plain kernel writes the numbers of an Arrow buffer
_INT32 = struct.Struct("=i")
_INT64 = struct.Struct("=q")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _wrapping_sum(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """Adds as Java's long does: deltas from the wire may overflow, and overflows cancel out, so none is refused."""
    total: cython.longlong
    if cython.compiled:
        total = cython.cast(cython.ulonglong, left) + cython.cast(cython.ulonglong, right)
    else:
        total = (left + right + 2**63) % 2**64 - 2**63
    return total


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _wrapping_difference(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    difference: cython.longlong
    if cython.compiled:
        difference = cython.cast(cython.ulonglong, left) - cython.cast(cython.ulonglong, right)
    else:
        difference = (left - right + 2**63) % 2**64 - 2**63
    return difference


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_bytes(value: cython.longlong) -> cython.Py_ssize_t:
    raw: cython.ulonglong = (value << 1) ^ (value >> 63)
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _length(field: object) -> cython.Py_ssize_t:
    """Kafka's length of a key or value, where -1 is null. Only plain bytes: their length cannot change under us."""
    if field is None:
        return -1
    if type(field) is not bytes:
        raise TypeError(f"keys and values are bytes or None, not {type(field).__name__}")
    return len(cython.cast(bytes, field))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(value: cython.longlong) -> cython.longlong:
    """Refuses uncompiled what a 64-bit number cannot hold, as the conversion to one does when compiled."""
    if not cython.compiled and not -(2**63) <= value < 2**63:
        raise OverflowError("a timestamp does not fit into 64 bits")
    return value


def unfilled(size: cython.Py_ssize_t) -> bytearray:
    """A buffer for the caller to fill or cut. `bytearray(size)` would write zeros, and so take its memory, at once."""
    if size < 0:
        raise ValueError(f"a buffer of {size} bytes")
    buffer: bytearray
    if cython.compiled:
        buffer = PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        buffer = bytearray(size)
    return buffer


@cython.final
@cython.cclass
class _Writer:
    """Fills a buffer from `position` on. Its methods do not check: their user has measured what it writes."""

    out: cython.uchar[::1]
    position: cython.Py_ssize_t

    def __init__(self, out: bytearray, position: cython.Py_ssize_t) -> None:
        self.out = memoryview(out)
        self.position = position

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def byte(self, value: cython.uchar) -> cython.void:
        self.out[self.position] = value
        self.position += 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def varint(self, value: cython.longlong) -> cython.void:
        raw: cython.ulonglong = (value << 1) ^ (value >> 63)
        position: cython.Py_ssize_t = self.position
        while raw >= 0x80:
            self.out[position] = (raw & 0x7F) | 0x80
            raw >>= 7
            position += 1
        self.out[position] = raw
        self.position = position + 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number(self, value: cython.longlong, size: cython.Py_ssize_t) -> cython.void:
        """Big-endian, of a fixed size; a larger one is cut."""
        at: cython.Py_ssize_t = self.position + size
        self.position = at
        while size > 0:
            size -= 1
            at -= 1
            self.out[at] = value & 0xFF
            value >>= 8

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def piece(self, piece: bytes) -> cython.void:
        size: cython.Py_ssize_t = len(piece)
        if cython.compiled:
            if size:
                memcpy(cython.address(self.out[self.position]), cython.cast(cython.p_const_uchar, piece), size)
        else:
            self.out[self.position : self.position + size] = piece
        self.position += size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def field(self, field: object, size: cython.Py_ssize_t) -> cython.void:
        """A nullable key or value with its length before it."""
        self.varint(size)
        if size > 0:
            self.piece(cython.cast(bytes, field))


@cython.final
@cython.cclass
class _Cursor:
    """Steps from record to record. After `step` the fields of one record are known and lie within the data."""

    data: cython.const[cython.uchar][::1]
    position: cython.Py_ssize_t
    end: cython.Py_ssize_t  # nothing is read past it: the record's end within a record, else the data's
    data_end: cython.Py_ssize_t
    last_offset_delta: cython.longlong

    record_start: cython.Py_ssize_t
    timestamp_start: cython.Py_ssize_t
    timestamp_delta: cython.longlong
    timestamp_end: cython.Py_ssize_t
    offset_delta: cython.longlong
    key_start: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    value_start: cython.Py_ssize_t
    value_length: cython.Py_ssize_t
    header_count: cython.Py_ssize_t
    headers_start: cython.Py_ssize_t

    def __init__(
        self,
        data: object,
        start: cython.Py_ssize_t,
        count: cython.longlong,
        last_offset_delta: cython.longlong,
        holes: cython.bint,
    ) -> None:
        self.data = data
        self.data_end = len(data)
        if start < 0 or start > self.data_end:
            raise InvalidRecord("the records start past the end of the batch")
        if count < 0 or count > (self.data_end - start) // _SMALLEST_RECORD_BYTES:
            raise InvalidRecord(f"{count} records cannot fit into {self.data_end - start} bytes")
        # Deltas grow and none exceeds the last, so with as many records as deltas there is no room for a hole.
        if not holes and count != last_offset_delta + 1:
            raise InvalidRecord(f"{count} records, but the last offset delta is {last_offset_delta}")
        self.position = start
        self.end = self.data_end
        self.last_offset_delta = last_offset_delta
        self.offset_delta = -1

    @cython.cfunc
    @cython.inline
    def number(self, size_limit: cython.int) -> cython.longlong:
        """A zigzag varint of at most `size_limit` bytes: 5 hold 32 bits, 10 hold 64."""
        raw: cython.ulonglong
        if self.position < self.end:
            raw = self.data[self.position]
            if raw < 0x80:
                self.position += 1
                return (raw >> 1) ^ -(raw & 1)
            # two bytes are common too: lengths from 64 on, offset deltas from 64 on
            if self.position + 1 < self.end and self.data[self.position + 1] < 0x80:
                raw = (raw & 0x7F) | (self.data[self.position + 1] << 7)
                self.position += 2
                return (raw >> 1) ^ -(raw & 1)
        return self.long_number(size_limit)

    @cython.cfunc
    def long_number(self, size_limit: cython.int) -> cython.longlong:
        raw: cython.ulonglong = 0
        part: cython.ulonglong
        place: cython.int
        for place in range(size_limit):
            if self.position >= self.end:
                raise InvalidRecord(f"the data ends within a number at byte {self.position}")
            part = self.data[self.position]
            self.position += 1
            if place == 9 and part > 1:
                break
            raw |= (part & 0x7F) << (7 * place)
            if part < 0x80:
                if size_limit == 5 and raw > 0xFFFFFFFF:
                    break
                return (raw >> 1) ^ -(raw & 1)
        raise InvalidRecord(f"a number before byte {self.position} is out of range")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2)
    def length(self) -> cython.Py_ssize_t:
        """Steps over a key or value and returns its length, -1 for null."""
        size: cython.longlong = self.number(5)
        if size < -1 or size > self.end - self.position:
            raise InvalidRecord(
                f"a length of {size} at byte {self.position} with {self.end - self.position} bytes left"
            )
        if size > 0:
            self.position += size
        return size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def step(self) -> cython.int:
        """Parses the next record, whole."""
        size: cython.longlong
        delta: cython.longlong
        self.end = self.data_end
        self.record_start = self.position
        size = self.number(5)
        if size < _SMALLEST_RECORD_BYTES - 1 or size > self.end - self.position:
            raise InvalidRecord(f"a record of {size} bytes with {self.end - self.position} bytes left")
        self.end = self.position + size
        self.position += 1  # attributes: no bit of them has a meaning
        self.timestamp_start = self.position
        self.timestamp_delta = self.number(10)
        self.timestamp_end = self.position
        delta = self.number(5)
        if delta <= self.offset_delta or delta > self.last_offset_delta:
            raise InvalidRecord(f"offset delta {delta} follows {self.offset_delta}")
        self.offset_delta = delta
        self.key_length = self.length()
        self.key_start = self.position - self.key_length
        self.value_length = self.length()
        self.value_start = self.position - self.value_length
        self.header_count = self.number(5)
        self.headers_start = self.position
        if self.header_count != 0:
            self.step_over_headers()
        if self.position != self.end:
            raise InvalidRecord(f"{self.end - self.position} bytes left over at the end of a record")
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def step_over_headers(self) -> cython.int:
        count: cython.Py_ssize_t = self.header_count
        if count < 0 or count > (self.end - self.position) // _SMALLEST_HEADER_BYTES:
            raise InvalidRecord(f"{count} headers with {self.end - self.position} bytes left")
        while count > 0:
            if self.length() < 0:
                raise InvalidRecord("a header without a key")
            self.length()
            count -= 1
        return 0

    @cython.cfunc
    def expect_end(self) -> cython.int:
        if self.position != self.data_end:
            raise InvalidRecord(f"{self.data_end - self.position} bytes left over after the last record")
        return 0

    @cython.cfunc
    @cython.inline
    def slice(self, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> bytes:
        piece: bytes = b""
        if size > 0:
            if cython.compiled:
                piece = cython.cast(cython.p_const_char, cython.address(self.data[start]))[:size]
            else:
                piece = bytes(self.data[start : start + size])
        return piece

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_ascii(self, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        index: cython.Py_ssize_t
        every_bit: cython.uchar = 0
        for index in range(start, start + size):
            every_bit |= self.data[index]
        return every_bit < 0x80

    @cython.cfunc
    def headers(self) -> tuple:
        """The headers of the record just stepped over. A key that is not UTF-8 is mended, as Java does, not refused."""
        after: cython.Py_ssize_t = self.position
        size: cython.Py_ssize_t
        found: list = []
        self.position = self.headers_start
        for _ in range(self.header_count):
            size = self.length()
            key = self.slice(self.position - size, size).decode("utf-8", "replace")
            size = self.length()
            found.append((key, None if size < 0 else self.slice(self.position - size, size)))
        self.position = after
        return tuple(found)


def encode_headers(headers: object) -> bytes:
    """The header count and headers of one record, as they end a record."""
    encoded: list = []
    size: cython.Py_ssize_t
    total: cython.Py_ssize_t = 0
    for key, value in headers:
        key_bytes = key.encode()
        encoded.append(key_bytes)
        encoded.append(value)
        total += _varint_bytes(len(key_bytes)) + len(key_bytes)
        size = _length(value)
        total += _varint_bytes(size) + max(size, 0)
    out = bytearray(_varint_bytes(len(encoded) // 2) + total)
    writer: _Writer = _Writer(out, 0)
    writer.varint(len(encoded) // 2)
    for piece in encoded:
        writer.field(piece, _length(piece))
    return bytes(out)


@cython.boundscheck(True)
def encode_records(
    values: list,
    keys: list | None,
    header_blocks: list | None,
    timestamps: list | None,
    base_timestamp: cython.longlong,
    reserved_bytes: cython.Py_ssize_t,
) -> tuple:
    """Encodes records with offset deltas 0, 1, 2 and so on, after `reserved_bytes` left free for the batch header.

    `header_blocks` come from `encode_headers`; all lists are as long as `values`. Returns (buffer, greatest timestamp).
    """
    index: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(values)
    total: cython.longlong = reserved_bytes
    size: cython.Py_ssize_t
    key_length: cython.Py_ssize_t = -1
    headers_length: cython.Py_ssize_t = 1
    timestamp: cython.longlong
    greatest: cython.longlong = base_timestamp
    delta: cython.longlong = 0
    key: object = None
    block: object = b"\x00"
    writer: _Writer

    for index in range(count):
        if keys is not None:
            key_length = _length(keys[index])
        if header_blocks is not None:
            headers_length = _length(header_blocks[index])
        if timestamps is not None:
            timestamp = _int64(timestamps[index])
            if index == 0 or timestamp > greatest:
                greatest = timestamp
            delta = _wrapping_difference(timestamp, base_timestamp)
        size = _body_bytes(delta, index, key_length, _length(values[index]), headers_length)
        total += _varint_bytes(size) + size
        if total > _LARGEST_BATCH_BYTES:
            raise BatchTooLarge("the records need more than 2 GiB")

    out = unfilled(total)
    writer = _Writer(out, reserved_bytes)
    for index in range(count):
        if keys is not None:
            key = keys[index]
            key_length = _length(key)
        if header_blocks is not None:
            block = header_blocks[index]
            headers_length = _length(block)
        if timestamps is not None:
            delta = _wrapping_difference(timestamps[index], base_timestamp)
        value = values[index]
        size = _body_bytes(delta, index, key_length, _length(value), headers_length)
        # An allocation may run a garbage collection, that a finalizer, and that could have changed a list.
        if headers_length < 1 or _varint_bytes(size) + size > total - writer.position:
            raise ValueError("the records changed while they were encoded")
        writer.varint(size)
        writer.byte(0)
        writer.varint(delta)
        writer.varint(index)
        writer.field(key, key_length)
        writer.field(value, _length(value))
        writer.piece(cython.cast(bytes, block))
    if writer.position != total:
        raise ValueError("the records changed while they were encoded")
    return out, greatest


def encode_one(
    value: object,
    key: object,
    timestamp: cython.longlong,
    attributes: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
) -> bytearray:
    """A whole batch of one record without headers, but for its checksum: the node itself writes many of those."""
    value_length: cython.Py_ssize_t = _length(value)
    key_length: cython.Py_ssize_t = _length(key)
    size: cython.longlong = _body_bytes(0, 0, key_length, value_length, 1)
    total: cython.longlong = _BATCH_HEADER_BYTES + _varint_bytes(size) + size
    writer: _Writer
    if total > _LARGEST_BATCH_BYTES:
        raise BatchTooLarge("the records need more than 2 GiB")
    _int64(timestamp)
    out = unfilled(total)
    writer = _Writer(out, 0)
    writer.number(base_offset, 8)
    writer.number(total - _LENGTH_FIELD_END, 4)
    writer.number(leader_epoch, 4)
    writer.byte(2)  # magic
    writer.number(0, 4)  # the checksum
    writer.number(attributes, 2)
    writer.number(0, 4)  # last offset delta
    writer.number(timestamp, 8)
    writer.number(timestamp, 8)
    writer.number(producer_id, 8)
    writer.number(producer_epoch, 2)
    writer.number(-1, 4)  # base sequence
    writer.number(1, 4)  # records
    writer.varint(size)
    writer.byte(0)
    writer.varint(0)
    writer.varint(0)
    writer.field(key, key_length)
    writer.field(value, value_length)
    writer.varint(0)
    return out


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _body_bytes(
    timestamp_delta: cython.longlong,
    offset_delta: cython.longlong,
    key_length: cython.Py_ssize_t,
    value_length: cython.Py_ssize_t,
    headers_length: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1 + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta) + headers_length
    size += _varint_bytes(key_length) + (key_length if key_length > 0 else 0)
    size += _varint_bytes(value_length) + (value_length if value_length > 0 else 0)
    return size


def walk_records(
    data: object,
    start: cython.Py_ssize_t,
    count: cython.longlong,
    last_offset_delta: cython.longlong,
    holes: cython.bint,
    base_timestamp: cython.longlong,
) -> tuple:
    """Checks every record, and that nothing is left over. Returns (least timestamp, greatest timestamp, null keys).

    With `holes`, offset deltas only have to grow up to the last; without, they are 0, 1, 2 up to the last.
    """
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, holes)
    index: cython.longlong
    timestamp: cython.longlong
    least: cython.longlong = -1
    greatest: cython.longlong = -1
    null_keys: cython.longlong = 0
    for index in range(count):
        cursor.step()
        timestamp = _wrapping_sum(base_timestamp, cursor.timestamp_delta)
        if index == 0 or timestamp < least:
            least = timestamp
        if index == 0 or timestamp > greatest:
            greatest = timestamp
        if cursor.key_length < 0:
            null_keys += 1
    cursor.expect_end()
    return least, greatest, null_keys


def find_refused(
    data: object,
    start: cython.Py_ssize_t,
    count: cython.longlong,
    last_offset_delta: cython.longlong,
    base_timestamp: cython.longlong,
    needs_keys: cython.bint,
    earliest: cython.longlong,
    latest: cython.longlong,
    limit: cython.Py_ssize_t,
) -> tuple:
    """Which records, of those that `walk_records` has found whole, have no key where they need one (index, None), or a
    timestamp out of range (index, timestamp). Returns the first `limit` of them, and how many have no key, how many a
    wrong timestamp. A timestamp of -1 is none, and is never wrong."""
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, False)
    index: cython.longlong
    timestamp: cython.longlong
    without_key: cython.longlong = 0
    out_of_range: cython.longlong = 0
    found: list = []
    for index in range(count):
        cursor.step()
        if needs_keys and cursor.key_length < 0:
            without_key += 1
            if len(found) < limit:
                found.append((index, None))
            continue
        timestamp = _wrapping_sum(base_timestamp, cursor.timestamp_delta)
        if timestamp != -1 and (timestamp < earliest or timestamp > latest):
            out_of_range += 1
            if len(found) < limit:
                found.append((index, timestamp))
    return found, without_key, out_of_range


def count_whole(
    data: object, start: cython.Py_ssize_t, count: cython.longlong, last_offset_delta: cython.longlong
) -> cython.longlong:
    """How many records can be read before the first that breaks the format."""
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, False)
    index: cython.longlong
    for index in range(count):
        try:
            cursor.step()
        except InvalidRecord:
            return index
    return count


def read_records(
    data: object,
    start: cython.Py_ssize_t,
    count: cython.longlong,
    last_offset_delta: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp: object,
    make: object,
) -> list:
    """`make((offset, timestamp, key, value, headers))` for each record. `append_timestamp`, if any, counts for all."""
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, True)
    records: list = []
    headers: tuple
    for _ in range(count):
        cursor.step()
        headers = () if cursor.header_count == 0 else cursor.headers()
        records.append(
            make(
                (
                    _wrapping_sum(base_offset, cursor.offset_delta),
                    _wrapping_sum(base_timestamp, cursor.timestamp_delta)
                    if append_timestamp is None
                    else append_timestamp,
                    None if cursor.key_length < 0 else cursor.slice(cursor.key_start, cursor.key_length),
                    None if cursor.value_length < 0 else cursor.slice(cursor.value_start, cursor.value_length),
                    headers,
                )
            )
        )
    cursor.expect_end()
    return records


def read_messages(
    data: object,
    start: cython.Py_ssize_t,
    count: cython.longlong,
    last_offset_delta: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
    append_timestamp: object,
    topic: object,
    partition: object,
    first_offset: cython.longlong,
    make: object,
) -> list:
    """`make((topic, partition, offset, timestamp, timestamp type, key, value, headers))` from `first_offset` on.

    `make` can also be a class derived from tuple, which takes half the time: its own `__new__` is not asked.
    `append_timestamp`, if any, counts for all, and the type is 1; else each record tells its own, and the type is 0.
    """
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, True)
    messages: list = []
    headers: tuple
    offset: cython.longlong
    fields: tuple
    timestamp_type: object = 0 if append_timestamp is None else 1
    is_tuple_class: cython.bint = isinstance(make, type) and issubclass(make, tuple) and make is not tuple
    for _ in range(count):
        cursor.step()
        offset = _wrapping_sum(base_offset, cursor.offset_delta)
        if offset < first_offset:
            continue
        headers = () if cursor.header_count == 0 else cursor.headers()
        fields = (
            topic,
            partition,
            offset,
            _wrapping_sum(base_timestamp, cursor.timestamp_delta) if append_timestamp is None else append_timestamp,
            timestamp_type,
            None if cursor.key_length < 0 else cursor.slice(cursor.key_start, cursor.key_length),
            None if cursor.value_length < 0 else cursor.slice(cursor.value_start, cursor.value_length),
            headers,
        )
        messages.append(_instance(make, fields) if is_tuple_class else make(fields))
    cursor.expect_end()
    return messages


@cython.cfunc
@cython.inline
def _instance(tuple_class: object, fields: tuple) -> object:
    """`tuple.__new__(tuple_class, fields)`, by the shortest way."""
    made: object
    arguments: tuple
    if cython.compiled:
        arguments = (fields,)
        made = cython.cast(cython.pointer(PyTypeObject), tuple).tp_new(
            cython.cast(type, tuple_class), cython.cast(cython.pointer(PyObject), arguments), cython.NULL
        )
    else:
        made = tuple.__new__(tuple_class, fields)
    return made


def read_values(
    data: object, start: cython.Py_ssize_t, count: cython.longlong, last_offset_delta: cython.longlong
) -> list:
    """The value of each record, and nothing else of it."""
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, True)
    values: list = []
    for _ in range(count):
        cursor.step()
        values.append(None if cursor.value_length < 0 else cursor.slice(cursor.value_start, cursor.value_length))
    cursor.expect_end()
    return values


def read_keys(
    data: object,
    start: cython.Py_ssize_t,
    count: cython.longlong,
    last_offset_delta: cython.longlong,
    base_offset: cython.longlong,
    base_timestamp: cython.longlong,
) -> list:
    """What compaction asks of each record: (offset, key, whether it has a value, timestamp)."""
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, True)
    found: list = []
    for _ in range(count):
        cursor.step()
        found.append(
            (
                _wrapping_sum(base_offset, cursor.offset_delta),
                None if cursor.key_length < 0 else cursor.slice(cursor.key_start, cursor.key_length),
                cursor.value_length >= 0,
                _wrapping_sum(base_timestamp, cursor.timestamp_delta),
            )
        )
    cursor.expect_end()
    return found


def copy_records(
    data: object,
    start: cython.Py_ssize_t,
    count: cython.longlong,
    last_offset_delta: cython.longlong,
    keep: cython.const[cython.uchar][::1],
    base_timestamp: cython.longlong,
    new_base_timestamp: cython.longlong,
    reserved_bytes: cython.Py_ssize_t,
) -> tuple:
    """Copies the records whose byte in `keep` is not 0, as they are but for timestamp deltas when their base changes.

    Returns (buffer, bytes used of it, records kept, greatest timestamp kept or -1).
    """
    cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, True)
    writer: _Writer
    index: cython.longlong
    timestamp: cython.longlong
    delta: cython.longlong
    kept: cython.longlong = 0
    greatest: cython.longlong = -1
    growth: cython.longlong = 0 if base_timestamp == new_base_timestamp else _LARGEST_GROWTH_BYTES
    if len(keep) != count:
        raise ValueError(f"{len(keep)} marks for {count} records")
    out = unfilled(reserved_bytes + cursor.data_end - start + growth * count)
    writer = _Writer(out, reserved_bytes)
    for index in range(count):
        cursor.step()
        if keep[index] == 0:
            continue
        timestamp = _wrapping_sum(base_timestamp, cursor.timestamp_delta)
        if kept == 0 or timestamp > greatest:
            greatest = timestamp
        kept += 1
        if growth == 0:
            _copy(writer, cursor, cursor.record_start, cursor.end)
            continue
        delta = _wrapping_difference(timestamp, new_base_timestamp)
        writer.varint(1 + _varint_bytes(delta) + cursor.end - cursor.timestamp_end)
        _copy(writer, cursor, cursor.timestamp_start - 1, cursor.timestamp_start)
        writer.varint(delta)
        _copy(writer, cursor, cursor.timestamp_end, cursor.end)
    cursor.expect_end()
    return out, writer.position, kept, greatest


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(writer: _Writer, cursor: _Cursor, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
    if cython.compiled:
        memcpy(cython.address(writer.out[writer.position]), cython.address(cursor.data[start]), end - start)
    else:
        writer.out[writer.position : writer.position + end - start] = cursor.data[start:end]
    writer.position += end - start


# Arrow columns, filled from records


@cython.final
@cython.cclass
class _Growing:
    """A buffer that grows by `reserve`. The methods that put do not check: their user has reserved what it fills.

    Its memory comes from `allocate`, as Arrow's own does: fresh memory costs more than what is written into it.
    """

    allocate: object
    buffer: object
    view: cython.uchar[::1]
    size: cython.Py_ssize_t

    def __init__(self, allocate: object) -> None:
        self.allocate = allocate
        self.size = 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def reserve(self, size: cython.Py_ssize_t) -> cython.int:
        if size > self.size:
            self.move(max(size, 2 * self.size, _SMALLEST_BUFFER_BYTES), self.size)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def move(self, size: cython.Py_ssize_t, kept_bytes: cython.Py_ssize_t) -> cython.int:
        buffer: object = self.allocate(size)
        view: cython.uchar[::1] = memoryview(buffer).cast("B")
        if len(view) < size:
            raise MemoryError(f"{len(view)} bytes instead of {size}")
        if kept_bytes > 0:
            if cython.compiled:
                memcpy(cython.address(view[0]), cython.address(self.view[0]), kept_bytes)
            else:
                view[:kept_bytes] = self.view[:kept_bytes]
        self.buffer = buffer
        self.view = view
        self.size = size
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put_int32(self, index: cython.Py_ssize_t, value: cython.int) -> cython.void:
        if cython.compiled:
            cython.cast(cython.p_int, cython.address(self.view[0]))[index] = value
        else:
            _INT32.pack_into(self.view, 4 * index, value)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put_int64(self, index: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
        if cython.compiled:
            cython.cast(cython.p_longlong, cython.address(self.view[0]))[index] = value
        else:
            _INT64.pack_into(self.view, 8 * index, value)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put_bit(self, index: cython.Py_ssize_t, bit: cython.bint) -> cython.void:
        """Bits are put one after the other: the first of a byte also clears the rest of it."""
        if index & 7 == 0:
            self.view[index >> 3] = bit
        elif bit:
            self.view[index >> 3] |= 1 << (index & 7)

    @cython.cfunc
    def finish(self, size: cython.Py_ssize_t) -> object:
        """A buffer that begins with the `size` bytes that were put, and is not much larger."""
        if size < self.size // 2 or self.size == 0:
            self.move(max(size, _SMALLEST_BUFFER_BYTES), size)
        filled: object = self.buffer
        self.buffer = None
        self.view = None
        self.size = 0
        return filled


@cython.final
@cython.cclass
class _BinaryBuilder:
    """A column of bytes: offsets of 32 bits, data, and which rows are not null."""

    offsets: _Growing
    data: _Growing
    validity: _Growing
    count: cython.Py_ssize_t
    data_bytes: cython.Py_ssize_t
    null_count: cython.Py_ssize_t

    def __init__(self, allocate: object) -> None:
        self.offsets = _Growing(allocate)
        self.data = _Growing(allocate)
        self.validity = _Growing(allocate)
        self.count = 0
        self.data_bytes = 0
        self.null_count = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, count: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t) -> cython.int:
        """Makes room for `count` more rows with `data_bytes` in all."""
        if data_bytes > _LARGEST_COLUMN_BYTES - self.data_bytes or count > _LARGEST_COLUMN_BYTES - self.count:
            raise BatchTooLarge("a column holds less than 2 GiB")
        self.offsets.reserve(4 * (self.count + count + 1))
        self.data.reserve(self.data_bytes + data_bytes)
        self.validity.reserve((self.count + count + 7) >> 3)
        if self.count == 0:
            self.offsets.put_int32(0, 0)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def append(self, cursor: _Cursor, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.void:
        """A row of the cursor's bytes; null if `size` is -1."""
        self.validity.put_bit(self.count, size >= 0)
        if size > 0:
            if cython.compiled:
                memcpy(cython.address(self.data.view[self.data_bytes]), cython.address(cursor.data[start]), size)
            else:
                self.data.view[self.data_bytes : self.data_bytes + size] = cursor.data[start : start + size]
            self.data_bytes += size
        elif size < 0:
            self.null_count += 1
        self.count += 1
        self.offsets.put_int32(self.count, self.data_bytes)

    @cython.cfunc
    @cython.exceptval(-1)
    def append_mended(self, text: bytes, room_bytes: cython.Py_ssize_t) -> cython.int:
        """A row of bytes from elsewhere, which may be more than were reserved; keeps room for `room_bytes` after it."""
        self.reserve(1, len(text) + room_bytes)
        self.validity.put_bit(self.count, True)
        index: cython.Py_ssize_t
        for index in range(len(text)):
            self.data.view[self.data_bytes + index] = text[index]
        self.data_bytes += len(text)
        self.count += 1
        self.offsets.put_int32(self.count, self.data_bytes)
        return 0

    @cython.cfunc
    def finish(self) -> tuple:
        """(rows, nulls, bits of the rows that are not null or None if all are, offsets, data, bytes of data)"""
        self.reserve(0, 0)
        return (
            self.count,
            self.null_count,
            self.validity.finish((self.count + 7) >> 3) if self.null_count > 0 else None,
            self.offsets.finish(4 * (self.count + 1)),
            self.data.finish(self.data_bytes),
            self.data_bytes,
        )


@cython.final
@cython.cclass
class ColumnReader:
    """Gathers records, batch after batch, as the buffers of Arrow columns. After an error it is of no more use."""

    count: cython.Py_ssize_t
    offsets: _Growing
    timestamps: _Growing
    timestamp_types: _Growing
    keys: _BinaryBuilder
    values: _BinaryBuilder
    with_headers: cython.bint
    header_offsets: _Growing
    header_keys: _BinaryBuilder
    header_values: _BinaryBuilder
    timestamp_factor: cython.longlong

    def __init__(
        self,
        with_headers: cython.bint,
        timestamp_factor: cython.longlong,
        allocate: object,
        expected_count: cython.Py_ssize_t,
        expected_bytes: cython.Py_ssize_t,
    ) -> None:
        """`allocate(size)` gives buffers. For the records and bytes of values that are expected they need not grow."""
        if timestamp_factor < 1:
            raise ValueError(f"timestamps cannot be multiplied by {timestamp_factor}")
        if expected_count < 0 or expected_bytes < 0:
            raise ValueError(f"{expected_count} records of {expected_bytes} bytes cannot be expected")
        self.count = 0
        self.offsets = _Growing(allocate)
        self.timestamps = _Growing(allocate)
        self.timestamp_types = _Growing(allocate)
        self.keys = _BinaryBuilder(allocate)
        self.values = _BinaryBuilder(allocate)
        self.with_headers = with_headers
        self.header_offsets = _Growing(allocate)
        self.header_keys = _BinaryBuilder(allocate)
        self.header_values = _BinaryBuilder(allocate)
        self.timestamp_factor = timestamp_factor
        self.reserve(expected_count, 0, expected_bytes)

    def __len__(self) -> int:
        return self.count

    def add(
        self,
        data: object,
        start: cython.Py_ssize_t,
        count: cython.longlong,
        last_offset_delta: cython.longlong,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
        append_timestamp: object,
        first_offset: cython.longlong,
        end_offset: cython.longlong,
        max_records: cython.longlong,
    ) -> int:
        """The records of one batch with offsets from `first_offset` to before `end_offset`, up to `max_records` in all.

        Returns the offset from which to go on. `append_timestamp`, if any, counts for all records.
        """
        cursor: _Cursor = _Cursor(data, start, count, last_offset_delta, True)
        row: cython.Py_ssize_t = self.count
        offset: cython.longlong
        timestamp: cython.longlong
        is_append_time: cython.bint = append_timestamp is not None
        append_time: cython.longlong = 0 if append_timestamp is None else append_timestamp
        # Each record that is added has its bytes in the batch, so no column can grow by more than that.
        batch_bytes: cython.Py_ssize_t = cursor.data_end - start
        self.reserve(count, batch_bytes, batch_bytes)
        for _ in range(count):
            if row >= max_records:
                return _wrapping_sum(base_offset, cursor.offset_delta + 1)
            cursor.step()
            offset = _wrapping_sum(base_offset, cursor.offset_delta)
            if offset < first_offset:
                continue
            if offset >= end_offset:
                return offset
            timestamp = append_time if is_append_time else _wrapping_sum(base_timestamp, cursor.timestamp_delta)
            self.offsets.put_int64(row, offset)
            self.timestamps.put_int64(row, _multiplied(timestamp, self.timestamp_factor))
            self.timestamp_types.put_int32(row, is_append_time)
            self.keys.append(cursor, cursor.key_start, cursor.key_length)
            self.values.append(cursor, cursor.value_start, cursor.value_length)
            if self.with_headers:
                if cursor.header_count > 0:
                    self.add_headers(cursor)
                self.header_offsets.put_int32(row + 1, self.header_keys.count)
            row += 1
            self.count = row
        cursor.expect_end()
        return _wrapping_sum(base_offset, last_offset_delta + 1)

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(
        self, count: cython.Py_ssize_t, key_bytes: cython.Py_ssize_t, value_bytes: cython.Py_ssize_t
    ) -> cython.int:
        """Makes room for `count` more records, but for their headers."""
        self.keys.reserve(count, key_bytes)
        self.values.reserve(count, value_bytes)
        self.offsets.reserve(8 * (self.count + count))
        self.timestamps.reserve(8 * (self.count + count))
        self.timestamp_types.reserve(4 * (self.count + count))
        if self.with_headers:
            self.header_offsets.reserve(4 * (self.count + count + 1))
            self.header_offsets.put_int32(self.count, self.header_keys.count)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def add_headers(self, cursor: _Cursor) -> cython.int:
        """The headers of the record just stepped over. Arrow's strings are UTF-8, so a key that is not is mended."""
        after: cython.Py_ssize_t = cursor.position
        size: cython.Py_ssize_t
        self.header_keys.reserve(cursor.header_count, after - cursor.headers_start)
        self.header_values.reserve(cursor.header_count, after - cursor.headers_start)
        cursor.position = cursor.headers_start
        for _ in range(cursor.header_count):
            size = cursor.length()
            if cursor.is_ascii(cursor.position - size, size):
                self.header_keys.append(cursor, cursor.position - size, size)
            else:
                mended = cursor.slice(cursor.position - size, size).decode("utf-8", "replace").encode()
                self.header_keys.append_mended(mended, after - cursor.position)
            size = cursor.length()
            self.header_values.append(cursor, cursor.position - size, size)
        # The cursor is where it was before: a record ends with its headers.
        return 0

    def finish(self) -> tuple:
        """(offsets, timestamps, timestamp types, key, value, header offsets or None, header key, header value)

        What a key or value is `_BinaryBuilder.finish` tells. Buffers may be longer than what was put into them.
        """
        return (
            self.offsets.finish(8 * self.count),
            self.timestamps.finish(8 * self.count),
            self.timestamp_types.finish(4 * self.count),
            self.keys.finish(),
            self.values.finish(),
            self.header_offsets.finish(4 * (self.count + 1)) if self.with_headers else None,
            self.header_keys.finish(),
            self.header_values.finish(),
        )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _multiplied(timestamp: cython.longlong, factor: cython.longlong) -> cython.longlong:
    """In a finer unit. What that cannot hold, hundreds of thousands of years away, becomes the farthest it can."""
    farthest: cython.longlong
    if factor == 1:
        return timestamp
    farthest = _LARGEST_TIMESTAMP // factor
    return min(max(timestamp, -farthest), farthest) * factor
