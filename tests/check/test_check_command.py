"""`semel check` as people call it: on a running broker, on nodes of its own under attack, and called wrongly."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from planted_bugs import BUGS
from real_broker import Brokers, clean_environment, hear_ctrl_c
from semel.cli.failures import Exit
from semel.cli.main import main
from semel.sim.history import History, Send

PLANTED = Path(__file__).parent.parent / "planted_bugs.py"
ATTEMPTS = 3


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a check keeps when it has found something goes with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def checked(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> tuple[int, Any]:
    """Exit code and document."""
    code = main(["check", "--json", "--history", str(tmp_path / "history.jsonl"), *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_sound_broker_passes_and_is_left_as_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, brokers: Brokers
) -> None:
    broker = brokers.start()
    code, document = checked(capsys, tmp_path, "--bootstrap", broker.address, "--seconds", "2", "--seed", "3")
    assert code == Exit.OK, document
    assert document["is_clean"]
    assert document["seed"] == 3
    assert document["counts"]["written"] > 50
    assert document["counts"]["committed"] > 0
    history = History.from_lines(Path(document["history"]).read_text().splitlines())
    assert sum(isinstance(operation, Send) for operation in history.operations) > 50
    roles = {client.role for client in history.clients.values()}
    assert roles >= {"plain", "transactor", "reader", "group", "pipeline"}
    for noun in ("topic", "group"):
        assert main([noun, "list", "--bootstrap", broker.address, "--json"]) == Exit.OK
        assert "check-" not in capsys.readouterr().out, noun


def test_ctrl_c_leaves_a_broker_as_it_was(capsys: pytest.CaptureFixture[str], tmp_path: Path, brokers: Brokers) -> None:
    broker = brokers.start()
    command = [sys.executable, "-m", "semel.cli.main", "check", "--bootstrap", broker.address, "--seconds", "60"]
    running = subprocess.Popen(command, env=clean_environment(TMPDIR=str(tmp_path)), preexec_fn=hear_ctrl_c)

    def shown(noun: str) -> str:
        assert main([noun, "list", "--bootstrap", broker.address, "--json"]) == Exit.OK
        return capsys.readouterr().out

    try:
        deadline = time.monotonic() + 60
        while not ("check-" in shown("topic") and "-pipeline" in shown("group")):
            assert time.monotonic() < deadline, "it does not begin"
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == Exit.INTERRUPTED
    finally:
        running.kill()
        running.wait()
    for noun in ("topic", "group"):
        assert "check-" not in shown(noun), noun


def test_nodes_of_its_own_stand_all_faults(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--cluster", "local", "--faults", "kill,pause,cut,delay", "--seconds", "6"]
    code, document = checked(capsys, tmp_path, *arguments)
    assert code == Exit.OK, document
    assert set(document["faults"]) <= {"kill", "pause", "cut", "delay"}
    assert len(document["faults"]) >= 2


def test_a_real_node_that_shows_too_much_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = kinds_found(capsys, tmp_path, "last stable offset one too high", "--seconds", "3")
    assert "read before commit" in found


def test_a_real_node_that_forgets_in_a_crash_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """When it dies is up to the machine: it may take more than one run."""
    for _ in range(ATTEMPTS):
        arguments = ["--seconds", "6", "--faults", "kill"]
        if "duplicate" in kinds_found(capsys, tmp_path, "duplicate accepted after restart", *arguments):
            return
    pytest.fail("no duplicate was found")


def kinds_found(capsys: pytest.CaptureFixture[str], tmp_path: Path, bug: str, *arguments: str) -> set[str]:
    assert bug in BUGS
    command = shlex.join([sys.executable, str(PLANTED), bug, "serve"])
    planted = ["--cluster", "local", "--node-command", command, "--patience", "8"]
    code, document = checked(capsys, tmp_path, *planted, *arguments)
    found = {entry["anomaly"] for entry in document["anomalies"] if entry["forbidden"]}
    assert code == (Exit.FAILED if found else Exit.OK)
    return found


# -- for people


def written(tmp_path: Path) -> Path:
    """A history with something wrong in it."""
    history = History()
    for value, offset in ((1, 0), (2, 0)):
        history.sent(history.begin(Send(process="p", place="t-0", value=value)), offset)
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(history.lines()))
    return path


def test_a_history_can_be_judged_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path)
    assert main(["check", "--judge", str(path)]) == Exit.FAILED
    shown = capsys.readouterr().out
    assert "inconsistent offset" in shown
    assert "forbidden" in shown
    assert "offset 0 of t-0 holds 1 and 2" in shown


def test_kinds_can_be_allowed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path)
    code = main(["check", "--judge", str(path), "--allow", "inconsistent-offset,non-monotonic-send"])
    assert code == Exit.OK
    assert "Nothing that is forbidden was found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--faults", "kill"], "--cluster local"),
        (["--faults", "flood"], "kill, pause, cut, delay"),
        (["--cluster", "local", "--nodes", "2"], "allowed: 1, or 3 to 9"),
        (["--cluster", "local", "--nodes", "0"], "allowed: 1, or 3 to 9"),
        (["--nodes", "3", "--bootstrap", "localhost:1"], "add --cluster local"),
        (["--cluster", "local", "--bootstrap", "localhost:1"], "leave --bootstrap"),
        (["--seconds", "0"], "--seconds 0"),
        (["--patience", "-1", "--cluster", "local"], "--patience -1"),
        (["--allow", "everything"], "lost-write"),
        (["--bootstrap", "localhost"], "HOST:PORT"),
        (["--bootstrap", "localhost:1", "--set", "security.protocol=SSL", "--faults", "cut"], "TLS"),
    ],
)
def test_a_wrong_call_says_what_is_right(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert main(["check", *arguments]) == Exit.WRONG_CALL
    assert told in capsys.readouterr().err


def test_a_node_that_does_not_start_is_told_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-c", "import sys; sys.exit('no luck today')"])
    assert main(["check", "--cluster", "local", "--node-command", command]) == Exit.FAILED
    told = capsys.readouterr().err
    assert "no luck today" in told
    assert str(tmp_path) in told


def test_what_is_no_history_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"kind": "song"}\n')
    assert main(["check", "--judge", str(path)]) == Exit.WRONG_CALL
    assert "is not a history" in capsys.readouterr().err


def test_the_help_imports_no_client(capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import sys\nfrom semel.cli.main import main\n"
        "try:\n    main(['check', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit('asyncio' in sys.modules or 'semel.sim' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "examples:" in done.stdout
    assert "node-command" not in done.stdout


def test_ctrl_c_leaves_a_history_and_no_node(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    command = [sys.executable, "-m", "semel.cli.main", "check", "--cluster", "local", "--history", str(path)]
    environment = clean_environment(TMPDIR=str(tmp_path))
    running = subprocess.Popen(
        [*command, "--seconds", "60"], env=environment, stderr=subprocess.PIPE, preexec_fn=hear_ctrl_c
    )
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("semel-check-*/node-0/data/check-*-records-0/*.log")):
            assert time.monotonic() < deadline, "it does not begin"
            assert running.poll() is None
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == Exit.INTERRUPTED
    finally:
        running.kill()
        running.communicate()
    assert list(History.from_lines(path.read_text().splitlines()).operations)
    assert not list(tmp_path.glob("semel-check-*")), "its data is gone, and so is who wrote it"
