"""A broker that was killed says that it has lost nothing, where everything is flushed before it counts."""

from __future__ import annotations

import asyncio

from semel.broker.flushed_epoch import FILE_NAME, FlushedEpoch
from semel.broker.identity import Identity, write_identity
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.sim.world.findings import Findings
from semel.sim.world.nodes import Nodes


def test_an_epoch_is_there_after_power_was_lost_and_gone_when_it_is_void() -> None:
    loop = SimLoop()

    async def main() -> None:
        world = SimWorld(loop, 1)
        disk = world.disk("node")
        disk.make_dirs("/data")
        disk.sync_parents_now("/data")
        write_identity(disk, "/data", Identity("cluster", 1, "directory"))
        epoch = FlushedEpoch(disk, "/data")
        assert epoch.read() == -1
        await epoch.write(17)
        world.lose_power("node")
        disk = world.host("node").disk
        assert FlushedEpoch(disk, "/data").read() == 17
        void = FlushedEpoch(disk, "/data")
        void.void()
        await void.write(18)
        world.lose_power("node")
        assert FlushedEpoch(world.host("node").disk, "/data").read() == -1

    run(main(), loop=loop)


def test_damage_of_the_file_is_as_if_there_were_none() -> None:
    loop = SimLoop()

    async def main() -> None:
        disk = SimWorld(loop, 1).disk("node")
        disk.make_dirs("/data")
        write_identity(disk, "/data", Identity("cluster", 1, "directory"))
        inode = disk.file_number("/data/meta.properties")
        no_number = b'{"inode":%d,"brokerEpoch":"x"}' % inode
        for content in (b"", b"{}", b"[]", b'{"brokerEpoch":17}', b'{"inode":"x","brokerEpoch":17}', no_number):
            disk.replace_file_now(f"/data/{FILE_NAME}", content)
            assert FlushedEpoch(disk, "/data").read() == -1

    run(main(), loop=loop)


def test_a_copy_of_the_directory_is_not_believed() -> None:
    loop = SimLoop()

    async def main() -> None:
        world = SimWorld(loop, 1)
        disk = world.disk("node")
        disk.make_dirs("/data")
        disk.sync_parents_now("/data")
        write_identity(disk, "/data", Identity("cluster", 1, "directory"))
        await FlushedEpoch(disk, "/data").write(17)
        world.restore("copy", world.image("node"))
        copy = world.disk("copy")
        assert copy.read_file(f"/data/{FILE_NAME}") == disk.read_file(f"/data/{FILE_NAME}")
        assert FlushedEpoch(copy, "/data").read() == -1
        await FlushedEpoch(copy, "/data").write(18)
        assert FlushedEpoch(copy, "/data").read() == 18

    run(main(), loop=loop)


def leaders_after_a_power_cut_of_all(settings: dict[str, str]) -> set[int]:
    """Of a topic on three nodes."""
    loop = SimLoop(end_s=1000)
    found: set[int] = set()

    async def main() -> None:
        findings = Findings(loop.time)
        world = SimWorld(loop, 1)
        nodes = Nodes(world, 3, settings, findings)
        await nodes.open()
        await nodes.first.broker.roles.internal_topics.ensure("__consumer_offsets")
        await asyncio.sleep(5.0)
        nodes.lose_power_of_all(0.5)
        await nodes.until_up()
        await asyncio.sleep(10.0)
        topic = nodes.first.broker.image.topics["__consumer_offsets"]
        assert all(len(state.replicas) == 3 for state in topic.partitions.values())
        found.update(state.leader for state in topic.partitions.values())
        nodes.look_no_more()
        for node in nodes.all:
            await node.close()

    run(main(), loop=loop)
    return found


def test_somebody_leads_when_all_nodes_have_lost_power_at_once() -> None:
    assert -1 not in leaders_after_a_power_cut_of_all({})


def test_nobody_leads_who_may_have_lost_what_was_acknowledged() -> None:
    assert leaders_after_a_power_cut_of_all({"log.flush.interval.messages": "1000"}) == {-1}
