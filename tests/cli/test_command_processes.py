"""The command line as real processes: closed pipes, Ctrl-C, SIGTERM, terminals, and the session of the page."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_calls import Semel
from command_processes import TIMEOUT_S, Processes, line_of, wait_until

from real_broker import clean_environment
from semel.cli.document import SESSION
from semel.cli.failures import Exit

Unique = Callable[[str], str]


@pytest.fixture
def processes(address: str, contexts_file: Path) -> Iterator[Processes]:
    made = Processes(address, contexts_file)
    yield made
    made.reap()


def test_a_pipe_that_is_closed_ends_it_silently(semel: Semel, processes: Processes, topic: str) -> None:
    semel("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(50_000)))
    process = processes.start("consume", topic)
    assert process.stdout is not None
    assert line_of(process.stdout) != b""
    process.stdout.close()

    assert process.wait(TIMEOUT_S) == Exit.CLOSED_PIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_help_into_a_closed_pipe_is_silent_too(processes: Processes) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = processes.start("topic", "create", "--help", stdout=writing)
        process.wait(TIMEOUT_S)
    finally:
        os.close(writing)

    assert process.stderr is not None
    assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)], ids=["INT", "TERM"]
)
def test_a_reader_that_is_ended_leaves_its_group_and_commits_what_it_printed(
    semel: Semel, processes: Processes, topic: str, unique: Unique, number: signal.Signals, code: Exit
) -> None:
    group = unique("group")
    semel("produce", topic, "a", "b", "--partition", "0")
    process = processes.start("consume", topic, "--group", group, "--follow")
    assert [line_of(process.stdout), line_of(process.stdout)] == [b"a\n", b"b\n"]
    process.send_signal(number)

    assert process.wait(TIMEOUT_S) == code
    assert process.stderr is not None
    assert process.stderr.read() == b""
    (document,) = semel("group", "describe", group, "--json").document
    assert document["members"] == []
    assert {one["partition"]: one["committed"] for one in document["partitions"]}[0] == 2


def test_what_was_printed_when_ctrl_c_came_is_committed_and_nothing_else(
    semel: Semel, processes: Processes, topic: str, unique: Unique
) -> None:
    group = unique("group")
    semel("produce", topic, "--partition", "0", stdin=b"".join(b"%0999d\n" % number for number in range(8000)))
    process = processes.start("consume", topic, "--group", group, "--follow")
    assert process.stdout is not None
    read = b""
    while len(read) < 5_000_000:
        read += process.stdout.read(1 << 16)
    # Nobody reads on, so that it waits for room in the pipe, in the middle of what it has polled since it committed.
    process.send_signal(signal.SIGINT)
    printed = (read + process.stdout.read()).splitlines()

    assert process.wait(TIMEOUT_S) == Exit.INTERRUPTED
    assert printed == [b"%0999d" % number for number in range(len(printed))]
    (document,) = semel("group", "describe", group, "--json").document
    assert {one["partition"]: one["committed"] for one in document["partitions"]}[0] == len(printed)


def test_a_writer_sends_what_is_typed_at_once_and_ctrl_c_ends_it(
    semel: Semel, processes: Processes, topic: str
) -> None:
    process = processes.start("produce", topic, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    wait_until(lambda: semel("consume", topic).lines == ["first"])
    process.send_signal(signal.SIGINT)

    assert process.wait(TIMEOUT_S) == Exit.INTERRUPTED
    assert process.stderr is not None
    assert process.stderr.read() == b"semel produce: interrupted: 1 record sent, 1 acknowledged\n"


def test_ctrl_c_in_a_transaction_aborts_it(semel: Semel, processes: Processes, topic: str, unique: Unique) -> None:
    process = processes.start("produce", topic, "--transactional-id", unique("id"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    wait_until(lambda: semel("consume", topic, "--isolation", "uncommitted").lines == ["first"])
    process.send_signal(signal.SIGINT)

    assert process.wait(TIMEOUT_S) == Exit.INTERRUPTED
    assert semel("consume", topic).err == "", "nothing is open any more"
    assert semel("consume", topic).lines == []


def test_records_that_come_later_are_followed(semel: Semel, processes: Processes, topic: str) -> None:
    process = processes.start("consume", topic, "--follow", "--count", "2")
    semel("produce", topic, "a", "--partition", "0")
    assert line_of(process.stdout) == b"a\n"
    semel("produce", topic, "b", "--partition", "0")
    assert line_of(process.stdout) == b"b\n"

    assert process.wait(TIMEOUT_S) == Exit.OK


# -- a terminal


def test_a_terminal_has_colours_unless_it_wants_none(semel: Semel, processes: Processes, topic: str) -> None:
    semel("produce", topic, "10.00 EUR", "--key", "42", "--partition", "0")
    code, shown = processes.on_terminal("consume", topic)
    assert (code, shown) == (0, "\x1b[2m0@0\x1b[0m  \x1b[36m42\x1b[0m  10.00 EUR\n")
    assert processes.on_terminal("consume", topic, NO_COLOR="1") == (0, "0@0  42  10.00 EUR\n")
    code, shown = processes.on_terminal("topic", "list")
    assert shown.startswith("\x1b[1mTOPIC\x1b[0m")


def test_a_deletion_is_asked_about(semel: Semel, processes: Processes, topic: str) -> None:
    code, shown = processes.on_terminal("topic", "delete", topic, answer=b"y\n")
    assert code == Exit.FAILED
    assert f"Delete {topic} and all records? Type yes: " in shown
    assert "nothing was deleted" in shown
    assert topic in semel("topic", "list", "--names").lines
    code, _ = processes.on_terminal("topic", "delete", topic, answer=b"yes\n")
    assert code == Exit.OK
    assert topic not in semel("topic", "list", "--names").lines


def test_long_work_shows_progress_on_a_terminal_beside_the_pipe(semel: Semel, processes: Processes, topic: str) -> None:
    semel("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(20_000)))
    ours, theirs = pty.openpty()
    try:
        process = processes.start("consume", topic, stderr=theirs)
        os.close(theirs)
        assert process.stdout is not None
        assert len(process.stdout.read().splitlines()) == 20_000
        assert process.wait(TIMEOUT_S) == 0
        shown = os.read(ours, 1 << 16)
    finally:
        os.close(ours)

    assert b"reading  [" in shown
    assert b"of 20,000 offsets" in shown
    assert shown.endswith(b"\r\x1b[K"), "and it is taken away"


def test_what_was_typed_into_a_terminal_is_sent(semel: Semel, processes: Processes, topic: str) -> None:
    code, shown = processes.on_terminal("produce", topic, "--partition", "0", answer=b"a\nb\n\x04")

    assert code == 0
    assert "one record a line; Ctrl-D ends it" in shown
    assert f"sent 2 records to {topic}" in shown
    assert semel("consume", topic).lines == ["a", "b"]


# -- a node


def test_a_node_starts_where_contexts_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    """SEMEL_CONFIG is no setting of a node, though it is spelled like one."""
    command = [sys.executable, "-m", "semel.cli.main", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    environment = clean_environment(SEMEL_CONFIG=str(tmp_path / "contexts.toml"))
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, bufsize=0)
    try:
        assert line_of(node.stdout).startswith(b"semel is ready at 127.0.0.1:")
        node.send_signal(signal.SIGINT)
        assert node.wait(TIMEOUT_S) == Exit.OK
    finally:
        node.kill()
        node.communicate()


def test_a_node_tells_programs_where_it_is_and_that_it_has_stopped(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "semel.cli.main",
        "serve",
        "--data",
        str(tmp_path / "data"),
        "--port",
        "0",
        "--json",
    ]
    node = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment(), bufsize=0
    )
    try:
        ready = json.loads(line_of(node.stdout))
        node.send_signal(signal.SIGTERM)
        stopped = json.loads(line_of(node.stdout))
        assert node.wait(TIMEOUT_S) == Exit.OK
    finally:
        node.kill()
        node.communicate()
    host, _, port = ready["address"].rpartition(":")
    assert (ready["event"], host, ready["data"]) == ("ready", "127.0.0.1", str(tmp_path / "data"))
    assert int(port) > 0
    assert ready["start_ms"] > 0
    assert (stopped["event"], stopped["slow_turns"]["over_ms"]) == ("stopped", 5)
    assert stopped["slow_turns"]["clock"]["longest_ms"] >= stopped["slow_turns"]["processor"]["longest_ms"]
    assert stopped["slow_turns"]["processor"]["count"] == 0


# -- the page


def test_the_session_of_the_page_runs_as_it_stands(address: str, tmp_path: Path) -> None:
    """Each command of docs/command-line.md, in a shell, one after the other."""
    (tmp_path / "semel").write_text(f'#!/bin/sh\nexec {sys.executable} -m semel.cli.main "$@"\n')
    (tmp_path / "semel").chmod(0o755)
    lines = [line.removeprefix("$ ") for line in SESSION.replace("localhost:9092", address).splitlines()]
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        env=clean_environment(PATH=path, SEMEL_CONFIG=str(tmp_path / "contexts.toml")),
        timeout=4 * TIMEOUT_S,
    )

    assert (done.returncode, done.stderr) == (0, "group books is set\n")
    assert {"42 paid 10.00 EUR", "43 paid 12.50 EUR", "44 paid 3.00 EUR"} <= set(done.stdout.splitlines())
    assert "sent 3 records to copies" in done.stdout
    assert "receipts/0: nothing is stuck" in done.stdout
