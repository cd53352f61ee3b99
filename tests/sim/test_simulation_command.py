"""`semel sim`: one seed told, many explored, a broken promise cut down to what can be replayed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import simulated_bugs

from semel.cli.main import main
from semel.sim.history import History, Send

QUICK = 15
PATCH = ["--patch", "simulated_bugs:plant_stable_offset_too_high"]


def test_one_seed_is_told_from_start_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    assert main(["sim", "--seed", str(QUICK), "--history", str(file)]) == 0
    told = capsys.readouterr().out
    history = History.from_lines(file.read_text().splitlines())
    send = next(operation for operation in history.operations if isinstance(operation, Send) and operation.is_ok)
    for text in ("is up", "everything is healed", "has acknowledged", f"{send.value} at {send.offset}", "was kept"):
        assert text in told
    assert main(["check", "--judge", str(file)]) == 0


def test_brief_leaves_the_records_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", str(QUICK), "--brief"]) == 0
    told = capsys.readouterr().out
    assert "everything is healed" in told
    assert "acknowledged" not in told


def test_the_same_seed_tells_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    documents = []
    for _ in range(2):
        assert main(["sim", "--seed", str(QUICK), "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    assert documents[0]["violations"] == []


def test_many_seeds_are_explored_in_processes_with_their_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "26..29", "--jobs", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == 4
    assert document["seeds"] == "26..29"
    assert document["found"] is None
    assert document["simulated_hours_per_second"] > 0
    assert document["coverage"]["faults"]["seen"] > 0


def test_what_was_found_is_shrunk_and_the_replay_finds_it_again() -> None:
    """In a process of its own, so that the planted bug ends with it."""

    def semel(*arguments: str) -> tuple[int, str]:
        program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        program += "from semel.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments, *PATCH, "--json"], capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout

    code, told = semel("sim", "--seeds", "1..10")
    assert code == 1
    found = json.loads(told)
    replay = shlex.split(found["replay"])
    assert replay[:4] == ["semel", "sim", "--seed", str(found["found"])]
    assert len(replay) > 4, "something could be left out"
    code, told = semel(*replay[1:])
    assert code == 1
    kinds = {violation["kind"] for violation in found["violations"]}
    assert kinds & {violation["kind"] for violation in json.loads(told)["violations"]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seeds", "9..1"],
        ["--seeds", "some"],
        ["--seeds", "1..2", "--jobs", "0"],
        ["--seed", "1", "--strikes", "a"],
        ["--seed", "1", "--seconds", "0"],
        ["--seed", "1", "--without", "everybody"],
    ],
)
def test_a_wrong_call_is_refused_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *arguments]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert "allowed" in told.err


def test_every_planted_bug_can_be_given_as_a_patch() -> None:
    assert all(callable(getattr(simulated_bugs, f"plant_{plant.__name__}")) for plant in simulated_bugs.BUGS.values())
