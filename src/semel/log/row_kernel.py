# cython: language_level=3, boundscheck=False, wraparound=False
"""The rule of idempotence: which batch of a producer is the next one, and what its row is then.

A row begins with Kafka's snapshot entry (producer id, epoch, last sequence, last offset, offset delta, timestamp,
coordinator epoch, first offset of the open transaction) and goes on with up to four older batches (last sequence, last
offset, offset delta), newest first. Appends by any path and the replay of a log all use this rule; `producers` only
explains why a batch is refused. Compiled or plain Python, with the same results. C types stand in the .pxd file.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

compiled: bool = cython.compiled

NO_ROW = b""
_SEQUENCE_MASK = cython.declare(cython.longlong, 2**31 - 1)
_NO_SEQUENCE = cython.declare(cython.longlong, -1)
_NO_OFFSET = cython.declare(cython.longlong, -1)
_NO_COORDINATOR = cython.declare(cython.longlong, -1)
_EPOCH_AT = cython.declare(cython.longlong, 8)
_NEWEST_AT = cython.declare(cython.longlong, 10)  # of the newest batch: last sequence, last offset and offset delta
_TIMESTAMP_AT = cython.declare(cython.longlong, 26)
_COORDINATOR_AT = cython.declare(cython.longlong, 34)
_TRANSACTION_AT = cython.declare(cython.longlong, 38)
_ENTRY_BYTES = cython.declare(cython.longlong, 46)
_OLDER_BYTES = cython.declare(cython.longlong, 16)
# The newest batch and the four before it.
_ROW_BYTES = cython.declare(cython.longlong, 46 + 4 * 16)
_scratch = cython.declare(bytearray, bytearray(46 + 4 * 16))


def number(data: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    """A signed big-endian number of up to 8 bytes."""
    value: cython.longlong = data[at]
    index: cython.int
    if value >= 0x80:
        value -= 0x100
    for index in range(1, size):
        value = value * 0x100 + data[at + index]
    return value


def put(data: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong, size: cython.int) -> None:
    """Writes a signed big-endian number of up to 8 bytes."""
    while size > 0:
        size -= 1
        data[at + size] = value & 0xFF
        value >>= 8


def is_in_transaction(row: bytes) -> bool:
    """Whether the producer has written to a transaction that no marker has ended yet."""
    return len(row) >= _ENTRY_BYTES and number(row, _TRANSACTION_AT, 8) != _NO_OFFSET


def follows(
    row: bytes, producer_epoch: cython.longlong, sequence: cython.longlong, is_transactional: cython.bint
) -> bool:
    """Whether a batch is the next one of its producer. A coordinator's batch inside a producer's transaction has no
    sequence; only its epoch is judged."""
    if len(row) < _ENTRY_BYTES:
        return sequence <= 0
    epoch: cython.longlong = number(row, _EPOCH_AT, 2)
    last_sequence: cython.longlong = number(row, _NEWEST_AT, 4)
    if producer_epoch < epoch or (is_in_transaction(row) and not is_transactional):
        return False
    if producer_epoch > epoch:
        return sequence <= 0
    return sequence == _NO_SEQUENCE or sequence == (last_sequence + 1) & _SEQUENCE_MASK


def next_row(
    row: bytes,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
    sequence: cython.longlong,
    last_offset_delta: cython.longlong,
    base_offset: cython.longlong,
    now_ms: cython.longlong,
    is_transactional: cython.bint,
) -> bytes:
    """The row after a batch that stands at `base_offset`. Judges nothing: see `follows`."""
    before: cython.p_const_uchar = row
    after: cython.p_uchar = _scratch
    size: cython.Py_ssize_t = len(row)
    kept: cython.Py_ssize_t = _ENTRY_BYTES
    index: cython.Py_ssize_t
    coordinator_epoch: cython.longlong = _NO_COORDINATOR
    transaction: cython.longlong = _NO_OFFSET
    if size >= _ENTRY_BYTES:
        coordinator_epoch = number(before, _COORDINATOR_AT, 4)
        transaction = number(before, _TRANSACTION_AT, 8)
        # A new epoch begins with nothing to remember, and so does one that a marker has raised.
        if number(before, _EPOCH_AT, 2) == producer_epoch and number(before, _NEWEST_AT, 4) != _NO_SEQUENCE:
            kept = min(size + _OLDER_BYTES, _ROW_BYTES)
    if transaction == _NO_OFFSET and is_transactional:
        transaction = base_offset
    if sequence != _NO_SEQUENCE:
        sequence = (sequence + last_offset_delta) & _SEQUENCE_MASK
    put(after, 0, producer_id, 8)
    put(after, _EPOCH_AT, producer_epoch, 2)
    put(after, _NEWEST_AT, sequence, 4)
    put(after, _NEWEST_AT + 4, base_offset + last_offset_delta, 8)
    put(after, _NEWEST_AT + 12, last_offset_delta, 4)
    put(after, _TIMESTAMP_AT, now_ms, 8)
    put(after, _COORDINATOR_AT, coordinator_epoch, 4)
    put(after, _TRANSACTION_AT, transaction, 8)
    if kept > _ENTRY_BYTES:
        for index in range(_OLDER_BYTES):
            after[_ENTRY_BYTES + index] = before[_NEWEST_AT + index]
    for index in range(_ENTRY_BYTES + _OLDER_BYTES, kept):
        after[index] = before[index - _OLDER_BYTES]
    return bytes(after[:kept])
