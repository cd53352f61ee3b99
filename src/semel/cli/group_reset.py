"""`semel group reset`: finds the offsets that are meant, shows them, and commits them if told to."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.cli.connection import admin_for
from semel.cli.failures import CommandFailed, Exit, NotFound
from semel.cli.output import Output, count_text
from semel.cli.positions import Kind, Place, Position
from semel.cli.topic import described as described_topics
from semel.client.admin.admin import Admin
from semel.client.admin.group_values import GroupDescription
from semel.client.admin.values import OffsetSpec
from semel.client.errors import GroupNotEmpty, UnknownGroup
from semel.client.metadata import TopicPartition


class Move(NamedTuple):
    """Of one partition. `wanted` is where it was asked to be, `new` where the log lets it be."""

    place: TopicPartition
    committed: int | None
    wanted: int
    new: int
    end: int


async def reset(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        group = await _group(admin, options.group)
        moves = await _moves(admin, options, now_ms=round(time.time() * 1000))
        active = _active(group)
        if options.execute:
            if active is not None:
                raise CommandFailed(active)
            try:
                await admin.alter_group_offsets(options.group, {move.place: move.new for move in moves})
            except GroupNotEmpty:
                raise CommandFailed(
                    f"a member has just joined group {options.group!r}: stop it, then call this again"
                ) from None
    if output.is_json:
        output.json(_document(options, moves))
        return Exit.OK
    _show(output, moves)
    if options.execute:
        output.note(f"group {options.group} is set")
    else:
        output.note("nothing was changed: --execute does it" + (f"; but {active}" if active else ""))
    return Exit.OK


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


async def _moves(admin: Admin, options: argparse.Namespace, *, now_ms: int) -> list[Move]:
    committed = {
        place: offset.offset for place, offset in (await admin.list_group_offsets(options.group))[options.group].items()
    }
    places = await _places(admin, options.places) if options.places else sorted(committed)
    if not places:
        raise NotFound(
            f"group {options.group!r} has committed nothing: name topics with --topic, or see semel group list"
        )
    starts = await _listed(admin, dict.fromkeys(places, OffsetSpec.EARLIEST))
    ends = await _listed(admin, dict.fromkeys(places, OffsetSpec.LATEST))
    if options.shift is not None:
        unknown = [place for place in places if place not in committed]
        if unknown:
            where = f"{unknown[0].topic}/{unknown[0].partition}"
            raise NotFound(
                f"group {options.group!r} has committed nothing for {where}, so there is nothing to shift: use --to"
            )
        wanted = {place: committed[place] + options.shift for place in places}
    else:
        wanted = await _wanted(admin, options.to, starts, ends, now_ms)
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


async def _places(admin: Admin, given: list[Place]) -> list[TopicPartition]:
    topics = await described_topics(admin, [place.topic for place in given])
    places: set[TopicPartition] = set()
    for place in given:
        numbers = topics[place.topic].partitions
        if place.partition is not None and place.partition not in numbers:
            count = count_text(len(numbers), "partition")
            raise NotFound(f"topic {place.topic!r} has no partition {place.partition}; it has {count}")
        places |= {TopicPartition(place.topic, number) for number in numbers if place.partition in (None, number)}
    return sorted(places)


async def _wanted(
    admin: Admin,
    to: Position,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now_ms: int,
) -> dict[TopicPartition, int]:
    if to.kind is Kind.EARLIEST:
        return dict(starts)
    if to.kind is Kind.LATEST:
        return dict(ends)
    if to.kind is Kind.OFFSET:
        return dict.fromkeys(ends, to.value)
    if to.kind is Kind.BEFORE_END:
        return {place: end - to.value for place, end in ends.items()}
    found = await _listed(admin, dict.fromkeys(ends, to.time_ms(now_ms)))
    # Nothing was written since: the next record will be the first.
    return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}


async def _listed(admin: Admin, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {place: found.offset for place, found in (await admin.list_offsets(wanted)).items()}


def _document(options: argparse.Namespace, moves: list[Move]) -> dict[str, Any]:
    return {
        "group": options.group,
        "executed": options.execute,
        "partitions": [
            {
                "topic": move.place.topic,
                "partition": move.place.partition,
                "committed": move.committed,
                "new": move.new,
                "end_offset": move.end,
                "clamped_from": None if move.wanted == move.new else move.wanted,
            }
            for move in moves
        ],
    }


def _show(output: Output, moves: list[Move]) -> None:
    rows = []
    for move in moves:
        change = None if move.committed is None else move.new - move.committed
        remark = "" if move.wanted == move.new else f"{move.wanted} is not in the log"
        rows.append((*move.place, move.committed, move.new, change, move.end - move.new, remark))
    titles = ["TOPIC", "PARTITION", "COMMITTED", "NEW", "CHANGE", "LAG"]
    if any(row[-1] for row in rows):
        output.table([*titles, "REMARK"], rows)
    else:
        output.table(titles, [row[:-1] for row in rows])
