"""Which records of a batch are to blame when it is refused."""

from __future__ import annotations

from types import ModuleType

import pytest

from semel.records.batch import open_records, read_header
from semel.records.build import build_batch
from semel.records.compression import Codec

NOW_MS = 1_700_000_000_000
EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1


def find(
    kernel: ModuleType,
    batch: bytearray,
    *,
    needs_keys: bool = False,
    earliest: int = EARLIEST,
    latest: int = LATEST,
    limit: int = 100,
) -> tuple[list[tuple[int, int | None]], int, int]:
    header = read_header(batch)
    data, start = open_records(batch, header, 1 << 20)
    found: tuple[list[tuple[int, int | None]], int, int] = kernel.find_refused(
        data,
        start,
        header.record_count,
        header.last_offset_delta,
        header.base_timestamp,
        needs_keys,
        earliest,
        latest,
        limit,
    )
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_records_without_a_key_and_records_out_of_time_are_found_by_index(any_kernel: ModuleType, codec: Codec) -> None:
    times = [NOW_MS, NOW_MS - 11, NOW_MS, -1, NOW_MS + 11]
    keys = [b"k", b"k", None, None, b""]
    batch = build_batch([b"v"] * 5, base_timestamp_ms=NOW_MS, keys=keys, timestamps_ms=times, codec=codec)
    assert find(any_kernel, batch, needs_keys=True) == ([(2, None), (3, None)], 2, 0)
    assert find(any_kernel, batch, earliest=NOW_MS - 10) == ([(1, NOW_MS - 11)], 0, 1), "-1 is no timestamp"
    within = {"earliest": NOW_MS - 10, "latest": NOW_MS + 10}
    found = find(any_kernel, batch, needs_keys=True, **within)
    assert found == ([(1, NOW_MS - 11), (2, None), (3, None), (4, NOW_MS + 11)], 2, 2)
    assert find(any_kernel, batch) == ([], 0, 0)


def test_no_more_are_found_than_wanted_but_all_are_counted(any_kernel: ModuleType) -> None:
    batch = build_batch([b"v"] * 50, base_timestamp_ms=NOW_MS)
    assert find(any_kernel, batch, needs_keys=True, limit=3) == ([(0, None), (1, None), (2, None)], 50, 0)


def test_the_records_before_one_that_breaks_the_format_are_counted(any_kernel: ModuleType) -> None:
    batch = build_batch([b"v"] * 5, base_timestamp_ms=NOW_MS)
    header = read_header(batch)
    data, start = open_records(batch, header, 1 << 20)
    assert any_kernel.count_whole(data, start, 5, 4) == 5
    record_bytes = (len(data) - start) // 5
    broken = bytearray(data)
    broken[start + 3 * record_bytes + 3] = 2 * 5  # its offset delta
    assert any_kernel.count_whole(broken, start, 5, 4) == 3
