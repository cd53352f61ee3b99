"""A transactional producer of librdkafka that stays connected between its turns."""

from __future__ import annotations

import time
from typing import Any


class Transactor:
    def __init__(self, address: str, topic: str) -> None:
        from confluent_kafka import Producer

        own_id = f"{topic}-{time.time_ns()}"
        self._topic = topic
        self._producer: Any = Producer({"bootstrap.servers": address, "transactional.id": own_id, "linger.ms": 0})
        self._producer.init_transactions(60)

    def run(self, seconds: float) -> int:
        """Commits transactions of one record until the time is over; how many."""
        count = 0
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            self._producer.begin_transaction()
            self._producer.produce(self._topic, b"." * 100)
            self._producer.commit_transaction(60)
            count += 1
        return count
