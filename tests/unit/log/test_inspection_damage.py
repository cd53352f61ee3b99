"""Damage of every kind, planted in copies of a directory that a broker has written: the check finds and names it."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from inspection_samples import busy_day, cut, directory_of, flip, found_in, kinds_in, swap, wrong_in

from semel.log.batch_search import ReadableFile
from semel.log.inspection.directory_check import DirectoryCheck
from semel.log.inspection.files import RealFiles, open_partition
from semel.log.inspection.findings import Findings, Kind, Severity
from semel.log.inspection.partition_check import check_partition
from semel.records.batch import whole_batches
from semel.records.build import build_batch

LOG = "out-0/00000000000000000018.log"
FIRST, LAST, END = (f"out-0/{offset:020d}" for offset in (0, 56, 65))
IDENTITY, STATE = "partition.metadata", "__transaction_state-0"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """By whether the broker was stopped cleanly; the other one was killed."""
    base = tmp_path_factory.mktemp("originals")
    return {stops: directory_of(busy_day, base / str(stops), stops=stops) for stops in (True, False)}


@pytest.fixture
def data(originals: dict[bool, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals[True], tmp_path / "data"))


@pytest.fixture
def killed(originals: dict[bool, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals[False], tmp_path / "killed"))


def headers_of(path: Path) -> list[tuple[int, int]]:
    """Position and base offset of each batch."""
    return [(position, header.base_offset) for position, header in whole_batches(path.read_bytes())]


def test_an_undamaged_directory_has_nothing_wrong(originals: dict[bool, Path]) -> None:
    for root in originals.values():
        assert list(found_in(root, opens_records=True)) == []


# -- a flipped bit, anywhere

FLIPPED: dict[str, set[Kind]] = {
    ".log": {Kind.BAD_BATCH, Kind.UNREADABLE, Kind.WRONG_OFFSET, Kind.WRONG_LEADER_EPOCH, Kind.STALE_EPOCHS},
    ".index": {Kind.WRONG_INDEX_ENTRY},
    ".timeindex": {Kind.WRONG_TIME_ENTRY, Kind.SHORT_TIME_INDEX},
    ".txnindex": {Kind.WRONG_ABORT, Kind.MISSING_ABORT},
    ".snapshot": {Kind.BAD_SNAPSHOT},
    ".window": {Kind.BAD_WINDOW},
    "leader-epoch-checkpoint": {Kind.BAD_EPOCHS, Kind.STALE_EPOCHS},
    "partition.metadata": {Kind.WRONG_IDENTITY},
}


@pytest.mark.parametrize("kind", FLIPPED)
def test_a_flipped_bit_in_any_file_of_a_partition_is_found_and_named(data: Path, kind: str) -> None:
    chance = random.Random(kind)
    for path in sorted(path for path in (data / "out-0").iterdir() if path.name.endswith(kind)):
        original = path.read_bytes()
        for _ in range(12):
            position, bit = chance.randrange(len(original)), chance.randrange(8)
            flip(path, position, bit)
            found = wrong_in(data)
            assert found, (path.name, position, bit)
            assert {finding.kind for finding in found} <= FLIPPED[kind], (path.name, position, bit, found)
            # A leader epoch that only the last batch has could be a file that is behind.
            assert any(finding.path == str(path) or finding.kind == Kind.STALE_EPOCHS for finding in found)
            path.write_bytes(original)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_flipped_bit_in_a_checkpoint_is_found(data: Path, name: str) -> None:
    original = (data / name).read_bytes()
    for position in range(len(original)):
        flip(data / name, position, position % 8)
        assert kinds_in(data) & {Kind.BAD_CHECKPOINT, Kind.WRONG_CHECKPOINT}, position
        (data / name).write_bytes(original)


def test_a_bad_batch_is_named_with_its_place_and_does_not_hide_the_next_one(data: Path) -> None:
    (first, first_offset), (second, second_offset) = headers_of(data / LOG)[2], headers_of(data / LOG)[6]
    flip(data / LOG, first + 65)
    flip(data / LOG, second + 65)
    found = wrong_in(data)
    assert [(f.kind, f.path, f.position, f.offset) for f in found] == [
        (Kind.BAD_BATCH, str(data / LOG), first, first_offset),
        (Kind.BAD_BATCH, str(data / LOG), second, second_offset),
    ]


def test_where_a_length_is_damaged_the_next_whole_batch_is_searched_for(data: Path) -> None:
    batches = headers_of(data / LOG)
    flip(data / LOG, batches[3][0] + 11, 1)
    (found,) = wrong_in(data)
    assert (found.kind, found.position, found.offset) == (Kind.UNREADABLE, batches[3][0], batches[3][1])
    assert f"the next whole batch begins at byte {batches[4][0]}" in found.what


def test_an_offset_that_no_crc_covers_is_judged_by_its_neighbours(data: Path) -> None:
    position, offset = headers_of(data / LOG)[4]
    for bit in range(8):
        flip(data / LOG, position + 7, bit)
        (found,) = wrong_in(data)
        assert (found.kind, found.position, found.offset) == (Kind.WRONG_OFFSET, position, offset)
        flip(data / LOG, position + 7, bit)


# -- cut, removed, swapped

Harm = Callable[[Path], object]

# Of the second one all entries may be right, and yet it is not the file that was there.
SWAPPED_INDEXES = {Kind.WRONG_INDEX_ENTRY, Kind.NOT_AS_WRITTEN}
HARMS: list[tuple[str, Harm, set[Kind]]] = [
    ("cut segment", lambda d: cut(d / LOG, 10), {Kind.UNREADABLE, Kind.BAD_BATCH}),
    ("cut index", lambda d: cut(d / f"{FIRST}.index", 3), {Kind.BROKEN_INDEX}),
    ("cut time index", lambda d: cut(d / f"{FIRST}.timeindex", 5), {Kind.BROKEN_INDEX, Kind.SHORT_TIME_INDEX}),
    ("cut time index by an entry", lambda d: cut(d / f"{FIRST}.timeindex", 12), {Kind.SHORT_TIME_INDEX}),
    ("cut aborted index", lambda d: cut(d / f"{FIRST}.txnindex", 5), {Kind.BROKEN_ABORTED_INDEX}),
    ("cut aborted index by an entry", lambda d: cut(d / f"{FIRST}.txnindex", 34), {Kind.MISSING_ABORT}),
    ("cut snapshot", lambda d: cut(d / f"{LAST}.snapshot"), {Kind.BAD_SNAPSHOT}),
    ("cut window", lambda d: cut(d / f"{LAST}.window"), {Kind.BAD_WINDOW}),
    ("cut epochs", lambda d: cut(d / "out-0/leader-epoch-checkpoint", 3), {Kind.BAD_EPOCHS}),
    ("cut identity", lambda d: cut(d / "out-0/partition.metadata"), {Kind.WRONG_IDENTITY}),
    ("cut checkpoint", lambda d: cut(d / "recovery-point-offset-checkpoint", 4), {Kind.BAD_CHECKPOINT}),
    ("no index", lambda d: (d / f"{FIRST}.index").unlink(), {Kind.MISSING_INDEX}),
    ("no time index", lambda d: (d / f"{FIRST}.timeindex").unlink(), {Kind.MISSING_INDEX}),
    ("no aborted index", lambda d: (d / f"{FIRST}.txnindex").unlink(), {Kind.MISSING_ABORT}),
    ("no window", lambda d: (d / f"{LAST}.window").unlink(), {Kind.BAD_WINDOW}),
    ("no snapshot", lambda d: (d / f"{END}.snapshot").unlink(), {Kind.MISSING_SNAPSHOT}),
    ("no epochs", lambda d: (d / "out-0/leader-epoch-checkpoint").unlink(), {Kind.STALE_EPOCHS}),
    ("no identity", lambda d: (d / "out-0/partition.metadata").unlink(), {Kind.MISSING_IDENTITY}),
    ("no properties", lambda d: (d / "meta.properties").unlink(), {Kind.BAD_PROPERTIES}),
    ("no checkpoint", lambda d: (d / "log-start-offset-checkpoint").unlink(), {Kind.BAD_CHECKPOINT}),
    ("swapped segments", lambda d: swap(d / f"{FIRST}.log", d / LOG), {Kind.WRONG_SEGMENT}),
    ("swapped indexes", lambda d: swap(d / f"{FIRST}.index", d / f"{LAST}.index"), SWAPPED_INDEXES),
    ("swapped time index", lambda d: swap(d / f"{FIRST}.timeindex", d / f"{LAST}.timeindex"), {Kind.WRONG_TIME_ENTRY}),
    ("swapped aborted", lambda d: swap(d / f"{FIRST}.txnindex", d / f"{LAST}.txnindex"), {Kind.WRONG_ABORT}),
    ("swapped snapshots", lambda d: swap(d / f"{LAST}.snapshot", d / f"{END}.snapshot"), {Kind.WRONG_SNAPSHOT}),
    ("swapped windows", lambda d: swap(d / f"{LAST}.window", d / f"{END}.window"), {Kind.WRONG_WINDOW}),
    ("another's identity", lambda d: swap(d / "out-0" / IDENTITY, d / STATE / IDENTITY), {Kind.WRONG_IDENTITY}),
]  # fmt: skip


@pytest.mark.parametrize(("harm", "expected"), [harm[1:] for harm in HARMS], ids=[harm[0] for harm in HARMS])
def test_what_was_cut_removed_or_swapped_is_found_and_named(data: Path, harm: Harm, expected: set[Kind]) -> None:
    harm(data)
    found = kinds_in(data)
    assert found & expected, found
    related = {Kind.SHORT_TIME_INDEX, Kind.MISSING_ABORT, Kind.WRONG_SNAPSHOT, Kind.MISSING_OFFSETS}
    assert found <= expected | related, found


def test_a_segment_that_is_missing_in_the_middle_is_told_by_what_it_left(data: Path) -> None:
    (data / LOG).unlink()
    (found,) = [f for f in wrong_in(data) if f.kind == Kind.MISSING_SEGMENT]
    assert (found.path, found.offset) == (str(data / LOG), 18)


def test_a_segment_that_is_missing_with_its_indexes_is_told_by_the_gap(data: Path) -> None:
    for path in (data / "out-0").glob("00000000000000000018.*"):
        path.unlink()
    found = [f for f in wrong_in(data) if f.kind == Kind.MISSING_OFFSETS]
    assert [(f.offset, f.what) for f in found] == [(18, "offsets 18 to 35 are missing")]


def test_a_missing_first_segment_is_told_from_retention(data: Path) -> None:
    for path in (data / "out-0").glob("00000000000000000000.*"):
        path.unlink()
    assert kinds_in(data) == {Kind.MISSING_SEGMENT}
    (data / "log-start-offset-checkpoint").write_text("0\n1\nout 0 18\n")
    assert kinds_in(data) == set()


def test_a_missing_newest_segment_is_told_by_what_was_durable(data: Path) -> None:
    for path in (data / "out-0").glob("00000000000000000056.[lit]*"):
        path.unlink()
    assert Kind.SHORT_LOG in kinds_in(data)


def test_a_segment_cut_between_two_batches_is_told_by_what_was_durable(data: Path) -> None:
    path = data / f"{LAST}.log"
    path.write_bytes(path.read_bytes()[: headers_of(path)[-1][0]])
    assert Kind.SHORT_LOG in kinds_in(data)


# -- wrong although every checksum is right


def rewritten(path: Path, change: Callable[[list[bytes]], Iterator[bytes]]) -> None:
    """The batches of a segment, changed."""
    data = path.read_bytes()
    batches = [data[position : position + header.size_bytes] for position, header in whole_batches(data)]
    path.write_bytes(b"".join(change(batches)))


def test_a_batch_that_was_written_twice_and_one_that_skips_are_found(killed: Path) -> None:
    path = killed / f"{LAST}.log"
    base = headers_of(path)[-1][1] + 1

    def twice(batches: list[bytes]) -> Iterator[bytes]:
        yield from batches
        for number, sequence in enumerate((15, 18)):
            yield build_batch(
                [b"x"],
                base_timestamp_ms=1_700_000_007_001,
                base_offset=base + number,
                leader_epoch=0,
                producer_id=500,
                producer_epoch=0,
                base_sequence=sequence,
            )

    rewritten(path, twice)
    found = [(f.kind, f.offset) for f in wrong_in(killed)]
    assert found == [(Kind.REPEATED_SEQUENCE, base), (Kind.SEQUENCE_GAP, base + 1)]


def test_a_batch_of_a_fenced_producer_is_found(killed: Path) -> None:
    path = killed / f"{LAST}.log"
    base = headers_of(path)[-1][1] + 1

    def zombie(batches: list[bytes]) -> Iterator[bytes]:
        yield from batches
        yield build_batch(
            [b"x"],
            base_timestamp_ms=1_700_000_007_001,
            base_offset=base,
            leader_epoch=0,
            producer_id=1,
            producer_epoch=2,
            base_sequence=2,
            transactional=True,
        )

    rewritten(path, zombie)
    assert [(f.kind, f.offset) for f in wrong_in(killed)] == [(Kind.OLD_EPOCH, base)]


def test_records_that_cannot_be_read_behind_a_right_checksum_are_found_when_asked_for(killed: Path) -> None:
    path = killed / f"{LAST}.log"
    base = headers_of(path)[-1][1] + 1

    def nonsense(batches: list[bytes]) -> Iterator[bytes]:
        from semel.records.batch import set_crc

        yield from batches
        batch = build_batch([b"value"], base_timestamp_ms=1_700_000_007_001, base_offset=base, leader_epoch=0)
        batch[61] ^= 0x7E
        set_crc(batch)
        yield batch

    rewritten(path, nonsense)
    assert kinds_in(killed) == set()
    assert kinds_in(killed, opens_records=True) == {Kind.BAD_RECORDS}


# -- what a crash leaves


def test_half_a_batch_at_the_end_is_a_torn_write_after_a_crash_and_damage_after_a_clean_stop(
    data: Path, killed: Path
) -> None:
    for root, expected in ((killed, Kind.TORN_TAIL), (data, Kind.UNREADABLE)):
        path = root / f"{LAST}.log"
        end = len(path.read_bytes())
        path.write_bytes(path.read_bytes() + path.read_bytes()[:40])
        (found,) = [f for f in wrong_in(root) if f.path == str(path)]
        assert (found.kind, found.position, found.offset) == (expected, end, 65)


def test_what_will_be_cut_with_whole_batches_after_it_is_told(killed: Path) -> None:
    path = killed / f"{LAST}.log"
    position, offset = headers_of(path)[-3]
    flip(path, position + 62)
    (found,) = wrong_in(killed)
    assert (found.kind, found.position, found.offset) == (Kind.WILL_BE_CUT, position, offset)


def test_what_was_durable_is_damage_also_after_a_crash(killed: Path) -> None:
    (killed / "recovery-point-offset-checkpoint").write_text("0\n1\nout 0 65\n")
    path = killed / f"{LAST}.log"
    flip(path, headers_of(path)[-3][0] + 62)
    assert kinds_in(killed) == {Kind.BAD_BATCH}


def test_indexes_of_the_active_segment_may_be_missing_or_ahead_after_a_crash(killed: Path) -> None:
    for suffix, junk in ((".index", bytes(80)), (".timeindex", bytes(120)), (".txnindex", bytes(34))):
        (killed / f"{LAST}{suffix}").write_bytes(junk)
    assert kinds_in(killed) == set()


def test_beside_a_running_node_the_end_of_the_active_segment_is_only_noted(killed: Path) -> None:
    cut(killed / f"{LAST}.log", 10)
    assert kinds_in(killed, is_running=True) == set()
    assert Kind.GROWING_TAIL in {finding.kind for finding in found_in(killed, is_running=True)}


class Moving(RealFiles):
    """Files of a running node: at the first look one of them is on its way to somewhere else."""

    def __init__(self, path: Path, looks: int) -> None:
        self.path, self.looks = str(path), looks

    def list_dir(self, path: str) -> list[str]:
        names = super().list_dir(path)
        if os.path.dirname(self.path) == path and self.looks > 0:
            self.looks -= 1
            names.remove(os.path.basename(self.path))
        return names

    def open(self, path: str) -> ReadableFile:
        if path == self.path and self.looks < 0:
            raise FileNotFoundError(2, "gone", path)
        return super().open(path)


@pytest.mark.parametrize(("looks", "is_found"), [(1, False), (9, True)])
def test_beside_a_running_node_only_what_a_second_look_confirms_is_wrong(
    killed: Path, looks: int, is_found: bool
) -> None:
    findings = Findings()
    DirectoryCheck(Moving(killed / LOG, looks), str(killed), findings, is_running=True).partition(str(killed / "out-0"))
    assert (Kind.MISSING_SEGMENT in findings.kinds()) == findings.is_wrong == is_found


def test_a_segment_that_is_removed_while_a_node_runs_is_passed_over(killed: Path) -> None:
    findings = Findings()
    DirectoryCheck(Moving(killed / LOG, -1), str(killed), findings, is_running=True).partition(str(killed / "out-0"))
    assert not findings.is_wrong
    assert Kind.VANISHED in findings.kinds()


def test_a_compaction_that_was_decided_is_checked_as_if_it_were_done(data: Path) -> None:
    work = data / "out-0/compacting"
    work.mkdir()
    names = [path.name for path in (data / "out-0").glob("00000000000000000018.[lit]*")]
    for name in names:
        (data / "out-0" / name).rename(work / name)
    manifest = {"old_bases": [18], "new_files": names}
    (data / "out-0/compaction-swap.json").write_text(json.dumps(manifest))
    assert {finding.kind for finding in found_in(data)} == {Kind.SWAP_UNDER_WAY}
    flip(work / "00000000000000000018.log", 70)
    assert [f.path for f in wrong_in(data)] == [str(work / "00000000000000000018.log")]
    (data / "out-0/compaction-swap.json").write_text("{")
    assert Kind.BAD_MANIFEST in kinds_in(data)


# -- metadata


def test_damage_in_the_metadata_log_is_found_like_any_other(data: Path) -> None:
    flip(data / "__cluster_metadata-0/00000000000000000000.log", 70)
    assert kinds_in(data) == {Kind.BAD_BATCH}


def test_a_snapshot_of_the_metadata_without_its_end_is_found(data: Path) -> None:
    path = data / "__cluster_metadata-0/00000000000000000005-0000000000.checkpoint"
    path.write_bytes(build_batch([b"x"], base_timestamp_ms=0, control=True, keys=[b"\0\0\0\3"]))
    assert kinds_in(data) == set(), "a header that is the footer too: as short as one can be"
    path.write_bytes(build_batch([b"x"], base_timestamp_ms=0))
    assert kinds_in(data) == {Kind.BAD_METADATA_SNAPSHOT}


def test_a_directory_of_no_topic_is_noted(data: Path) -> None:
    shutil.copytree(data / "out-0", data / "stranger-0")
    found = found_in(data)
    assert Kind.STRANGER in {finding.kind for finding in found}


def test_a_partition_that_was_copied_alone_is_checked_by_what_it_has(data: Path, tmp_path: Path) -> None:
    alone = Path(shutil.copytree(data / "out-0", tmp_path / "alone" / "out-0"))
    findings = Findings()
    assert check_partition(open_partition(RealFiles(), str(alone)), findings) == 65
    assert list(findings) == []
    cut(alone / "00000000000000000056.timeindex", 12)
    check_partition(open_partition(RealFiles(), str(alone)), findings)
    assert findings.kinds() == {Kind.SHORT_TIME_INDEX}


def test_every_kind_of_finding_has_a_meaning_of_its_own() -> None:
    assert len({kind.meaning for kind in Kind}) == len(Kind.__members__), "equal values would be one kind"
    assert all(kind.severity in Severity and kind.meaning.endswith(".") for kind in Kind)
