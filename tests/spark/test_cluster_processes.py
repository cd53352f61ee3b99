"""No process that a test has started is left over, in whatever session it is, and no other one is touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cluster_processes import ProcessFamily, ancestors, is_executor

PROGRAM = "setsid sleep 300 & echo there; sleep 300"


def test_children_that_have_left_for_a_session_of_their_own_are_ended_too(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "300"])
    try:
        with ProcessFamily() as family:
            started = family.start(["sh", "-c", PROGRAM], tmp_path / "log", environ=os.environ)
            started.wait_for(lambda: len(family.pids()) == 3, 30, "all three run")
            pids = family.pids()
            assert started.pid in pids
            assert stranger.pid not in pids
            assert all(started.pid in (pid, *ancestors(pid)) for pid in pids)
            assert family.executors() == []
        assert family.pids() == []
        assert not started.is_running
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_an_executor_is_known_by_its_command_line(tmp_path: Path) -> None:
    name = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    with ProcessFamily() as family:
        started = family.start(["sh", "-c", "sleep 300; true", name], tmp_path / "log", environ=os.environ)
        started.wait_for(lambda: family.executors() == [started.pid], 30, "it runs")
        assert is_executor(started.pid)
        assert not is_executor(os.getpid())
