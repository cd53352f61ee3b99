"""Arrow columns as record batches."""

from __future__ import annotations

from array import array
from itertools import pairwise
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import column_kernels
from semel.records.batch import HEADER_BYTES, check_crc, read_header, walk
from semel.records.build import build_batch
from semel.records.columns import LargestRecord, largest_record, write_columns
from semel.records.compression import Codec
from semel.records.errors import BatchTooLarge, UnsupportedCodec
from semel.records.read import Record, read_records

NOW_MS = 1_700_000_000_000
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SOME_HEADERS = [[("a", b"1"), ("b", None)], None, [], [("ü", b""), ("a", b"2"), ("a", b"3")]]


@pytest.fixture(autouse=True)
def any_column_kernel(any_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return column_kernels.use(any_kernel.compiled, monkeypatch)


def written(columns: Any, rows: Any = None, **options: Any) -> list[list[Record]]:
    """The records of each batch, after everything that a broker checks."""
    options = {"batch_bytes": 100_000, "default_timestamp_ms": NOW_MS, **options}
    found = []
    for batch in write_columns(columns, rows, **options):
        header = read_header(batch)
        assert type(batch) is bytearray
        assert check_crc(batch, 0, header)
        walked = walk(batch, header)
        assert walked.max_timestamp == header.max_timestamp
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert (header.base_offset, header.last_offset_delta) == (0, header.record_count - 1)
        found.append(read_records(batch))
    return found


def values_of(batches: list[list[Record]]) -> list[list[bytes | None]]:
    return [[record.value for record in batch] for batch in batches]


def pairs(headers: list[Any]) -> list[Any]:
    return [None if of_row is None else [{"key": k, "value": v} for k, v in of_row] for of_row in headers]


def test_a_batch_has_the_bytes_that_record_by_record_gives() -> None:
    timestamps = [NOW_MS, NOW_MS + 70, NOW_MS - 70, NOW_MS]
    values = [b"one", None, b"", b"v" * 300]
    keys = [b"k", None, b"", b"key" * 100]
    columns = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "timestamp": pa.array(timestamps, pa.timestamp("ms")),
            "headers": pa.array(pairs(SOME_HEADERS), PAIRS),
        }
    )
    assert write_columns(columns, batch_bytes=10_000, default_timestamp_ms=0) == [
        build_batch(
            values,
            keys=keys,
            timestamps_ms=timestamps,
            headers=[of_row or [] for of_row in SOME_HEADERS],
            base_timestamp_ms=NOW_MS,
        )
    ]


@pytest.mark.parametrize("codec", Codec)
def test_values_alone_are_enough(codec: Codec) -> None:
    columns = pa.table({"value": [b"a", None, b"c"]})
    assert written(columns, codec=codec) == [
        [Record(n, NOW_MS, None, value, ()) for n, value in enumerate([b"a", None, b"c"])]
    ]


def test_the_level_of_the_codec_counts() -> None:
    columns = pa.table({"value": [b"%d" % (n * n) for n in range(5000)]})
    fast, small = (
        write_columns(columns, batch_bytes=10**6, default_timestamp_ms=0, codec=Codec.GZIP, level=level)[0]
        for level in (1, 9)
    )
    assert len(small) < len(fast)


def test_a_codec_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnsupportedCodec):
        written(pa.table({"value": [b"a"]}), codec=5)


@pytest.mark.parametrize("kind", ["binary", "large_binary", "string", "large_string", "binary_view", "string_view"])
def test_every_kind_of_bytes_will_do(kind: str) -> None:
    values = [b"", None, b"long enough not to be kept inside of a view", "ü".encode()]
    column = pa.array([None if v is None else v.decode() for v in values], pa.string()).cast(getattr(pa, kind)())
    columns = pa.record_batch({"value": column, "key": column})
    [records] = written(columns)
    assert [record.value for record in records] == values
    assert [record.key for record in records] == values
    [records] = written(columns.slice(1, 2))
    assert [record.key for record in records] == values[1:3]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([5, None, -3], pa.timestamp("s")), [5000, NOW_MS, -3000]),
        (pa.array([5, None, -3], pa.timestamp("ms", tz="UTC")), [5, NOW_MS, -3]),
        (pa.array([5999, None, -1], pa.timestamp("us", tz="Europe/Berlin")), [5, NOW_MS, -1]),
        (pa.array([5_999_999, None, -1], pa.timestamp("ns")), [5, NOW_MS, -1]),
        (pa.array([5, None, 2**63 - 1], pa.int64()), [5, NOW_MS, 2**63 - 1]),
        (pa.nulls(3), [NOW_MS] * 3),
    ],
)
def test_timestamps_of_any_unit_become_milliseconds(column: Any, expected: list[int]) -> None:
    columns = pa.table({"value": [b"v"] * 3, "timestamp": column})
    [records] = written(columns)
    assert [record.timestamp_ms for record in records] == expected
    assert [[r.timestamp_ms for r in batch] for batch in written(columns.slice(1))] == [expected[1:]]


