"""Leaders and followers as they are, on three nodes: topics, fetch sessions, logs and disks, with a wire that is cut at
times and a controller that does what the rules say. What is committed stays, and in the end all logs are the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from replica_world import EPOCHS, HERE, ID, B, C, ReplicaWorld

from semel.broker.following import Following
from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.peer.errors import TimedOut, Unreachable
from semel.records.batch import whole_batches
from semel.records.read import read_records
from semel.replication.fetcher import ReplicaFetchers
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request
from semel.wire.spec.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from semel.wire.spec.fetch import FetchRequest, FetchResponse
from semel.wire.spec.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from semel.wire.spec.metadata_records import MetadataRecord, PartitionChangeRecord, PartitionRecord, TopicRecord

NODES = (HERE, B, C)
VERSION = 21  # of the metadata: fetches have a replica state and topic ids


class Wire:
    """From one node to the others; it takes a millisecond each way."""

    def __init__(self, cluster: ThreeNodes, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id

    async def call(
        self, node_id: int, request: Request, response: Any, *, timeout_s: float, at_least: int = 0, at_most: int
    ) -> Any:
        await self._pass(node_id)
        target = self._cluster.nodes[node_id]
        if isinstance(request, ListOffsetsRequest):
            return await self._back(node_id, self._listed(target, request, at_most))
        assert isinstance(request, FetchRequest)
        answer = target.ask(request, at_most)
        if isinstance(answer, asyncio.Future):
            try:
                answer = await asyncio.wait_for(answer, timeout_s)
            except TimeoutError as error:
                raise TimedOut("nobody answers") from error
        return await self._back(node_id, self._read(answer))

    def _listed(self, target: ReplicaWorld, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        from semel.broker.handlers import list_offsets
        from semel.broker.read_failures import ReadFailures

        return list_offsets.handle(
            request,
            target.context(version),
            listeners=target.listeners,
            topics=target.topics,
            read_failures=ReadFailures(),
        )

    def _read(self, answer: FetchResponse) -> FetchResponse:
        """As it arrives: with bytes for ranges of files."""
        for topic in answer.responses:
            for one in topic.partitions:
                if isinstance(one.records, FileRange):
                    found = one.records
                    one.records = found.file.read_at(found.position, found.length)
                    found.release()
        return answer

    async def _back(self, node_id: int, answer: Any) -> Any:
        await self._pass(node_id)
        return answer

    async def _pass(self, node_id: int) -> None:
        await asyncio.sleep(0.001)
        if {self._node_id, node_id} & self._cluster.cut:
            raise Unreachable("the wire is cut")


class OneOfThree(ReplicaWorld):
    def __init__(self, cluster: ThreeNodes, node_id: int) -> None:
        self._all = cluster
        super().__init__(cluster.loop, cluster.settings, node_id=node_id, sim=cluster.sim)

    def make_followers(self) -> Following:
        following = Following(self.host, self.node, self.cluster, "IN", self.broken.append)
        following.fetchers = ReplicaFetchers(
            self.node_id,
            Wire(self._all, self.node_id),
            Wire(self._all, self.node_id),
            lambda: self.node.broker_epoch,
            lambda: self.config,
            lambda: VERSION,
            self.host.clock,
            random.Random(self.node_id),
            self.broken.append,
        )
        return following

    def make_controller(self) -> ThreeNodes:
        return self._all


class ThreeNodes:
    """And their controller. It tells each node in its own time."""

    def __init__(self, loop: SimLoop, seed: int, settings: dict[str, str]) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.settings = settings
        self.sim = SimWorld(loop, seed, flush_latency_ms=(1.0, 10.0))
        self.cut: set[int] = set()
        self.telling: set[asyncio.Task[None]] = set()
        self.told: dict[int, list[list[MetadataRecord]]] = {node_id: [] for node_id in NODES}
        self.nodes = {node_id: OneOfThree(self, node_id) for node_id in NODES}
        self.truth = self.nodes[HERE].image.__class__()
        for node_id in NODES:
            self.truth.replay(self.nodes[HERE].registered(node_id))

    def write(self, *records: MetadataRecord) -> None:
        for record in records:
            self.truth.replay(record)
        for node_id in NODES:
            self.told[node_id].append(list(records))
            task = asyncio.get_running_loop().create_task(self._tell(node_id))
            self.telling.add(task)
            task.add_done_callback(self.telling.discard)

    async def _tell(self, node_id: int) -> None:
        await asyncio.sleep(self.random.uniform(0.001, 0.05))
        while node_id in self.cut:  # noqa: ASYNC110 - the wire knows nothing of who waits for it
            await asyncio.sleep(0.05)
        self.nodes[node_id].tell(*self.told[node_id].pop(0))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        await asyncio.sleep(self.random.uniform(0.001, 0.02))
        if request.broker_id in self.cut:
            raise Unreachable("the wire is cut")
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                state = self.truth.topics[self.truth.names[topic.topic_id]].partitions[one.partition_index]
                isr = tuple(member.broker_id for member in one.new_isr_with_epochs)
                answer = AlterPartitionResponsePartition(partition_index=one.partition_index)
                if one.leader_epoch != state.leader_epoch:
                    answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
                elif one.partition_epoch != state.partition_epoch:
                    answer.error_code = ErrorCode.INVALID_UPDATE_VERSION
                elif not all(one.broker_epoch in (-1, EPOCHS[one.broker_id]) for one in one.new_isr_with_epochs):
                    answer.error_code = ErrorCode.INELIGIBLE_REPLICA
                else:
                    self.write(
                        PartitionChangeRecord(partition_id=one.partition_index, topic_id=topic.topic_id, isr=isr)
                    )
                    answer.leader_id, answer.leader_epoch, answer.isr = state.leader, state.leader_epoch, isr
                    answer.partition_epoch = state.partition_epoch + 1
                answers.append(answer)
            topics.append(AlterPartitionResponseTopic(topic_id=topic.topic_id, partitions=answers))
        if self.random.random() < 0.1:
            raise TimedOut("the answer is lost")
        return AlterPartitionResponse(topics=topics)

    # -- what tests do

    async def make(self, partitions: int = 1) -> None:
        made = [
            PartitionRecord(
                partition_id=index,
                topic_id=ID,
                replicas=NODES,
                isr=NODES,
                leader=NODES[index % 3],
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ]
        self.write(TopicRecord(name="t", topic_id=ID), *made)
        await asyncio.sleep(0.1)

    def state(self, index: int = 0) -> Any:
        return self.truth.topics["t"].partitions[index]

    def elect(self, leader: int, index: int = 0, isr: tuple[int, ...] | None = None) -> None:
        self.write(PartitionChangeRecord(partition_id=index, topic_id=ID, leader=leader, isr=isr))

    def leader(self, index: int = 0) -> OneOfThree:
        return self.nodes[self.state(index).leader]

    async def write_value(self, value: bytes, index: int = 0, timeout_ms: int = 2000) -> bool:
        """Whether it is acknowledged."""
        try:
            node = self.leader(index)
            committed = node.led(index).when_committed(node.append(value, index=index), timeout_ms)
            if committed is not None:
                await committed
        except Refused:
            return False
        return True

    def log(self, node_id: int, index: int = 0) -> Any:
        return self.nodes[node_id].topics.log("t", index)

    def bytes_of(self, node_id: int, index: int = 0) -> bytes:
        return b"".join(one.file.read_at(0, one.size_bytes) for one in self.log(node_id, index).segments)

    def values(self, node_id: int, index: int = 0) -> list[bytes | None]:
        data = self.bytes_of(node_id, index)
        return [
            record.value
            for at, header in whole_batches(data)
            for record in read_records(memoryview(data)[at : at + header.size_bytes], header)
        ]

    async def until_equal(self, index: int = 0) -> None:
        for _ in range(600):
            ends = {(self.log(one, index).end_offset, self.log(one, index).high_watermark) for one in NODES}
            if len(ends) == 1 and set(self.state(index).isr) == set(NODES):
                end, high_watermark = ends.pop()
                if end == high_watermark:
                    break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(
                [(one, self.log(one, index).end_offset, self.log(one, index).high_watermark) for one in NODES]
                + [self.state(index)]
            )
        assert len({self.bytes_of(one, index) for one in NODES}) == 1
        # An epoch in which nothing was written is known to its leader only.
        epochs = [self.log(one, index).epochs.entries for one in NODES]
        assert len({tuple(entry for entry in one if entry[1] < end) for one in epochs}) == 1

    async def end(self) -> None:
        await asyncio.gather(*self.telling)
        for node in self.nodes.values():
            await node.followers.close()
        for node in self.nodes.values():
            await node.end()


def on_three_nodes(
    **settings: str,
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        def in_virtual_time(seed: int = 1) -> None:
            loop = SimLoop(end_s=3600 * 24)

            async def scenario() -> None:
                cluster = ThreeNodes(loop, seed, {name.replace("_", "."): value for name, value in settings.items()})
                await test(cluster)
                await cluster.end()

            run(scenario(), loop=loop)

        in_virtual_time.__name__ = test.__name__
        return in_virtual_time

    return decorate


@on_three_nodes()
async def test_what_is_written_is_on_all_nodes_when_it_is_acknowledged(cluster: ThreeNodes) -> None:
    await cluster.make()
    for number in range(20):
        assert await cluster.write_value(b"%d" % number)
        assert {cluster.log(one).flushed_offset for one in NODES} == {number + 1}
    await cluster.until_equal()


@on_three_nodes(replica_lag_time_max_ms="5000", min_insync_replicas="2")
async def test_one_that_is_cut_off_leaves_the_isr_and_comes_back(cluster: ThreeNodes) -> None:
    await cluster.make()
    assert await cluster.write_value(b"before")
    cluster.cut.add(C)
    assert not await cluster.write_value(b"too early", timeout_ms=1000)
    await asyncio.sleep(10)
    assert set(cluster.state().isr) == {HERE, B}
    assert await cluster.write_value(b"without it")
    cluster.cut.clear()
    await cluster.until_equal()
    assert cluster.values(C) == [b"before", b"too early", b"without it"]


@on_three_nodes(min_insync_replicas="2")
async def test_a_leader_that_is_cut_off_acknowledges_nothing_and_gives_way(cluster: ThreeNodes) -> None:
    """1, 2: what only it has goes, what was acknowledged stays, also through two elections at once."""
    await cluster.make()
    assert await cluster.write_value(b"kept")
    old = cluster.nodes[HERE]
    cluster.cut.add(HERE)
    committed = old.led().when_committed(old.append(b"lost"), 60_000)
    assert committed is not None
    cluster.elect(B, isr=(B, C))
    await asyncio.sleep(0.2)
    assert await cluster.write_value(b"of the second")
    cluster.elect(C, isr=(B, C))
    await asyncio.sleep(0.2)
    assert await cluster.write_value(b"of the third")
    assert not committed.done()
    cluster.cut.clear()
    await cluster.until_equal()
    assert isinstance(committed.exception(), Refused)
    assert cluster.values(HERE) == [b"kept", b"of the second", b"of the third"]
    assert cluster.log(HERE).epochs.entries == [(0, 0), (1, 1), (2, 2)]


@on_three_nodes(min_insync_replicas="2")
async def test_a_hundred_partitions_share_a_session_for_each_leader(cluster: ThreeNodes) -> None:
    await cluster.make(99)
    for _ in range(3):
        done = await asyncio.gather(*(cluster.write_value(b"x", index) for index in range(99)))
        assert all(done)
    for index in range(99):
        await cluster.until_equal(index)
    assert [len(node.replica_sessions) for node in cluster.nodes.values()] == [2, 2, 2]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_acknowledged_is_there_in_the_end(seed: int) -> None:
    @on_three_nodes(replica_lag_time_max_ms="3000", min_insync_replicas="2", replica_socket_timeout_ms="2000")
    async def survive(cluster: ThreeNodes) -> None:
        await cluster.make(3)
        acknowledged: dict[int, list[bytes]] = {index: [] for index in range(3)}
        chance = cluster.random
        is_over = False

        async def produce(index: int, name: int) -> None:
            number = 0
            while not is_over:
                number += 1
                value = b"%d-%d" % (name, number)
                if await cluster.write_value(value, index):
                    acknowledged[index].append(value)
                await asyncio.sleep(chance.uniform(0, 0.05))

        producers = [asyncio.ensure_future(produce(index, name)) for index in range(3) for name in range(2)]
        for _ in range(30):
            await asyncio.sleep(chance.uniform(0.05, 2))
            what = chance.random()
            index = chance.randrange(3)
            if what < 0.3 and not cluster.cut:
                cluster.cut.add(chance.choice(NODES))
            elif what < 0.6:
                cluster.cut.clear()
            else:
                candidates = [one for one in cluster.state(index).isr if one not in cluster.cut]
                if candidates:
                    leader = chance.choice(candidates)
                    keeps = tuple(one for one in cluster.state(index).isr if one == leader or one not in cluster.cut)
                    cluster.elect(leader, index, keeps)
        cluster.cut.clear()
        is_over = True
        await asyncio.gather(*producers)
        for index in range(3):
            await cluster.until_equal(index)
            values = cluster.values(HERE, index)
            missing = [value for value in acknowledged[index] if value not in values]
            assert not missing, f"partition {index}: {len(missing)} of {len(acknowledged[index])} are lost"
        assert sum(map(len, acknowledged.values())) > 20

    survive(seed)
