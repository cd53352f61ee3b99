"""One partition's way out: batches that wait, batches under way, and the sequences that name them.

A sequence is given when a batch is sent for the first time. A batch that has to be sent again goes back among the
waiting in order of sequence, and then only the oldest one is under way, so that the broker sees no gap that is not one.

A gap opens when a batch with a sequence ends unwritten: it was refused, or its time was over and nobody knows. Nothing
new is sent while a gap is open. What follows it goes on under its names, oldest first: if the broker takes one, there
was no gap. If it calls the oldest out of order, the epoch is raised for this partition (KIP-360) and sequences begin
again. A batch gets a new name then only if it was certainly never written: every attempt of it was refused, or one
before it was refused for good. A batch in doubt could still be on its way through a connection that we have given up,
so it fails rather than be written twice.
"""

from __future__ import annotations

from collections import deque

from semel.client.errors import SemelError
from semel.client.producer.batch import NOBODY, Identity, ProducerBatch
from semel.client.producer.settings import MOST_IN_FLIGHT
from semel.records.sequences import sequence_distance

_HALF_RING = 1 << 30


class Lane:
    __slots__ = (
        "failures",
        "gap",
        "identity",
        "in_flight",
        "is_known",
        "must_restart",
        "next_sequence",
        "not_before_s",
        "open",
        "partition",
        "problem",
        "refused",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None  # the batch begun last: it takes records while it has room
        self.identity = NOBODY
        self.is_known = False  # the leader has taken a batch of this producer id
        self.next_sequence = 0
        self.gap: ProducerBatch | None = None  # the newest batch that ended unwritten
        self.refused: ProducerBatch | None = None  # the oldest of which it is certain that it was not written
        self.must_restart = False
        self.failures = 0
        self.problem: SemelError | None = None  # what the last attempt failed with
        self.not_before_s = 0.0

    def __repr__(self) -> str:
        return f"Lane({self.topic}-{self.partition}, {len(self.waiting)} waiting, {len(self.in_flight)} in flight)"

    # -- what may be sent

    def may_send(self) -> bool:
        """Whether the first of the waiting may go, as far as order is concerned. For idempotent producers only."""
        first = self.waiting[0]
        if self.must_restart:
            return False
        if first.has_sequence:
            return not self.in_flight
        # A leader that does not know the producer may take any sequence: until it does, one goes after the other.
        if self.gap is not None or len(self.in_flight) >= (MOST_IN_FLIGHT if self.is_known else 1):
            return False
        return not any(batch.attempts > 1 for batch in self.in_flight)

    def can_restart(self) -> bool:
        """Whether it is time for another epoch: a gap is open, and nothing is left that could close it."""
        if self.in_flight:
            return False
        return self.must_restart or (self.gap is not None and not (self.waiting and self.waiting[0].has_sequence))

    def restart(self, identity: Identity) -> list[ProducerBatch]:
        """Sequences begin again at 0 under another identity. Returns the batches that may not be named anew: they are
        taken out, and the caller fails them."""
        lost = [batch for batch in self.waiting if batch.has_sequence and not self._is_unwritten(batch)]
        self.waiting = deque(batch for batch in self.waiting if batch not in lost)
        for batch in self.waiting:
            if batch.has_sequence:
                batch.forget_name()
        if identity.producer_id != self.identity.producer_id or self.must_restart:
            self.is_known = False
        self.identity = identity
        self.next_sequence = 0
        self.gap = self.refused = None
        self.must_restart = False
        return lost

    def adopt(self, identity: Identity) -> None:
        """Moves to another identity as soon as nothing is left that bears the old one."""
        if self.identity != identity and not self.in_flight and not (self.waiting and self.waiting[0].has_sequence):
            self.restart(identity)

    def take(self, *, named: bool) -> ProducerBatch:
        """The first of the waiting, now under way; if it is new and batches are `named`, it gets the next sequence."""
        batch = self.waiting.popleft()
        if named and not batch.has_sequence:
            batch.identity = self.identity
            batch.base_sequence = self.next_sequence
            self.next_sequence = batch.next_sequence
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    # -- what became of it

    def written(self, batch: ProducerBatch) -> None:
        self.forget(batch)
        self.failures = 0
        self.problem = None
        self.is_known = True
        # The broker takes a batch only when all before it are there: so those in doubt before it were written too.
        if self.gap is not None and (batch is self.gap or _precedes(self.gap, batch)):
            self.gap = self.refused = None

    def failed(self, batch: ProducerBatch) -> None:
        """It ends here, refused or in doubt. If its answer is still to come it stays in flight until `forget`."""
        if batch.has_sequence:
            self._note_refusal(batch)
            if self.gap is None or _precedes(self.gap, batch):
                self.gap = batch

    def forget(self, batch: ProducerBatch) -> None:
        """No answer will come for it any more."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def put_back(self, batch: ProducerBatch) -> None:
        """It will be sent again, before all that follow it."""
        self.forget(batch)
        if not batch.has_sequence:
            self.waiting.appendleft(batch)
            return
        position = 0
        for other in self.waiting:
            if not other.has_sequence or _precedes(batch, other):
                break
            position += 1
        self.waiting.insert(position, batch)

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Whether no batch before it, under way or waiting, could still be written."""
        return not any(other.has_sequence and _precedes(other, batch) for other in (*self.in_flight, *self.waiting))

    def refused_as_out_of_order(self, batch: ProducerBatch) -> bool:
        """The oldest batch does not follow what the broker has. Whether it can be sent under another name: if so it is
        waiting again."""
        if not self._is_unwritten(batch):
            return False
        self._note_refusal(batch)
        self.put_back(batch)
        self.must_restart = True
        return True

    def _note_refusal(self, batch: ProducerBatch) -> None:
        if not batch.in_doubt and (self.refused is None or _precedes(batch, self.refused)):
            self.refused = batch

    def _is_unwritten(self, batch: ProducerBatch) -> bool:
        """Whether it is certain: all its attempts were refused, or one before it is missing for good."""
        return not batch.in_doubt or (self.refused is not None and _precedes(self.refused, batch))


def _precedes(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether it was named before the other: epochs first, then sequences, which wrap."""
    if batch.identity.epoch != other.identity.epoch:
        return batch.identity.epoch < other.identity.epoch
    return batch is not other and sequence_distance(batch.base_sequence, other.base_sequence) <= _HALF_RING
