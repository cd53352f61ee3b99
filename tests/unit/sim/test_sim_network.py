"""Faults of the simulated network, and that a seed decides all of them."""

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "host"))
from network_peers import Recorder

from semel.host.api import KEEPALIVE_S
from semel.sim.link import WINDOW_BYTES
from semel.sim.loop import run
from semel.sim.network import SimNetwork, Wires
from semel.sim.power import PowerLost


class Town:
    """Wires with two nodes, a and b, and a started connection from a to b."""

    @classmethod
    async def build(cls, seed=1, **options):
        town = cls()
        town.wires = Wires(asyncio.get_running_loop(), seed, **options)
        town.a, town.b = SimNetwork(town.wires, "a"), SimNetwork(town.wires, "b")
        town.accepted = []
        town.listener = await town.b.listen("0.0.0.0", 9092, town.accepted.append)
        await town.connect()
        return town

    async def connect(self):
        self.near = await self.a.connect("b", 9092)
        self.far = self.accepted[-1]
        self.at_a, self.at_b = Recorder(), Recorder()
        self.near.start(self.at_a)
        self.far.start(self.at_b)


def test_a_node_listens_under_its_own_name():
    async def main():
        town = await Town.build()
        assert (town.near.peer, town.near.node, town.far.node) == ("b:9092", "a", "b")
        assert town.far.peer.startswith("a:")
        chosen = await town.b.listen("127.0.0.1", 0, print)
        with pytest.raises(ConnectionRefusedError):
            await town.a.connect("127.0.0.1", chosen.port)  # that is a itself
        assert await town.a.connect("b", chosen.port)

    run(main())


def test_every_chunk_takes_its_time():
    async def main():
        town = await Town.build(latency_ms=(100, 200))
        began = asyncio.get_running_loop().time()
        town.near.send([b"x" * 1000])
        await town.at_b.until_bytes(1000)
        assert 0.1 <= asyncio.get_running_loop().time() - began <= 1

    run(main())


def test_a_partition_holds_everything_and_heals_in_order():
    async def main(seed):
        town = await Town.build(seed, latency_ms=(1, 50))
        message = b"".join(b"%05d" % n for n in range(400))
        for start in range(0, 1000, 100):
            town.near.send([message[start : start + 100]])
        await asyncio.sleep(0.02)
        town.wires.part(["a"], ["b", "c"])
        seen = len(town.at_b.data)
        for start in range(1000, 2000, 100):
            town.near.send([message[start : start + 100]])
        await asyncio.sleep(100)
        assert len(town.at_b.data) == seen < 2000
        town.wires.heal()
        await town.at_b.until_bytes(2000)
        assert town.at_b.data == message
        assert town.at_b.closings == town.at_a.closings == []

    for seed in range(20):
        run(main(seed))


def test_a_cut_in_one_direction_lets_the_other_pass():
    async def main():
        town = await Town.build()
        town.wires.part_one_way(["a"], ["b"])
        town.near.send([b"question"])
        town.far.send([b"answer"])
        await town.at_a.until_bytes(6)
        await asyncio.sleep(100)
        assert (town.at_a.data, town.at_b.data) == (b"answer", b"")
        town.wires.heal()
        await town.at_b.until_bytes(8)
        assert town.at_b.data == b"question"

    run(main())


@pytest.mark.parametrize(("sender", "receiver"), [("a", "b"), ("b", "a")])
def test_no_connection_begins_where_only_one_hears_the_other(sender, receiver):
    async def main():
        town = await Town.build()
        town.wires.part_one_way([sender], [receiver])
        connecting = asyncio.create_task(town.a.connect("b", 9092))
        await asyncio.sleep(5)
        assert not connecting.done()
        town.wires.rejoin([receiver], [sender])
        assert (await connecting).peer == "b:9092"

    run(main())


