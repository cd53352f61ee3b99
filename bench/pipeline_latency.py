"""From produced to readable: a steady stream goes through a pipeline, and each value says when it was sent."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from typing import NamedTuple

from pipeline_runs import Stage, committed_reader

import semel.sync

_TICK_S = 0.01
_WARM_S = 10.0


class Latency(NamedTuple):
    p50_ms: float
    p99_ms: float


def latency(stage: Stage, address: str, way: str, source: str, sink: str, second_rows: int, seconds: float) -> Latency:
    """What was sent in the first seconds is not judged: Java is cold, and the first batches catch up."""
    over = threading.Event()
    sender = threading.Thread(target=_send, args=(address, source, second_rows, over))
    with tempfile.TemporaryDirectory(prefix="semel-bench-") as directory:
        query = stage.start(way, source, sink, directory)
        try:
            sender.start()
            begin_s = time.monotonic()
            waits_ms = _arrivals(address, sink, begin_s + _WARM_S, begin_s + _WARM_S + seconds)
        finally:
            over.set()
            sender.join()
            query.stop()
    cuts = statistics.quantiles(waits_ms, n=100)
    return Latency(cuts[49], cuts[98])


def _send(address: str, topic: str, second_rows: int, over: threading.Event) -> None:
    count = max(int(second_rows * _TICK_S), 1)
    with semel.sync.Producer(bootstrap_servers=address, linger_ms=0) as producer:
        while not over.wait(_TICK_S):
            value = b"%d" % time.monotonic_ns()
            for number in range(count):
                producer.send(topic, value.ljust(100, b"."), key=b"%d" % number)


def _arrivals(address: str, topic: str, from_s: float, to_s: float) -> list[float]:
    waits_ms: list[float] = []
    with committed_reader(address, topic) as consumer:
        while time.monotonic() < to_s:
            for messages in consumer.poll(timeout_ms=100).values():
                now_ns = time.monotonic_ns()
                sent_ns = [int(message.value.rstrip(b".")) for message in messages]
                waits_ms += [(now_ns - sent) / 1e6 for sent in sent_ns if sent / 1e9 >= from_s]
    return waits_ms
