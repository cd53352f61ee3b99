from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from semel.records.batch import (
    HEADER_BYTES,
    check_crc,
    read_header,
    set_base_offset,
    set_leader_epoch,
    set_max_timestamp,
    set_producer,
    walk,
    whole_batches,
)
from semel.records.build import build_batch
from semel.records.compression import Codec, compress
from semel.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, RecordError, UnsupportedCodec
from semel.records.read import read_records

NOW_MS = 1_700_000_000_000


def batch_of(*values: bytes | None, **options: object) -> bytearray:
    return build_batch(list(values), base_timestamp_ms=NOW_MS, **options)  # type: ignore[arg-type]


def raw_batch(records: bytes, count: int, *, last_offset_delta: int | None = None, codec: int = 0) -> bytearray:
    """A batch with any bytes for records, with a true length and checksum."""
    batch = batch_of(b"x") + b""
    del batch[HEADER_BYTES:]
    batch += records
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1 if last_offset_delta is None else last_offset_delta)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def walk_records(records: bytes, count: int, **options: int) -> object:
    batch = raw_batch(records, count, **options)
    return walk(batch, read_header(batch))


def record(body: bytes) -> bytes:
    """A record of this body, whose length fits one byte."""
    return bytes([len(body) << 1]) + body


# attributes, timestamp delta, offset delta 0, null key, value "v", no headers
PLAIN_BODY = b"\x00\x00\x00\x01\x02v\x00"


