"""Two replicas beside each other: what must be the same, from where to where, and what is no difference."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.cli.main import main
from semel.log.checkpoints import LOG_STARTS, encode_checkpoint
from semel.log.inspection.files import RealFiles
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.replicas import Compared, compare, open_replica
from semel.records.batch import set_base_offset, set_leader_epoch
from semel.records.build import build_batch
from semel.records.control import ControlType, control_batch

NOW_MS = 1_700_000_000_000


def _batch(offset: int, *values: bytes, epoch: int = 3) -> bytes:
    made = build_batch(list(values), base_timestamp_ms=NOW_MS)
    set_base_offset(made, offset)
    set_leader_epoch(made, epoch)
    return bytes(made)


def _keyed(offset: int, *records: tuple[bytes, bytes | None], producer: int = -1) -> bytes:
    made = build_batch(
        [value for _, value in records],
        keys=[key for key, _ in records],
        base_timestamp_ms=NOW_MS,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )
    set_base_offset(made, offset)
    return bytes(made)


def _marker(offset: int, kind: ControlType, producer: int) -> bytes:
    made = control_batch(kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)
    set_base_offset(made, offset)
    return bytes(made)


def _partition(directory: Path, *segments: list[bytes]) -> Path:
    """Each segment begins at the base offset of its first batch."""
    directory.mkdir(parents=True)
    for batches in segments:
        base = int.from_bytes(batches[0][:8], "big")
        (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    return directory


def _compared(
    one: Path,
    other: Path,
    *,
    starts: tuple[int, int] = (0, 0),
    watermarks: tuple[int | None, int | None] = (None, None),
    is_compacted: bool = False,
) -> tuple[Compared, Findings]:
    findings, files = Findings(), RealFiles()
    replicas = [
        open_replica(files, str(directory), start=start, high_watermark=watermark)
        for directory, start, watermark in zip((one, other), starts, watermarks, strict=True)
    ]
    compared = compare(replicas[0], replicas[1], findings, is_compacted=is_compacted, progress=lambda _: None)
    return compared, findings


BATCHES = [_batch(0, b"a", b"b"), _batch(2, b"c"), _batch(3, b"d"), _batch(4, b"e", b"f")]


def test_the_same_batches_in_other_segments_are_the_same(tmp_path: Path) -> None:
    one = _partition(tmp_path / "1" / "t-0", BATCHES[:2], BATCHES[2:])
    other = _partition(tmp_path / "2" / "t-0", BATCHES[:3], BATCHES[3:])
    compared, findings = _compared(one, other)
    assert compared == (0, 6)
    assert not list(findings)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (_batch(2, b"c", epoch=4), "its leader epoch is 3 here and 4 in"),
        (_batch(2, b"x"), "its records are others"),
        (_batch(2, b"c", b"d"), "its last offset is 2 here and 3 in"),
    ],
)
def test_a_batch_that_differs_is_told_with_its_place(tmp_path: Path, changed: bytes, told: str) -> None:
    one = _partition(tmp_path / "1" / "t-0", BATCHES)
    other = _partition(tmp_path / "2" / "t-0", [BATCHES[0], changed, *BATCHES[2:]])
    _, findings = _compared(one, other)
    first = next(iter(findings))
    assert first.kind is Kind.DIFFERENT_BATCH
    assert told in first.what
    assert (first.offset, first.position) == (2, len(BATCHES[0]))


@pytest.mark.parametrize("is_first", [False, True])
def test_a_batch_that_one_of_them_lacks_is_told_once(tmp_path: Path, is_first: bool) -> None:
    whole = _partition(tmp_path / "1" / "t-0", BATCHES)
    holed = _partition(tmp_path / "2" / "t-0", [BATCHES[0], BATCHES[1], BATCHES[3]])
    _, findings = _compared(*((holed, whole) if is_first else (whole, holed)))
    (found,) = findings
    assert (found.kind, found.offset) == (Kind.MISSING_BATCH, 3)
    assert str(holed) in found.what


def test_what_lies_below_the_larger_log_start_is_not_compared(tmp_path: Path) -> None:
    one = _partition(tmp_path / "1" / "t-0", [_batch(0, b"x", b"y"), BATCHES[1]], BATCHES[2:])
    other = _partition(tmp_path / "2" / "t-0", BATCHES[:2], BATCHES[2:])
    assert _compared(one, other)[1].is_wrong
    compared, findings = _compared(one, other, starts=(0, 3))
    assert compared == (3, 6)
    assert not findings.is_wrong


def test_what_lies_above_the_high_watermark_is_not_compared(tmp_path: Path) -> None:
    one = _partition(tmp_path / "1" / "t-0", BATCHES)
    other = _partition(tmp_path / "2" / "t-0", [*BATCHES[:3], _batch(4, b"other", b"tail", epoch=2)])
    assert _compared(one, other)[1].is_wrong
    compared, findings = _compared(one, other, watermarks=(4, 3))
    assert compared == (0, 4), "what one of them knows to be below it is"
    assert not list(findings)
    assert _compared(one, other, watermarks=(4, 6))[1].is_wrong


def test_a_follower_that_lags_is_a_note(tmp_path: Path) -> None:
    one = _partition(tmp_path / "1" / "t-0", BATCHES)
    other = _partition(tmp_path / "2" / "t-0", BATCHES[:2])
    compared, findings = _compared(one, other, watermarks=(6, 3))
    assert compared == (0, 3)
    assert [finding.kind for finding in findings] == [Kind.BEHIND]
    assert not findings.is_wrong


def test_damage_in_either_of_them_is_told(tmp_path: Path) -> None:
    for name in ("1", "2"):
        directory = _partition(tmp_path / name / "t-0", BATCHES)
    damaged = directory / f"{0:020d}.log"
    data = bytearray(damaged.read_bytes())
    data[len(BATCHES[0]) + 65] ^= 1
    damaged.write_bytes(data)
    _, findings = _compared(tmp_path / "1" / "t-0", directory)
    assert Kind.BAD_BATCH in findings.kinds()


# -- compacted

A, B, C = b"a", b"b", b"c"


def _same_keys(tmp_path: Path, one: list[bytes], other: list[bytes]) -> list[str]:
    _, findings = _compared(
        _partition(tmp_path / "1" / "t-0", one), _partition(tmp_path / "2" / "t-0", other), is_compacted=True
    )
    assert {finding.kind for finding in findings} <= {Kind.DIFFERENT_KEY, Kind.BEHIND}
    return [finding.what for finding in findings if finding.is_wrong]


END = _keyed(9, (b"end", b"end"))


def test_a_compacted_replica_has_the_same_latest_record_of_each_key(tmp_path: Path) -> None:
    written = [_keyed(0, (A, b"1"), (B, b"1")), _keyed(2, (A, b"2")), END]
    assert _same_keys(tmp_path, written, [_keyed(1, (B, b"1")), _keyed(2, (A, b"2")), END]) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ([_keyed(1, (B, b"1")), _keyed(2, (A, b"other"))], "another value"),
        ([_keyed(0, (A, b"2")), _keyed(1, (B, b"1"))], "has offset 2 here and 0 in"),
        ([_keyed(1, (B, b"1"))], "key 'a' has a record here, and none in"),
        ([_keyed(1, (B, b"1")), _keyed(2, (A, b"2")), _keyed(3, (C, b"1"))], "key 'c' has a record here, and none in"),
    ],
)
def test_another_latest_record_of_a_key_is_told(tmp_path: Path, other: list[bytes], told: str) -> None:
    written = [_keyed(0, (A, b"1"), (B, b"1")), _keyed(2, (A, b"2")), END]
    (what,) = _same_keys(tmp_path, written, [*other, END])
    assert told in what


def test_a_tombstone_is_as_good_as_nothing(tmp_path: Path) -> None:
    written = [_keyed(0, (A, b"1")), _keyed(1, (A, None)), END]
    assert _same_keys(tmp_path, written, [END]) == []


def test_what_was_aborted_counts_nowhere(tmp_path: Path) -> None:
    written = [_keyed(0, (A, b"1")), _keyed(1, (A, b"aborted"), producer=7), _marker(2, ControlType.ABORT, 7), END]
    assert _same_keys(tmp_path, written, [_keyed(0, (A, b"1")), END]) == []
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    written[2] = _marker(2, ControlType.COMMIT, 7)
    assert _same_keys(tmp_path, written, [_keyed(0, (A, b"1")), END]) != []


# -- the command

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str]:
        code = main(["log", "check", *(str(argument) for argument in arguments)])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


def _node(root: Path, batches: list[bytes], *, topic_id: str = "A" * 22, watermark: int | None = None) -> Path:
    partition = _partition(root / "t-0", batches)
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    (root / LOG_STARTS).write_bytes(encode_checkpoint({("t", 0): 0}))
    if watermark is not None:
        (root / "replication-offset-checkpoint").write_bytes(encode_checkpoint({("t", 0): watermark}))
    return root


def test_the_command_compares_what_both_nodes_have(tmp_path: Path, run: Run) -> None:
    one, other = _node(tmp_path / "1", BATCHES), _node(tmp_path / "2", BATCHES)
    _partition(one / "elsewhere-0", BATCHES)
    code, printed = run(one, "--against", other)
    assert code == 0
    assert "NOTE     no-replica: elsewhere-0" in printed
    assert "no damage in 1 partition, 6 offsets" in printed
    shutil.rmtree(other)
    _node(other, [*BATCHES[:3], _batch(4, b"e", b"x")])
    code, printed = run(one, "--against", other)
    assert code == 1
    assert "DAMAGE   different-batch: t-0/00000000000000000000.log" in printed
    assert "1 thing wrong" in printed
    code, printed = run(one / "t-0", "--against", other / "t-0")
    assert code == 1


def test_the_command_goes_by_the_checkpoints_of_high_watermarks(tmp_path: Path, run: Run) -> None:
    one = _node(tmp_path / "1", BATCHES, watermark=4)
    other = _node(tmp_path / "2", [*BATCHES[:3], _batch(4, b"e", b"x")], watermark=2)
    code, printed = run(one, "--against", other)
    assert code == 0
    assert "4 offsets" in printed
    code, printed = run(one / "t-0", "--against", other / "t-0")
    assert code == 0


def test_a_topic_that_was_made_again_is_not_compared(tmp_path: Path, run: Run) -> None:
    one, other = _node(tmp_path / "1", BATCHES), _node(tmp_path / "2", [_batch(0, b"z")], topic_id="B" * 22)
    code, printed = run(one, "--against", other)
    assert code == 1
    assert "other-topic" in printed
    assert "different-batch" not in printed


def test_other_partitions_and_no_directories_are_refused(tmp_path: Path, run: Run) -> None:
    one = _partition(tmp_path / "1" / "t-0", BATCHES)
    other = _partition(tmp_path / "2" / "u-0", BATCHES)
    assert run(one, "--against", other)[0] == 2
    assert run(one, "--against", tmp_path / "3")[0] == 3
