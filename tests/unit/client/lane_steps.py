"""Lanes with batches in every state, for tests of what may follow."""

from __future__ import annotations

from semel.client.producer.batch import Identity, ProducerBatch
from semel.client.producer.lane import Lane

FIRST = Identity(7, 0)
SECOND = Identity(7, 1)


def filled(count: int = 1) -> ProducerBatch:
    batch = ProducerBatch("t", 0, 0.0)
    for _ in range(count):
        batch.append(None, b"v", 0, None, 12)
    return batch


def lane_with(*counts: int, identity: Identity = FIRST) -> tuple[Lane, list[ProducerBatch]]:
    lane = Lane("t", 0)
    lane.identity = identity
    lane.is_known = True
    batches = [filled(count) for count in counts]
    lane.waiting.extend(batches)
    return lane, batches


def taken(lane: Lane, count: int) -> list[ProducerBatch]:
    return [lane.take(named=True) for _ in range(count)]


def lost(lane: Lane, *batches: ProducerBatch) -> None:
    """Their answers will not come."""
    for batch in batches:
        batch.in_doubt = True
        lane.put_back(batch)


def refused_for_good(lane: Lane, batch: ProducerBatch) -> None:
    lane.forget(batch)
    lane.failed(batch)