def test_links_between_any_two_nodes_are_cut_and_mended_apart():
    async def main():
        town = await Town.build()
        at_c, c = [], SimNetwork(town.wires, "c")
        await c.listen("c", 9092, at_c.append)
        near = await town.a.connect("c", 9092)
        recorder = Recorder()
        at_c[0].start(recorder)
        town.wires.part(["a"], ["b"])
        town.wires.part_one_way(["a"], ["c"])
        town.near.send([b"to b"])
        near.send([b"to c"])
        await asyncio.sleep(10)
        assert (town.at_b.data, recorder.data) == (b"", b"")
        town.wires.rejoin(["c"], ["a", "b"])
        await recorder.until_bytes(4)
        assert (await town.b.connect("c", 9092)).peer == "c:9092"
        assert town.at_b.data == b"", "that cut stays"
        town.wires.rejoin(["a"], ["b"])
        await town.at_b.until_bytes(4)

    run(main())


def test_what_was_sent_over_a_partition_arrives_also_from_an_end_that_was_closed_meanwhile():
    async def main():
        town = await Town.build()
        town.wires.part(["a"], ["b"])
        town.near.send([b"goodbye"])
        town.near.close()
        await asyncio.sleep(100)
        assert (town.at_b.data, town.at_b.closings) == (b"", [])
        town.wires.heal()
        await town.at_b.until_closed()
        assert (town.at_b.data, town.at_b.closings) == (b"goodbye", [None])

    run(main())


def test_connecting_over_a_partition_waits_for_its_end_or_times_out():
    async def main():
        town = await Town.build()
        town.wires.part(["a"], ["b"])
        with pytest.raises(TimeoutError, match="does not answer"):
            await town.a.connect("b", 9092)
        connecting = asyncio.create_task(town.a.connect("b", 9092))
        await asyncio.sleep(5)
        assert not connecting.done()
        town.wires.heal()
        assert (await connecting).peer == "b:9092"

    run(main())


def test_a_cut_lets_a_part_arrive_and_resets_both_ends():
    async def main(seed):
        town = await Town.build(seed)
        town.near.send([b"on its way"])
        town.wires.cut(town.near)
        town.near.send([b"too late"])
        await town.at_a.until_closed()
        await town.at_b.until_closed()
        assert [type(reason) for reason in town.at_a.closings + town.at_b.closings] == [ConnectionResetError] * 2
        assert town.wires.links() == []
        return bytes(town.at_b.data)

    arrived = {run(main(seed)) for seed in range(60)}
    assert {b"", b"on its way"} < arrived
    assert all(b"on its way".startswith(data) for data in arrived)


def test_random_cuts_strike_in_the_middle_of_streams():
    async def main(seed):
        town = await Town.build(seed, cut_chance=0.2)
        for _ in range(30):
            town.near.send([b"0123456789" * 5000])
            await asyncio.sleep(0.005)
        await town.at_a.until_closed()
        await town.at_b.until_closed()
        return len(town.at_b.data)

    lengths = {run(main(seed)) for seed in range(20)}
    assert len(lengths) > 10
    assert any(length % 50_000 for length in lengths)


def test_a_silent_link_swallows_bytes_and_tells_nobody():
    async def main():
        town = await Town.build()
        town.wires.silence(town.near)
        town.near.send([b"x" * 1_000_000])
        town.near.close()
        town.far.send([b"the other way works"])
        await asyncio.sleep(KEEPALIVE_S - 1)
        assert (town.at_b.data, town.at_b.closings) == (b"", [])

    run(main())


@pytest.mark.parametrize("silenced", ["near", "far"])
def test_both_ends_of_a_silent_link_find_out_by_keepalive(silenced):
    async def main():
        town = await Town.build()
        await asyncio.sleep(1000)
        assert town.at_a.closings == town.at_b.closings == [], "an idle link stays"
        town.wires.silence(getattr(town, silenced))
        await asyncio.sleep(KEEPALIVE_S - 1)
        assert town.at_a.closings == town.at_b.closings == []
        await asyncio.sleep(2)
        assert [[type(reason) for reason in at.closings] for at in (town.at_a, town.at_b)] == [[TimeoutError]] * 2

    run(main())


def test_the_peer_of_a_node_that_lost_its_power_finds_out_by_keepalive():
    async def main():
        town = await Town.build()
        town.wires.crash("b", silent=True)
        await asyncio.sleep(KEEPALIVE_S - 1)
        assert town.at_a.closings == []
        await asyncio.sleep(2)
        assert [type(reason) for reason in town.at_a.closings] == [TimeoutError]

    run(main())


