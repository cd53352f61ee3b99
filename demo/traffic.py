"""Payments that are sent at a steady pace, and an onlooker who reads what comes out at the other end."""

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

import semel
import semel.sync

SECOND_PAYMENTS = 500
ACCOUNTS = 97


class Payments(threading.Thread):
    """The producer is idempotent: however often it must retry, each payment is in its topic once."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._is_over = threading.Event()
        self.sent = 0
        self.problem: Exception | None = None

    def run(self) -> None:
        begin_s = time.monotonic()
        try:
            with semel.sync.Producer(bootstrap_servers=self._address) as producer:
                while not self._is_over.wait(0.02):
                    due = int((time.monotonic() - begin_s) * SECOND_PAYMENTS)
                    for number in range(self.sent, due):
                        account = number * 31 % ACCOUNTS
                        payment = {"number": number, "account": account, "cents": 100 + number * 7919 % 90_000}
                        producer.send("payments", json.dumps(payment).encode(), key=b"%d" % account)
                    self.sent = max(due, self.sent)
        except semel.errors.SemelError as error:
            self.problem = error

    def stop(self) -> None:
        """Returns when every payment is acknowledged."""
        self._is_over.set()
        self.join()
        if self.problem is not None:
            raise self.problem


@dataclass
class Found:
    """What is in one topic of bookings."""

    records: int = 0
    payments: set[int] = field(default_factory=set)
    disordered: int = 0
    last_of: dict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))

    def add(self, number: int, account: int) -> None:
        self.records += 1
        if number not in self.payments:
            self.payments.add(number)
            self.disordered += number < self.last_of[account]
            self.last_of[account] = number

    @property
    def duplicated(self) -> int:
        return self.records - len(self.payments)


class Onlooker(threading.Thread):
    """Reads all bookings, committed ones only, and notes how many there were when."""

    def __init__(self, address: str, topics: list[str], payments: Payments) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._payments = payments
        self._is_over = threading.Event()
        self.begin_s = time.monotonic()
        self.found = {topic: Found() for topic in topics}
        self.noted: list[tuple[float, int, dict[str, tuple[int, int]]]] = []
        """(seconds, sent, records and duplicates by topic)"""

    def run(self) -> None:
        with semel.sync.Consumer(
            bootstrap_servers=self._address, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([semel.TopicPartition(topic, number) for topic in self.found for number in range(2)])
            while not self._is_over.is_set():
                for partition, messages in consumer.poll(timeout_ms=250).items():
                    for message in messages:
                        booking = json.loads(message.value)
                        self.found[partition.topic].add(booking["payment"], booking["account"])
                self._note()

    def _note(self) -> None:
        now_s = time.monotonic() - self.begin_s
        if not self.noted or now_s >= self.noted[-1][0] + 0.25:
            counts = {topic: (found.records, found.duplicated) for topic, found in self.found.items()}
            self.noted.append((now_s, self._payments.sent, counts))

    def has_all(self) -> bool:
        return all(len(found.payments) >= self._payments.sent for found in self.found.values())

    def stop(self) -> None:
        self._is_over.set()
        self.join()
        self._note()
