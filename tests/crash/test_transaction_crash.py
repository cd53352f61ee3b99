"""Exactly once through kills: a consume-transform-produce loop in transactions of up to 750 records, while the broker
and the loop are killed (kill -9) again and again.

`SEMEL_TRANSACTION_RECORDS` and `SEMEL_TRANSACTION_KILLS` change how much, `SEMEL_TRANSACTION_SEED` repeats a run. A
kill comes shortly after the loop has begun a transaction, so that most meet one that is open.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from transaction_loop import QUICK, transformed

from real_broker import Brokers, RealBroker
from semel.records.batch import whole_batches
from semel.records.control import ControlType, read_control

PROGRAM = Path(__file__).with_name("transaction_loop.py")
RECORDS = int(os.environ.get("SEMEL_TRANSACTION_RECORDS", "100000"))
KILLS = int(os.environ.get("SEMEL_TRANSACTION_KILLS", "40"))
SEED = int(os.environ.get("SEMEL_TRANSACTION_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
PARTITIONS = 4
SOURCE, TARGET, NAME = "source", "target", "loop"
WAIT_S = 60.0
PROGRESS_S = 5.0


class Loop:
    """The program, started again whenever it has ended."""

    def __init__(self, broker: RealBroker, directory: Path) -> None:
        self._command = [sys.executable, str(PROGRAM), broker.address, SOURCE, TARGET, NAME]
        self._log = directory / "loop.log"
        self._dots = directory / "loop.dots"
        self._process: subprocess.Popen[bytes] | None = None
        self.lives = 0

    def tend(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.lives += 1
            with self._log.open("ab") as log, self._dots.open("ab") as dots:
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=dots, stderr=log)

    @property
    def begun(self) -> int:
        """How many transactions all lives together have begun."""
        return self._dots.stat().st_size

    @property
    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Input:
    """Numbered records, spread over the partitions."""

    def __init__(self, broker: RealBroker) -> None:
        settings = {"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 5, **QUICK}
        self._producer = Producer(settings)
        self.expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    def fill(self) -> None:
        for number in range(RECORDS):
            value = b"%d" % number
            self._producer.produce(SOURCE, value, partition=number % PARTITIONS)
            self.expected[number % PARTITIONS].append(transformed(value))
            if number % 1000 == 0:
                self._producer.poll(0)
        assert self._producer.flush(WAIT_S) == 0


class Output:
    """What a read_committed reader has seen, partition by partition. It outlives the broker, too."""

    def __init__(self, broker: RealBroker) -> None:
        settings = {"bootstrap.servers": broker.address, "group.id": "judge", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, **QUICK})
        self._consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
        self.seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    @property
    def count(self) -> int:
        return sum(len(values) for values in self.seen)

    def read(self, for_s: float) -> None:
        deadline = time.monotonic() + for_s
        while time.monotonic() < deadline:
            for message in self._consumer.consume(2000, 0.02):
                if message.error() is None:
                    self.seen[message.partition() or 0].append(message.value() or b"")

    def check(self, expected: list[list[bytes]]) -> None:
        for index, (seen, wanted) in enumerate(zip(self.seen, expected, strict=True)):
            first_bad = next((at for at, (a, b) in enumerate(zip(seen, wanted, strict=False)) if a != b), None)
            assert first_bad is None, (
                f"partition {index}: at {first_bad} there is {seen[first_bad]!r} instead of {wanted[first_bad]!r}"
            )
            assert len(seen) <= len(wanted), f"partition {index} has {len(seen) - len(wanted)} records too many"

    def close(self) -> None:
        self._consumer.close()


def ends(data: Path) -> dict[str, int]:
    """How the transactions in the output have ended: the markers in its files."""
    counts = {"COMMIT": 0, "ABORT": 0}
    for path in data.glob(f"{TARGET}-*/*.log"):
        log = path.read_bytes()
        for position, header in whole_batches(log):
            if header.is_control:
                marker = read_control(log[position : position + header.size_bytes], header)
                if marker is not None:
                    counts[ControlType(marker.kind).name] += 1
    return counts


@pytest.mark.timeout(400)
def test_a_loop_in_transactions_delivers_each_record_once_through_kills_of_the_broker_and_of_itself(
    brokers: Brokers, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}: {RECORDS} records, {KILLS} kills")
    broker = brokers.start(settings={"group.initial.rebalance.delay.ms": "0"})
    admin = AdminClient({"bootstrap.servers": broker.address})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]).values():
        made.result(WAIT_S)
    source, target, loop = Input(broker), Output(broker), Loop(broker, tmp_path)
    source.fill()
    killed = {"broker": 0, "loop": 0}
    started = time.monotonic()
    try:
        for _ in range(KILLS):
            loop.tend()
            wanted = loop.begun + chance.randrange(1, 3)
            deadline = time.monotonic() + PROGRESS_S
            while loop.begun < wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.02))
            victim = chance.choice(("broker", "loop", "loop", "both"))
            if victim != "broker":
                loop.kill()
                killed["loop"] += 1
            if victim != "loop":
                broker.kill()
                killed["broker"] += 1
                broker.start()
            target.read(0.05)
            target.check(source.expected)
        print(f"{RECORDS - target.count} records are left after the last kill")
        deadline = time.monotonic() + WAIT_S
        while target.count < RECORDS and time.monotonic() < deadline:
            loop.tend()
            target.read(0.5)
        loop.kill()
        target.read(1.0)
    finally:
        loop.kill()
        target.close()
        lives = f"{loop.lives} lives of the loop with {loop.begun} transactions"
        print(f"killed {killed}, {lives}, {time.monotonic() - started:.1f} s")
        print(f"markers in the output: {ends(broker.data)}")
        print(loop.log[-3000:])
    target.check(source.expected)
    assert target.count == RECORDS, f"{RECORDS - target.count} records are missing"
