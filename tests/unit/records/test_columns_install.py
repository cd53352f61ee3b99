"""What columns need to be there: pyarrow if they are used, nothing if they are not."""

from __future__ import annotations

import subprocess
import sys
from array import array

import pytest

import column_kernels

ABSENT = "import sys; sys.modules.update(dict.fromkeys({names!r})); "


def run(code: str, *absent: str) -> str:
    """Runs `code` in a Python to which some modules are not installed; returns what it prints."""
    command = [sys.executable, "-c", ABSENT.format(names=absent) + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_pyarrow_the_error_says_what_to_install() -> None:
    code = "try:\n    import semel.records.columns\nexcept ImportError as error:\n    print(error)"
    assert "pip install 'semel[arrow]'" in run("\n" + code, "pyarrow")


def test_nothing_but_columns_needs_pyarrow() -> None:
    names = "batch, build, compact, control, partitioning, read"
    code = f"from semel.records import {names}; print(partitioning.partition_of_key(b'abc', 7))"
    assert run(code, "pyarrow") == str(479470107 % 7)


def test_numpy_is_not_needed() -> None:
    code = """
import pyarrow as pa
from semel.records.batch import read_header
from semel.records.columns import read_columns, rows_by_partition, write_columns
table = pa.table({"value": [b"a", b"b"], "timestamp": pa.array([1, None], pa.timestamp("us"))})
[(partition, rows)] = rows_by_partition(table, 3, fallback=2)
[batch] = write_columns(table, rows, batch_bytes=1000, default_timestamp_ms=5)
print(read_columns([(batch, read_header(batch))], first_offset=1, with_headers=True).batch.column("value").to_pylist())
"""
    assert run(code, "numpy") == "[b'b']"


def test_the_column_kernel_runs_without_cython_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cython", None)
    kernel = column_kernels.plain("column_kernel")
    assert kernel.murmur2(b"21") == -973932308
    values = kernel.BinaryColumn(memoryview(array("i", [0, 1, 3])), b"abb", None, 0, 2)
    encoder = kernel.RecordEncoder(1000, 0, 0, 5)
    assert encoder.add(kernel.RecordColumns(0, values, None, None, None, 1, 1), None, 0) == 2
    assert encoder.take() == (b"\x0e\x00\x00\x00\x01\x02a\x00\x10\x00\x00\x02\x01\x04bb\x00", 2, 5, 5)
    with pytest.raises(ValueError, match="no record"):
        encoder.take()
    record_kernel = column_kernels.plain("kernel")
    reader = record_kernel.ColumnReader(False, 1, bytearray, 0, 0)
    assert reader.add(b"\x0e\x00\x00\x00\x01\x02a\x00", 0, 1, 0, 7, 5, None, 0, 100, 100) == 8
    assert len(reader) == 1
