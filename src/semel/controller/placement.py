"""Where the replicas of new partitions go: racks in turn, evenly over brokers, unfenced brokers first.

No two replicas of a partition are on one broker, and the first, which leads, is on one that is unfenced. Racks count
for more than evenness: a small rack gets as many replicas as a large one, as in Kafka. Chance decides between equals,
so that topics that are made one by one do not all begin at the same broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from semel.log.errors import Refused
from semel.wire.errors import ErrorCode


class Place(NamedTuple):
    """A broker that can take replicas."""

    node_id: int
    rack: str | None
    is_fenced: bool


def place(places: Sequence[Place], partitions: int, replicas: int, random: Random) -> list[tuple[int, ...]]:
    """For each partition its replicas. Raises Refused when there are too few brokers."""
    unfenced = [one for one in places if not one.is_fenced]
    if replicas > len(places) or not unfenced:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replicas}: this cluster has {_count(len(places))} for replicas, {len(unfenced)} of "
            "them unfenced",
        )
    if len(places) == 1:
        return [(places[0].node_id,)] * partitions
    leading = dict.fromkeys((one.node_id for one in places), 0)
    holding = dict(leading)
    placed: list[tuple[int, ...]] = []
    for _ in range(partitions):
        lot = {one.node_id: random.random() for one in places}
        leader = min(unfenced, key=lambda one: (leading[one.node_id], holding[one.node_id], lot[one.node_id]))
        leading[leader.node_id] += 1
        chosen, left = [leader], [one for one in places if one is not leader]
        taken = {leader.rack: 1}
        while len(chosen) < replicas:
            following = min(
                left,
                key=lambda one: (taken.get(one.rack, 0), one.is_fenced, holding[one.node_id], lot[one.node_id]),
            )
            left.remove(following)
            taken[following.rack] = taken.get(following.rack, 0) + 1
            chosen.append(following)
        for one in chosen:
            holding[one.node_id] += 1
        placed.append(tuple(one.node_id for one in chosen))
    return placed


def _count(brokers: int) -> str:
    return "1 node" if brokers == 1 else f"{brokers} nodes"
