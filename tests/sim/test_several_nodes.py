"""Several nodes in one simulated world: each with its own host, disk and clock; cut off, paused, restored, cloned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.config import BrokerConfig, ListenerKind, Role
from semel.sim.clock import WALL_START_MS
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.sim.world.aims_among_nodes import aim_of
from semel.sim.world.exploring import explore_one
from semel.sim.world.findings import Findings
from semel.sim.world.node import PORT, ROOT, SimulatedNode
from semel.sim.world.nodes import Nodes, settings_of
from semel.sim.world.schedule import AMONG_NODES, NEEDS_PROXY, drawn
from semel.sim.world.simulation import simulate

COUNT = 3
# Longer than any timeout between nodes.
LONG_S = 60.0

Scenario = Callable[[Nodes, SimWorld], Coroutine[Any, Any, None]]


def with_nodes(scenario: Scenario, *, count: int = COUNT, seed: int = 1) -> Findings:
    loop = SimLoop(end_s=10_000)
    findings = Findings(loop.time)

    async def main() -> None:
        world = SimWorld(loop, seed)
        nodes = Nodes(world, count, {}, findings)
        await nodes.open()
        await scenario(nodes, world)
        nodes.look_no_more()
        await nodes.end_clones()
        for node in nodes.all:
            await node.close()

    run(main(), loop=loop)
    assert not findings.violations
    return findings


def directory_of(node: SimulatedNode) -> bytes:
    content = node.disk.content_of(f"{ROOT}/meta.properties")
    assert content is not None
    return content


async def reaches(world: SimWorld, node: str, other: str, timeout_s: float = 5.0) -> bool:
    """Whether a connection from one machine to another begins."""
    try:
        async with asyncio.timeout(timeout_s):
            link = await world.host(f"{node}'s client").network.connect(other, PORT)
    except (TimeoutError, OSError):
        return False
    link.close()
    return True


@pytest.mark.parametrize("count", [1, 3, 5])
def test_each_node_has_a_host_a_directory_and_a_clock_of_its_own(count: int) -> None:
    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        assert len(nodes.all) == len({directory_of(node) for node in nodes.all}) == count
        assert len({node.broker.cluster_id for node in nodes.all}) == 1, "all of them were formatted for one cluster"
        assert [node.broker.node.node_id for node in nodes.all] == list(range(1, count + 1))
        for node in nodes.all:
            assert await reaches(world, "somebody", node.name)

    with_nodes(scenario, count=count)


def test_clocks_of_several_nodes_are_apart_and_that_of_one_is_not() -> None:
    def offsets(seed: int, count: int) -> set[int]:
        seen = set()

        async def scenario(nodes: Nodes, world: SimWorld) -> None:
            await asyncio.sleep(0.5 - world.loop.time())
            seen.update(world.clocks[node.name].wall_ms() - WALL_START_MS - 500 for node in nodes.all)

        with_nodes(scenario, count=count, seed=seed)
        return seen

    assert offsets(1, 1) == {0}
    assert any(len(offsets(seed, 3)) > 1 for seed in range(3))


def test_the_settings_of_several_nodes_name_each_other() -> None:
    layouts = [BrokerConfig(settings_of(number, COUNT)).layout for number in range(1, COUNT + 1)]
    assert [layout.node_id for layout in layouts] == [1, 2, 3]
    assert [layout.roles for layout in layouts] == [set(Role), {Role.BROKER}, {Role.BROKER}]
    (controller,) = {layout.voters for layout in layouts}
    assert [(voter.node_id, voter.host) for voter in controller] == [(1, "broker")]
    listening = {(one.name, one.advertised_host, one.advertised_port): one.kind for one in layouts[0].listeners}
    assert listening["CONTROLLER", controller[0].host, controller[0].port] == ListenerKind.CONTROLLERS
    assert settings_of(1, 1) == {}, "a node alone is told of nobody"


def test_a_node_dies_alone_and_all_of_them_die_at_once() -> None:
    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        second = nodes.all[1]
        second.kill(down_s=1.0)
        assert [node.is_up for node in nodes.all] == [True, False, True]
        await second.until_up()
        for die in (nodes.kill_all, nodes.lose_power_of_all):
            began_s = world.loop.time()
            die(0.5)
            assert not any(node.is_up for node in nodes.all)
            await nodes.until_up()
            assert world.loop.time() - began_s >= 0.5

    with_nodes(scenario)


def test_a_power_cut_of_all_takes_what_was_not_flushed_on_each_disk_by_its_own_chance() -> None:
    survivors = set()

    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        for node in nodes.all:
            file = node.disk.open("/unsynced", create=True)
            node.disk.sync_dir_now("/")
            file.write_at(0, b"x" * 100)
        nodes.lose_power_of_all(0.1)
        survivors.add(tuple(node.disk.content_of("/unsynced") == b"x" * 100 for node in nodes.all))
        await nodes.until_up()

    for seed in range(20):
        with_nodes(scenario, seed=seed)
    assert (True,) * COUNT in survivors
    assert (False,) * COUNT in survivors
    assert any(len(set(kept)) == 2 for kept in survivors), "not always the same on all of them"


def test_a_paused_node_answers_nobody_until_it_goes_on_while_others_serve() -> None:
    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        node = nodes.all[1]
        before_ms = world.clocks[node.name].monotonic_ms()
        world.loop.freeze(node.owner)
        assert await reaches(world, "somebody", nodes.first.name)
        await asyncio.sleep(LONG_S)
        world.loop.thaw(node.owner)
        assert world.clocks[node.name].monotonic_ms() - before_ms > LONG_S * 1000
        assert node.is_up
        await node.restart()
        await node.until_up()

    with_nodes(scenario)


def test_nodes_are_cut_off_from_each_other_and_not_from_clients() -> None:
    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        first, second, third = (node.name for node in nodes.all)
        network = nodes.all[0].broker.host.network
        world.wires.part([first], [second])
        connecting = asyncio.create_task(network.connect(second, PORT))
        assert await reaches(world, "somebody", first)
        assert await reaches(world, "somebody", second)
        (await network.connect(third, PORT)).close()
        await asyncio.sleep(5.0)
        assert not connecting.done()
        world.wires.rejoin([first], [second])
        (await connecting).close()

    with_nodes(scenario)


def test_a_backup_of_a_disk_is_restored_under_a_node_that_runs_or_is_down() -> None:
    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        node = nodes.all[2]
        before, image = directory_of(node), nodes.image(node)
        for is_running in (True, False):
            for _ in range(2):
                await node.until_up()
                await node.restart()
            await node.until_up()
            known = node.broker.metadata.next_offset
            if not is_running:
                node.kill(1.0)
                await asyncio.sleep(0.5)
            node.restore(image, down_s=0.2)
            assert not node.is_up
            await node.until_up()
            assert directory_of(node) == before
            assert node.broker.metadata.next_offset >= known, "it was told again what it had lost"

    findings = with_nodes(scenario)
    assert any(event.who == "broker3" and "loses power" in event.text for event in findings.events)


def test_an_image_does_not_change_with_the_disk_that_it_was_made_of() -> None:
    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        node = nodes.all[1]
        file = node.disk.open("/kept", create=True)
        file.write_at(0, b"old")
        image = nodes.image(node)
        file.write_at(0, b"new")
        node.restore(image, down_s=0.1)
        assert node.disk.content_of("/kept") == b"old"
        await node.until_up()

    with_nodes(scenario)


def test_a_clone_is_not_let_in_beside_the_node_that_it_was_made_of() -> None:
    async def scenario(nodes: Nodes, world: SimWorld) -> None:
        node = nodes.all[1]
        clone = nodes.clone(node, nodes.image(node))
        await asyncio.sleep(LONG_S)
        assert directory_of(clone) == directory_of(node)
        assert node.is_up
        assert not clone.is_up, "one of them is a member already"
        await nodes.end_clones()
        assert not await reaches(world, "somebody", clone.name)
        assert await reaches(world, "somebody", node.name)

    with_nodes(scenario)


def test_one_node_is_drawn_as_ever_and_several_see_more() -> None:
    for seed in range(20):
        assert not {strike.kind for strike in drawn(seed).strikes} & set(AMONG_NODES)
        several = drawn(seed, nodes=5)
        assert several.nodes == 5
        assert aim_of(seed, 5) or len(several.strikes) > sum(
            strike.kind not in NEEDS_PROXY for strike in drawn(seed).strikes
        )


def test_a_run_of_several_nodes_is_repeatable() -> None:
    assert simulate(drawn(2, nodes=3)).digest() == simulate(drawn(2, nodes=3)).digest()


@pytest.mark.parametrize(("seed", "nodes"), [(2, 3), (5, 3), (6, 3), (31, 3), (38, 3), (4, 5)])
def test_several_nodes_keep_what_one_keeps(seed: int, nodes: int) -> None:
    assert not explore_one(seed, nodes).violations
