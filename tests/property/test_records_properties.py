"""Any records come back as they went in; anything else is a RecordError; and the compiled kernel is its plain source.

The hostile part does not check checksums first, as a broker would: a checksum stops accidents, not an attacker.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plain_kernels import plain
from semel.records import build, kernel
from semel.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    Buffer,
    check_crc,
    read_header,
    walk,
    whole_batches,
)
from semel.records.build import build_batch, build_one
from semel.records.compact import filter_batch, record_keys
from semel.records.compression import Codec, decompress
from semel.records.control import ControlType, control_batch, read_control
from semel.records.errors import RecordError
from semel.records.read import Record, read_records, record_values

INT64 = st.integers(-(2**63), 2**63 - 1)
FIELD = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), FIELD), max_size=3)
RECORDS = st.lists(st.tuples(INT64 | st.integers(0, 2**41), FIELD, FIELD, HEADERS), min_size=1, max_size=80)
MAX_BYTES = 2**20

PLAIN = plain("kernel")


@given(
    records=RECORDS,
    base_timestamp=INT64,
    base_offset=st.integers(0, 2**62),
    codec=st.sampled_from(Codec),
    sequence=st.integers(0, 2**31 - 1),
    transactional=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_records_come_back_as_they_went_in(
    records: list[Any], base_timestamp: int, base_offset: int, codec: Codec, sequence: int, transactional: bool
) -> None:
    timestamps, keys, values, headers = map(list, zip(*records, strict=True))
    batch = build_batch(
        values,
        keys=keys,
        headers=headers,
        timestamps_ms=timestamps,
        base_timestamp_ms=base_timestamp,
        base_offset=base_offset,
        codec=codec,
        producer_id=1,
        producer_epoch=2,
        base_sequence=sequence,
        transactional=transactional,
    )
    [(_, header)] = whole_batches(batch)
    assert check_crc(batch, 0, header)
    assert walk(batch, header) == (min(timestamps), max(timestamps), keys.count(None))
    assert header.max_timestamp == max(timestamps)
    assert header.last_sequence == (sequence + len(values) - 1) % 2**31
    expected = [
        Record(base_offset + i, timestamp, key, value, tuple(of_record))
        for i, (timestamp, key, value, of_record) in enumerate(records)
    ]
    assert read_records(batch) == expected
    assert record_values(batch) == values
    assert record_keys(batch) == [(r.offset, r.key, r.value is not None, r.timestamp_ms) for r in expected]


@pytest.mark.parametrize("plainly", [False, True])
@given(
    key=FIELD,
    value=FIELD | st.integers(8100, 8300).map(bytes),
    timestamp=INT64,
    producer_id=INT64,
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
    control=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_a_batch_of_one_record_is_the_same_built_the_short_way(
    plainly: bool,
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    transactional: bool,
    control: bool,
    **more: int,
) -> None:
    attributes = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    with patch.object(build, "kernel", PLAIN if plainly else kernel):
        short = build_one(value, key=key, timestamp_ms=timestamp, attributes=attributes, **more)
    assert short == build_batch(
        [value], keys=[key], base_timestamp_ms=timestamp, transactional=transactional, control=control, **more
    )


@pytest.mark.parametrize("encode_one", [kernel.encode_one, PLAIN.encode_one])
def test_one_record_of_what_is_no_record_is_refused(encode_one: Callable[..., bytearray]) -> None:
    with pytest.raises(TypeError):
        encode_one(bytearray(b"value"), b"key", 0, 0, -1, -1, 0, -1)
    with pytest.raises(TypeError):
        encode_one(b"value", "key", 0, 0, -1, -1, 0, -1)
    with pytest.raises(OverflowError):
        encode_one(b"value", b"key", 2**63, 0, -1, -1, 0, -1)


@given(records=RECORDS, codec=st.sampled_from(Codec), horizon=st.none() | st.integers(0, 2**63 - 1), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_filter_keeps_exactly_the_marked_records(
    records: list[Any], codec: Codec, horizon: int | None, data: st.DataObject
) -> None:
    timestamps, keys, values, headers = map(list, zip(*records, strict=True))
    batch = build_batch(
        values, keys=keys, headers=headers, timestamps_ms=timestamps, base_timestamp_ms=timestamps[0], codec=codec
    )
    marks = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    result = filter_batch(batch, marks, delete_horizon_ms=horizon, keep_empty=True)
    assert result is not None
    header = read_header(result)
    assert check_crc(result, 0, header)
    wanted = [record for record, mark in zip(read_records(batch), marks, strict=True) if mark]
    assert read_records(result) == wanted
    walk(result, header, compacted=True)
    assert (header.last_offset, header.record_count) == (len(values) - 1, len(wanted))


def hostile_seeds() -> list[bytes]:
    batches = [
        bytes(
            build_batch(
                [b"value", None, b"", b"long " * 40, b"x"],
                keys=[b"key", b"", None, b"key", None],
                headers=[[("a", b"1"), ("b", None)], [], [("", b"")], [], []],
                timestamps_ms=[1000, 999, 10**12, 0, -1],
                base_timestamp_ms=1000,
                codec=codec,
                producer_id=3,
                producer_epoch=0,
                base_sequence=5,
            )
        )
        for codec in Codec
    ]
    batches.append(
        bytes(control_batch(ControlType.ABORT, producer_id=1, producer_epoch=1, coordinator_epoch=1, timestamp_ms=5))
    )
    batches.append(bytes(build_batch([b"v" * 100] * 300, base_timestamp_ms=5)))
    thinned = filter_batch(batches[0], b"\x00\x01\x00\x01\x00", delete_horizon_ms=77)
    assert thinned is not None
    return [*batches, bytes(thinned)]


SEEDS = hostile_seeds()


def read_every_way(batch: Buffer) -> int:
    """Calls whatever reads a batch; returns how many of the calls refused it. Any error but a RecordError escapes."""
    refusals = 0
    readers: list[Callable[[], object]] = [
        lambda: list(whole_batches(batch)),
        lambda: check_crc(batch, 0, read_header(batch)),
        lambda: walk(batch, read_header(batch), max_decompressed_bytes=MAX_BYTES),
        lambda: walk(batch, read_header(batch), max_decompressed_bytes=MAX_BYTES, compacted=True),
        lambda: read_records(batch, max_decompressed_bytes=MAX_BYTES),
        lambda: record_values(batch, max_decompressed_bytes=MAX_BYTES),
        lambda: record_keys(batch, max_decompressed_bytes=MAX_BYTES),
        lambda: filter_marked(batch),
        lambda: read_control(batch),
    ]
    for reader in readers:
        try:
            reader()
        except RecordError:
            refusals += 1
    return refusals


def filter_marked(batch: Buffer) -> None:
    header = read_header(batch)
    marks = bytes([1, 0] * (min(header.record_count, 1000) // 2 + 1))[: min(header.record_count, 1000)]
    try:
        filter_batch(batch, marks, delete_horizon_ms=1, max_decompressed_bytes=MAX_BYTES)
    except RecordError:
        raise
    except ValueError as error:
        if "marks for" not in str(error):
            raise


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_every_truncation_is_refused(seed: int) -> None:
    whole = SEEDS[seed]
    for length in range(0, len(whole), 1 if len(whole) < 2000 else 17):
        cut = whole[:length]
        assert list(whole_batches(cut)) == []
        if length < HEADER_BYTES:
            with pytest.raises(RecordError):
                read_header(cut)
            continue
        header = read_header(cut)
        assert not check_crc(cut, 0, header)
        # the same with a length that agrees with the cut
        agreeing = bytearray(cut)
        struct.pack_into(">i", agreeing, 8, length - 12)
        for batch, of_batch in ((cut, header), (agreeing, read_header(agreeing))):
            with pytest.raises(RecordError):
                walk(batch, of_batch, compacted=True)
            with pytest.raises(RecordError):
                read_records(batch, of_batch)
            with pytest.raises(RecordError):
                record_keys(batch, of_batch)


def mutated(original: bytes, random: Random) -> bytearray:
    """One to four changes; the length field is mended most of the time, so that more than the header gets read."""
    batch = bytearray(original)
    for _ in range(random.randint(1, 4)):
        position = random.randrange(len(batch))
        choice = random.random()
        if choice < 0.5:
            batch[position] = random.choice((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF, random.randrange(256)))
        elif choice < 0.7:
            batch[position] ^= 1 << random.randrange(8)
        elif choice < 0.8:
            del batch[position : position + random.randint(1, 5)]
        elif choice < 0.9:
            batch[position:position] = random.randbytes(random.randint(1, 5))
        else:
            batch[position:position] = b"\xff" * random.randint(1, 12)
        batch = batch or bytearray(b"\x00")
    if len(batch) >= HEADER_BYTES and random.random() < 0.9:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    return batch


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_thousands_of_mutations_raise_nothing_but_record_errors(seed: int) -> None:
    random = Random(seed)
    refused = sum(read_every_way(mutated(SEEDS[seed], random)) > 0 for _ in range(3000))
    assert refused > 2000


@given(data=st.binary(max_size=300), count=st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_random_bytes_after_a_header_raise_nothing_but_record_errors(data: bytes, count: int) -> None:
    for codec in Codec:
        batch = bytearray(SEEDS[0][:HEADER_BYTES]) + data
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">hi", batch, 21, codec, max(count - 1, 0))
        struct.pack_into(">i", batch, 57, count)
        read_every_way(batch)


def outcome(call: Callable[[], object]) -> object:
    """What a call gives, or how it fails, to the word."""
    try:
        return call()
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        return type(error).__name__, str(error)


needs_compiled = pytest.mark.skipif(not kernel.compiled, reason="the kernel is not compiled here")


def assert_twins_agree(records: bytes, count: int, last_offset_delta: int, base_timestamp: int) -> None:
    keep = bytes([1, 1, 0] * count)[: max(count, 0)]
    for holes in (False, True):
        assert outcome(
            lambda holes=holes: kernel.walk_records(records, 0, count, last_offset_delta, holes, base_timestamp)  # type: ignore[misc]
        ) == outcome(
            lambda holes=holes: PLAIN.walk_records(records, 0, count, last_offset_delta, holes, base_timestamp)  # type: ignore[misc]
        )
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("read_records", (records, 0, count, last_offset_delta, 70, base_timestamp, None, tuple)),
        ("read_values", (memoryview(records), 0, count, last_offset_delta)),
        ("read_keys", (records, 0, count, last_offset_delta, 70, base_timestamp)),
    ]
    for name, arguments in calls:
        ours, twins = getattr(kernel, name), getattr(PLAIN, name)
        assert outcome(lambda f=ours, a=arguments: f(*a)) == outcome(lambda f=twins, a=arguments: f(*a)), name  # type: ignore[misc]
    for new_base in (base_timestamp, 12345):
        arguments = (records, 0, count, last_offset_delta, keep, base_timestamp, new_base, 5)
        ours = outcome(lambda a=arguments: kernel.copy_records(*a))  # type: ignore[misc]
        twins = outcome(lambda a=arguments: PLAIN.copy_records(*a))  # type: ignore[misc]
        if isinstance(ours, tuple) and isinstance(ours[0], bytearray):
            assert isinstance(twins, tuple)
            assert ours[1:] == twins[1:]
            assert ours[0][5 : ours[1]] == twins[0][5 : ours[1]]
        else:
            assert ours == twins


@needs_compiled
@given(records=RECORDS, base_timestamp=INT64, reserved=st.integers(0, 70))
@settings(max_examples=150, deadline=None)
def test_both_kernels_encode_the_same(records: list[Any], base_timestamp: int, reserved: int) -> None:
    timestamps, keys, values, headers = map(list, zip(*records, strict=True))
    blocks = [kernel.encode_headers(of_record) for of_record in headers]
    assert blocks == [PLAIN.encode_headers(of_record) for of_record in headers]
    for columns in ((keys, blocks, timestamps), (None, None, None), (keys, None, None), (None, blocks, timestamps)):
        ours, our_greatest = kernel.encode_records(values, *columns, base_timestamp, reserved)
        twins, twin_greatest = PLAIN.encode_records(values, *columns, base_timestamp, reserved)
        assert ours[reserved:] == twins[reserved:]
        assert our_greatest == twin_greatest
    assert_twins_agree(bytes(ours[reserved:]), len(values), len(values) - 1, base_timestamp)


@needs_compiled
@given(data=st.binary(max_size=200), count=st.integers(-1, 20), last=st.integers(-1, 40), base_timestamp=INT64)
@settings(max_examples=300, deadline=None)
def test_both_kernels_refuse_random_bytes_with_the_same_words(
    data: bytes, count: int, last: int, base_timestamp: int
) -> None:
    assert_twins_agree(data, count, last, base_timestamp)


@needs_compiled
@pytest.mark.parametrize("seed", [0, len(SEEDS) - 3, len(SEEDS) - 2, len(SEEDS) - 1])
def test_both_kernels_agree_on_mutated_batches(seed: int) -> None:
    random = Random(seed)
    original = SEEDS[seed]
    header = read_header(original)
    for _ in range(400 if len(original) < 2000 else 40):
        records = bytes(mutated(original[HEADER_BYTES:], random))
        assert_twins_agree(records, header.record_count, header.last_offset_delta, header.base_timestamp)


@given(data=st.binary(max_size=400), codec=st.sampled_from([codec for codec in Codec if codec]))
@settings(max_examples=300, deadline=None)
def test_random_bytes_decompress_to_something_small_or_an_error(data: bytes, codec: Codec) -> None:
    try:
        assert len(decompress(codec, data, 5000)) <= 5000
    except RecordError:
        pass
