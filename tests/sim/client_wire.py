"""What a producer may put on the wire, whatever happens to it: rules that the log alone cannot tell were kept.

A name (producer id, epoch, sequence) stands for one content for ever. While a batch is sent again, nothing else of its
partition is in flight. There are never more requests in flight on a connection than the settings allow.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from semel.records.batch import read_header
from semel.sim.attack.fault_answers import PRODUCE, body_of
from semel.sim.attack.fault_policy import Passing

HEADER_BYTES = 61


class Name(NamedTuple):
    """What a batch is known by. The topic is its name or its id."""

    topic: str | bytes
    partition: int
    producer_id: int
    epoch: int
    sequence: int


class ProducerWitness:
    """Broken rules are kept in `broken`: to raise them here would only close a connection."""

    def __init__(self, most_in_flight: int) -> None:
        self.broken: list[str] = []
        self._most_in_flight = most_in_flight
        self._contents: dict[Name, bytes] = {}
        self._sent: Counter[Name] = Counter()
        self._in_flight: dict[tuple[int, int], list[Name]] = {}

    def asked(self, request: Passing, frame: bytes) -> None:
        if request.api_key != PRODUCE:
            return
        names = []
        for topic in body_of(frame, request).topic_data:
            for data in topic.partition_data:
                names.append(self._batch(topic.name or topic.topic_id, data.index, bytes(data.records)))
        self._in_flight[request.connection, request.correlation_id] = names
        on_connection = sum(connection == request.connection for connection, _ in self._in_flight)
        if on_connection > self._most_in_flight:
            self.broken.append(f"{on_connection} requests in flight on connection {request.connection}")

    def _batch(self, topic: str | bytes, partition: int, records: bytes) -> Name:
        header = read_header(records)
        name = Name(topic, partition, header.producer_id, header.producer_epoch, header.base_sequence)
        if self._contents.setdefault(name, records[HEADER_BYTES:]) != records[HEADER_BYTES:]:
            self.broken.append(f"{name} stands for two contents")
        self._sent[name] += 1
        others = [
            other
            for names in self._in_flight.values()
            for other in names
            if (other.topic, other.partition) == (topic, partition)
        ]
        if others and (self._sent[name] > 1 or any(self._sent[other] > 1 for other in others)):
            self.broken.append(f"{name} is sent while {others} are in flight, and one of them is sent again")
        return name

    def answered(self, request: Passing) -> None:
        self._in_flight.pop((request.connection, request.correlation_id), None)

    def ended(self, connection: int) -> None:
        for key in [key for key in self._in_flight if key[0] == connection]:
            del self._in_flight[key]

    def check(self) -> None:
        assert not self.broken, self.broken[0]
