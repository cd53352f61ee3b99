"""Record batches as one Arrow RecordBatch."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import column_kernels
from semel.records import columns as columns_module
from semel.records.batch import BatchHeader, read_header
from semel.records.build import build_batch
from semel.records.columns import read_columns
from semel.records.compact import filter_batch
from semel.records.compression import Codec
from semel.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord

NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def any_column_kernel(any_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return column_kernels.use(any_kernel.compiled, monkeypatch)


def batch_of(*values: bytes | None, **options: Any) -> tuple[memoryview, BatchHeader]:
    batch = build_batch(list(values), base_timestamp_ms=options.pop("base_timestamp_ms", NOW_MS), **options)
    return memoryview(batch), read_header(batch)


def offsets_of(columns: Any) -> list[int]:
    return columns.batch.column("offset").to_pylist()  # type: ignore[no-any-return]


# offsets 10 to 14, and 15 to 17
TWO = [
    batch_of(b"a", b"b", b"c", b"d", b"e", base_offset=10),
    batch_of(b"f", b"g", b"h", base_offset=15),
]


@pytest.mark.parametrize("codec", Codec)
def test_all_batches_become_one_record_batch(codec: Codec) -> None:
    columns = read_columns(
        [
            batch_of(
                b"one",
                None,
                b"",
                keys=[None, b"k", b""],
                timestamps_ms=[NOW_MS, NOW_MS + 5, NOW_MS - 5],
                base_offset=7,
                codec=codec,
            ),
            batch_of(b"four", base_offset=20, log_append_time=True, base_timestamp_ms=NOW_MS + 99, codec=codec),
        ],
        first_offset=0,
    )
    columns.batch.validate(full=True)
    assert columns.next_offset == 21
    assert columns.batch.schema == pa.schema(
        [
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("timestamp_type", pa.int32()),
            ("key", pa.binary()),
            ("value", pa.binary()),
        ]
    )
    assert columns.batch.column("offset").to_pylist() == [7, 8, 9, 20]
    stamps = columns.batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert stamps == [NOW_MS, NOW_MS + 5, NOW_MS - 5, NOW_MS + 99]
    assert columns.batch.column("timestamp_type").to_pylist() == [0, 0, 0, 1]
    assert columns.batch.column("key").to_pylist() == [None, b"k", b"", None]
    assert columns.batch.column("value").to_pylist() == [b"one", None, b"", b"four"]


def test_columns_without_nulls_have_no_validity_and_others_know_their_nulls() -> None:
    columns = read_columns([batch_of(*[b"v"] * 20, keys=[b"k", None] * 10)], first_offset=0).batch
    assert columns.column("value").buffers()[0] is None
    assert columns.column("value").null_count == 0
    assert columns.column("key").null_count == 10
    assert columns.column("key").is_valid().to_pylist() == [True, False] * 10


def test_microseconds_are_there_if_asked_for() -> None:
    columns = read_columns([batch_of(b"a")], first_offset=0, timestamp_unit="us").batch
    assert columns.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert columns.column("timestamp").cast(pa.int64()).to_pylist() == [NOW_MS * 1000]


def test_a_time_that_microseconds_cannot_tell_becomes_the_farthest_they_can() -> None:
    extremes = [2**63 - 1, -(2**63), 2**63 // 1000, -1]
    batch = batch_of(*[b"v"] * 4, timestamps_ms=extremes)
    columns = read_columns([batch], first_offset=0, timestamp_unit="us").batch
    farthest = (2**63 - 1) // 1000 * 1000
    assert columns.column("timestamp").cast(pa.int64()).to_pylist() == [farthest, -farthest, farthest, -1000]
    columns = read_columns([batch], first_offset=0).batch
    assert columns.column("timestamp").cast(pa.int64()).to_pylist() == extremes


@pytest.mark.parametrize("unit", ["s", "ns", ""])
def test_other_units_are_refused(unit: str) -> None:
    with pytest.raises(ValueError, match="'ms' or 'us'"):
        read_columns(TWO, first_offset=0, timestamp_unit=unit)


def test_headers_come_as_lists_of_pairs() -> None:
    batch = batch_of(
        b"a",
        b"b",
        b"c",
        headers=[[("x", b"1"), ("", None), ("ü", b"")], [], [("x", b"long " * 50)]],
    )
    columns = read_columns([batch, batch_of(b"d", base_offset=3)], first_offset=0, with_headers=True).batch
    columns.validate(full=True)
    assert columns.schema.field("headers").type == pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    assert columns.column("headers").to_pylist() == [
        [{"key": "x", "value": b"1"}, {"key": "", "value": None}, {"key": "ü", "value": b""}],
        [],
        [{"key": "x", "value": b"long " * 50}],
        [],
    ]


def test_a_header_key_that_is_not_utf8_is_mended_though_that_takes_more_room() -> None:
    batch = build_batch([b"v"] * 40, headers=[[("abcdefgh", b"x"), ("y", b"z")]] * 40, base_timestamp_ms=NOW_MS)
    broken = memoryview(batch.replace(b"abcdefgh", b"\xff" * 8))
    columns = read_columns([(broken, read_header(broken))], first_offset=0, with_headers=True).batch
    columns.validate(full=True)
    expected = [{"key": "\ufffd" * 8, "value": b"x"}, {"key": "y", "value": b"z"}]
    assert columns.column("headers").to_pylist() == [expected] * 40
    batch = build_batch([b"v"], headers=[[("a" * 1000, None), ("b", b"c")]], base_timestamp_ms=NOW_MS)
    broken = memoryview(batch.replace(b"a", b"\xff"))
    columns = read_columns([(broken, read_header(broken))], first_offset=0, with_headers=True).batch
    columns.validate(full=True)
    expected = [{"key": "\ufffd" * 1000, "value": None}, {"key": "b", "value": b"c"}]
    assert columns.column("headers").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("first", "end", "expected", "next_offset"),
    [
        (0, None, [10, 11, 12, 13, 14, 15, 16, 17], 18),
        (13, None, [13, 14, 15, 16, 17], 18),
        (15, None, [15, 16, 17], 18),
        (18, None, [], 18),
        (30, None, [], 30),
        (0, 12, [10, 11], 12),
        (12, 16, [12, 13, 14, 15], 16),
        (10, 15, [10, 11, 12, 13, 14], 15),
        (10, 100, [10, 11, 12, 13, 14, 15, 16, 17], 18),
        (16, 16, [], 16),
        (16, 12, [], 16),
        (0, 5, [], 5),
    ],
)
def test_only_records_between_the_offsets_are_read(
    first: int, end: int | None, expected: list[int], next_offset: int
) -> None:
    columns = read_columns(TWO, first_offset=first, end_offset=end)
    assert (offsets_of(columns), columns.next_offset) == (expected, next_offset)


@pytest.mark.parametrize(
    ("most", "expected", "next_offset"),
    [(1, [11], 12), (3, [11, 12, 13], 14), (4, [11, 12, 13, 14], 15), (5, [11, 12, 13, 14, 15], 16), (99, None, 18)],
)
def test_reading_stops_after_so_many_records(most: int, expected: list[int] | None, next_offset: int) -> None:
    columns = read_columns(TWO, first_offset=11, max_records=most)
    assert offsets_of(columns) == (expected or [11, 12, 13, 14, 15, 16, 17])
    assert columns.next_offset == next_offset


@pytest.mark.parametrize("most", [0, -1])
def test_no_records_at_all_cannot_be_asked_for(most: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        read_columns(TWO, first_offset=0, max_records=most)
    with pytest.raises(ValueError, match="at least 1"):
        read_columns(TWO, first_offset=0, max_bytes=most)


def test_nothing_gives_empty_columns() -> None:
    columns = read_columns([], first_offset=5, with_headers=True)
    columns.batch.validate(full=True)
    assert (columns.batch.num_rows, columns.next_offset) == (0, 5)


def thinned(batch: tuple[memoryview, BatchHeader], *keep: int) -> tuple[memoryview, BatchHeader]:
    kept = filter_batch(batch[0], bytes(keep), keep_empty=True)
    assert kept is not None
    return memoryview(kept), read_header(kept)


def test_offsets_that_compaction_left_out_are_passed_over() -> None:
    batches = [thinned(TWO[0], 0, 1, 0, 1, 0), thinned(TWO[1], 0, 0, 0)]
    columns = read_columns(batches, first_offset=0)
    assert (offsets_of(columns), columns.next_offset) == ([11, 13], 18)
    # the last record of a batch was the last one wanted: the hole after it is passed over too
    columns = read_columns(batches, first_offset=0, max_records=2)
    assert (offsets_of(columns), columns.next_offset) == ([11, 13], 15)
    columns = read_columns(batches, first_offset=0, max_records=1)
    assert (offsets_of(columns), columns.next_offset) == ([11], 12)
    columns = read_columns(batches[:1], first_offset=0, end_offset=12)
    assert (offsets_of(columns), columns.next_offset) == ([11], 12)
    # there is nothing before the end but a hole: it must not be asked for again
    columns = read_columns([batch_of(b"x", base_offset=100)], first_offset=18, end_offset=50)
    assert (offsets_of(columns), columns.next_offset) == ([], 50)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_reading_stops_before_the_batch_that_would_be_too_much(codec: Codec) -> None:
    batches = [batch_of(*[b"v" * 100] * 10, base_offset=10 * n, codec=codec) for n in range(4)]
    columns = read_columns(batches, first_offset=0, max_bytes=2500)
    assert (len(offsets_of(columns)), columns.next_offset) == (20, 20)
    # one batch is always read, so that there is progress
    columns = read_columns(batches, first_offset=columns.next_offset, max_bytes=1)
    assert (len(offsets_of(columns)), columns.next_offset) == (10, 30)


def test_no_caller_can_ask_for_more_than_offsets_of_32_bits_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert columns_module.LARGEST_COLUMN_BYTES == 2**31 - 1
    monkeypatch.setattr(columns_module, "LARGEST_COLUMN_BYTES", 2500)
    batches = [batch_of(*[b"v" * 100] * 10, base_offset=10 * n) for n in range(4)]
    assert read_columns(batches, first_offset=0, max_bytes=10**12).next_offset == 20


@pytest.mark.parametrize(("count", "size"), [(2**31, 0), (0, 2**31)])
def test_the_kernel_refuses_a_column_of_two_gigabytes(any_kernel: ModuleType, count: int, size: int) -> None:
    def allocate(size: int) -> bytearray:
        assert size < 1000
        return bytearray(size)

    with pytest.raises(BatchTooLarge, match="2 GiB"):
        any_kernel.ColumnReader(False, 1, allocate, count, size)


@pytest.mark.parametrize(("count", "size"), [(-1, 0), (0, -1)])
def test_the_kernel_expects_nothing_negative(any_kernel: ModuleType, count: int, size: int) -> None:
    with pytest.raises(ValueError, match="cannot be expected"):
        any_kernel.ColumnReader(False, 1, bytearray, count, size)


def test_an_allocator_that_gives_too_little_is_found_out(any_kernel: ModuleType) -> None:
    reader = any_kernel.ColumnReader(False, 1, lambda size: bytearray(min(size, 100)), 0, 0)
    batch, _ = batch_of(*[b"v" * 100] * 10)
    with pytest.raises(MemoryError):
        reader.add(batch, 61, 10, 9, 0, 0, None, 0, 100, 100)


def test_records_far_into_a_column_are_found_again() -> None:
    """Buffers grow, over and over, if nothing is known of what is to come."""
    values = [b"%d" % n * (n % 50) for n in range(3000)]
    batches = [batch_of(*values[n : n + 7], base_offset=n, codec=Codec.ZSTD) for n in range(0, 3000, 7)]
    columns = read_columns(batches, first_offset=0, max_records=10_000).batch
    columns.validate(full=True)
    assert columns.column("value").to_pylist() == values
    assert columns.column("offset").to_pylist() == list(range(3000))


def test_memory_that_was_not_needed_is_given_back() -> None:
    batch = batch_of(*[b"v" * 1000] * 1000)
    before = pa.total_allocated_bytes()
    columns = read_columns([batch], first_offset=0).batch
    assert columns.num_rows == 1000
    assert pa.total_allocated_bytes() - before < 1_200_000
    del columns
    assert pa.total_allocated_bytes() == before


def test_a_batch_that_is_not_whole_is_refused() -> None:
    batch, header = batch_of(b"value")
    with pytest.raises(CorruptBatch):
        read_columns([(batch[:-1], header)], first_offset=0)


def test_bytes_after_the_last_record_are_refused() -> None:
    longer = bytearray(batch_of(b"value")[0]) + b"\x00"
    struct.pack_into(">i", longer, 8, len(longer) - 12)
    with pytest.raises(InvalidRecord, match="left over"):
        read_columns([(longer, read_header(longer))], first_offset=0)


def test_a_broken_record_is_refused() -> None:
    broken = bytearray(batch_of(b"value", b"value")[0])
    broken[-1] = 2  # a header, but no bytes for it
    with pytest.raises(InvalidRecord):
        read_columns([(broken, read_header(broken))], first_offset=0)


@pytest.mark.parametrize("base_offset", [-1, 2**63 - 1])
def test_offsets_that_cannot_be_are_refused(base_offset: int) -> None:
    batch = bytearray(batch_of(b"value")[0])
    struct.pack_into(">q", batch, 0, base_offset)
    with pytest.raises(CorruptBatch, match="offsets"):
        read_columns([(batch, read_header(batch))], first_offset=0)


def test_a_bomb_is_refused() -> None:
    batch = batch_of(bytes(100_000), codec=Codec.ZSTD)
    with pytest.raises(BatchTooLarge):
        read_columns([batch], first_offset=0, max_decompressed_bytes=10_000)
