"""Drivers killed when a batch has just become readable and Spark has not noted it, ours and Spark's own pipeline in one
application, so that each kill hits both: how long until the next record is readable, and how many are there twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipeline_runs import SEMEL, SPARK, committed_reader

import semel.sync

_PATIENCE_S = 180.0
_RATE = 500


class Killed(NamedTuple):
    restart_s: list[float]
    lost: int
    duplicated: int


class _Arrivals(threading.Thread):
    """Every value of both sinks, and when the last came."""

    def __init__(self, address: str, sinks: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._sinks = sinks
        self.over = threading.Event()
        self.values: dict[str, list[int]] = {way: [] for way in sinks}

    def run(self) -> None:
        ways = {topic: way for way, topic in self._sinks.items()}
        with committed_reader(self._address, *ways) as consumer:
            while not self.over.is_set():
                for partition, messages in consumer.poll(timeout_ms=100).items():
                    self.values[ways[partition.topic]] += [int(message.value) for message in messages]


class _Sender(threading.Thread):
    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._topic = topic
        self.over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with semel.sync.Producer(bootstrap_servers=self._address) as producer:
            while not self.over.wait(0.02):
                for _ in range(_RATE // 50):
                    producer.send(self._topic, b"%d" % self.sent, key=b"%d" % self.sent)
                    self.sent += 1


def killed(
    address: str, jars: str, source: str, sinks: dict[str, str], kills: int, seed: int, tell: Callable[[str], None]
) -> dict[str, Killed]:
    chance = random.Random(seed)
    arrivals, sender = _Arrivals(address, sinks), _Sender(address, source)
    restarts: dict[str, list[float]] = {way: [] for way in sinks}
    with tempfile.TemporaryDirectory(prefix="semel-bench-") as directory:
        command = [sys.executable, __file__, address, jars, source, sinks[SEMEL], sinks[SPARK], directory]
        driver = _started(command)
        try:
            arrivals.start()
            sender.start()
            _until(lambda: all(len(values) > 0 for values in arrivals.values.values()), driver)
            for number in range(1, kills + 1):
                time.sleep(chance.uniform(3, 8))
                aim = arrivals.values[(SPARK, SEMEL)[number % 2]]
                seen = len(aim)
                _until(lambda aim=aim, seen=seen: len(aim) > seen, driver, pause_s=0.001)
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                time.sleep(1)  # what was committed is read
                begin_s = time.monotonic()
                before = {way: len(values) for way, values in arrivals.values.items()}
                driver = _started(command)
                waiting = set(sinks)

                def arrived(
                    waiting: set[str] = waiting, before: dict[str, int] = before, begin: float = begin_s
                ) -> bool:
                    for way in [way for way in waiting if len(arrivals.values[way]) > before[way]]:
                        restarts[way].append(1 + time.monotonic() - begin)
                        waiting.discard(way)
                    return not waiting

                _until(arrived, driver)
                tell(f"driver killed {number} of {kills} times")
            sender.over.set()
            sender.join()
            deadline = time.monotonic() + 60
            while any(len(set(values)) < sender.sent for values in arrivals.values.values()):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            time.sleep(1)
        finally:
            sender.over.set()
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            arrivals.over.set()
            arrivals.join()
    return {
        way: Killed(restarts[way], sender.sent - len(set(values)), len(values) - len(set(values)))
        for way, values in arrivals.values.items()
    }


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _until(is_so: Callable[[], bool], driver: subprocess.Popen[bytes], pause_s: float = 0.02) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        if driver.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the application has ended, or does not get on")
        time.sleep(pause_s)


def application(address: str, jars: str, source: str, ours: str, theirs: str, directory: str) -> None:
    import semel.spark

    spark = semel.spark.session("kills", "local[2]", spark_ui_enabled=False, spark_jars=jars)
    for way, sink in (("semel", ours), ("kafka", theirs)):
        rows = spark.readStream.format(way).option("kafka.bootstrap.servers", address).option("subscribe", source)
        loaded = rows.option("startingOffsets", "earliest").load().selectExpr("key", "value")
        writer = loaded.writeStream.format(way).option("kafka.bootstrap.servers", address).option("topic", sink)
        writer.option("checkpointLocation", str(Path(directory) / way)).start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    application(*sys.argv[1:])
