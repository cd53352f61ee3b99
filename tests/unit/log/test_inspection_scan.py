"""Reading a segment in pieces: no batch is lost between two pieces, and no damage makes the pieces large."""

from __future__ import annotations

import random

import pytest

from semel.log import batch_search
from semel.log.inspection import scan as scanning
from semel.log.inspection.dump import dump_file
from semel.log.inspection.scan import Scanned, headers, scan
from semel.records.build import build_batch


class Bytes:
    """A file in memory that remembers the largest piece that was asked for."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.path, self.data, self.largest = "memory.log", bytes(data), 0

    def size(self) -> int:
        return len(self.data)

    def read_at(self, position: int, length: int) -> bytes:
        self.largest = max(self.largest, length)
        return self.data[position : position + length]

    def close(self) -> None:
        pass


def segment(*sizes: int) -> tuple[bytearray, list[int]]:
    """Batches with values of these sizes, and where each begins."""
    data, positions = bytearray(), []
    for offset, size in enumerate(sizes):
        positions.append(len(data))
        data += build_batch([b"v" * size], base_timestamp_ms=0, base_offset=offset, leader_epoch=0)
    return data, positions


def scanned(data: bytes | bytearray) -> list[Scanned]:
    return list(scan(Bytes(data), len(data)))


@pytest.mark.parametrize("block_bytes", [62, 100, 177, 1000])
def test_every_batch_is_found_whatever_the_size_of_a_piece(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(batch_search, "BLOCK_BYTES", block_bytes)
    chance = random.Random(block_bytes)
    data, positions = segment(*[chance.randrange(0, 400) for _ in range(60)])
    found = scanned(data)
    assert [one.position for one in found] == positions
    assert all(one.problem is None and one.batch is not None for one in found)
    assert [position for position, _ in headers(Bytes(data), len(data))] == positions


@pytest.mark.parametrize("block_bytes", [100, 4 << 20])
def test_after_any_flipped_bit_all_other_batches_are_found(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(batch_search, "BLOCK_BYTES", block_bytes)
    data, positions = segment(30, 200, 5, 90, 0)
    for position in range(positions[1], positions[2]):
        for bit in (0, 5, 7):
            data[position] ^= 1 << bit
            found = scanned(data)
            whole = [one.position for one in found if one.problem is None]
            # An offset or a leader epoch is not covered by the CRC: who follows the offsets judges those.
            is_outside = position - positions[1] in (*range(8), *range(12, 16))
            assert whole == [p for p in positions if is_outside or p != positions[1]], (position, bit)
            data[position] ^= 1 << bit


def test_every_cut_leaves_the_whole_batches_and_a_problem_at_the_end() -> None:
    data, positions = segment(30, 60, 20)
    ends = [*positions[1:], len(data)]
    for length in range(len(data)):
        found = scanned(data[:length])
        assert [one.end for one in found if one.problem is None] == [end for end in ends if end <= length]
        assert (found[-1].problem is not None if found else length == 0) or length in ends


def test_a_batch_that_is_too_large_for_memory_is_checked_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(batch_search, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(scanning, "LARGEST_IN_MEMORY_BYTES", 4 << 10)
    monkeypatch.setattr(batch_search, "LARGEST_IN_MEMORY_BYTES", 4 << 10)
    data, positions = segment(100, 20_000, 100)
    file = Bytes(data)
    found = list(scan(file, len(data)))
    assert [(one.position, one.problem, one.batch is None) for one in found] == [
        (positions[0], None, False),
        (positions[1], None, True),
        (positions[2], None, False),
    ]
    assert file.largest <= 4 << 10
    data[positions[1] + 15_000] ^= 1
    assert [one.problem is None for one in scanned(data)] == [True, False, True]
    data[positions[1] + 15_000] ^= 1
    shown = [batch.records for batch in dump_file(Bytes(data), reads_records=True)]
    assert [len((records or [])[0].value or b"") for records in shown] == [100, 20_000, 100]


def test_a_length_that_claims_the_rest_of_the_file_does_not_bring_it_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(batch_search, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(scanning, "LARGEST_IN_MEMORY_BYTES", 4 << 10)
    monkeypatch.setattr(batch_search, "LARGEST_IN_MEMORY_BYTES", 4 << 10)
    data, positions = segment(*[500] * 100)
    data[positions[1] + 8 : positions[1] + 12] = (len(data) - positions[1] - 12).to_bytes(4, "big")
    file = Bytes(data)
    found = list(scan(file, len(data)))
    assert [one.position for one in found if one.problem is None] == [positions[0], *positions[2:]]
    assert file.largest <= 4 << 10
