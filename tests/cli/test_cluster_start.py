"""`semel cluster start` as a process: what it says, that its cluster works, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from real_broker import clean_environment, hear_ctrl_c
from semel.client.admin.values import NewTopic
from semel.sync import Admin, Producer

PATIENCE_S = 30.0
COMMAND = [sys.executable, "-m", "semel.cli.main", "cluster", "start"]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(TMPDIR=str(tmp_path)),
            start_new_session=True,
            preexec_fn=hear_ctrl_c,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr is not None else ""
    document: dict[str, Any] = json.loads(line)
    return document


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _until_gone(pids: list[int]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while any(_is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline_s, f"{[pid for pid in pids if _is_alive(pid)]} are still there"
        time.sleep(0.05)


def test_three_nodes_that_a_later_start_finds_again(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    first = start("--nodes", "3", "--dir", str(directory), "--json", "--set", "num.partitions=2")
    ready = _line(first)
    assert [(node["id"], node["roles"]) for node in ready["nodes"]] == [
        (number, ["broker", "controller"]) for number in (1, 2, 3)
    ]
    assert ready["bootstrap"] == ",".join(node["address"] for node in ready["nodes"])
    with Producer(bootstrap_servers=ready["bootstrap"]) as producer:
        assert producer.send("payments", b"1", partition=0).result().offset == 0
    with Admin(bootstrap_servers=ready["bootstrap"]) as admin:
        partitions = admin.describe_topics("payments")["payments"].partitions
        assert [len(partition.replicas) for partition in partitions.values()] == [3, 3]
    first.send_signal(signal.SIGINT)
    assert first.wait(PATIENCE_S) == 0
    assert _line(first) == {"event": "stopped"}
    _until_gone([node["pid"] for node in ready["nodes"]])

    second = start("--dir", str(directory), "--json")
    again = _line(second)
    assert again["bootstrap"] == ready["bootstrap"]
    assert again["cluster_id"] == ready["cluster_id"]
    with Producer(bootstrap_servers=again["bootstrap"]) as producer:
        assert producer.send("payments", b"2", partition=0).result().offset == 1
    other = start("--dir", str(directory))
    assert other.wait(PATIENCE_S) == 1
    assert other.stderr is not None
    assert "is running" in other.stderr.read()
    second.terminate()
    assert second.wait(PATIENCE_S) == 0


def test_a_table_for_people_and_nothing_is_left_without_a_directory(start: Start, tmp_path: Path) -> None:
    process = start("--nodes", "1")
    assert process.stdout is not None
    lines = []
    while "Ctrl-C stops all of them." not in (line := process.stdout.readline()):
        assert line, process.stderr.read() if process.stderr is not None else ""
        lines.append(line)
    assert lines[0].split() == ["NODE", "ROLES", "ADDRESS", "PID"]
    assert lines[1].split()[:3] == ["1", "broker,", "controller"]
    assert any(line.startswith("A cluster of 1, ready after") for line in lines)
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    assert list(tmp_path.glob("semel-cluster-*"))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    assert not list(tmp_path.glob("semel-cluster-*"))


def test_a_node_that_ends_is_told_and_the_others_go_on(start: Start) -> None:
    process = start("--nodes", "3", "--json")
    ready = _line(process)
    victim = ready["nodes"][-1]
    with Admin(bootstrap_servers=ready["bootstrap"]) as admin:
        admin.create_topics(NewTopic("payments", 3, 3))
        os.kill(victim["pid"], signal.SIGKILL)
        assert _line(process) == {"event": "ended", "id": victim["id"], "code": -signal.SIGKILL}
        assert "payments" in admin.list_topics()
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_nodes_end_when_the_command_is_killed(start: Start) -> None:
    process = start("--nodes", "2", "--json")
    pids = [node["pid"] for node in _line(process)["nodes"]]
    process.kill()
    _until_gone(pids)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "node.id=7"], "node.id cannot be set"),
        (["--set", "num.partition=7"], "num.partition: unknown setting"),
        (["--nodes", "0"], "a cluster of 0 nodes is not possible"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(start: Start, arguments: list[str], told: str) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert told in errors
    assert errors.count("\n") == 1


def test_a_directory_of_something_else_is_refused(start: Start, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-my-aunt").touch()
    process = start("--dir", str(tmp_path / "letters"))
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "is no directory of a cluster" in errors
    assert sorted(path.name for path in (tmp_path / "letters").iterdir()) == ["to-my-aunt"]
