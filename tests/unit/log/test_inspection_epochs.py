"""Leader epochs: whether the batch or the file is wrong is told by the batches around it."""

from __future__ import annotations

import pytest
from log_samples import DIRECTORY, batch, new_log, write

from semel.log.inspection.epoch_check import read_epochs_file
from semel.log.inspection.files import open_partition
from semel.log.inspection.findings import Finding, Findings, Kind
from semel.log.inspection.partition_check import check_partition
from semel.log.inspection.surroundings import Surroundings
from semel.records.batch import whole_batches
from semel.sim.disk import SimDisk

FILE = f"{DIRECTORY}/leader-epoch-checkpoint"
SEGMENT = f"{DIRECTORY}/00000000000000000000.log"
_EPOCH_AT = 15


def written() -> SimDisk:
    """Three epochs of four batches each."""
    disk = SimDisk()
    log = new_log(disk)
    for number in range(12):
        write(log, batch(b"x"), leader_epoch=number // 4 * 2)
    log.close()
    assert disk.read_file(FILE) == b"0\n3\n0 0\n2 4\n4 8\n"
    return disk


def wrong_in(disk: SimDisk, *, was_clean: bool = True) -> list[Finding]:
    findings = Findings()
    check_partition(open_partition(disk, DIRECTORY), findings, Surroundings(was_clean=was_clean, start_offset=0))
    return [finding for finding in findings if finding.is_wrong]


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("bit", [0, 1, 6])
def test_one_batch_that_differs_from_its_neighbours_is_to_blame(number: int, bit: int) -> None:
    disk = written()
    position = [position for position, _ in whole_batches(disk.read_file(SEGMENT))][number]
    disk.flip_bit(SEGMENT, position + _EPOCH_AT, bit)
    (found,) = wrong_in(disk)
    assert (found.kind, found.path, found.position) == (Kind.WRONG_LEADER_EPOCH, SEGMENT, position)


@pytest.mark.parametrize("text", ["0\n2\n0 0\n2 4\n", "0\n3\n0 0\n2 6\n4 8\n", "0\n3\n0 0\n3 4\n4 8\n", "0\n0\n"])
def test_a_file_that_differs_from_several_batches_is_to_blame(text: str) -> None:
    disk = written()
    disk.replace_file_now(FILE, text.encode())
    (found,) = wrong_in(disk)
    assert (found.kind, found.path) == (Kind.STALE_EPOCHS, FILE)


def test_a_file_that_is_behind_is_right_where_the_next_start_reads_the_batches() -> None:
    disk = written()
    disk.replace_file_now(FILE, b"0\n1\n0 0\n")
    assert wrong_in(disk, was_clean=False) == []


def test_epochs_beyond_the_end_are_wrong_after_a_clean_stop_and_forgotten_after_another() -> None:
    disk = written()
    disk.replace_file_now(FILE, b"0\n4\n0 0\n2 4\n4 8\n6 20\n")
    assert [finding.kind for finding in wrong_in(disk)] == [Kind.STALE_EPOCHS]
    assert wrong_in(disk, was_clean=False) == []


def test_epochs_in_which_nothing_was_written_are_right() -> None:
    """Kafka writes them down."""
    disk = written()
    disk.replace_file_now(FILE, b"0\n5\n0 0\n1 4\n2 4\n4 8\n5 12\n")
    assert wrong_in(disk) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1\n0\n", "version '1'"),
        (b"0\n2\n0 0\n", "it cannot be read"),
        (b"0\nx\n", "it cannot be read"),
        (b"0\n2\n2 0\n1 5\n", "comes after"),
        (b"0\n2\n1 5\n2 4\n", "comes after"),
        (b"0\n1\n0  0\n", "not written as"),
        (b"\xff", "it cannot be read"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(data: bytes, words: str) -> None:
    entries, problem = read_epochs_file(data)
    assert (entries, words in str(problem)) == ([], True), problem
