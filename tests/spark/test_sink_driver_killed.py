"""A real driver, with its Java and its workers, killed in the midst of `commit`: the next goes on, each row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sink_world import committed_rows

from real_broker import clean_environment
from semel.spark.adoption import marker_of
from semel.spark.steps import VARIABLE, Step

pytestmark = pytest.mark.spark

BATCHES = 3
ROWS = 15
PATIENCE_S = 150.0


class Driver:
    """A process group: Python, Java, and the workers that Java starts."""

    def __init__(self, folder: Path, options: dict[str, str], log: Path, **variables: str) -> None:
        program = Path(__file__).parent / "sink_program.py"
        command = [sys.executable, str(program), str(folder), json.dumps(options)]
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=clean_environment(**variables),
                start_new_session=True,
            )

    def wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)

    def finish(self) -> None:
        assert self._process.wait(PATIENCE_S) == 0, self._log.read_text()

    def kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


@pytest.mark.parametrize("step", [Step.MARKED, Step.ENDED])
def test_a_driver_that_is_killed_in_commit_loses_and_repeats_nothing(
    address: str, new_topic: Callable[..., str], tmp_path: Path, step: Step
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    expected = []
    for batch in range(BATCHES):
        rows = [(f"key-{row % 4}", f"{batch}/{row}") for row in range(ROWS)]
        lines = [json.dumps({"key": key, "value": value}) for key, value in rows]
        (folder / f"{batch}.json").write_text("\n".join(lines))
        os.utime(folder / f"{batch}.json", (batch, batch))  # Spark reads the oldest first
        expected += [(key.encode(), value.encode()) for key, value in rows]
    options = {
        "kafka.bootstrap.servers": address,
        "topic": new_topic(partitions=3),
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    paused = tmp_path / "paused"
    first = Driver(folder, options, tmp_path / "first.log", **{VARIABLE: f"{step}@1:pause={paused}"})
    try:
        first.wait_for(paused)
    finally:
        first.kill()
    os.kill(int(paused.read_text()), signal.SIGKILL)  # workers are in groups of their own
    assert len(committed_rows(address, options["topic"])) == (2 if step is Step.ENDED else 1) * ROWS
    second = Driver(folder, options, tmp_path / "second.log")
    try:
        second.finish()
    finally:
        second.kill()
    found = committed_rows(address, options["topic"])
    assert sorted(found) == sorted(expected)
    for key in {key for key, _ in expected}:
        assert [row for row in found if row[0] == key] == [row for row in expected if row[0] == key]
    _, marker = marker_of(options)
    assert marker is not None
    assert marker.number == BATCHES - 1
    assert list((tmp_path / "checkpoint").glob("sink-staging/*")) == []
