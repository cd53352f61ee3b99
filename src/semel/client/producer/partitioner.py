"""Which partition a record goes to: the one that is asked for, the program's choice, its key's hash, or the sticky one.

Without a key all records of a topic go to one partition until it has taken a batch's worth of bytes, then to another
that has a leader: batches are full, and the load is even (KIP-480, KIP-794).
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from typing import Any

from semel.client.errors import BadRecord
from semel.client.metadata import NO_NODE, Topic
from semel.client.producer.lane import Lane
from semel.records.partitioning import partition_of_key

Choice = Callable[[str, Any, Any, list[int]], int]


class TopicLanes:
    """The lanes of one topic, by partition number, as the cluster knows it now."""

    __slots__ = ("_random", "count", "lanes", "name", "sticky", "sticky_bytes", "topic")

    def __init__(self, topic: Topic, random: random_module.Random, lane_of: Callable[[str, int], Lane]) -> None:
        self.name = topic.name
        self.topic = topic
        self.count = len(topic.partitions)
        self.lanes = [lane_of(topic.name, number) for number in range(self.count)]
        self._random = random
        self.sticky = random.choice(self.lanes)
        self.sticky_bytes = 0  # how many more it takes before another one has its turn

    def update(self, topic: Topic, lane_of: Callable[[str, int], Lane]) -> None:
        """Partitions may have been added, and leaders may have moved. Partitions go away only with their topic."""
        is_another = topic.topic_id != self.topic.topic_id
        self.topic = topic
        self.count = len(topic.partitions) if is_another else max(len(topic.partitions), self.count)
        for number in range(len(self.lanes), self.count):
            self.lanes.append(lane_of(topic.name, number))
        if self.sticky.partition >= self.count:
            self.sticky_bytes = 0

    def with_key(self, key: bytes) -> Lane:
        return self.lanes[partition_of_key(key, self.count)]

    def without_key(self, size: int, batch_bytes: int) -> Lane:
        if self.sticky_bytes <= 0:
            self._move_on()
            self.sticky_bytes = batch_bytes
        self.sticky_bytes -= size
        return self.sticky

    def _move_on(self) -> None:
        led = [number for number, partition in self.topic.partitions.items() if partition.leader_id != NO_NODE]
        others = [number for number in led or range(self.count) if number != self.sticky.partition]
        if others:
            self.sticky = self.lanes[self._random.choice(others)]

    def numbered(self, partition: int) -> Lane:
        if not isinstance(partition, int) or not 0 <= partition < self.count:
            raise BadRecord(f"{self.name} has partitions 0 to {self.count - 1}, not {partition!r}")
        return self.lanes[partition]

    def chosen(self, choose: Choice, key: Any, value: Any) -> Lane:
        try:
            number = choose(self.name, key, value, list(range(self.count)))
        except Exception as error:
            raise BadRecord(f"the partitioner failed on a record for {self.name}: {error!r}") from error
        return self.numbered(number)
