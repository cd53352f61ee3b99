"""`semel log`: what it prints for people and programs, its exit codes, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import log_story
from inspection_samples import SMALL, V2, Node, batch_of, cut, directory_of, flip, started, with_transactions

from semel.cli.main import main
from semel.records.batch import set_leader_epoch
from semel.records.build import build_batch
from semel.records.compression import Codec

SEGMENT = "payments-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logging.disable(logging.CRITICAL)  # that the replaced till is refused is part of the story
    try:
        directory = tmp_path_factory.mktemp("story")
        log_story.made(directory)
        return directory
    finally:
        logging.disable(logging.NOTSET)


@pytest.fixture
def data(told: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(told / "data", tmp_path / "data"))


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["log", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Any]:
    code, out, _ = said(capsys, *arguments, "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_the_page_shows_what_the_commands_print(told: Path) -> None:
    page = log_story.PAGE.read_text()
    assert len(log_story.commands_of(page)) >= 6
    assert log_story.refreshed(page, told) == page, "run tests/unit/cli/log_story.py"


# -- dump


def test_a_dump_tells_what_became_of_each_transaction(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = lines_of(capsys, "dump", data / "payments-0")
    told = [(one["base_offset"], one["transaction"] or one["marker"]["type"]) for one in batches]
    assert told == [
        (0, "committed"),
        (1, "committed"),
        (2, "COMMIT"),
        (3, "aborted"),
        (4, "ABORT"),
        (5, "aborted"),
        (6, "ABORT"),
        (7, "committed"),
        (8, "COMMIT"),
        (9, "open"),
    ]
    first, marker = batches[0], batches[2]
    assert (first["producer_id"], first["producer_epoch"], first["base_sequence"], first["codec"]) == (0, 0, 0, "none")
    assert (first["position"], first["bytes"], first["records"], first["problem"]) == (0, 78, 1, None)
    assert (marker["is_control"], marker["marker"]["coordinator_epoch"], marker["base_sequence"]) == (True, 0, -1)


def test_a_segment_a_directory_and_a_topic_of_a_data_directory_are_the_same_log(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [[data / SEGMENT], [data / "payments-0"], [f"{data}/", "--topic", "payments"]]
    ways.append([data, "--topic", "payments", "--partition", "0"])
    answers = [lines_of(capsys, "dump", *way) for way in ways]
    assert [[one["base_offset"] for one in answer] for answer in answers] == [list(range(10))] * 4


def test_a_dump_begins_and_ends_where_it_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = lines_of(capsys, "dump", data / "payments-0", "--from", 3, "--count", 2)
    assert [(one["base_offset"], one["transaction"]) for one in some] == [(3, "aborted"), (4, None)]
    assert lines_of(capsys, "dump", data / "payments-0", "--from", 99) == []


def test_keys_values_and_headers_are_shown_as_text_or_hex_and_shortened(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = build_batch(
        [b"x" * 100, b"\xff\x00", None, b"esc\x1b[2J"],
        keys=[b"key", None, b"", "naïve".encode()],
        headers=[[("trace", b"\x01"), ("none", None)], [], [], []],
        base_timestamp_ms=1_700_000_000_000,
        timestamps_ms=[1_700_000_000_000 + n for n in range(4)],
        base_offset=10,
        codec=Codec.ZSTD,
    )
    with (data / SEGMENT).open("ab") as file:
        file.write(batch)
    code, out, _ = said(capsys, "dump", data / "payments-0", "--from", 10, "--records")
    assert code == 0
    shown = [line.strip() for line in out.splitlines()[-4:]]
    whole = f'10  2023-11-14T22:13:20.000Z  key "key"  value "{"x" * 59}... (100 bytes)'
    assert shown[0] == f"{whole}  header trace=0x01  header none=null"
    assert shown[1] == "11  2023-11-14T22:13:20.001Z  key null  value 0xff00"
    assert shown[2] == '12  2023-11-14T22:13:20.002Z  key ""  value null'
    assert shown[3] == '13  key "naïve"  value 0x6573631b5b324a', "no control character reaches the terminal"
    assert "zstd" in out
    _, out, _ = said(capsys, "dump", data / "payments-0", "--from", 10, "--records", "--full")
    assert "x" * 100 in out
    (line,) = lines_of(capsys, "dump", data / "payments-0", "--from", 10, "--records")
    assert line["record_list"][0]["headers"] == [["trace", "\x01"], ["none", None]]
    assert line["record_list"][1] == {
        "offset": 11,
        "timestamp_ms": 1_700_000_000_001,
        "key": None,
        "value": {"base64": "/wA="},
        "headers": [],
    }


def test_the_coordinators_records_are_decoded_when_asked_for(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, "dump", data, "--topic", "__transaction_state", "--decode")
    values = [one["record_list"][0]["decoded"]["value"] for one in lines]
    states = [value["transaction_status"] for value in values]
    assert states[:7] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
    ]
    assert values[1]["transaction_partitions"] == [{"topic": "payments", "partition_ids": [0]}]
    assert {one["record_list"][0]["decoded"]["key"]["transactional_id"] for one in lines} == {"till"}
    _, out, _ = said(capsys, "dump", data / "__cluster_metadata-0", "--decode")
    assert 'TopicRecord(name="payments", topic_id="' in out


def test_group_records_are_decoded_and_what_cannot_be_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from semel.wire.spec.group_records import OffsetCommitKey, OffsetCommitValue, key_bytes, value_bytes

    key = key_bytes(OffsetCommitKey(group="readers", topic="payments", partition=0))
    value = value_bytes(OffsetCommitValue(offset=42, leader_epoch=0, metadata="", commit_timestamp=1))
    batch = build_batch([value, None, b"?"], keys=[key, key, b"\x7f"], base_timestamp_ms=0)
    (data / "__consumer_offsets-0").mkdir()
    (data / "__consumer_offsets-0/00000000000000000000.log").write_bytes(batch)
    _, out, _ = said(capsys, "dump", data, "--topic", "__consumer_offsets", "--decode")
    shown = [line.strip() for line in out.splitlines()[-3:]]
    assert shown[0].startswith(
        '0  OffsetCommitKey(group="readers", topic="payments", partition=0) -> OffsetCommitValue('
    )
    assert "offset=42" in shown[0]
    assert shown[1].endswith("-> removed")
    assert shown[2].startswith("2  (not decoded: ")


def test_indexes_producers_and_aborted_transactions_are_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aborted = lines_of(capsys, "dump", data / "payments-0", "--aborted")
    assert [(one["producer_id"], one["first_offset"], one["last_offset"]) for one in aborted] == [(0, 3, 4), (0, 5, 6)]
    (producer,) = lines_of(capsys, "dump", data / "payments-0", "--producers")
    assert (producer["epoch"], producer["last_offset"], producer["transaction_first_offset"]) == (5, 9, 9)
    (entry,) = lines_of(capsys, "dump", data / "payments-0", "--indexes")
    assert (entry["offset"], entry["timestamp_ms"]) == (9, 1_700_000_010_000)
    assert "OPEN SINCE" in said(capsys, "dump", data / "payments-0", "--producers")[1]
    assert "2023-11-14T22:13:30.000Z" in said(capsys, "dump", data / "payments-0", "--indexes")[1]
    assert said(capsys, "dump", data / "__transaction_state-0", "--aborted")[2] == "there are no entries\n"


def test_an_abort_that_is_not_in_an_index_yet_is_found_in_the_log(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = data / SEGMENT.replace(".log", ".txnindex")
    whole = index.read_bytes()
    assert "not in its index yet" not in said(capsys, "dump", data / "payments-0", "--aborted")[2]
    indexed = lines_of(capsys, "dump", data / "payments-0", "--aborted")
    for kept in (1, 0):  # as beside a node that runs: it writes the index when the segment is full, or it stops
        index.write_bytes(whole[: kept * len(whole) // 2])
        found = lines_of(capsys, "dump", data / "payments-0", "--aborted")
        assert [{**one, "file": ""} for one in found] == [{**one, "file": ""} for one in indexed]
        assert [one["file"].rpartition(".")[2] for one in found] == ["txnindex"] * kept + ["log"] * (2 - kept)
    code, out, err = said(capsys, "dump", data / "payments-0", "--aborted")
    assert code == 0
    assert f"{data / SEGMENT}\nPRODUCER" in out
    assert "those of a .log are not in its index yet" in err


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_an_abort_in_the_active_segment_is_told_with_the_offset_in_an_earlier_one_where_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has_snapshots: bool
) -> None:
    async def abort_late(node: Node) -> None:
        client = await with_transactions(node, configs=SMALL)
        late, other = await started(client, V2, "late"), await started(client, V2, "other")
        assert await late.write(b"early") == 0
        assert await other.write(b"open") == 0
        for _ in range(20):
            await client.produce("out", batch_of(b"x" * 200))
        assert await late.abort() == 0

    stopped = directory_of(abort_late, tmp_path / "stopped")
    killed = directory_of(abort_late, tmp_path / "killed", stops=False)
    if not has_snapshots:
        for path in (killed / "out-0").glob("*.snapshot"):
            path.unlink()
    assert len(list((killed / "out-0").glob("*.log"))) > 2
    assert list((killed / "out-0").glob("*.txnindex")) == []
    (indexed,) = lines_of(capsys, "dump", stopped / "out-0", "--aborted")
    (found,) = lines_of(capsys, "dump", killed / "out-0", "--aborted")
    assert found | {"file": ""} == indexed | {"file": ""}
    assert (found["first_offset"], found["last_stable_offset"]) == (0, 1)


def test_fields_whose_value_is_zero_or_false_are_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from semel.wire.spec.group_records import OffsetCommitKey, OffsetCommitValue, key_bytes, value_bytes

    key = key_bytes(OffsetCommitKey(group="readers", topic="payments", partition=0))
    value = value_bytes(OffsetCommitValue(offset=0, leader_epoch=0, metadata="", commit_timestamp=0))
    (data / "__consumer_offsets-0").mkdir()
    batch = build_batch([value], keys=[key], base_timestamp_ms=0)
    (data / "__consumer_offsets-0/00000000000000000000.log").write_bytes(batch)
    _, out, _ = said(capsys, "dump", data, "--topic", "__consumer_offsets", "--decode")
    for shown in ("offset=0", "leader_epoch=0", "commit_timestamp=0"):
        assert shown in out
    _, out, _ = said(capsys, "dump", data, "--topic", "__transaction_state", "--decode", "--count", 1)
    for shown in ("producer_id=0", "producer_epoch=0"):
        assert shown in out
    _, out, _ = said(capsys, "dump", data / "__cluster_metadata-0", "--decode")
    for shown in ("partition_id=0", "fenced=false", "leader_epoch=0", "partition_epoch=0"):
        assert shown in out, out


def test_a_dump_goes_on_behind_a_bad_batch(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data / SEGMENT, 78 + 70)
    flip(data / SEGMENT, 232 + 16)
    lines = lines_of(capsys, "dump", data / "payments-0")
    assert [one.get("base_offset") for one in lines] == [0, 1, 2, None, 4, 5, 6, 7, 8, 9]
    assert "CRC" in lines[1]["problem"]
    assert "magic" in lines[3]["problem"]
    _, out, _ = said(capsys, "dump", data / "payments-0")
    assert "BAD: its CRC-32C does not match" in out
    assert "UNREADABLE: magic 3" in out


def test_a_segment_is_followed_into_the_next_ones_for_what_became_of_its_transactions(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (data / SEGMENT).read_bytes()
    (data / SEGMENT).write_bytes(whole[:310])
    (data / "payments-0/00000000000000000004.log").write_bytes(whole[310:])
    assert lines_of(capsys, "dump", data / SEGMENT)[-1]["transaction"] == "aborted"
    (data / "payments-0/00000000000000000004.log").unlink()
    assert lines_of(capsys, "dump", data / SEGMENT)[-1]["transaction"] == "open"


def test_a_long_log_is_shown_in_one_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = bytearray()
    for offset in range(1200):
        batch = build_batch([b"v"], base_timestamp_ms=0, base_offset=offset)
        set_leader_epoch(batch, 0)
        batches += batch
    (data / SEGMENT).write_bytes(batches)
    _, out, _ = said(capsys, "dump", data / SEGMENT)
    lines = out.splitlines()
    assert len(lines) == 1202
    assert sum("OFFSETS" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["dump", "{data}"], 2, "choose one with --topic and --partition (__cluster_metadata-0,"),
        (["dump", "{data}/nothing"], 3, "is not there"),
        (["dump", "{data}", "--topic", "nothing"], 3, "no record of that partition"),
        (["dump", "{data}/payments-0", "--partition", "1"], 2, "--partition needs --topic"),
        (["dump", "{data}/payments-0/partition.metadata"], 2, "is not a segment"),
        (["dump", "{data}/payments-0", "--from", "x"], 2, "is not a number from 0 on"),
        (["check", "{data}/nothing"], 3, "is not a directory"),
        (["check", "{data}/empty"], 2, "it holds no log"),
    ],
)
def test_a_wrong_call_is_told_in_a_sentence(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    (data / "empty").mkdir()
    try:
        found, out, err = said(capsys, *[argument.format(data=data) for argument in arguments])
    except SystemExit as exit:
        found, out, err = int(str(exit.code)), "", capsys.readouterr().err
    assert (found, out) == (code, "")
    assert words in err
    assert len(err.splitlines()) == 1


# -- check


def test_a_check_of_what_is_right_says_so(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "check", data) == (0, "no damage in 3 partitions, 3,646 bytes\n", "")
    code, out, _ = said(capsys, "check", data / "payments-0", "--records")
    assert (code, out) == (0, "no damage in 1 partition, 773 bytes\n")


def test_a_check_says_what_is_wrong_where_and_what_follows(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data / SEGMENT, 78 + 70)
    code, out, _ = said(capsys, "check", data)
    assert code == 1
    assert f"DAMAGE   bad-batch: {SEGMENT}, byte 78, offset 1\n         its CRC-32C does not match\n" in out
    assert "a node keeps the bytes and does not serve them" in " ".join(out.split())
    assert out.endswith("1 thing wrong in 3 partitions, 3,646 bytes\n")
    code, out, _ = said(capsys, "check", data, "--json")
    document = json.loads(out)
    assert (code, document["is_wrong"]) == (1, True)
    wrong = [finding for finding in document["findings"] if finding["severity"] != "note"]
    assert [(one["kind"], one["position"], one["offset"]) for one in wrong] == [("bad-batch", 78, 1)]


def test_many_findings_of_a_kind_are_counted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for position in (0, 78, 154, 232, 310, 388, 464):
        flip(data / SEGMENT, position + 70)
    code, out, _ = said(capsys, "check", data)
    assert code == 1
    assert f"and 2 more bad-batch in {SEGMENT}" in out
    assert "7 things wrong" in out


def snapshot_of(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        facts = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, content)
    return found


def test_nothing_in_the_directory_changes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data / SEGMENT, 100)
    cut(data / "payments-0/00000000000000000000.txnindex")
    cut(data / "__transaction_state-0/00000000000000000000.log", 5)
    before = snapshot_of(data)
    assert said(capsys, "check", data, "--records")[0] == 1
    for more in ([], ["--records"], ["--indexes"], ["--producers"], ["--aborted"]):
        assert said(capsys, "dump", data / "payments-0", *more)[0] == 0
    assert snapshot_of(data) == before


def test_every_file_is_opened_for_reading_only(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really, flags_seen = os.open, []

    def watched(path: Any, flags: int, *more: Any, **named: Any) -> int:
        flags_seen.append(flags)
        return really(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", watched)
    assert main(["log", "check", str(data)]) == 0
    assert flags_seen
    assert all(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) == 0 for flags in flags_seen)


def test_a_running_node_is_noticed_by_its_lock(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from semel.host.real_disk import RealDisk

    (data / ".kafka_cleanshutdown").unlink()
    disk = RealDisk()
    lock = disk.lock(str(data / ".lock"))
    try:
        with (data / SEGMENT).open("ab") as file:
            file.write(b"\0" * 20)  # as if it were writing at this moment
        code, out, err = said(capsys, "check", data)
        assert code == 0
        assert "a node is at work" in err
        assert "NOTE     growing-tail" in out
    finally:
        lock.close()
        disk.close()
    code, out, err = said(capsys, "check", data)
    assert (code, err) == (1, "")
    assert "WARNING  torn-tail" in out


def test_neither_asyncio_nor_the_client_is_loaded_to_look_into_files(data: Path) -> None:
    program = (
        "import sys; from semel.cli.main import main\n"
        f"main(['log', 'check', {str(data)!r}]); main(['log', 'dump', {str(data / 'payments-0')!r}])\n"
        "print(sorted({'asyncio', 'semel.client', 'semel.broker', 'semel.host.real'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# -- what is advised


@pytest.mark.parametrize(
    ("harmed", "advised"),
    [
        (".txnindex", "cut .txnindex"),
        (".timeindex", "remove .timeindex"),
        (".index", "remove .index .timeindex"),
        (".snapshot", "remove .snapshot .window"),
        (".window", "remove .window"),
        ("leader-epoch-checkpoint", "remove leader-epoch-checkpoint"),
    ],
)
def test_what_is_advised_mends_it(data: Path, harmed: str, advised: str, capsys: pytest.CaptureFixture[str]) -> None:
    partition = data / "payments-0"
    (path,) = [path for path in partition.iterdir() if path.name.endswith(harmed)]
    if not path.read_bytes():
        path.write_bytes(bytes(8))  # an entry that points nowhere
    flip(path, len(path.read_bytes()) - 2)
    assert said(capsys, "check", data)[0] == 1
    act, *names = advised.split()
    for name in names:
        for path in [path for path in partition.iterdir() if path.name.endswith(name)]:
            if act == "cut":
                cut(path)
            else:
                path.unlink()
    restarted(partition)
    code, out, _ = said(capsys, "check", data)
    assert (code, out) == (0, "no damage in 3 partitions, 3,646 bytes\n")


def restarted(partition: Path) -> None:
    """A start after a clean stop, and a clean stop, of this log alone."""
    from semel.config import BrokerConfig, topic_config
    from semel.host.real_disk import RealDisk
    from semel.log.recovery import load_log

    async def whole() -> None:
        disk = RealDisk()
        config = topic_config({}, BrokerConfig())
        log, _ = load_log(
            disk, str(partition), config, recovery_point=10, start_offset=0, now_ms=1_700_000_020_000, was_clean=True
        )
        log.close()
        disk.close()

    asyncio.run(whole())
