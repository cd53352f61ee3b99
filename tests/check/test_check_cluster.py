"""`semel check` on a cluster of its own: nodes are killed, paused and cut off; then all replicas must be equal."""

from __future__ import annotations

import json
import shutil
import tempfile
from argparse import Namespace
from pathlib import Path

import pytest

from semel.cli.check import _compare_nodes
from semel.cli.failures import Exit
from semel.cli.main import main
from semel.log.inspection.findings import Kind
from semel.sim.history import Finish, History, Note, Outcome
from slow_turns import check_turns


@pytest.mark.alone
def test_three_nodes_stand_kills_pauses_and_cuts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = tmp_path / "kept"
    remove = shutil.rmtree

    def keep(path: Path) -> None:
        shutil.copytree(path, kept)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", keep)
    history_path = tmp_path / "history.jsonl"
    arguments = ["--cluster", "local", "--nodes", "3", "--faults", "kill,pause,cut", "--seconds", "18"]
    code = main(["check", "--json", "--history", str(history_path), *arguments])
    document = json.loads(capsys.readouterr().out)
    assert code == Exit.OK, document
    assert set(document["faults"]) <= {"kill", "pause", "cut"}
    assert len(document["faults"]) >= 2, "a start takes long on a busy machine; each kind comes once in a round"
    assert sum(document["struck"].values()) >= 2
    assert document["counts"]["written"] > 50
    assert document["counts"]["committed"] > 0
    assert document["replicas"]["nodes"] == 3
    assert document["replicas"]["offsets"] > 100
    assert document["replicas"]["wrong"] == []
    operations = History.from_lines(history_path.read_text().splitlines()).operations
    (in_sync,) = [one for one in operations if isinstance(one, Finish) and one.place == "all replicas"]
    assert in_sync.outcome is Outcome.OK
    assert any(isinstance(one, Note) and one.text == "everything is healed" for one in operations)
    check_turns((kept / "cluster").glob("node-*.log"))
    _is_found_when_one_replica_lacks_records(kept / "cluster")


def _is_found_when_one_replica_lacks_records(cluster: Path) -> None:
    """The verdict is worth what it finds: the bytes of one batch are changed on one node."""
    directories = [cluster / name for name in ("node-1", "node-2", "node-3")]
    check = Namespace(directories=directories)
    compared = _compare_nodes(check)  # type: ignore[arg-type]
    assert compared is not None
    assert not compared.findings.is_wrong
    (log,) = directories[1].glob("check-*-records-0/00000000000000000000.log")
    content = bytearray(log.read_bytes())
    content[17:21] = bytes(byte ^ 0xFF for byte in content[17:21])  # the CRC of the first batch
    log.write_bytes(content)
    compared = _compare_nodes(check)  # type: ignore[arg-type]
    assert compared is not None
    assert Kind.DIFFERENT_BATCH in compared.findings.kinds() or Kind.MISSING_BATCH in compared.findings.kinds()
    assert compared.wrong()
