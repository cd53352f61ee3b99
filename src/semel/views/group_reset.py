"""Sets a group to other offsets: finds those that are meant, so that they can be shown first, and commits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from semel.client.admin.admin import Admin
from semel.client.admin.group_values import GroupDescription
from semel.client.errors import GroupNotEmpty, UnknownGroup
from semel.client.metadata import TopicPartition
from semel.views.places import ends_of, offsets_at, partitions_of, starts_of
from semel.views.positions import Place, Position
from semel.views.refusals import Missing, Refusal
from semel.views.wording import count_text


class Move(NamedTuple):
    """Of one partition. `wanted` is where it was asked to be, `new` where the log lets it be."""

    place: TopicPartition
    committed: int | None
    wanted: int
    new: int
    end: int


async def plan(
    admin: Admin, group_id: str, places: Sequence[Place], where: Position | int, *, now_ms: int
) -> tuple[list[Move], str | None]:
    """What a reset would do, and why it cannot be done now, if so. `where` is a position, or by how much to shift."""
    group = await _group(admin, group_id)
    return await _moves(admin, group_id, places, where, now_ms=now_ms), _active(group)


async def execute(admin: Admin, group_id: str, moves: Sequence[Move], active: str | None) -> None:
    """Commits what was planned; Refusal if the group has members."""
    if active is not None:
        raise Refusal(active)
    try:
        await admin.alter_group_offsets(group_id, {move.place: move.new for move in moves})
    except GroupNotEmpty:
        raise Refusal(f"a member has just joined group {group_id!r}: stop it, then call this again") from None


def moves_document(moves: Sequence[Move]) -> list[dict[str, Any]]:
    return [
        {
            "topic": move.place.topic,
            "partition": move.place.partition,
            "committed": move.committed,
            "new": move.new,
            "end_offset": move.end,
            "clamped_from": None if move.wanted == move.new else move.wanted,
        }
        for move in moves
    ]


async def _group(admin: Admin, name: str) -> GroupDescription | None:
    """None for one that is not there: with --topic it can be made."""
    try:
        return (await admin.describe_groups(name))[name]
    except UnknownGroup:
        return None


def _active(group: GroupDescription | None) -> str | None:
    if group is None or not group.members:
        return None
    who = sorted({f"{member.client_id} at {member.client_host.removeprefix('/')}" for member in group.members})
    count = count_text(len(group.members), "active member")
    return f"group {group.group_id!r} has {count} ({', '.join(who)}), who commit for themselves: stop them first"


async def _moves(
    admin: Admin, group_id: str, given: Sequence[Place], where: Position | int, *, now_ms: int
) -> list[Move]:
    committed = {place: offset.offset for place, offset in (await admin.list_group_offsets(group_id))[group_id].items()}
    places = await partitions_of(admin, given) if given else sorted(committed)
    if not places:
        raise Missing(f"group {group_id!r} has committed nothing: name topics with --topic, or see semel group list")
    starts, ends = await starts_of(admin, places), await ends_of(admin, places)
    if isinstance(where, int):
        unknown = [place for place in places if place not in committed]
        if unknown:
            first = f"{unknown[0].topic}/{unknown[0].partition}"
            raise Missing(
                f"group {group_id!r} has committed nothing for {first}, so there is nothing to shift: use --to"
            )
        wanted = {place: committed[place] + where for place in places}
    else:
        wanted = await offsets_at(admin, where, starts, ends, now_ms)
    return [
        Move(
            place,
            committed.get(place),
            wanted[place],
            min(max(wanted[place], starts[place]), ends[place]),
            ends[place],
        )
        for place in places
    ]
