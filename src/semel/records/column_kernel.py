# cython: language_level=3, boundscheck=False, wraparound=False
"""The loops from Arrow columns to records, and from rows to partitions. (From records to columns: `kernel`.)

Compiled or plain Python, with the same results, as `kernel` is; and as there, indexes are checked here because compiled
code does not: the buffers of a column are held against what their rows say, and every write is measured beforehand.
Two compiled modules share no C functions, so the few lines that write a varint exist in both. No I/O.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

from semel.records.errors import BatchTooLarge
from semel.records.kernel import unfilled

if cython.compiled:
    from cython.cimports.libc.string import memcpy

compiled: bool = cython.compiled

_LARGEST_BATCH_BYTES = cython.declare(cython.longlong, 2**31 - 1)
_LARGEST_TIMESTAMP = cython.declare(cython.longlong, 2**63 - 1)
_32_BITS = cython.declare(cython.longlong, 0xFFFFFFFF)  # written out, a number this large becomes a Python object
_MURMUR2_SEED = cython.declare(cython.longlong, 0x9747B28C)
_MURMUR2_FACTOR = cython.declare(cython.longlong, 0x5BD1E995)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _wrapping_difference(left: cython.longlong, right: cython.longlong) -> cython.longlong:
    """Subtracts as Java's long does: the reader adds the same way, so an overflow cancels out."""
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
def _check_places(
    first: cython.Py_ssize_t, count: cython.Py_ssize_t, places: cython.Py_ssize_t, validity: object
) -> cython.int:
    """Whether rows `first` to `first + count` are within a buffer of `places` rows, and within the validity bits."""
    if first < 0 or count < 0 or count > places - first:
        raise ValueError(f"an Arrow column of {count} rows from {first} on in a buffer of {places}")
    if validity is not None and count > len(validity) * 8 - first:
        raise ValueError(f"an Arrow column of {count} rows from {first} on with {len(validity) * 8} validity bits")
    return 0


