"""Hands out what is held, partition after partition, in the order in which it came; or raises what stands in the way.

A problem is raised alone, and its partition then goes to the end of the queue: the others go on. Only what is assigned,
not paused and sure of its position is handed out; the rest stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from semel.client.consumer.decoding import Decoded, Decoder
from semel.client.consumer.positions import PartitionReaders, Phase, Reading
from semel.client.errors import PositionError
from semel.client.metadata import TopicPartition
from semel.client.serialization import NotReady
from semel.client.values import AnyMessage

Only = frozenset[TopicPartition] | None
"""The partitions that are asked for; None: all."""


class RecordQueue:
    def __init__(
        self,
        readings: PartitionReaders,
        decoder: Decoder,
        *,
        has_room: Callable[[], None],
        raised: Callable[[Reading], None],
    ) -> None:
        """`has_room`: a partition could take more. `raised`: its problem was raised; it may be gone by now."""
        self.unfinished: dict[Reading, int] = {}
        """Where partitions stood before what was handed out last: the program may still be working on that."""
        self.records = 0  # that were handed out
        self._being_handed: Decoded | None = None
        self._readings = readings
        self._decoder = decoder
        self._has_room = has_room
        self._raised = raised

    def messages(self, most: int, only: Only) -> dict[TopicPartition, list[AnyMessage]]:
        taken: dict[TopicPartition, list[AnyMessage]] = {}

        def take(reading: Reading, left: int) -> int:
            part = reading.take(left, self._decoder)
            if part:
                taken[reading.partition] = part
            return len(part)

        self.each(most, only, take)
        return taken

    def each(self, most: int, only: Only, take: Callable[[Reading, int], int]) -> None:
        """`take` takes up to so many records of a partition and says how many; its position is then behind them."""
        has_taken = False
        for reading in self._ready(only):
            if reading.problem is not None:
                if not has_taken:
                    self._raise(reading)
                return
            had_room = reading.has_room
            reading.settle_decoded()
            before = reading.offset
            try:
                count = take(reading, most)
            except NotReady:
                if has_taken:
                    return  # what was taken is handed out first
                raise
            if reading.has_room and not had_room:
                self._has_room()
            if count:
                has_taken = True
                self.records += count
                self.unfinished[reading] = before
                most -= count
                if most <= 0:
                    return

    def one_by_one(self, only: Only = None) -> tuple[Reading, Decoded] | None:
        """Messages of one batch: whoever takes them does so through `Decoded.one_by_one`, and counts nothing."""
        for reading in self._ready(only):
            had_room = reading.has_room
            decoded = reading.ready(self._decoder)
            if reading.has_room and not had_room:
                self._has_room()
            if decoded is not None:
                if decoded is not self._being_handed:
                    self._being_handed = decoded
                    self.records += len(decoded.messages) - decoded.handed
                return reading, decoded
            if reading.problem is not None:
                self._raise(reading)
        return None

    def _ready(self, only: Only) -> Iterator[Reading]:
        """Each that may be looked at, once. One that then holds nothing more leaves the queue."""
        queue = self._readings.queue
        skipped: list[Reading] = []
        try:
            while queue:
                reading = queue[0]
                if reading.paused or (reading.phase is not Phase.FETCHING and reading.problem is None):
                    queue.popleft()
                    reading.is_queued = False  # it comes back when it is resumed, or its position is found
                    continue
                if only is not None and reading.partition not in only:
                    skipped.append(queue.popleft())
                    continue
                yield reading
                if queue and queue[0] is reading:
                    if reading.has_something():
                        skipped.append(queue.popleft())
                    else:
                        queue.popleft()
                        reading.is_queued = False
        finally:
            queue.extendleft(reversed(skipped))

    def _raise(self, reading: Reading) -> None:
        queue = self._readings.queue
        if queue and queue[0] is reading:
            queue.rotate(-1)
        problem = reading.problem
        if problem is None:
            return
        if not isinstance(problem, PositionError):
            reading.problem = None
            self._raised(reading)
        raise problem.with_traceback(None)
