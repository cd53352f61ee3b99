"""Partitions that somebody has named, and the offsets that a position means in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from semel.client.admin.admin import Admin
from semel.client.admin.values import OffsetSpec
from semel.client.metadata import TopicPartition
from semel.views.positions import Kind, Place, Position
from semel.views.refusals import Missing
from semel.views.topics import described
from semel.views.wording import count_text


async def partitions_of(admin: Admin, given: Sequence[Place]) -> list[TopicPartition]:
    """Raises Missing for a topic or a partition that is not there."""
    topics = await described(admin, [place.topic for place in given])
    places: set[TopicPartition] = set()
    for place in given:
        numbers = topics[place.topic].partitions
        if place.partition is not None and place.partition not in numbers:
            count = count_text(len(numbers), "partition")
            raise Missing(f"topic {place.topic!r} has no partition {place.partition}; it has {count}")
        places |= {TopicPartition(place.topic, number) for number in numbers if place.partition in (None, number)}
    return sorted(places)


async def starts_of(admin: Admin, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return await _listed(admin, dict.fromkeys(places, OffsetSpec.EARLIEST))


async def ends_of(admin: Admin, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return await _listed(admin, dict.fromkeys(places, OffsetSpec.LATEST))


async def offsets_at(
    admin: Admin,
    where: Position,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now_ms: int,
) -> dict[TopicPartition, int]:
    """As it was asked for, whether the log has it or not."""
    if where.kind is Kind.EARLIEST:
        return dict(starts)
    if where.kind is Kind.LATEST:
        return dict(ends)
    if where.kind is Kind.OFFSET:
        return dict.fromkeys(ends, where.value)
    if where.kind is Kind.BEFORE_END:
        return {place: end - where.value for place, end in ends.items()}
    found = await _listed(admin, dict.fromkeys(ends, where.time_ms(now_ms)))
    # Nothing was written since: the next record will be the first.
    return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}


async def _listed(admin: Admin, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {place: found.offset for place, found in (await admin.list_offsets(wanted)).items()}
