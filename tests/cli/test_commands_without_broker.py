"""Commands as real processes while their broker is away: they say so, they end when asked, and count what is lost."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from command_processes import TIMEOUT_S, Processes, line_of

from real_broker import Brokers, RealBroker
from semel.cli.failures import Exit

ENDINGS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)], ids=["INT", "TERM"]
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealBroker]:
    brokers = Brokers(tmp_path)
    yield brokers.start()
    brokers.reap()


@pytest.fixture
def processes(broker: RealBroker, contexts_file: Path) -> Iterator[Processes]:
    made = Processes(broker.address, contexts_file)
    assert made.start("topic", "create", "t").wait(TIMEOUT_S) == Exit.OK
    yield made
    made.reap()


def typed(process: subprocess.Popen[bytes], *lines: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%s\n" % line for line in lines))
    process.stdin.flush()


def rest_of(stream: IO[bytes] | None) -> list[str]:
    assert stream is not None
    return stream.read().decode().splitlines()


@ENDINGS
def test_a_writer_whose_broker_is_gone_ends_when_asked_and_counts(
    broker: RealBroker, processes: Processes, number: signal.Signals, code: Exit
) -> None:
    process = processes.start("produce", "t", stdin=subprocess.PIPE)
    typed(process, b"a")
    settled = processes.start("consume", "t", "--follow", "--count", "1")
    assert line_of(settled.stdout) == b"a\n"
    broker.kill()
    typed(process, b"b", b"c")
    assert line_of(process.stderr) == f"Waiting for {broker.address}: connection refused\n".encode()
    began_s = time.monotonic()
    process.send_signal(number)

    assert process.wait(TIMEOUT_S) == code
    assert time.monotonic() - began_s < 15
    told = (
        "semel produce: interrupted: 3 records sent, 1 acknowledged, 2 not, of which some may be written all the same"
    )
    assert rest_of(process.stderr) == [told]


@ENDINGS
def test_a_writer_in_a_transaction_whose_broker_is_gone_ends_when_asked(
    broker: RealBroker, processes: Processes, number: signal.Signals, code: Exit
) -> None:
    process = processes.start("produce", "t", "--transactional-id", "till", stdin=subprocess.PIPE)
    typed(process, b"a")
    seen = processes.start("consume", "t", "--isolation", "uncommitted", "--follow", "--count", "1")
    assert line_of(seen.stdout) == b"a\n"
    broker.kill()
    typed(process, b"b", b"c")
    assert line_of(process.stderr).startswith(b"Waiting for ")
    began_s = time.monotonic()
    process.send_signal(number)

    assert process.wait(TIMEOUT_S) == code
    assert time.monotonic() - began_s < 15
    told = "semel produce: interrupted: the transaction was not committed, and no record counts"
    assert rest_of(process.stderr) == [told]


@ENDINGS
def test_a_writer_that_never_found_a_broker_ends_when_asked(
    broker: RealBroker, processes: Processes, number: signal.Signals, code: Exit
) -> None:
    broker.kill()
    process = processes.start("produce", "t", "--set", "bootstrap.timeout.ms=60000", stdin=subprocess.PIPE)
    assert line_of(process.stderr).startswith(b"Waiting for ")
    process.send_signal(number)

    assert process.wait(TIMEOUT_S) == code
    assert rest_of(process.stderr) == []


def test_who_waits_is_told_when_the_broker_is_back_and_nothing_is_lost(
    broker: RealBroker, processes: Processes
) -> None:
    reader = processes.start("consume", "t", "--follow", "--count", "2")
    process = processes.start("produce", "t", "--partition", "0", stdin=subprocess.PIPE)
    typed(process, b"a")
    assert line_of(reader.stdout) == b"a\n"
    broker.kill()
    typed(process, b"b")
    away, back = f"Waiting for {broker.address}: connection refused", f"{broker.address} is back"
    assert line_of(process.stderr).decode() == f"{away}\n"
    broker.start()
    assert process.stdin is not None
    process.stdin.close()

    assert process.wait(TIMEOUT_S) == Exit.OK
    assert line_of(reader.stdout) == b"b\n"
    assert reader.wait(TIMEOUT_S) == Exit.OK
    assert rest_of(process.stderr) == [back]
    assert rest_of(reader.stderr) == [away, back]


@pytest.mark.parametrize("command", ["topic list", "check --seconds 1"])
def test_a_question_to_a_broker_that_is_away_says_that_it_waits(
    broker: RealBroker, processes: Processes, tmp_path: Path, command: str
) -> None:
    broker.kill()
    more = ["--history", str(tmp_path / "history")] if command.startswith("check") else []
    process = processes.start(*command.split(), *more, "--set", "bootstrap.timeout.ms=4000")

    assert process.wait(TIMEOUT_S) == Exit.UNREACHABLE
    away, failed = rest_of(process.stderr)
    assert away == f"Waiting for {broker.address}: connection refused"
    assert re.match(r"semel (topic list|check): no broker answered at ", failed)


@pytest.mark.parametrize("command", ["topic list", "consume t", "produce t x"])
def test_where_nothing_listens_a_command_says_so_and_what_to_do(
    broker: RealBroker, processes: Processes, command: str
) -> None:
    broker.kill()
    process = processes.start(*command.split())

    assert process.wait(TIMEOUT_S) == Exit.UNREACHABLE
    told = rest_of(process.stderr)[-1]
    assert f": nothing listens at {broker.address}: start a node there (semel serve --data DIR), or name" in told


def test_many_batches_that_fail_are_told_in_one_line_for_each_kind(
    broker: RealBroker, processes: Processes, tmp_path: Path
) -> None:
    made = processes.start("topic", "create", "narrow", "--config", "max.message.bytes=1000")
    assert made.wait(TIMEOUT_S) == Exit.OK
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"%02000d\n" % number for number in range(300)))
    with lines.open() as stdin:
        settings = ("--set", "batch.size=1", "--set", "linger.ms=0")
        process = processes.start("produce", "narrow", *settings, stdin=stdin)
        assert process.wait(TIMEOUT_S) == Exit.FAILED
    (told,) = rest_of(process.stderr)
    # It reads on until it hears of the first failure: how many lines that are is up to the machine.
    counted = re.match(r"semel produce: (\d+) records sent, 0 acknowledged, (\d+) not, ", told)
    assert counted is not None, told
    assert 1 < int(counted[1]) == int(counted[2]) <= 300
    assert "MESSAGE_TOO_LARGE" in told
