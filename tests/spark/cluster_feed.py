"""Feeds a topic at a steady pace while brokers are killed, and knows what it has sent."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType

from cluster_world import numbered_rows

from semel.sync import Producer
from semel.sync.producer import Delivery

_PAUSE_S = 0.1


class Feeder:
    """Use with `with`. All that was sent is written when `finish` returns."""

    def __init__(self, address: str, topic: str, *, rows_per_s: int) -> None:
        self._address = address
        self._topic = topic
        self._rows_at_once = max(1, int(rows_per_s * _PAUSE_S))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder")
        self._error: BaseException | None = None
        self.sent: list[tuple[bytes, bytes]] = []

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        self._ending.set()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._address, acks="all", compression_type="lz4") as producer:
                self._feed(producer)
        except BaseException as error:
            self._error = error

    def _feed(self, producer: Producer) -> None:
        deliveries: deque[Delivery] = deque()
        while not self._ending.is_set():
            began = time.monotonic()
            rows = numbered_rows(len(self.sent), self._rows_at_once, padding=200)
            while deliveries and deliveries[0].done():
                deliveries.popleft().result()
            deliveries.extend(producer.send(self._topic, value, key) for key, value in rows)
            self.sent += rows
            self._ending.wait(max(0.0, began + _PAUSE_S - time.monotonic()))
        for delivery in deliveries:
            delivery.result(timeout_s=150)
