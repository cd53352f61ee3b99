"""Deletes the oldest records of partitions: finds where they would begin, to be shown first, and has it done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from semel.client.admin.admin import Admin
from semel.client.metadata import TopicPartition
from semel.views.places import ends_of, offsets_at, partitions_of, starts_of
from semel.views.positions import Place, Position


class Trim(NamedTuple):
    """Of one partition. `new` is where it will begin; below `start` nothing is left to delete."""

    place: TopicPartition
    start: int
    new: int
    end: int

    @property
    def is_needed(self) -> bool:
        return self.new > self.start


async def plan(admin: Admin, given: Sequence[Place], before: Position, *, now_ms: int) -> list[Trim]:
    places = await partitions_of(admin, given)
    starts, ends = await starts_of(admin, places), await ends_of(admin, places)
    wanted = await offsets_at(admin, before, starts, ends, now_ms)
    return [
        Trim(place, starts[place], min(max(wanted[place], starts[place]), ends[place]), ends[place]) for place in places
    ]


async def execute(admin: Admin, trims: Sequence[Trim]) -> list[Trim]:
    """Returns what came of it: each with the start that its log has now."""
    done = await admin.delete_records({trim.place: trim.new for trim in trims if trim.is_needed})
    return [trim._replace(new=done.get(trim.place, trim.new)) for trim in trims]


def trims_document(trims: Sequence[Trim]) -> list[dict[str, Any]]:
    return [
        {
            "topic": trim.place.topic,
            "partition": trim.place.partition,
            "start_offset": trim.start,
            "new_start_offset": trim.new,
            "end_offset": trim.end,
        }
        for trim in trims
    ]