def test_a_killed_node_resets_its_peers_and_a_silent_one_does_not():
    async def main(silent):
        town = await Town.build()
        town.wires.crash("b", silent=silent)
        await asyncio.sleep(KEEPALIVE_S - 10)
        told = [type(reason) for reason in town.at_a.closings]
        assert town.at_b.closings == []  # the dead are told nothing
        town.near.send([b"anybody there?"])
        with pytest.raises(ConnectionRefusedError):
            await town.a.connect("b", 9092)
        reborn = SimNetwork(town.wires, "b")
        await asyncio.sleep(1)
        assert [type(reason) for reason in town.at_a.closings] == [ConnectionResetError]
        await reborn.listen("0.0.0.0", 9092, town.accepted.append)
        await town.connect()
        return told

    assert run(main(silent=False)) == [ConnectionResetError]
    assert run(main(silent=True)) == []


def test_the_dead_do_not_connect_or_listen():
    async def main():
        town = await Town.build()
        connecting = asyncio.create_task(town.a.connect("b", 9092))
        await asyncio.sleep(0)
        town.wires.crash("a")
        for attempt in (connecting, town.a.connect("b", 9092), town.a.listen("a", 1, print)):
            with pytest.raises(PowerLost):
                await attempt
        assert town.wires.links("a") == []

    run(main())


def test_last_words_of_a_killed_node_sometimes_arrive():
    async def main(seed):
        town = await Town.build(seed)
        town.far.send([b"your record is safe"])
        town.wires.crash("b")
        await town.at_a.until_closed()
        return bytes(town.at_a.data)

    assert {b"", b"your record is safe"} <= {run(main(seed)) for seed in range(30)}


def test_a_paused_reader_bounds_what_is_on_the_way():
    async def main():
        town = await Town.build()
        town.far.pause_reading()
        town.near.send([bytes(1_000_000)])
        await asyncio.sleep(100)
        assert 1_000_000 - 2 * WINDOW_BYTES <= town.near.unsent_bytes <= 1_000_000 - WINDOW_BYTES // 2
        town.far.resume_reading()
        await town.at_b.until_bytes(1_000_000)

    run(main())


def test_a_slow_pair_is_slow_and_others_are_not():
    async def main():
        town = await Town.build()
        town.wires.slow_down("a", "b", (5000, 5000))
        loop = asyncio.get_running_loop()
        began = loop.time()
        town.near.send([b"x"])
        await town.at_b.until_bytes(1)
        assert loop.time() - began >= 5
        began = loop.time()
        c = SimNetwork(town.wires, "c")
        await c.connect("b", 9092)
        assert loop.time() - began < 1

    run(main())


def test_a_cancelled_connect_leaves_no_link_behind():
    async def main():
        town = await Town.build(latency_ms=(10, 10))
        before = len(town.wires.links())
        connecting = asyncio.create_task(town.a.connect("b", 9092))
        await asyncio.sleep(0.015)
        connecting.cancel()
        accepted = Recorder()
        town.accepted[-1].start(accepted)
        await accepted.until_closed()
        assert len(town.wires.links()) == before

    run(main())


def history(seed):
    """What two busy nodes see of each other through faults, as one digest."""

    async def main():
        town = await Town.build(seed, cut_chance=0.01)
        loop = asyncio.get_running_loop()
        digest = hashlib.sha256()
        for turn in range(200):
            if town.at_a.closings or town.at_b.closings:
                await town.connect()
            town.near.send([b"%d" % turn * 100, b"y" * turn])
            town.far.send([b"z" * turn])
            await asyncio.sleep(town.wires.random.random() / 100)
            digest.update(repr((loop.time(), town.at_a.data, town.at_b.calls, town.at_b.data)).encode())
        digest.update(repr(list(town.wires.log)).encode())
        return digest.hexdigest()

    return run(main())


def test_the_same_seed_gives_the_same_history_in_every_process():
    path = ":".join(filter(None, [str(Path(__file__).parent), *sys.path]))
    script = "import test_sim_network; print(test_sim_network.history(7))"
    digests = {
        subprocess.check_output([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": path})
        for seed in ("1", "2")
    }
    assert digests == {history(7).encode() + b"\n"}
    assert history(8) != history(7)