@pytest.mark.parametrize(
    ("text", "checksum"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
def test_the_checksum_is_crc32c_of_the_castagnoli_polynomial(text: bytes, checksum: int) -> None:
    assert crc32c(text) == checksum


def test_a_header_is_read_field_by_field() -> None:
    batch = build_batch(
        [b"a", b"b", b"c"],
        base_timestamp_ms=1000,
        timestamps_ms=[1000, 1500, 1200],
        base_offset=2**40,
        leader_epoch=9,
        producer_id=2**50,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
    )
    header = read_header(b"junk" + batch, 4)
    assert header._replace(crc=0) == (
        2**40, len(batch) - 12, 9, 2, 0, 0x10, 2, 1000, 1500, 2**50, 3, 11, 3,
    )  # fmt: skip
    assert header.size_bytes == len(batch)
    assert (header.last_offset, header.next_offset, header.last_sequence) == (2**40 + 2, 2**40 + 3, 13)
    assert header.is_idempotent
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert not header.has_delete_horizon


def test_the_last_sequence_of_a_batch_wraps() -> None:
    header = read_header(batch_of(b"a", b"b", b"c", producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_a_batch_without_a_producer_has_no_last_sequence() -> None:
    header = read_header(batch_of(b"a", b"b"))
    assert header.last_sequence == -1
    assert not header.is_idempotent


@pytest.mark.parametrize(
    ("position", "form", "value"),
    [
        (16, ">b", 1),  # magic
        (16, ">b", 3),
        (8, ">i", 48),  # batch length
        (8, ">i", -1),
        (57, ">i", -1),  # record count
        (23, ">i", -1),  # last offset delta
    ],
)
def test_a_header_that_cannot_be_is_refused(position: int, form: str, value: int) -> None:
    batch = batch_of(b"a")
    struct.pack_into(form, batch, position, value)
    with pytest.raises(CorruptBatch):
        read_header(batch)


def test_fewer_bytes_than_a_header_are_refused() -> None:
    batch = batch_of(b"a")
    for length in range(HEADER_BYTES):
        with pytest.raises(CorruptBatch):
            read_header(batch[:length])
    with pytest.raises(CorruptBatch):
        read_header(batch, len(batch) - HEADER_BYTES + 1)


def test_whole_batches_stop_before_one_that_is_cut() -> None:
    first, second = batch_of(b"a"), batch_of(b"b", b"c", base_offset=1)
    both = bytes(first + second)
    assert [position for position, _ in whole_batches(both)] == [0, len(first)]
    assert [header.base_offset for _, header in whole_batches(memoryview(both))] == [0, 1]
    for length in range(len(first), len(both)):
        assert [position for position, _ in whole_batches(both[:length])] == [0]
    assert list(whole_batches(both[: len(first) - 1])) == []
    assert list(whole_batches(b"")) == []


def test_whole_batches_refuse_garbage_between_batches() -> None:
    with pytest.raises(CorruptBatch):
        list(whole_batches(bytes(batch_of(b"a")) + b"\xff" * 100))


def test_a_changed_byte_fails_the_checksum() -> None:
    batch = batch_of(b"a value", keys=[b"a key"])
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert check_crc(b"123" + batch, 3, header)
    assert not check_crc(batch[:-1], 0, header)
    for position in range(21, len(batch)):
        changed = bytearray(batch)
        changed[position] ^= 0x10
        assert not check_crc(changed, 0, header), position


def test_a_cut_batch_fails_even_with_the_checksum_of_what_is_left() -> None:
    batch = batch_of(b"a")
    struct.pack_into(">i", batch, 8, len(batch) - 12 + 5)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    assert not check_crc(batch, 0, read_header(batch))


def test_base_offset_and_leader_epoch_change_without_the_checksum() -> None:
    batch = batch_of(b"a", b"b")
    before = read_header(batch)
    set_base_offset(batch, 2**45)
    set_leader_epoch(memoryview(batch), 77)
    after = read_header(batch)
    assert after == before._replace(base_offset=2**45, partition_leader_epoch=77)
    assert check_crc(batch, 0, after)


def test_log_append_time_counts_for_every_record() -> None:
    batch = batch_of(b"a", b"b", timestamps_ms=[NOW_MS, NOW_MS + 10], transactional=True)
    set_max_timestamp(batch, NOW_MS + 99, log_append_time=True)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.max_timestamp == NOW_MS + 99
    assert [r.timestamp_ms for r in read_records(batch)] == [NOW_MS + 99] * 2
    set_max_timestamp(batch, NOW_MS + 10, log_append_time=False)
    assert [r.timestamp_ms for r in read_records(batch)] == [NOW_MS, NOW_MS + 10]
    assert check_crc(batch, 0, read_header(batch))


def test_a_batch_can_be_given_to_a_producer() -> None:
    batch = batch_of(b"a", b"b")
    set_producer(batch, 5, 6, 7, transactional=True)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.is_transactional
    assert check_crc(batch, 0, header)
    set_producer(batch, 5, 6, 9)
    assert read_header(batch).is_transactional
    set_producer(batch, 5, 6, 9, transactional=False)
    assert not read_header(batch).is_transactional
    assert check_crc(batch, 0, read_header(batch))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_walk_tells_timestamps_and_null_keys(codec: Codec) -> None:
    batch = batch_of(
        b"a", b"b", None, keys=[None, b"k", None], timestamps_ms=[NOW_MS + 5, NOW_MS - 7, NOW_MS + 50], codec=codec
    )
    assert walk(batch, read_header(batch)) == (NOW_MS - 7, NOW_MS + 50, 2)


def test_a_walk_wants_exactly_one_batch() -> None:
    batch = batch_of(b"a")
    header = read_header(batch)
    for wrong in (batch[:-1], batch + b"\x00"):
        with pytest.raises(CorruptBatch):
            walk(wrong, header)


def test_records_may_carry_padded_numbers_and_attributes() -> None:
    body = b"\x7f" + b"\x80\x00" + b"\x80\x80\x80\x80\x00" + b"\x01" + b"\x82\x00v" + b"\x00"
    assert walk_records(record(body), 1) == (NOW_MS, NOW_MS, 1)


@pytest.mark.parametrize(
    ("why", "records", "count"),
    [
        ("an offset delta that does not start at 0", record(b"\x00\x00\x02\x01\x02v\x00"), 1),
        ("an offset delta twice", record(PLAIN_BODY) * 2, 2),
        ("fewer records than counted", record(PLAIN_BODY), 2),
        ("bytes after the last record", record(PLAIN_BODY) + b"\x00", 1),
        ("bytes at the end of a record", record(PLAIN_BODY + b"\x00"), 1),
        ("a record longer than the batch", b"\x10" + PLAIN_BODY, 1),
        ("a negative record length", b"\x01" + PLAIN_BODY, 1),
        ("a record length of 0", b"\x00" + PLAIN_BODY, 1),
        ("a negative key length other than null", record(b"\x00\x00\x00\x03\x02v\x00"), 1),
        ("a key longer than its record", record(b"\x00\x00\x00\x08\x02v\x00"), 1),
        ("a negative value length other than null", record(b"\x00\x00\x00\x01\x03v\x00"), 1),
        ("a value longer than its record", record(b"\x00\x00\x00\x01\x06v\x00"), 1),
        ("a value that reaches into the next record", record(b"\x00\x00\x00\x01\x10v\x00") + record(PLAIN_BODY), 2),
        ("a negative header count", record(b"\x00\x00\x00\x01\x02v\x01"), 1),
        ("more headers than bytes", record(b"\x00\x00\x00\x01\x02v\x7e"), 1),
        ("a header without a key", record(b"\x00\x00\x00\x01\x02v\x02\x01\x01"), 1),
        ("a header value longer than its record", record(b"\x00\x00\x00\x01\x02v\x02\x00\x04"), 1),
        ("a header value length below null", record(b"\x00\x00\x00\x01\x02v\x02\x00\x03"), 1),
        ("an offset delta of 33 bits", record(b"\x00\x00" + b"\x80\x80\x80\x80\x10" + b"\x01\x02v\x00"), 1),
        ("a 32-bit number of six bytes", record(b"\x00\x00" + b"\x80\x80\x80\x80\x80\x00" + b"\x01\x02v\x00"), 1),
        ("a timestamp delta of 65 bits", record(b"\x00" + b"\x80" * 9 + b"\x02" + b"\x00\x01\x02v\x00"), 1),
        ("a 64-bit number of eleven bytes", record(b"\x00" + b"\x80" * 10 + b"\x00" + b"\x00\x01\x02v\x00"), 1),
        ("a number that never ends", b"\x80" * 40, 1),
        (
            "a record that swallows the next one",
            bytes([2 * len(PLAIN_BODY) + 16]) + PLAIN_BODY + record(b"\x00\x00\x02\x01\x02v\x00"),
            2,
        ),
    ],
)
def test_a_walk_refuses(why: str, records: bytes, count: int) -> None:
    with pytest.raises(InvalidRecord):
        walk_records(records, count)


@pytest.mark.parametrize(
    ("words", "records"),
    [
        ("out of range", record(b"\x00\x00" + b"\x80\x80\x80\x80\x10" + b"\x01\x02v\x00")),
        ("a length of 4 ", record(b"\x00\x00\x00\x08\x02v\x00")),
        ("a record of 0 bytes", b"\x00" + PLAIN_BODY),
        ("a record of -1 bytes", b"\x01" + PLAIN_BODY),
    ],
)
def test_a_refusal_names_the_first_thing_that_is_wrong(words: str, records: bytes) -> None:
    with pytest.raises(InvalidRecord, match=words):
        walk_records(records, 1)


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidRecord, match="cannot fit"):
        walk_records(record(PLAIN_BODY), 2**31 - 1)


def test_a_count_that_differs_from_the_offsets_is_refused() -> None:
    with pytest.raises(InvalidRecord):
        walk_records(record(PLAIN_BODY), 1, last_offset_delta=1)


def test_holes_between_offsets_are_for_compacted_batches_only() -> None:
    records = record(b"\x00\x00\x02\x01\x02v\x00") + record(b"\x00\x00\x08\x01\x02w\x00")
    batch = raw_batch(records, 2, last_offset_delta=4)
    header = read_header(batch)
    with pytest.raises(InvalidRecord):
        walk(batch, header)
    assert walk(batch, header, compacted=True) == (NOW_MS, NOW_MS, 2)
    assert [r.offset for r in read_records(batch)] == [1, 4]
    beyond = raw_batch(records, 2, last_offset_delta=3)
    with pytest.raises(InvalidRecord):
        walk(beyond, read_header(beyond), compacted=True)
    backwards = raw_batch(records[8:] + records[:8], 2, last_offset_delta=4)
    with pytest.raises(InvalidRecord):
        walk(backwards, read_header(backwards), compacted=True)


def test_an_empty_batch_is_for_compacted_logs_only() -> None:
    batch = raw_batch(b"", 0, last_offset_delta=6)
    header = read_header(batch)
    with pytest.raises(InvalidRecord, match="without records"):
        walk(batch, header)
    assert walk(batch, header, compacted=True) == (-1, -1, 0)
    assert read_records(batch) == []


def test_timestamps_overflow_as_javas_do() -> None:
    least, most = -(2**63), 2**63 - 1
    batch = build_batch([b"a", b"b"], base_timestamp_ms=-5, timestamps_ms=[most, least])
    header = read_header(batch)
    assert walk(batch, header) == (least, most, 2)
    assert [r.timestamp_ms for r in read_records(batch)] == [most, least]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        walk_records(record(PLAIN_BODY), 1, codec=codec)


@pytest.mark.parametrize("codec", [c for c in Codec if c])
def test_a_walk_opens_no_more_than_it_may(codec: Codec) -> None:
    batch = batch_of(bytes(100_000), codec=codec)
    header = read_header(batch)
    walk(batch, header, max_decompressed_bytes=100_100)
    with pytest.raises(BatchTooLarge):
        walk(batch, header, max_decompressed_bytes=100_000)


@pytest.mark.parametrize("codec", [c for c in Codec if c])
def test_what_lies_inside_a_compressed_batch_is_checked_too(codec: Codec) -> None:
    with pytest.raises(InvalidRecord):
        walk_records(compress(codec, record(PLAIN_BODY) + b"\x00"), 1, codec=codec)
    with pytest.raises(RecordError):
        walk_records(record(PLAIN_BODY), 1, codec=codec)