@pytest.mark.parametrize("seconds", [2**63 // 1000 + 1, -(2**63) // 1000 - 1])
def test_seconds_that_milliseconds_cannot_hold_are_refused_by_row(seconds: int) -> None:
    columns = pa.table({"value": [b"v"] * 2, "timestamp": pa.array([0, seconds], pa.timestamp("s"))})
    with pytest.raises(ValueError, match="row 1"):
        written(columns)


def test_a_default_timestamp_beyond_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        written(pa.table({"value": [b"v"]}), default_timestamp_ms=2**63)


@pytest.mark.parametrize(
    "kind",
    [
        PAIRS,
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.list_(pa.struct([("value", pa.binary_view()), ("key", pa.string_view())])),
        pa.map_(pa.string(), pa.binary()),
    ],
)
def test_headers_come_as_lists_of_pairs_or_as_maps(kind: Any) -> None:
    given = SOME_HEADERS if pa.types.is_map(kind) else pairs(SOME_HEADERS)
    if kind.equals(pa.list_(pa.struct([("value", pa.binary_view()), ("key", pa.string_view())]))):
        headers = pa.ListArray.from_arrays(
            pa.array([0, None, 2, 2, 5], pa.int32()),
            pa.StructArray.from_arrays(
                [
                    pa.array([b"1", None, b"", b"2", b"3"], pa.binary_view()),
                    pa.array(["a", "b", "ü", "a", "a"], pa.string_view()),
                ],
                ["value", "key"],
            ),
        )
    else:
        headers = pa.array(given, kind)
    columns = pa.record_batch({"value": pa.array([b"v"] * 4), "headers": headers})
    expected = [tuple(of_row or ()) for of_row in SOME_HEADERS]
    [records] = written(columns)
    assert [record.headers for record in records] == expected
    for start in range(4):
        [records] = written(columns.slice(start))
        assert [record.headers for record in records] == expected[start:]


def test_headers_that_are_all_null_are_none() -> None:
    [records] = written(pa.table({"value": [b"v"] * 2, "headers": pa.nulls(2), "key": pa.nulls(2)}))
    assert [(record.key, record.headers) for record in records] == [(None, ())] * 2


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_key_is_refused(header: Any) -> None:
    columns = pa.table({"value": [b"v"], "headers": pa.array([[header]], PAIRS)})
    with pytest.raises(ValueError, match="header without a key"):
        write_columns(columns, batch_bytes=1000, default_timestamp_ms=0)


@pytest.mark.parametrize("batch_bytes", [61 + 110, 61 + 3 * 110 - 1, 61 + 3 * 110, 1000, 5000])
def test_no_batch_is_larger_than_it_may_be_and_none_could_take_one_more(batch_bytes: int) -> None:
    values: list[bytes | None] = [b"%3d" % n + b"v" * 97 for n in range(300)]
    columns = pa.table({"value": values})
    batches = write_columns(columns, batch_bytes=batch_bytes, default_timestamp_ms=NOW_MS)
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= batch_bytes
    found = values_of(written(columns, batch_bytes=batch_bytes))
    assert [value for batch in found for value in batch] == values
    for batch, following in pairwise(found):
        assert len(build_batch([*batch, following[0]], base_timestamp_ms=NOW_MS)) > batch_bytes


def test_a_batch_is_filled_to_the_last_byte() -> None:
    columns = pa.table({"value": [b"v" * 100] * 9})
    for batch_bytes, counts in ((61 + 3 * 109, [3, 3, 3]), (61 + 3 * 109 - 1, [2, 2, 2, 2, 1])):
        assert [len(batch) for batch in written(columns, batch_bytes=batch_bytes)] == counts


@pytest.mark.parametrize("batch_bytes", [-5, 0, 1, 61, 200])
def test_a_row_that_is_too_large_goes_alone(batch_bytes: int) -> None:
    columns = pa.table({"value": [b"a", b"b", b"x" * 500, b"y" * 500, b"c", b"d"]})
    found = values_of(written(columns, batch_bytes=batch_bytes))
    if batch_bytes == 200:
        assert found == [[b"a", b"b"], [b"x" * 500], [b"y" * 500], [b"c", b"d"]]
    else:
        assert [len(batch) for batch in found] == [1] * 6


def test_each_batch_begins_with_its_own_first_timestamp() -> None:
    stamps = [NOW_MS + 1000 * n for n in range(6)]
    columns = pa.table({"value": [b"v" * 50] * 6, "timestamp": pa.array(stamps[::-1], pa.int64())})
    batches = write_columns(columns, batch_bytes=61 + 3 * 62, default_timestamp_ms=0)
    headers = [read_header(batch) for batch in batches]
    assert [(h.base_timestamp, h.max_timestamp, h.record_count) for h in headers] == [
        (stamps[5], stamps[5], 3),
        (stamps[2], stamps[2], 3),
    ]


def test_chosen_rows_are_written_in_the_order_given() -> None:
    columns = pa.record_batch({"value": pa.array([b"%d" % n for n in range(10)])})
    for rows in (array("i", [7, 0, 0, 9]), memoryview(array("i", [5, 7, 0, 0, 9]))[1:]):
        assert values_of(written(columns, rows)) == [[b"7", b"0", b"0", b"9"]]
    assert written(columns, array("i")) == []


@pytest.mark.parametrize("row", [-1, 10, 2**31 - 1, -(2**31)])
def test_a_row_that_does_not_exist_is_refused(row: int) -> None:
    columns = pa.table({"value": pa.chunked_array([[b"v"] * 4, [b"v"] * 6])})
    for rows in ([row], [0, 9, row], [row, 3]):
        with pytest.raises(ValueError, match=f"no row {row} among 10"):
            written(columns, array("i", rows))
        with pytest.raises(ValueError, match=f"no row {row} among 10"):
            largest_record(columns, array("i", rows))


@pytest.mark.parametrize("rows", [array("q", [1]), b"\x00\x00\x00\x00", memoryview(array("i", [1, 2, 3, 4]))[::2]])
def test_rows_are_32_bit_integers(rows: Any) -> None:
    with pytest.raises(TypeError, match="32-bit"):
        written(pa.table({"value": [b"v"] * 5}), rows)


def test_chunks_that_are_cut_at_different_rows_are_one_table() -> None:
    values = [b"%d" % n for n in range(20)]
    keys = [None if n % 3 else b"k%d" % n for n in range(20)]
    columns = pa.table(
        {
            "value": pa.chunked_array([values[:3], [], values[3:4], values[4:]]),
            "key": pa.chunked_array([keys[:7], keys[7:19], keys[19:]], pa.binary()),
        }
    )
    expected = list(zip(keys, values, strict=True))
    [records] = written(columns)
    assert [(record.key, record.value) for record in records] == expected
    rows = [19, 0, 3, 3, 4, 2, 7, 6, 18]
    [records] = written(columns, array("i", rows))
    assert [(record.key, record.value) for record in records] == [expected[row] for row in rows]
    [records] = written(columns.slice(2, 7))
    assert [(record.key, record.value) for record in records] == expected[2:9]


@pytest.mark.parametrize(
    "columns",
    [
        pa.table({"value": pa.array([], pa.binary())}),
        pa.table({"value": pa.chunked_array([], pa.string()), "key": pa.chunked_array([], pa.string())}),
        pa.record_batch({"value": pa.array([b"a"], pa.binary())}).slice(1),
        pa.record_batch({"value": pa.nulls(0)}),
    ],
)
def test_no_rows_make_no_batches(columns: Any) -> None:
    assert written(columns) == []
    assert largest_record(columns) is None


def test_values_that_are_all_null_are_written() -> None:
    assert values_of(written(pa.table({"value": pa.nulls(3)}))) == [[None] * 3]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": [b"k"]}, "no column 'value'"),
        ({"value": [b"v"], "vlaue": [b"v"]}, "a column 'vlaue'"),
        ({"value": [5]}, "column 'value' is int64"),
        ({"value": [b"v"], "key": [1.5]}, "column 'key' is double"),
        ({"value": pa.array(["v"]).dictionary_encode()}, "column 'value' is dictionary"),
        ({"value": [b"v"], "timestamp": pa.array([5], pa.int32())}, "column 'timestamp' is int32"),
        ({"value": [b"v"], "timestamp": ["now"]}, "column 'timestamp' is string"),
        ({"value": [b"v"], "headers": ["a=b"]}, "column 'headers' is string"),
        ({"value": [b"v"], "headers": [["a"]]}, "column 'headers' is list"),
        ({"value": [b"v"], "headers": [[{"key": "a"}]]}, "column 'headers' is list"),
        ({"value": [b"v"], "headers": [[{"key": b"a", "value": b"b"}]]}, "column 'headers' is list"),
        ({"value": [b"v"], "headers": [[{"key": "a", "value": b"b", "more": 1}]]}, "column 'headers' is list"),
        ({"value": [b"v"], "headers": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))}, "'headers' is map"),
        ({"value": [b"v"], "partition": [1.0]}, "column 'partition' is double"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(columns: dict[str, Any], words: str) -> None:
    for made in (pa.table(columns), pa.table(columns).slice(1)):
        with pytest.raises((ValueError, TypeError), match=words) as refused:
            written(made)
        assert "allowed are value (binary or string, required), key" in str(refused.value)


def test_a_column_that_is_there_twice_is_refused() -> None:
    columns = pa.table([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(ValueError, match="several columns 'value'"):
        written(columns)


def test_columns_are_arrows() -> None:
    with pytest.raises(TypeError, match="RecordBatch or Table, not dict"):
        written({"value": [b"v"]})


def test_a_partition_column_may_be_there() -> None:
    assert values_of(written(pa.table({"value": [b"v"], "partition": [3]}))) == [[b"v"]]


def test_the_largest_record_is_told_with_its_row() -> None:
    columns = pa.table(
        {
            "value": pa.chunked_array([[b"v" * 10, b"v" * 500], [b"v" * 499, b"v" * 500, None]], pa.binary()),
            "key": [b"k", b"k", b"k" * 900, b"k", None],
            "headers": pa.array(pairs([None, None, None, [("h", b"1")], None]), PAIRS),
        }
    )
    for rows, row in ((None, 2), ([0, 4], 0), ([4], 4), ([1, 3, 0], 3), ([1, 1], 1)):
        largest = largest_record(columns, None if rows is None else array("i", rows))
        alone = write_columns(columns, array("i", [row]), batch_bytes=0, default_timestamp_ms=NOW_MS)
        assert largest == LargestRecord(row, len(alone[0]))


def test_of_equally_large_records_the_first_is_told() -> None:
    columns = pa.table({"value": pa.chunked_array([[b"a", b"bb"], [b"cc"]])})
    assert largest_record(columns) == LargestRecord(1, HEADER_BYTES + 9)
    assert largest_record(columns.combine_chunks()) == LargestRecord(1, HEADER_BYTES + 9)


def breakable(kind: Any, children: list[Any] | None = None) -> tuple[array[int], Any]:
    """A column of one row, and its offsets. Arrow has checked them by the time they are changed to something else."""
    offsets = array("i", [0, 0])
    buffers = [None, pa.py_buffer(offsets)]
    if children is None:
        buffers.append(pa.py_buffer(b"abcdef"))
    return offsets, pa.Array.from_buffers(kind, 1, buffers, children=children)


ELSEWHERE = [[0, 7], [-1, 3], [3, 2], [0, 2**31 - 1], [2**31 - 1, 2**31 - 1], [-(2**31), -(2**31)]]


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
@pytest.mark.parametrize("name", ["value", "key"])
def test_a_column_whose_bytes_lie_elsewhere_is_refused(elsewhere: list[int], name: str) -> None:
    offsets, column = breakable(pa.binary())
    columns = pa.record_batch({"value": pa.array([b"v"]), name: column})
    assert len(written(columns)) == 1
    offsets[:] = array("i", elsewhere)
    with pytest.raises(ValueError, match="broken"):
        written(columns)
    with pytest.raises(ValueError, match="broken"):
        largest_record(columns)


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
@pytest.mark.parametrize("part", ["lists", "keys"])
def test_headers_that_lie_elsewhere_are_refused(elsewhere: list[int], part: str) -> None:
    if part == "lists":
        pair = pa.StructArray.from_arrays([pa.array(["k"] * 6), pa.array([b"v"] * 6)], ["key", "value"])
        offsets, headers = breakable(pa.list_(pair.type), [pair])
    else:
        offsets, keys = breakable(pa.string())
        pair = pa.StructArray.from_arrays([keys, pa.array([b"v"])], ["key", "value"])
        headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pair)
    columns = pa.record_batch({"value": pa.array([b"v"]), "headers": headers})
    assert len(written(columns)) == 1
    offsets[:] = array("i", elsewhere)
    with pytest.raises(ValueError, match="broken"):
        written(columns)
    with pytest.raises(ValueError, match="broken"):
        largest_record(columns)


@pytest.mark.parametrize("grown", [[0, 3], [0, 0], [0, 6]])
def test_headers_that_change_while_they_are_encoded_are_refused(
    grown: list[int], any_column_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any_column_kernel.compiled:
        pytest.skip("nothing can come between, but another process")
    offsets, keys = breakable(pa.string())
    offsets[:] = array("i", [0, 1])
    pair = pa.StructArray.from_arrays([keys, pa.array([b"v"])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pair)
    measure = any_column_kernel.HeaderColumn.measure

    def measure_and_change(column: Any, row: int) -> Any:
        size = measure(column, row)
        offsets[:] = array("i", grown)
        return size

    monkeypatch.setattr(any_column_kernel.HeaderColumn, "measure", measure_and_change)
    with pytest.raises(ValueError, match="changed while"):
        written(pa.record_batch({"value": pa.array([b"v"]), "headers": headers}))


def test_a_column_shorter_than_it_says_is_refused(any_column_kernel: ModuleType) -> None:
    offsets = memoryview(array("i", [0, 1, 2]))
    for first, count in ((0, 3), (1, 2), (-1, 1), (0, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match=f"{count} rows from {first} on in a buffer"):
            any_column_kernel.BinaryColumn(offsets, b"ab", None, first, count)
    with pytest.raises(ValueError, match="validity bits"):
        any_column_kernel.BinaryColumn(memoryview(array("i", [0] * 12)), b"", b"\xff", 0, 9)
    with pytest.raises(ValueError, match="buffer of 2"):
        any_column_kernel.NumberColumn(memoryview(array("q", [0, 1])), None, 0, 3)


def test_columns_of_different_lengths_are_refused(any_column_kernel: ModuleType) -> None:
    kernel = any_column_kernel
    two = kernel.BinaryColumn(memoryview(array("i", [0, 1, 2])), b"ab", None, 0, 2)
    one = kernel.BinaryColumn(memoryview(array("i", [0, 1, 2])), b"ab", None, 0, 1)
    numbers = kernel.NumberColumn(memoryview(array("q", [0])), None, 0, 1)
    headers = kernel.HeaderColumn(memoryview(array("i", [0, 1])), one, one, None, 0, 1)
    with pytest.raises(ValueError, match="2 header keys for 1"):
        kernel.HeaderColumn(memoryview(array("i", [0, 1])), two, one, None, 0, 1)
    for others in ((one, None, None), (None, headers, None), (None, None, numbers)):
        with pytest.raises(ValueError, match="different lengths"):
            kernel.RecordColumns(0, two, *others, 1, 1)


def test_a_record_of_two_gigabytes_is_refused_by_row(any_column_kernel: ModuleType) -> None:
    kernel = any_column_kernel
    data = memoryview(pa.allocate_buffer(2**31)).cast("B")  # which takes no memory, as nothing is written there
    values = kernel.BinaryColumn(memoryview(array("q", [0, 2**31])), data, None, 0, 1)
    encoder = kernel.RecordEncoder(1000, HEADER_BYTES, 0, 0)
    with pytest.raises(BatchTooLarge, match="row 7"):
        encoder.add(kernel.RecordColumns(7, values, None, None, None, 1, 1), None, 7)
