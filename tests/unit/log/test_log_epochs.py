"""Leader epochs: where each began, where it ended (KIP-320), and the file that keeps them."""

from __future__ import annotations

import pytest

from semel.log.epochs import UNDEFINED, LeaderEpochs, read_epochs
from semel.sim.disk import SimDisk


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, offset in entries:
        made.assign(epoch, offset)
    return made


def test_an_epoch_is_noted_once() -> None:
    known = epochs((0, 0), (0, 5), (2, 10), (1, 12), (2, 15))
    assert known.entries == [(0, 0), (2, 10)]
    assert known.latest == 2


def test_an_epoch_that_wrote_nothing_leaves_no_trace() -> None:
    assert epochs((0, 0), (1, 10), (2, 10)).entries == [(0, 0), (2, 10)]


def test_the_latest_epoch_ends_where_the_log_ends() -> None:
    assert epochs((0, 0), (2, 10)).end_offset_for(2, 33) == (2, 33)


def test_an_older_epoch_ends_where_the_next_began() -> None:
    known = epochs((0, 0), (2, 10), (5, 20))
    assert known.end_offset_for(0, 33) == (0, 10)
    assert known.end_offset_for(2, 33) == (2, 20)


def test_a_missing_epoch_is_answered_by_the_one_below() -> None:
    known = epochs((0, 0), (2, 10), (5, 20))
    assert known.end_offset_for(1, 33) == (0, 10)
    assert known.end_offset_for(4, 33) == (2, 20)


def test_an_epoch_older_than_the_log_ended_where_the_log_begins() -> None:
    assert epochs((3, 50), (4, 60)).end_offset_for(1, 70) == (1, 50)


def test_an_epoch_that_is_not_known_yet_is_undefined() -> None:
    assert epochs((0, 0)).end_offset_for(1, 5) == UNDEFINED
    assert epochs((0, 0)).end_offset_for(-1, 5) == UNDEFINED
    assert LeaderEpochs().end_offset_for(0, 5) == UNDEFINED


def test_the_epoch_of_an_offset() -> None:
    known = epochs((1, 5), (2, 10))
    assert [known.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]


def test_cutting_the_end_forgets_epochs_that_began_there() -> None:
    known = epochs((0, 0), (1, 10), (2, 20))
    known.truncate_end(10)
    assert known.entries == [(0, 0)]


def test_cutting_the_start_moves_the_epoch_it_lies_in() -> None:
    known = epochs((0, 0), (1, 10), (2, 20))
    known.is_dirty = False
    known.truncate_start(15)
    assert known.entries == [(1, 15), (2, 20)]
    assert known.is_dirty
    known.truncate_start(20)
    assert known.entries == [(2, 20)]


def test_the_file_is_kafkas_and_reads_back() -> None:
    disk = SimDisk()
    known = epochs((0, 0), (2, 10))
    assert known.encode() == b"0\n2\n0 0\n2 10\n"
    disk.replace_file_now("/leader-epoch-checkpoint", known.encode())
    assert read_epochs(disk, "").entries == known.entries


@pytest.mark.parametrize(
    "data", [b"", b"1\n1\n0 0\n", b"0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\nx y\n", b"\xff\xfe", b"0\n1\n0 0 0\n"]
)
def test_a_damaged_file_is_no_file(data: bytes) -> None:
    disk = SimDisk()
    disk.replace_file_now("/leader-epoch-checkpoint", data)
    assert read_epochs(disk, "").entries == []
