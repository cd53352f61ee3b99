"""Where the consumer stands in each partition that it reads, and what it holds of it: one Reading per partition.

                  +--------- found ---------+
                  |                         v
    COMMITTED_WANTED -- missing --> RESET_WANTED -- found --> FETCHING <-- valid -- VALIDATION_WANTED
                                        ^                      |   |                  ^    |
                                        +------ no offset -----+   +--- new leader ---+    |
                                        +--------------------- no offset ------------------+

A seek leads from anywhere to FETCHING, or to RESET_WANTED if it is to one of the ends. Every move gives the Reading a
new version, so that an answer to what was asked before is known as such and dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from semel.client.consumer.decoding import Decoded, Decoder
from semel.client.consumer.fetched import Batch, Fetched, corrupt
from semel.client.errors import SemelError
from semel.client.metadata import NO_EPOCH, NO_NODE, TopicPartition
from semel.client.serialization import NotReady
from semel.client.values import AnyMessage
from semel.records.errors import RecordError

NO_OFFSET = -1


class Phase(Enum):
    COMMITTED_WANTED = auto()
    RESET_WANTED = auto()
    VALIDATION_WANTED = auto()
    FETCHING = auto()


class Event(Enum):
    FOUND = auto()
    NO_OFFSET = auto()
    NEW_LEADER = auto()
    VALID = auto()
    SEEK = auto()
    SEEK_END = auto()


MOVES = {
    (Phase.COMMITTED_WANTED, Event.FOUND): Phase.FETCHING,
    (Phase.COMMITTED_WANTED, Event.NO_OFFSET): Phase.RESET_WANTED,
    (Phase.RESET_WANTED, Event.FOUND): Phase.FETCHING,
    (Phase.FETCHING, Event.NO_OFFSET): Phase.RESET_WANTED,
    (Phase.FETCHING, Event.NEW_LEADER): Phase.VALIDATION_WANTED,
    (Phase.VALIDATION_WANTED, Event.NEW_LEADER): Phase.VALIDATION_WANTED,
    (Phase.VALIDATION_WANTED, Event.VALID): Phase.FETCHING,
    (Phase.VALIDATION_WANTED, Event.NO_OFFSET): Phase.RESET_WANTED,
    **{(phase, Event.SEEK): Phase.FETCHING for phase in Phase},
    **{(phase, Event.SEEK_END): Phase.RESET_WANTED for phase in Phase},
}


class Rest(NamedTuple):
    """A batch of which the records from the position on are still to be handed out, and where reading goes on then."""

    batch: Batch
    end_offset: int
    end_epoch: int


class Reading:
    """One assigned partition. `offset` is where the program stands, but for what it is being given one by one.

    What is held goes from `fetched` (answers) through `rest` (the batch that is open) to `decoded` (its messages).
    """

    def __init__(self, partition: TopicPartition, phase: Phase) -> None:
        self.partition = partition
        self.phase = phase
        self.version = 0
        self.offset = NO_OFFSET
        self.offset_epoch = NO_EPOCH
        """The leader epoch of the record before `offset`, by which a later leader can tell if it is still there."""
        self.leader_epoch = NO_EPOCH
        """The newest leader for whom the position is known to be good."""
        self.committed_offset = NO_OFFSET
        """The last one that we know to be committed."""
        self.reset_to: int | None = None
        """The timestamp to look for, if it is not the policy that decides."""
        self.paused = False
        self.fetched: deque[Fetched] = deque()
        self.rest: Rest | None = None
        self.decoded: Decoded | None = None
        self.problem: SemelError | None = None
        """Raised by poll when it comes to this partition. It is not read further."""
        self.is_queued = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_node = NO_NODE
        self.preferred_until_s = 0.0
        self.failures = 0
        self.not_before_s = 0.0

    def __repr__(self) -> str:
        return f"Reading({self.partition}, {self.phase.name}, at {self.position})"

    # -- moving

    def move(self, event: Event) -> None:
        self.phase = MOVES[self.phase, event]
        self.version += 1

    def place(self, event: Event, offset: int, epoch: int = NO_EPOCH) -> None:
        """Reading goes on at `offset`; what is held of another place is dropped."""
        self.move(event)
        self.drop_held()
        self.offset, self.offset_epoch = offset, epoch
        self.reset_to = None
        self.calm()

    def unplace(self, event: Event, reset_to: int | None = None) -> None:
        """The position is to be found by a reset."""
        self.move(event)
        self.drop_held()
        self.offset, self.offset_epoch = NO_OFFSET, NO_EPOCH
        self.reset_to = reset_to
        self.calm()

    def drop_held(self) -> None:
        if self.decoded is not None:
            self.decoded.stop()
        self.fetched.clear()
        self.rest = self.decoded = self.problem = None
        self.preferred_node = NO_NODE

    def calm(self) -> None:
        """What was tried has succeeded: no pause before the next try."""
        self.failures = 0
        self.not_before_s = 0.0

    # -- where it stands

    @property
    def has_position(self) -> bool:
        return self.offset != NO_OFFSET

    @property
    def position(self) -> int:
        return self.offset if self.decoded is None else self.decoded.position(self.offset)

    @property
    def position_epoch(self) -> int:
        if self.decoded is None or not self.decoded.count():
            return self.offset_epoch
        return self.decoded.end_epoch

    @property
    def finished_position(self) -> int:
        """As `position`, but without the message that the program may still be working on."""
        in_hand = None if self.decoded is None else self.decoded.in_hand()
        return self.position if in_hand is None else in_hand

    @property
    def fetch_position(self) -> tuple[int, int]:
        """The offset behind everything held, and the leader epoch of the batch before it."""
        if self.fetched:
            last = self.fetched[-1]
            return last.end_offset, last.end_epoch if last.end_epoch >= 0 else self.offset_epoch
        held = self.rest or self.decoded
        return (self.offset, self.offset_epoch) if held is None else (held.end_offset, held.end_epoch)

    @property
    def has_room(self) -> bool:
        """Nothing is held, or one answer that is being read already: the next one should be on its way."""
        held = self.fetched
        return not held or (len(held) == 1 and held[0].left_bytes < held[0].size_bytes)

    def wants_records(self) -> bool:
        return self.phase is Phase.FETCHING and not self.paused and self.problem is None and self.has_room

    # -- what it holds

    def has_something(self) -> bool:
        """Whether poll should come by: to hand out, to step over what may not be seen, or to raise."""
        if self.fetched or self.rest is not None or self.problem is not None:
            return True
        return self.decoded is not None and self.decoded.count() < len(self.decoded.messages)

    def ready(self, decoder: Decoder) -> Decoded | None:
        """Messages to hand out, decoded if need be. None: there are none, or `problem` stands before them."""
        self.settle_decoded()
        while self.decoded is None:
            rest = self.open_batch()
            if rest is None:
                break
            self._decode(rest, decoder)
        return self.decoded

    def open_batch(self) -> Rest | None:
        """The next batch to hand out, or what is left of it: it stays `rest` until it is closed or decoded."""
        while self.rest is None and self.problem is None and self.fetched:
            front = self.fetched[0]
            batch = front.current
            if batch is not None or (front.left_bytes > 0 and front.problem is None):
                front.step()
                if batch is None:
                    self.advance(front.next_offset, front.next_epoch)
                else:
                    self.rest = Rest(batch, front.next_offset, front.next_epoch)
            elif front.problem is None:
                self.fetched.popleft()
            else:
                self.problem = front.problem
        return self.rest if self.problem is None else None

    def close_batch(self) -> None:
        if self.rest is not None:
            self.advance(self.rest.end_offset, self.rest.end_epoch)
            self.rest = None

    def _decode(self, rest: Rest, decoder: Decoder) -> None:
        try:
            messages, failure = decoder.messages(self.partition, rest.batch, self.offset)
        except RecordError as error:
            self.problem = corrupt(self.partition, self.offset, error, rest.batch.header)
            return
        if messages:
            # After a failure the batch stays open, to be met again when the messages before it were handed out.
            end_offset = rest.end_offset if failure is None else failure.offset
            self.decoded = Decoded(messages, rest.batch, end_offset, rest.end_epoch)
            if failure is None:
                self.rest = None
        elif failure is None:
            self.close_batch()
        else:
            self.problem = failure

    def settle_decoded(self) -> None:
        """Counts what was handed out one by one; the position is then `offset` itself."""
        decoded = self.decoded
        if decoded is None:
            return
        decoded.stop()
        handed = decoded.handed
        if handed:
            self.advance(decoded.position(self.offset), decoded.end_epoch)
        if handed == len(decoded.messages):
            self.decoded = None

    def undecode(self) -> None:
        """Messages that were not handed out become the batch again that they came from."""
        self.settle_decoded()
        if self.decoded is not None:
            if self.rest is None:
                self.rest = Rest(self.decoded.batch, self.decoded.end_offset, self.decoded.end_epoch)
            self.decoded = None

    def advance(self, offset: int, epoch: int) -> None:
        if offset > self.offset:
            self.offset = offset
        if epoch >= 0:
            self.offset_epoch = epoch

    def take(self, most: int, decoder: Decoder) -> list[AnyMessage]:
        """Up to `most` messages; the position is behind them."""
        taken: list[AnyMessage] = []
        while len(taken) < most:
            try:
                decoded = self.ready(decoder)
            except NotReady:
                if taken:
                    break  # those first: their position is behind them already
                raise
            if decoded is None:
                break
            part = decoded.take(most - len(taken))
            if taken:
                taken += part
            else:
                taken = part
            self.settle_decoded()
        return taken


class PartitionReaders:
    """All assigned partitions, in the order in which they are fetched, and the queue of those that hold something."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, Reading] = {}
        self.queue: deque[Reading] = deque()

    def __iter__(self) -> Iterator[Reading]:
        return iter(self._by_partition.values())

    def __len__(self) -> int:
        return len(self._by_partition)

    def get(self, partition: TopicPartition) -> Reading | None:
        return self._by_partition.get(partition)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._by_partition)

    def add(self, partitions: Iterable[TopicPartition], phase: Phase) -> None:
        for partition in partitions:
            if partition not in self._by_partition:
                self._by_partition[partition] = Reading(partition, phase)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            gone = self._by_partition.pop(partition, None)
            if gone is not None:
                gone.version += 1
                gone.drop_held()
                if gone.is_queued:
                    self.queue.remove(gone)
                    gone.is_queued = False

    def enqueue(self, reading: Reading) -> None:
        if not reading.is_queued and reading.has_something():
            reading.is_queued = True
            self.queue.append(reading)

    def move_to_end(self, reading: Reading) -> None:
        """It got records: the others are asked for first next time, so that none starves."""
        if self._by_partition.get(reading.partition) is reading:
            del self._by_partition[reading.partition]
            self._by_partition[reading.partition] = reading
