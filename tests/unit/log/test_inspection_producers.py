"""Producer snapshots and windows that are whole, and say what the log does not: every field of them is compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_samples import DIRECTORY, batch, mark, new_log, write

from semel.log.inspection.files import open_partition
from semel.log.inspection.findings import Finding, Findings, Kind
from semel.log.inspection.partition_check import check_partition
from semel.log.inspection.producer_files import read_snapshot_file, read_window_file
from semel.log.inspection.surroundings import Surroundings
from semel.log.producers import ENTRY, OLDER, Entry
from semel.log.snapshots import encode_snapshot, encode_window, write_snapshot_now
from semel.records.control import ControlType
from semel.sim.disk import SimDisk

END = 9


def written() -> tuple[SimDisk, dict[int, bytes]]:
    """A log that was closed cleanly, and what its last snapshot says: producer 1 in an open transaction, 2 outside."""
    disk = SimDisk()
    log = new_log(disk)
    for sequence in range(3):
        write(log, batch(b"a", b"b", producer=1, sequence=2 * sequence, transactional=True))
    mark(log, ControlType.COMMIT, 1, coordinator_epoch=4)
    write(log, batch(b"a", producer=1, sequence=6, transactional=True))
    write(log, batch(b"a", producer=2, sequence=0))
    assert log.end_offset == END
    rows = log.producers.rows()
    log.close()
    return disk, rows


def wrong_in(disk: SimDisk) -> list[Finding]:
    findings = Findings()
    check_partition(open_partition(disk, DIRECTORY), findings, Surroundings(was_clean=True))
    return [finding for finding in findings if finding.is_wrong]


def test_what_the_log_itself_has_written_down_is_right() -> None:
    assert wrong_in(written()[0]) == []


@pytest.mark.parametrize(
    "field", ["epoch", "last_sequence", "last_offset", "offset_delta", "coordinator_epoch", "transaction_first_offset"]
)
@pytest.mark.parametrize("by", [-1, 1])
def test_each_field_of_a_snapshot_is_compared_with_the_log(field: str, by: int) -> None:
    disk, rows = written()
    entry = Entry(*ENTRY.unpack_from(rows[1]))
    changed = entry._replace(**{field: getattr(entry, field) + by})
    write_snapshot_now(disk, DIRECTORY, END, {**rows, 1: ENTRY.pack(*changed) + rows[1][ENTRY.size :]})
    (found,) = wrong_in(disk)
    assert (found.kind, found.offset) == (Kind.WRONG_SNAPSHOT, END)
    assert "producer 1" in found.what


def test_the_time_of_a_producer_is_not_compared() -> None:
    disk, rows = written()
    entry = Entry(*ENTRY.unpack_from(rows[1]))._replace(timestamp_ms=1)
    write_snapshot_now(disk, DIRECTORY, END, {**rows, 1: ENTRY.pack(*entry) + rows[1][ENTRY.size :]})
    assert wrong_in(disk) == []


def test_a_producer_that_never_wrote_is_not_believed() -> None:
    disk, rows = written()
    stranger = Entry(*ENTRY.unpack_from(rows[2]))._replace(producer_id=77)
    write_snapshot_now(disk, DIRECTORY, END, {**rows, 77: ENTRY.pack(*stranger)})
    (found,) = wrong_in(disk)
    assert (found.kind, "producer 77" in found.what) == (Kind.WRONG_SNAPSHOT, True)


@pytest.mark.parametrize("field", [0, 1, 2])
def test_each_batch_of_a_window_is_compared_with_the_log(field: int) -> None:
    disk, rows = written()
    older = [list(batch) for batch in OLDER.iter_unpack(rows[1][ENTRY.size :])]
    assert len(older) == 3
    older[1][field] += 1
    window = b"".join(OLDER.pack(*batch) for batch in older)
    write_snapshot_now(disk, DIRECTORY, END, {**rows, 1: rows[1][: ENTRY.size] + window})
    (found,) = wrong_in(disk)
    assert (found.kind, found.offset) == (Kind.WRONG_WINDOW, END)


def test_a_window_that_knows_less_is_no_damage_and_one_that_knows_more_is() -> None:
    disk, rows = written()
    write_snapshot_now(disk, DIRECTORY, END, {**rows, 1: rows[1][: ENTRY.size + OLDER.size]})
    assert wrong_in(disk) == []
    write_snapshot_now(disk, DIRECTORY, END, {**rows, 1: rows[1] + OLDER.pack(5, 5, 0)})
    assert [finding.kind for finding in wrong_in(disk)] == [Kind.WRONG_WINDOW]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data[:5], "too few"),
        (lambda data: b"\0\7" + data[2:], "version 7"),
        (lambda data: data[:-1] + b"?", "CRC"),
        (lambda data: data + b"?", "CRC"),
    ],
)
def test_what_is_wrong_with_the_form_of_a_file_is_told(spoil: Callable[[bytes], bytes], words: str) -> None:
    _, rows = written()
    assert read_snapshot_file(encode_snapshot(rows)).problem is None
    assert read_window_file(encode_window(rows)).problem is None
    assert words in str(read_snapshot_file(spoil(encode_snapshot(rows))).problem)
    assert words in str(read_window_file(spoil(encode_window(rows))).problem)
