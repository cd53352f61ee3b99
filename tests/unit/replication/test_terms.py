"""A term of leadership is one object: another leader epoch is another, and whoever holds the old one lets go."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest
from test_partition_leader import Room, simulated

import semel
from semel.log.errors import Refused
from semel.replication.term_kernel import Generation
from semel.wire.errors import ErrorCode


@simulated
async def test_whoever_waits_in_a_term_that_ends_is_sent_to_look_for_the_leader() -> None:
    room = Room()
    committed = room.partition.when_committed(room.append(b"a"))
    woken: list[str] = []
    room.partition.watch("fetch", lambda: woken.append("fetch"))
    following = room.partition.next_term(3)
    assert room.partition.is_closed
    assert not following.is_closed
    assert committed is not None
    with pytest.raises(Refused) as refusal:
        await committed
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert woken == ["fetch"]


@simulated
async def test_a_flush_that_was_under_way_commits_in_the_term_that_follows() -> None:
    room = Room()
    last = room.append(b"a")
    await asyncio.sleep(0.5)
    assert room.partition.log.flushed_offset == 0
    following = room.partition.next_term(1)
    committed = following.when_committed(last)
    assert committed is not None
    await committed
    assert following.log.high_watermark == 1
    room.partition = following
    committed = following.when_committed(room.append(b"b"))
    assert committed is not None
    await committed
    assert following.log.high_watermark == 2
    assert not room.broken


@simulated
async def test_a_term_that_is_over_moves_the_high_watermark_no_more() -> None:
    room = Room()
    room.append(b"a")
    old = room.partition
    old.next_term(1)
    before = old.log.high_watermark
    old._flushed()
    assert old.log.high_watermark == before


@simulated
async def test_each_term_begins_an_epoch_of_the_log() -> None:
    room = Room()
    room.append(b"a")
    room.partition = room.partition.next_term(4)
    room.append(b"b")
    assert room.partition.log.epochs.entries == [(0, 0), (4, 1)]
    assert room.partition.epoch_end_offset(0) == (0, 1)
    room.partition.check_epoch(4)
    with pytest.raises(Refused):
        room.partition.check_epoch(0)


@simulated
async def test_a_new_term_new_settings_and_the_end_raise_the_generation() -> None:
    room = Room()
    generation: Generation = room.partition._generation
    numbers = [generation.number]
    following = room.partition.next_term(1)
    assert following._generation is generation
    numbers.append(generation.number)
    following.config = following.config
    numbers.append(generation.number)
    following.abandon()
    numbers.append(generation.number)
    assert numbers == sorted(set(numbers)), "raised each time"


def test_only_a_term_moves_a_high_watermark() -> None:
    """Of a leader or of a follower; but for the log, which begins with one, and loses it with what is cut."""
    writers = set()
    for path in Path(semel.__file__).parent.rglob("*.py"):
        if "client" in path.parts:  # what a client was told is another thing
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr == "high_watermark":
                    writers.add(path.name)
    assert writers == {"term_kernel.py", "follower.py", "log.py"}
