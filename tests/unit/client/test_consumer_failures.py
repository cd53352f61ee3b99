"""Brokers that restart and connections that break: every record comes once and in order, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consumer_world import Consumer, Node, at, consumer_of, on_broker, produce, values_of

from semel.client.errors import Disconnected, TimedOut
from semel.sim.loop import SimLoop
from semel.wire.spec.offset_for_leader_epoch import OffsetForLeaderEpochRequest


async def make_topic(node: Node, partitions: int = 1) -> None:
    client = await node.client()
    assert (await client.create_topic("t", partitions)).error_code == 0
    client.close()


async def read(consumer: Consumer, count: int, most: int = 500) -> list[Any]:
    got: list[Any] = []
    while len(got) < count:
        got += values_of(await consumer.getmany(timeout_ms=1000, max_records=most))
    return got


@pytest.mark.parametrize("how", ["restart", "killed_and_started", "power_cut_and_started"])
@on_broker()
async def test_a_broker_that_comes_back_is_read_on_where_it_was(node: Node, how: str) -> None:
    """It has raised its leader epochs: the position is checked, and found good."""
    await make_topic(node)
    await produce(node, "t-0", b"0", b"1")
    async with consumer_of(node, "t", group_id="g") as consumer:
        assert await read(consumer, 2) == [b"0", b"1"]
        await getattr(node, how)()
        await produce(node, "t-0", b"2", b"3")
        assert await read(consumer, 2) == [b"2", b"3"]
        await consumer.commit()
        assert await consumer.committed(at("t-0")) == 4


@on_broker()
async def test_what_was_fetched_before_a_restart_is_handed_out_after_it(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", *[b"%d" % number for number in range(10)])
    asked: list[type] = []
    async with consumer_of(node, "t") as consumer:
        assert await read(consumer, 3, 3) == [b"0", b"1", b"2"]
        original = consumer._parts._cluster.call

        async def noting(node_id: int, request: Any, *rest: Any, **options: Any) -> Any:
            asked.append(type(request))
            return await original(node_id, request, *rest, **options)

        consumer._parts._cluster.call = noting  # type: ignore[method-assign, assignment]
        await node.restart()
        await produce(node, "t-0", b"10")
        assert await read(consumer, 8, 3) == [b"%d" % number for number in range(3, 11)]
        assert OffsetForLeaderEpochRequest in asked


@pytest.mark.parametrize("seed", range(12))
def test_every_record_comes_once_and_in_order_though_connections_are_cut(seed: int) -> None:
    @on_broker()
    async def scenario(node: Node) -> None:
        await make_topic(node, 3)
        for number in range(60):
            await produce(node, f"t-{number % 3}", b"%d" % number, b"x" * 200)
        random = node.world.random(f"cuts/{seed}")
        wires = node.world.wires
        wires.latency_ms = (0.1, 20.0)
        is_over = False

        async def cuts() -> None:
            while not is_over:
                await asyncio.sleep(random.uniform(0.01, 0.5))
                links = [link for link in wires.links() if link.node.startswith("consumer")]
                if links:
                    wires.cut(random.choice(links))

        cutting = asyncio.ensure_future(cuts())
        settings = {"max_partition_fetch_bytes": 700, "max_poll_records": 7}
        async with consumer_of(node, "t", **settings) as consumer:
            seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
            while sum(map(len, seen.values())) < 120:
                for partition, messages in (await consumer.getmany(timeout_ms=1000)).items():
                    seen[partition.partition] += [message.offset for message in messages]
            is_over = True
            await cutting
        assert all(offsets == list(range(40)) for offsets in seen.values()), seen

    scenario()


@on_broker()
async def test_a_silent_broker_is_left_after_the_request_timeout(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"0")
    async with consumer_of(node, "t", request_timeout_ms=2000) as consumer:
        assert await read(consumer, 1) == [b"0"]
        for link in node.world.wires.links("broker"):
            node.world.wires.silence(link)
        await produce(node, "t-0", b"1")
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await read(consumer, 1) == [b"1"]
        assert loop.time() - began_s < 10


@on_broker()
async def test_calls_end_in_time_when_the_broker_is_gone(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"0")
    consumer = consumer_of(node, "t", group_id="g", default_api_timeout_ms=3000, request_timeout_ms=1000)
    await consumer.start()
    assert await read(consumer, 1) == [b"0"]
    node.world.kill("broker")
    loop = asyncio.get_running_loop()
    for call in (
        consumer.commit(),
        consumer.committed(at("t-0")),
        consumer.end_offsets([at("t-0")]),
        consumer.topics(),
    ):
        began_s = loop.time()
        with pytest.raises((TimedOut, Disconnected)):
            await call
        assert loop.time() - began_s < 5
    assert await consumer.getmany(timeout_ms=500) == {}, "reading waits for the broker to come back"
    began_s = loop.time()
    await consumer.close(timeout_s=4)
    assert loop.time() - began_s < 8
    await node.start()


@on_broker()
async def test_a_cluster_that_nobody_answers_for_is_an_error_that_names_the_address(node: Node) -> None:
    consumer = consumer_of(node, "t", bootstrap_servers="nobody:1", bootstrap_timeout_ms=500)
    with pytest.raises(Disconnected, match="nobody:1"):
        await consumer.start()
    with pytest.raises(Disconnected, match="nobody:1"):
        async with consumer_of(node, "t", bootstrap_servers="nobody:1", bootstrap_timeout_ms=500):
            pass


@on_broker()
async def test_nothing_runs_on_after_close(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"0")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    await asyncio.sleep(1)
    before = set(loop.unfinished_tasks())
    for settings in ({}, {"group_id": "g"}, {"group_id": "h", "group_protocol": "consumer"}):
        async with consumer_of(node, "t", **settings) as consumer:
            assert (await consumer.getone()).value == b"0"
    await asyncio.sleep(1)
    left = {task for task in loop.unfinished_tasks() if task not in before}
    assert not [task for task in left if "consumer" in repr(task)], left


@on_broker()
async def test_a_cancelled_poll_loses_nothing(node: Node) -> None:
    await make_topic(node)
    async with consumer_of(node, "t", group_id="g") as consumer:
        for number in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.getone(), 0.05 + number / 1000)
        await produce(node, "t-0", b"0", b"1")
        assert await read(consumer, 2) == [b"0", b"1"]


@on_broker()
async def test_an_error_of_our_own_is_raised_and_not_waited_out(node: Node) -> None:
    await make_topic(node)
    await produce(node, "t-0", b"0")
    async with consumer_of(node, "t") as consumer:

        def broken(*arguments: Any) -> None:
            raise ZeroDivisionError("a bug")

        consumer._parts.fetcher._answers.take = broken  # type: ignore[method-assign, assignment]
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await consumer.getone()
