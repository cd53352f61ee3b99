"""What must not happen between the moment in which a coordinator on another node is asked about a transaction and the
one in which a batch of it is written here: that a marker ends the transaction in this partition, or that the leadership
ends. The answer would be true and the batch would stay for ever without a marker (KAFKA-14402).

A guard is taken before the question and looked at right before the write. It is broken by every marker of its producer
that is written to its partition, and holds for one term of leadership. `LocalMarkers` alone tells of markers: there is
no other way for one into a partition that is led here.
"""

from __future__ import annotations

from semel.log.types import ProducerId
from semel.replication.partition import Partition


class Guard:
    __slots__ = ("_holders", "_is_broken", "partition", "producer_id")

    def __init__(self, partition: Partition, producer_id: ProducerId) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self._is_broken = False
        self._holders = 0

    def is_whole(self, partition: Partition) -> bool:
        """Whether it was taken in the term that the write would belong to, and nothing was ended since."""
        return not self._is_broken and self.partition is partition and not partition.is_closed

    def take(self) -> Guard:
        self._holders += 1
        return self

    def give_back(self) -> bool:
        """Whether that was the last holder."""
        self._holders -= 1
        return not self._holders

    def break_it(self) -> None:
        self._is_broken = True


_Key = tuple[str, int, ProducerId]


class VerificationGuards:
    """At most one guard a producer and partition is kept: as many as requests wait for answers of coordinators."""

    def __init__(self) -> None:
        self._guards: dict[_Key, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def take(self, partition: Partition, producer_id: ProducerId) -> Guard:
        key = (partition.topic, partition.index, producer_id)
        guard = self._guards.get(key)
        if guard is None or not guard.is_whole(partition):
            guard = self._guards[key] = Guard(partition, producer_id)
        return guard.take()

    def give_back(self, guard: Guard) -> None:
        key = (guard.partition.topic, guard.partition.index, guard.producer_id)
        if guard.give_back() and self._guards.get(key) is guard:
            del self._guards[key]

    def marked(self, topic: str, index: int, producer_id: ProducerId) -> None:
        """A marker was written: what was asked before is answered too late."""
        if self._guards:
            guard = self._guards.pop((topic, index, producer_id), None)
            if guard is not None:
                guard.break_it()
