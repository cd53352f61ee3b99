"""Kafka's own clients as the load: one Java process a run, the same command line for every broker.

Its performance tools, where there is one: what they print last is what is compared. They count no transactions:
these are `Transactions.java`. Java is always the same, whichever broker answers.
"""

from __future__ import annotations

import re
import statistics
import subprocess
from pathlib import Path
from typing import NamedTuple

from brokers import Node

import apache_kafka

JAVA = ("-Xmx512m", "-Xms512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
# What a producer that cares sets; the rest is as Kafka has it.
PRODUCER = ("acks=all", "enable.idempotence=true", "linger.ms=5", "batch.size=65536")
RECORD_BYTES = 1000
_TIMEOUT_S = 120.0
_TRANSACTIONS = Path(__file__).with_name("Transactions.java")
_WARMING_S = 3.0
_MEBI = 1 << 20
_SENT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
_GAVE_UP = "Exiting before consuming the expected number of messages"
_LATENCIES = re.compile(r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th")


class Sent(NamedTuple):
    """`megabytes` a second are those of the second half, as far as the tool tells it apart: by then Java has compiled
    what runs."""

    megabytes: float
    p50_ms: float
    p99_ms: float


class Read(NamedTuple):
    """`megabytes` a second are those of the second half, likewise."""

    megabytes: float


class Committed(NamedTuple):
    """Transactions a second, and how long the end of one takes: `flush` and `commitTransaction`."""

    a_second: float
    p99_ms: float


def produce(node: Node, topic: str, records: int, records_a_second: int = -1) -> Sent:
    """As fast as it can be, or so many records a second: then latencies are not those of its own queue."""
    options = ("--topic", topic, "--num-records", str(records), "--record-size", str(RECORD_BYTES))
    pace = ("--throughput", str(records_a_second))
    settings = ("--producer-props", f"bootstrap.servers={node.address}", *PRODUCER)
    return sent(_run("ProducerPerformance", *options, *pace, *settings))


def consume(node: Node, topic: str, records: int) -> Read:
    options = ("--bootstrap-server", node.address, "--topic", topic, "--messages", str(records), "--timeout", "20000")
    return read(_run("ConsumerPerformance", *options, "--show-detailed-stats", "--reporting-interval", "200"))


def transact(node: Node, topic: str, records: int, seconds: float) -> Committed:
    """One producer, one transaction after the other, once Java has compiled what they need."""
    arguments = (node.address, topic, str(records), str(_WARMING_S), str(seconds))
    return committed(_java(str(_TRANSACTIONS), *arguments), seconds)


def committed(output: str, seconds: float) -> Committed:
    """A line for each commit: how many milliseconds it took."""
    commits_ms = [float(line) for line in output.split()]
    if len(commits_ms) < 2:
        raise ValueError(f"the producer has committed nothing: {output[-2000:]}")
    return Committed(len(commits_ms) / seconds, statistics.quantiles(commits_ms, n=100)[98])


def sent(output: str) -> Sent:
    """The last line of the producer's output tells the whole run, those before it tell five seconds each."""
    latencies = _LATENCIES.search(output)
    if latencies is None:
        raise ValueError(f"the producer has told nothing: {output[-2000:]}")
    *intervals, (records, seconds) = [(int(count), int(count) / float(rate)) for count, rate in _SENT.findall(output)]
    half = records / 2
    for count, took_s in intervals:
        half -= count
        if half < 0:
            break
        records -= count
        seconds -= took_s
    return Sent(records / seconds * RECORD_BYTES / 1e6, float(latencies["p50"]), float(latencies["p99"]))


def read(output: str) -> Read:
    """From what the consumer prints all the while: names, and then figures, of which some tell all there was so far."""
    if _GAVE_UP in output:
        raise ValueError(f"the consumer has not read everything: {output[-2000:]}")
    names, *lines = [[part.strip() for part in line.split(",")] for line in output.splitlines() if line.count(",") >= 9]
    told = [dict(zip(names, line, strict=True)) for line in lines]
    if len(told) < 2:
        raise ValueError(f"the consumer has told nothing: {output[-2000:]}")
    megabytes = [float(one["data.consumed.in.MB"]) for one in told]
    begin = next(number for number, sum_so_far in enumerate(megabytes) if sum_so_far >= megabytes[-1] / 2)
    begin = min(begin, len(told) - 2)
    took_s = sum(float(one["fetch.time.ms"]) for one in told[begin + 1 :]) / 1000
    return Read((megabytes[-1] - megabytes[begin]) * _MEBI / 1e6 / took_s)


def _run(tool: str, *options: str) -> str:
    return _java(f"org.apache.kafka.tools.{tool}", *options)


def _java(program: str, *arguments: str) -> str:
    command = ["java", *JAVA, "-cp", apache_kafka.class_path(), program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode or "ERROR" in done.stdout:
        raise RuntimeError(f"{program}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