@cython.final
@cython.cclass
class NumberColumn:
    """An Arrow column of 64-bit integers: `count` rows from place `first` of its buffers on."""

    numbers: cython.const[cython.longlong][::1]
    validity: cython.const[cython.uchar][::1]
    has_nulls: cython.bint
    first: cython.Py_ssize_t
    count: cython.Py_ssize_t
    number: cython.longlong

    def __init__(self, numbers: object, validity: object, first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> None:
        _check_places(first, count, len(numbers), validity)
        self.numbers = numbers
        self.has_nulls = validity is not None
        if validity is not None:
            self.validity = validity
        self.first = first
        self.count = count

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def look(self, row: cython.Py_ssize_t) -> cython.bint:
        """Whether the row has a number, which is then `number`."""
        place: cython.Py_ssize_t = self.first + row
        if self.has_nulls and not (self.validity[place >> 3] >> (place & 7)) & 1:
            return False
        self.number = self.numbers[place]
        return True


@cython.cclass
class _RangeColumn:
    """An Arrow column whose rows are ranges of something, by offsets of 32 or 64 bits."""

    narrow_offsets: cython.const[cython.int][::1]
    wide_offsets: cython.const[cython.longlong][::1]
    is_wide: cython.bint
    validity: cython.const[cython.uchar][::1]
    has_nulls: cython.bint
    first: cython.Py_ssize_t
    count: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    start: cython.Py_ssize_t
    length: cython.Py_ssize_t

    @cython.final
    @cython.cfunc
    @cython.exceptval(-1)
    def set_ranges(
        self,
        offsets: object,
        validity: object,
        first: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        limit: cython.Py_ssize_t,
    ) -> cython.int:
        """No range reaches past `limit`. A column without rows may lack even the one offset it should have."""
        _check_places(first, count, len(offsets) - 1 if count > 0 else first, validity)
        self.is_wide = offsets.itemsize == 8
        if self.is_wide:
            self.wide_offsets = offsets
        else:
            self.narrow_offsets = offsets
        self.has_nulls = validity is not None
        if validity is not None:
            self.validity = validity
        self.first = first
        self.count = count
        self.limit = limit
        self.start = 0
        self.length = -1
        return 0

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def look(self, row: cython.Py_ssize_t) -> cython.int:
        """Finds `start` and `length` of a row, within the limit; a length of -1 is null."""
        place: cython.Py_ssize_t = self.first + row
        start: cython.longlong
        end: cython.longlong
        if self.has_nulls and not (self.validity[place >> 3] >> (place & 7)) & 1:
            self.length = -1
            return 0
        if self.is_wide:
            start = self.wide_offsets[place]
            end = self.wide_offsets[place + 1]
        else:
            start = self.narrow_offsets[place]
            end = self.narrow_offsets[place + 1]
        if start < 0 or end < start or end > self.limit:
            raise ValueError(f"an Arrow column is broken: a row from {start} to {end} of {self.limit}")
        self.start = start
        self.length = end - start
        return 0


@cython.final
@cython.cclass
class BinaryColumn(_RangeColumn):
    """An Arrow column of bytes: `count` rows from place `first` of its buffers on."""

    data: cython.const[cython.uchar][::1]

    def __init__(
        self, offsets: object, data: object, validity: object, first: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> None:
        self.data = data
        self.set_ranges(offsets, validity, first, count, len(data))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def field_bytes(self) -> cython.Py_ssize_t:
        """What the row just looked at takes in a record: its length, and its bytes."""
        return _varint_bytes(self.length) + (self.length if self.length > 0 else 0)


@cython.final
@cython.cclass
class HeaderColumn(_RangeColumn):
    """An Arrow column of lists of headers: rows are ranges of a column of keys and one of values."""

    keys: BinaryColumn
    values: BinaryColumn

    def __init__(
        self,
        offsets: object,
        keys: BinaryColumn,
        values: BinaryColumn,
        validity: object,
        first: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
    ) -> None:
        if keys.count != values.count:
            raise ValueError(f"{keys.count} header keys for {values.count} header values")
        self.keys = keys
        self.values = values
        self.set_ranges(offsets, validity, first, count, keys.count)

    @cython.cfunc
    @cython.exceptval(-1)
    def measure(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Finds the headers of a row; returns the bytes that they and their count take in a record."""
        index: cython.Py_ssize_t
        size: cython.Py_ssize_t
        self.look(row)
        if self.length < 0:
            self.length = 0
        size = _varint_bytes(self.length)
        for index in range(self.start, self.start + self.length):
            size += self.measure_one(index)
        return size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def measure_one(self, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        self.keys.look(index)
        self.values.look(index)
        if self.keys.length < 0:
            raise ValueError("a header without a key")
        return self.keys.field_bytes() + self.values.field_bytes()


@cython.final
@cython.cclass
class RecordColumns:
    """The columns of one chunk of rows, of which `first_row` is the first."""

    first_row: cython.Py_ssize_t
    count: cython.Py_ssize_t
    values: BinaryColumn
    keys: BinaryColumn
    headers: HeaderColumn
    timestamps: NumberColumn
    timestamp_factor: cython.longlong
    timestamp_divisor: cython.longlong
    headers_length: cython.Py_ssize_t

    def __init__(
        self,
        first_row: cython.Py_ssize_t,
        values: BinaryColumn,
        keys: object,
        headers: object,
        timestamps: object,
        timestamp_factor: cython.longlong,
        timestamp_divisor: cython.longlong,
    ) -> None:
        self.first_row = first_row
        self.count = values.count
        self.values = values
        self.keys = keys
        self.headers = headers
        self.timestamps = timestamps
        self.timestamp_factor = timestamp_factor
        self.timestamp_divisor = timestamp_divisor
        if (
            (self.keys is not None and self.keys.count != self.count)
            or (self.headers is not None and self.headers.count != self.count)
            or (self.timestamps is not None and self.timestamps.count != self.count)
        ):
            raise ValueError("columns of different lengths")
        if timestamp_factor < 1 or timestamp_divisor < 1:
            raise ValueError(f"timestamps cannot be scaled by {timestamp_factor} / {timestamp_divisor}")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def look(self, row: cython.Py_ssize_t) -> cython.int:
        """Finds the bytes of a row in every column."""
        self.values.look(row)
        if self.keys is not None:
            self.keys.look(row)
        self.headers_length = 1 if self.headers is None else self.headers.measure(row)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def body_bytes(self, timestamp_delta: cython.longlong, offset_delta: cython.longlong) -> cython.Py_ssize_t:
        """How long the row just looked at is as a record, without the length before it."""
        size: cython.Py_ssize_t = 1 + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta)
        size += 1 if self.keys is None else self.keys.field_bytes()
        return size + self.values.field_bytes() + self.headers_length

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def timestamp_ms(self, row: cython.Py_ssize_t, default: cython.longlong) -> cython.longlong:
        number: cython.longlong
        farthest: cython.longlong
        if self.timestamps is None or not self.timestamps.look(row):
            return default
        number = self.timestamps.number
        if self.timestamp_factor > 1:
            farthest = _LARGEST_TIMESTAMP // self.timestamp_factor
            if number > farthest or number < -farthest:
                raise ValueError(f"row {self.first_row + row}: a timestamp that milliseconds in 64 bits cannot hold")
            return number * self.timestamp_factor
        return number if self.timestamp_divisor == 1 else number // self.timestamp_divisor


@cython.final
@cython.cclass
class RecordEncoder:
    """Encodes rows until a batch is full, leaving `reserved_bytes` free at its start for the batch header."""

    batch_bytes: cython.Py_ssize_t
    reserved_bytes: cython.Py_ssize_t
    first_bytes: cython.Py_ssize_t
    default_timestamp: cython.longlong

    records: bytearray
    out: cython.uchar[::1]
    size: cython.Py_ssize_t  # of `out`
    position: cython.Py_ssize_t
    count: cython.longlong
    base_timestamp: cython.longlong
    greatest_timestamp: cython.longlong

    def __init__(
        self,
        batch_bytes: cython.Py_ssize_t,
        reserved_bytes: cython.Py_ssize_t,
        expected_bytes: cython.Py_ssize_t,
        default_timestamp: cython.longlong,
    ) -> None:
        """A batch begins with room for `expected_bytes`, or less if that is more than it may have, and grows."""
        if reserved_bytes < 0 or reserved_bytes > _LARGEST_BATCH_BYTES:
            raise ValueError(f"{reserved_bytes} bytes cannot be reserved")
        if not cython.compiled and not -(2**63) <= default_timestamp < 2**63:
            raise OverflowError("a timestamp does not fit into 64 bits")
        self.batch_bytes = min(batch_bytes, _LARGEST_BATCH_BYTES)
        self.reserved_bytes = reserved_bytes
        self.first_bytes = max(min(expected_bytes, self.batch_bytes), reserved_bytes)
        self.default_timestamp = default_timestamp
        self.records = bytearray()
        self.size = 0
        self.position = reserved_bytes
        self.count = 0
        self.base_timestamp = 0
        self.greatest_timestamp = 0

    def add(self, columns: RecordColumns, rows: object, position: cython.Py_ssize_t) -> int:
        """Adds the rows that `rows` lists from `position` on, or those from row `position` on if it is None.

        Stops at a row that is not one of `columns`, or when the batch is full; a batch has at least one record, though
        it be too large. Returns the position after the last row added.
        """
        selected: cython.const[cython.int][::1] = rows
        selecting: cython.bint = rows is not None
        end: cython.Py_ssize_t = len(rows) if rows is not None else columns.first_row + columns.count
        row: cython.Py_ssize_t
        size: cython.Py_ssize_t
        record_bytes: cython.Py_ssize_t
        timestamp: cython.longlong
        delta: cython.longlong
        if position < 0:
            raise ValueError(f"position {position}")
        while position < end:
            row = position - columns.first_row
            if selecting:
                row = selected[position] - columns.first_row
            if row < 0 or row >= columns.count:
                break
            columns.look(row)
            timestamp = columns.timestamp_ms(row, self.default_timestamp)
            if self.count == 0:
                self.base_timestamp = timestamp
                self.greatest_timestamp = timestamp
            delta = _wrapping_difference(timestamp, self.base_timestamp)
            size = columns.body_bytes(delta, self.count)
            record_bytes = _varint_bytes(size) + size
            if self.count > 0:
                if record_bytes > self.batch_bytes - self.position:
                    break
            elif record_bytes > _LARGEST_BATCH_BYTES - self.reserved_bytes:
                raise BatchTooLarge(f"row {columns.first_row + row} needs more than 2 GiB")
            if record_bytes > self.size - self.position:
                self.grow(self.position + record_bytes)
            if timestamp > self.greatest_timestamp:
                self.greatest_timestamp = timestamp
            self.put_varint(size)
            self.put_byte(0)  # attributes
            self.put_varint(delta)
            self.put_varint(self.count)
            if columns.keys is None:
                self.put_byte(1)  # the length -1, which is null
            else:
                self.put_field(columns.keys)
            self.put_field(columns.values)
            if columns.headers is None:
                self.put_byte(0)
            else:
                self.put_headers(columns.headers, columns.headers_length)
            self.count += 1
            position += 1
        return position

    @cython.cfunc
    @cython.exceptval(-1)
    def grow(self, needed_bytes: cython.Py_ssize_t) -> cython.int:
        size: cython.Py_ssize_t = max(needed_bytes, self.first_bytes, min(2 * self.size, self.batch_bytes))
        grown: bytearray = unfilled(size)
        if self.count > 0:
            grown[: self.position] = memoryview(self.records)[: self.position]
        self.records = grown
        self.out = memoryview(grown)
        self.size = size
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put_byte(self, value: cython.uchar) -> cython.void:
        """This and the other `put`s do not check: `add` has measured what they write."""
        self.out[self.position] = value
        self.position += 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put_varint(self, value: cython.longlong) -> cython.void:
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
    def put_field(self, column: BinaryColumn) -> cython.void:
        """The row that `column` last looked at, with its length before it."""
        size: cython.Py_ssize_t = column.length
        self.put_varint(size)
        if size > 0:
            if cython.compiled:
                memcpy(cython.address(self.out[self.position]), cython.address(column.data[column.start]), size)
            else:
                self.out[self.position : self.position + size] = column.data[column.start : column.start + size]
            self.position += size

    @cython.cfunc
    @cython.exceptval(-1)
    def put_headers(self, headers: HeaderColumn, measured_bytes: cython.Py_ssize_t) -> cython.int:
        """The headers just measured. Their sizes are held again: a column may lie in memory that others write to."""
        room: cython.Py_ssize_t = measured_bytes - _varint_bytes(headers.length)
        index: cython.Py_ssize_t
        self.put_varint(headers.length)
        for index in range(headers.start, headers.start + headers.length):
            room -= headers.measure_one(index)
            if room < 0:
                break
            self.put_field(headers.keys)
            self.put_field(headers.values)
        if room != 0:
            raise ValueError("the headers changed while they were encoded")
        return 0

    def take(self) -> tuple:
        """(buffer, records, timestamp of the first, greatest timestamp) of the batch so far, and begins another."""
        if self.count == 0:
            raise ValueError("no record was added")
        records: bytearray = self.records
        used_bytes: cython.Py_ssize_t = self.position
        count: cython.longlong = self.count
        self.out = None  # a bytearray that someone looks at cannot be cut
        self.records = bytearray()
        self.size = 0
        self.position = self.reserved_bytes
        self.count = 0
        del records[used_bytes:]
        return records, count, self.base_timestamp, self.greatest_timestamp


def largest_record(columns: RecordColumns, rows: object, position: cython.Py_ssize_t) -> tuple:
    """(position after the last row looked at, size, row) of the largest record, each as the only one of its batch.

    Which rows are looked at is as for `RecordEncoder.add`. The size is -1 if there was none.
    """
    selected: cython.const[cython.int][::1] = rows
    selecting: cython.bint = rows is not None
    end: cython.Py_ssize_t = len(rows) if rows is not None else columns.first_row + columns.count
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    largest: cython.Py_ssize_t = -1
    largest_row: cython.Py_ssize_t = -1
    if position < 0:
        raise ValueError(f"position {position}")
    while position < end:
        row = position - columns.first_row
        if selecting:
            row = selected[position] - columns.first_row
        if row < 0 or row >= columns.count:
            break
        columns.look(row)
        size = columns.body_bytes(0, 0)
        size += _varint_bytes(size)
        if size > largest:
            largest = size
            largest_row = columns.first_row + row
        position += 1
    return position, largest, largest_row


# partitions


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _murmur2(data: cython.p_const_uchar, length: cython.Py_ssize_t) -> cython.longlong:
    """As a number of 32 bits without a sign."""
    hashed: cython.ulonglong = (_MURMUR2_SEED ^ length) & _32_BITS
    part: cython.ulonglong
    place: cython.Py_ssize_t = 0
    while length - place >= 4:
        part = data[place + 3]
        part = data[place] | (data[place + 1] << 8) | (data[place + 2] << 16) | (part << 24)
        part = (part * _MURMUR2_FACTOR) & _32_BITS
        part ^= part >> 24
        part = (part * _MURMUR2_FACTOR) & _32_BITS
        hashed = ((hashed * _MURMUR2_FACTOR) & _32_BITS) ^ part
        place += 4
    if place < length:
        if length - place == 3:
            hashed ^= data[place + 2] << 16
        if length - place >= 2:
            hashed ^= data[place + 1] << 8
        hashed = ((hashed ^ data[place]) * _MURMUR2_FACTOR) & _32_BITS
    hashed ^= hashed >> 13
    hashed = (hashed * _MURMUR2_FACTOR) & _32_BITS
    return hashed ^ (hashed >> 15)


def murmur2(data: bytes) -> int:
    """The hash of a key as Kafka's clients make it, as a signed number of 32 bits."""
    hashed: cython.longlong = _murmur2(data, len(data))
    return hashed - 2**32 if hashed >= 2**31 else hashed


def assign_partitions(
    count: cython.Py_ssize_t,
    numbers: object,
    keys: object,
    partition_count: cython.longlong,
    fallback: cython.longlong,
    assigned: cython.int[::1],
    position: cython.Py_ssize_t,
) -> int:
    """Puts the partition of each of `count` rows into `assigned`, from `position` on.

    `numbers` decides, where it is not None or null; then the hash of the key, where there is one; then `fallback`.
    Returns the first row whose number is not a partition, or -1.
    """
    number_column: NumberColumn = numbers
    key_column: BinaryColumn = keys
    has_numbers: cython.bint = numbers is not None
    has_keys: cython.bint = keys is not None
    row: cython.Py_ssize_t
    partition: cython.longlong
    if partition_count < 1 or partition_count > 2**31 - 1 or fallback < 0 or fallback >= partition_count:
        raise ValueError(f"partition {fallback} of {partition_count}")
    if count < 0 or position < 0 or position > len(assigned) or count > len(assigned) - position:
        raise ValueError(f"no room for {count} rows at {position}")
    if (has_numbers and number_column.count != count) or (has_keys and key_column.count != count):
        raise ValueError("columns of different lengths")
    for row in range(count):
        if has_numbers and number_column.look(row):
            partition = number_column.number
            if partition < 0 or partition >= partition_count:
                return row
        else:
            partition = fallback
            if has_keys:
                key_column.look(row)
                if key_column.length >= 0:
                    if cython.compiled:
                        partition = _murmur2(cython.address(key_column.data[key_column.start]), key_column.length)
                    else:
                        partition = _murmur2(key_column.data[key_column.start :], key_column.length)
                    partition = (partition & 0x7FFFFFFF) % partition_count
        assigned[position + row] = partition
    return -1


@cython.boundscheck(True)
def sort_by_partition(assigned: cython.const[cython.int][::1], ends: cython.int[::1], rows: cython.int[::1]) -> None:
    """Puts into `rows` the row numbers of partition 0, then of 1 and so on, in order; and into `ends` where each ends.

    `ends` comes with a 0 for each partition, `rows` is as long as `assigned`.
    """
    row: cython.Py_ssize_t
    partition: cython.Py_ssize_t
    place: cython.int
    total: cython.int = 0
    if len(rows) != len(assigned) or len(assigned) > 2**31 - 1:
        raise ValueError(f"room for {len(rows)} of {len(assigned)} rows")
    for partition in range(len(ends)):
        if ends[partition] != 0:
            raise ValueError("partitions that already have rows")
    for row in range(len(assigned)):
        if assigned[row] < 0 or assigned[row] >= len(ends):
            raise ValueError(f"partition {assigned[row]} of {len(ends)}")
        ends[assigned[row]] += 1
    for partition in range(len(ends)):
        place = ends[partition]
        ends[partition] = total  # for now where it starts; each row moves it on
        total += place
    for row in range(len(assigned)):
        place = ends[assigned[row]]
        rows[place] = row
        ends[assigned[row]] = place + 1
