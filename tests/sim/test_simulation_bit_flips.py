"""Bits flip in old segments of a simulated node, and are mended later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from semel.broker.broker import Broker
from semel.records.batch import whole_batches
from semel.records.build import build_batch
from semel.sim.history import Outcome, Poll
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.sim.world.decay import Rot, _covered
from semel.sim.world.findings import Findings
from semel.sim.world.node import SimulatedNode
from semel.sim.world.schedule import StrikeKind, drawn
from semel.sim.world.simulation import simulate

METADATA = ("__cluster_metadata", 0)
SEEDS = range(1, 400)


def with_node(check: Callable[[SimulatedNode], None]) -> None:
    """Of a node that has a sealed and settled segment."""
    loop = SimLoop()

    async def main() -> None:
        world = SimWorld(loop, 1)
        node = SimulatedNode(world, {}, Findings(loop.time), lambda broker: None)
        await node.open()
        log = node.broker.store.logs[METADATA]
        log.roll()
        await log.settle()
        check(node)
        await node.close()

    run(main(), loop=loop)


def sealed_path(broker: Broker) -> str:
    return broker.store.logs[METADATA].segments[0].path


def test_one_bit_is_wrong_until_it_is_mended() -> None:
    def check(node: SimulatedNode) -> None:
        rot, path = Rot(node), sealed_path(node.broker)
        before = node.disk.read_file(path)
        assert rot.flip(0, 0.5) == path
        after = node.disk.read_file(path)
        assert sum((one ^ other).bit_count() for one, other in zip(before, after, strict=True)) == 1
        assert node.is_rotten
        assert rot.mend()
        assert (node.disk.read_file(path), node.is_rotten) == (before, False)
        assert not rot.mend(), "there is nothing more"

    with_node(check)


def test_two_flips_of_the_same_file_are_both_mended_also_on_a_dead_disk() -> None:
    def check(node: SimulatedNode) -> None:
        rot, path = Rot(node), sealed_path(node.broker)
        before = node.disk.read_file(path)
        rot.flip(0, 0.5)
        rot.flip(0, 0.9)
        node.disk.dead = True
        assert rot.mend()
        assert node.disk.content_of(path) == before

    with_node(check)


@pytest.mark.parametrize(("first", "field"), [(8, "length"), (16, "magic")])
def test_damage_that_hides_where_batches_begin_leads_no_further_flip_to_what_no_checksum_covers(
    first: int, field: str
) -> None:
    def check(node: SimulatedNode) -> None:
        path = sealed_path(node.broker)
        before = node.disk.read_file(path)
        for position in range(16):
            rot = Rot(node)
            rot.flip(0, (first + 0.5) / len(before))
            once = node.disk.read_file(path)
            assert once[first] != before[first], field
            rot.flip(0, (position + 0.5) / len(before))
            (touched,) = (index for index, byte in enumerate(node.disk.read_file(path)) if byte != once[index])
            assert touched not in {*range(8), *range(12, 16)}
            rot.mend()
            assert node.disk.read_file(path) == before

    with_node(check)


def test_a_file_that_was_made_anew_is_left_alone() -> None:
    def check(node: SimulatedNode) -> None:
        rot = Rot(node)
        path = rot.flip(0, 0.5)
        node.disk.replace_file_now(path, b"something else")
        rot.mend()
        assert node.disk.read_file(path) == b"something else"
        node.disk.remove(path)
        assert node.disk.content_of(path) is None

    with_node(check)


def test_what_no_checksum_covers_is_not_touched_while_the_node_runs() -> None:
    batch = bytes(build_batch([b"x" * 50], base_timestamp_ms=0)) * 2
    starts = [position for position, _ in whole_batches(batch)]
    assert len(starts) == 2
    touched = {_covered(batch, position) - start for start in starts for position in range(start, start + 30)}
    assert touched.isdisjoint({*range(8), *range(12, 16)})
    assert touched >= {*range(8, 12), *range(16, 30)}


def test_readers_meet_the_damage_and_get_to_the_end_all_the_same() -> None:
    met = 0
    for schedule in map(drawn, SEEDS):
        if any(strike.kind is StrikeKind.BIT_FLIP for strike in schedule.strikes):
            done: Any = simulate(schedule)
            assert not done.violations, f"semel sim --seed {schedule.seed}: {done.violations[:5]}"
            polls = [one for one in done.history.operations if isinstance(one, Poll) and one.outcome is Outcome.FAIL]
            met += any("cannot" in poll.error for poll in polls)
            if met == 2:
                return
    raise AssertionError("nobody has read what was damaged")
