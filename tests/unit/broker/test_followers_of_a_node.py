"""Our follower at our leader's handler: sessions, waits and sweeps of both sides meet."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from replica_world import EPOCHS, HERE, ID, B, C, ReplicaWorld, replicated

from semel.config import BrokerConfig, topic_config
from semel.host.api import FileRange
from semel.log.log import Log
from semel.log.recovery import load_log
from semel.replication.fetcher import ReplicaFetchers
from semel.replication.follower import Follower
from semel.sim.clock import WALL_START_MS
from semel.sim.disk import SimDisk
from semel.wire.codec import decode, encode
from semel.wire.spec.fetch import FetchRequest, FetchResponse


class Wire:
    """Brings the requests of a node to the handler, and its answers back, as bytes."""

    def __init__(self, world: ReplicaWorld) -> None:
        self.world = world
        self.requests: list[FetchRequest] = []

    async def call(
        self, node_id: int, request: Any, response: Any, *, timeout_s: float, at_least: int = 0, at_most: int
    ) -> Any:
        assert node_id == HERE
        await asyncio.sleep(0.0002)
        asked = decode(FetchRequest, at_most, memoryview(encode(request, at_most)))
        self.requests.append(asked)
        answer = self.world.ask(asked, at_most)
        if not isinstance(answer, FetchResponse):
            answer = await answer
        for topic in answer.responses:
            for one in topic.partitions:
                if isinstance(one.records, FileRange):
                    one.records, held = one.records.read(), one.records
                    held.release()
        await asyncio.sleep(0.0002)
        return decode(FetchResponse, at_most, memoryview(encode(answer, at_most)))


class FollowingNode:
    def __init__(self, world: ReplicaWorld, node_id: int, *, flush_ms: float = 1, **settings: str) -> None:
        self.world = world
        self.node_id = node_id
        self.disk = SimDisk(node_id, flush_latency_ms=(flush_ms, flush_ms))
        self.disk.make_dirs("/data")
        self.broken: list[BaseException] = []
        self.wire = Wire(world)
        config = BrokerConfig(settings)
        self.fetchers = ReplicaFetchers(
            node_id,
            self.wire,
            self.wire,
            lambda: EPOCHS[node_id],
            lambda: config,
            lambda: 27,
            world.host.clock,
            random.Random(node_id),
            self.broken.append,
        )
        self.followers: list[Follower] = []

    def follow(self, index: int = 0, log: Log | None = None) -> Follower:
        if log is None:
            config = topic_config({"flush.messages": "1"}, BrokerConfig())
            log, _ = load_log(
                self.disk,
                f"/data/t-{index}",
                config,
                recovery_point=0,
                start_offset=0,
                now_ms=WALL_START_MS,
                was_clean=False,
            )
        epoch = self.world.led(index).leader_epoch
        follower = Follower("t", ID, index, log, HERE, epoch, self.world.host.clock, self.broken.append)
        self.followers.append(follower)
        self.fetchers.follow(follower)
        return follower

    async def close(self) -> None:
        await self.fetchers.close()
        for follower in self.followers:
            await follower.close()
        assert not self.broken, self.broken


def contents(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, 1 << 30) for segment in log.segments)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def committed(world: ReplicaWorld, offset: int, index: int = 0) -> None:
    waiting = world.led(index).when_committed(offset)
    if waiting is not None:
        await waiting


@replicated()
async def test_a_write_is_committed_when_both_followers_have_flushed_it(world: ReplicaWorld) -> None:
    world.make()
    nodes = [FollowingNode(world, B), FollowingNode(world, C, flush_ms=7)]
    followers = [node.follow() for node in nodes]
    for number in range(20):
        began = now_s()
        await committed(world, world.append(b"value %d" % number))
        assert now_s() - began < 0.03 or number == 0
        for follower in followers:
            assert follower.log.flushed_offset == number + 1
    await asyncio.sleep(1)
    for follower in followers:
        assert contents(follower.log) == contents(world.led().log)
        assert follower.log.high_watermark == 20
    for node in nodes:
        await node.close()


@replicated()
async def test_writes_to_many_partitions_hold_each_other_up_no_longer_than_a_flush(world: ReplicaWorld) -> None:
    world.make(partitions=60, isr=(HERE, B), replicas=(HERE, B))
    node = FollowingNode(world, B, flush_ms=4)
    for index in range(60):
        node.follow(index)
    await asyncio.sleep(2)
    worst = 0.0

    async def write(index: int) -> None:
        nonlocal worst
        for _ in range(10):
            began = now_s()
            await committed(world, world.append(b"x", index=index), index)
            worst = max(worst, now_s() - began)
            await asyncio.sleep(0.003 + index / 5000)

    await asyncio.gather(*(write(index) for index in range(30)))
    assert worst < 0.05, worst
    for follower in node.followers:
        assert contents(follower.log) == contents(world.led(follower.index).log)
    await node.close()


@replicated()
async def test_a_replica_at_rest_costs_two_requests_a_second_and_stays_in_sync(world: ReplicaWorld) -> None:
    world.make(partitions=10, isr=(HERE, B), replicas=(HERE, B))
    node = FollowingNode(world, B)
    for index in range(10):
        node.follow(index)
        await committed(world, world.append(b"x", index=index), index)
    await asyncio.sleep(2)
    before = len(node.wire.requests)
    await asyncio.sleep(100)
    assert 190 <= len(node.wire.requests) - before <= 201
    assert not any(request.topics for request in node.wire.requests[before:])
    assert not world.controller.asked, "nobody has fallen behind"
    await node.close()


@replicated()
async def test_a_new_leader_epoch_is_followed_on_without_a_wait(world: ReplicaWorld) -> None:
    world.make(isr=(HERE, B), replicas=(HERE, B))
    node = FollowingNode(world, B)
    follower = node.follow()
    await committed(world, world.append(b"one"))
    await asyncio.sleep(1.2)
    world.change(leader=HERE)
    world.change(leader=B)
    assert world.led is not None
    world.change(leader=HERE)
    await asyncio.sleep(0.01)
    follower.resign()
    node.fetchers.unfollow(follower)
    again = node.follow(log=follower.log)
    began = now_s()
    await committed(world, world.append(b"two"))
    assert now_s() - began < 0.05
    assert contents(again.log) == contents(world.led().log)
    await node.close()
