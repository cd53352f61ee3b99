"""Which rows go to which partition."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import column_kernels
from semel.records.columns import rows_by_partition, write_columns
from semel.records.partitioning import partition_of_key
from semel.records.read import read_records


@pytest.fixture(autouse=True)
def any_column_kernel(any_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return column_kernels.use(any_kernel.compiled, monkeypatch)


def partitions(columns: Any, count: int, fallback: int = 0) -> dict[int, list[int]]:
    found = rows_by_partition(columns, count, fallback=fallback)
    assert [partition for partition, _ in found] == sorted({partition for partition, _ in found})
    assert all(rows.format == "i" and len(rows) > 0 for _, rows in found)
    return {partition: rows.tolist() for partition, rows in found}


def with_values(**columns: Any) -> Any:
    count = len(next(iter(columns.values())))
    return pa.table({"value": [b"v"] * count, **columns})


def test_rows_without_keys_go_to_the_fallback() -> None:
    assert partitions(pa.table({"value": [b"a", b"b"]}), 5, fallback=3) == {3: [0, 1]}
    assert partitions(with_values(key=pa.nulls(2)), 5, fallback=4) == {4: [0, 1]}
    assert partitions(with_values(key=pa.array([None, None], pa.string())), 5, fallback=4) == {4: [0, 1]}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view()])
def test_rows_go_where_their_keys_belong_in_order(kind: Any) -> None:
    keys = [None if n % 5 == 0 else b"key-%d" % (n % 17) for n in range(200)] + [b""]
    expected: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        expected.setdefault(2 if key is None else partition_of_key(key, 7), []).append(row)
    columns = with_values(key=pa.array(keys, pa.binary()).cast(kind))
    assert partitions(columns, 7, fallback=2) == expected


def test_the_rows_found_can_be_written() -> None:
    columns = pa.table({"value": [b"%d" % n for n in range(50)], "key": [b"%d" % (n % 9) for n in range(50)]})
    written = {}
    for partition, rows in rows_by_partition(columns, 4, fallback=0):
        for batch in write_columns(columns, rows, batch_bytes=200, default_timestamp_ms=0):
            for record in read_records(batch):
                assert record.key is not None
                assert partition_of_key(record.key, 4) == partition
                written.setdefault(partition, []).append(int(record.value or b""))
    assert sorted(row for rows in written.values() for row in rows) == list(range(50))
    assert all(rows == sorted(rows) for rows in written.values())


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint64()])
def test_a_partition_column_decides_over_the_key(kind: Any) -> None:
    columns = with_values(partition=pa.array([3, 0, None, None, 3], kind), key=[b"a", b"b", b"foobar", None, None])
    by_key = partition_of_key(b"foobar", 4)
    expected: dict[int, list[int]] = {3: [0, 4], 0: [1]}
    expected.setdefault(by_key, []).append(2)
    expected.setdefault(1, []).append(3)
    assert partitions(columns, 4, fallback=1) == {k: sorted(v) for k, v in expected.items()}


@pytest.mark.parametrize(
    ("column", "row", "number"),
    [
        (pa.array([0, 4, 9]), 1, 4),
        (pa.array([0, 3, -1]), 2, -1),
        (pa.array([None, 2**63], pa.uint64()), 1, 2**63),
        (pa.array([-(2**63)]), 0, -(2**63)),
        (pa.chunked_array([[0, 1], [2], [3, 77]]), 4, 77),
    ],
)
def test_a_partition_that_does_not_exist_is_refused_by_row(column: Any, row: int, number: int) -> None:
    with pytest.raises(ValueError, match=f"row {row} asks for partition {number}; there are 4, from 0 to 3"):
        partitions(with_values(partition=column), 4)


def test_a_partition_column_of_nulls_decides_nothing() -> None:
    assert partitions(with_values(partition=pa.nulls(2)), 4, fallback=1) == {1: [0, 1]}


def test_chunks_and_slices_count_their_rows_from_the_first() -> None:
    columns = with_values(
        key=pa.chunked_array([[b"a"], [None, b"b"], [], [b"c"] * 3], pa.binary()),
        partition=pa.chunked_array([[None, 2], [None] * 4], pa.int32()),
    )
    expected: dict[int, list[int]] = {}
    for row, key in enumerate([b"a", None, b"b", b"c", b"c", b"c"]):
        expected.setdefault(2 if key is None else partition_of_key(key, 3), []).append(row)
    assert partitions(columns, 3) == expected
    [(partition, rows)] = rows_by_partition(columns.slice(3), 3, fallback=0)
    assert (partition, rows.tolist()) == (partition_of_key(b"c", 3), [0, 1, 2])


def test_no_rows_go_nowhere() -> None:
    assert rows_by_partition(pa.table({"value": pa.array([], pa.binary())}), 3, fallback=0) == []


@pytest.mark.parametrize(("count", "fallback"), [(0, 0), (3, 3), (3, -1), (-1, -2)])
def test_the_fallback_is_one_of_the_partitions(count: int, fallback: int) -> None:
    with pytest.raises(ValueError, match="fallback"):
        rows_by_partition(pa.table({"value": [b"v"]}), count, fallback=fallback)


def test_the_kernel_checks_its_arguments_itself(any_column_kernel: ModuleType) -> None:
    kernel = any_column_kernel
    room = memoryview(array("i", [7, 7, 7]))
    for count, position in ((4, 0), (1, 3), (-1, 0), (1, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match="no room"):
            kernel.assign_partitions(count, None, None, 3, 0, room, position)
    for partition_count, fallback in ((0, 0), (3, 3), (3, -1), (2**31, 0)):
        with pytest.raises(ValueError, match=f"partition {fallback} of"):
            kernel.assign_partitions(1, None, None, partition_count, fallback, room, 0)
    numbers = kernel.NumberColumn(memoryview(array("q", [0, 0])), None, 0, 2)
    with pytest.raises(ValueError, match="different lengths"):
        kernel.assign_partitions(3, numbers, None, 3, 0, room, 0)
    assert room.tolist() == [7, 7, 7]
    rows = memoryview(array("i", [0, 0, 0]))
    with pytest.raises(ValueError, match="partition 7 of 3"):
        kernel.sort_by_partition(room, memoryview(array("i", [0] * 3)), rows)
    with pytest.raises(ValueError, match="partition -1 of 3"):
        kernel.sort_by_partition(memoryview(array("i", [-1])), memoryview(array("i", [0] * 3)), rows[:1])
    with pytest.raises(ValueError, match="room for 2 of 3"):
        kernel.sort_by_partition(room, memoryview(array("i", [0] * 9)), rows[:2])
    with pytest.raises(ValueError, match="already"):
        kernel.sort_by_partition(room, memoryview(array("i", [5] * 9)), rows)
