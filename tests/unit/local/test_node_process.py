"""A node as a process: what is told of one that does not start, and that none outlives whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from real_broker import clean_environment
from semel.local.node_process import SERVE, NodeDied, NodeProcess, until_ready, wait_until_ready

PATIENCE_S = 20.0
READY = "print('semel is ready', flush=True)"


def _python(program: str, log: Path) -> NodeProcess:
    return NodeProcess("node 7", [sys.executable, "-c", program], log)


def test_one_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    node = _python("import sys; sys.exit('no luck today')", tmp_path / "log")
    node.spawn()
    with pytest.raises(NodeDied, match=r"(?s)node 7 did not start \(exit code 1\).*no luck today"):
        wait_until_ready([node])
    node.kill()


def test_one_that_is_not_ready_in_time_is_told(tmp_path: Path) -> None:
    node = _python("import time; time.sleep(60)", tmp_path / "log")
    node.spawn()
    with pytest.raises(NodeDied, match="node 7 was not ready after 0 s"):
        wait_until_ready([node], timeout_s=0.1)
    node.kill()


async def test_what_an_earlier_start_has_said_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("semel is ready\n")
    node = _python("pass", log)
    node.spawn()
    with pytest.raises(NodeDied):
        await until_ready([node])
    assert "ready" not in node.last_words()
    node.kill()


def test_an_end_that_nobody_asked_for_is_known(tmp_path: Path) -> None:
    node = _python(f"{READY}; import time; time.sleep(60)", tmp_path / "log")
    node.spawn()
    wait_until_ready([node])
    assert node.ended_with is None
    os.kill(node.pid, signal.SIGKILL)
    _until(lambda: node.ended_with == -signal.SIGKILL)
    node.kill()
    assert node.ended_with is None, "it was forgotten"


def test_a_clean_stop_also_of_one_that_is_paused(tmp_path: Path) -> None:
    node = NodeProcess("node", [*SERVE, "--data", str(tmp_path / "data"), "--port", "0"], tmp_path / "log")
    node.spawn()
    wait_until_ready([node])
    node.pause()
    assert node.is_paused
    assert node.stop() == 0
    assert "semel has stopped cleanly" in node.log.read_text()


def test_one_that_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    program = f"import signal, time; signal.signal(15, signal.SIG_IGN); {READY}; time.sleep(60)"
    node = _python(program, tmp_path / "log")
    node.spawn()
    wait_until_ready([node])
    with pytest.raises(NodeDied, match="had not stopped after 0 s and was killed"):
        node.stop(timeout_s=0.1)
    assert not node.is_running


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_node_ends_when_who_started_it_was_killed(tmp_path: Path, is_paused: bool) -> None:
    program = f"""
import time
from pathlib import Path
from semel.local.node_process import SERVE, NodeProcess, wait_until_ready
root = Path({str(tmp_path)!r})
node = NodeProcess("node", [*SERVE, "--data", str(root / "data"), "--port", "0"], root / "log")
node.spawn()
wait_until_ready([node])
if {is_paused}:
    node.pause()
print(node.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=clean_environment())
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
    finally:
        parent.kill()
        parent.communicate()
    try:
        _until(lambda: not _is_alive(pid))
    finally:
        if _is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    assert "semel has stopped cleanly" in (tmp_path / "log").read_text()


def test_stop_at_eof_needs_something_that_can_end(tmp_path: Path) -> None:
    command = [*SERVE, "--data", str(tmp_path / "data"), "--port", "0", "--stop-at-eof"]
    refused = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE_S
    )
    assert refused.returncode == 2
    assert refused.stderr == (
        "semel serve: --stop-at-eof needs a pipe or a terminal as standard input, and this is neither\n"
    )


def _is_alive(pid: int) -> bool:
    """One that has ended and whom nobody asks for its code is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _until(is_so: object) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
