"""Fetches of followers: who may, what is checked in which order, what wakes them, and what their position does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from replica_world import EPOCHS, HERE, ID, OTHER_ID, B, C, PlayedFollower, ReplicaWorld, replicated

from semel.broker.handlers import delete_records, list_offsets
from semel.broker.read_failures import ReadFailures
from semel.sim.clock import WALL_START_MS
from semel.wire.errors import ErrorCode
from semel.wire.spec.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse, ReplicaState
from semel.wire.spec.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


def one_partition(node_id: int, *, broker_epoch: int = -1) -> FetchRequest:
    return FetchRequest(
        replica_state=ReplicaState(replica_id=node_id, replica_epoch=broker_epoch),
        topics=[FetchRequestTopic(topic_id=ID, partitions=[FetchRequestPartition(partition_max_bytes=1 << 20)])],
    )


@replicated()
async def test_whoever_says_it_is_a_follower_is_refused_where_clients_come_in(world: ReplicaWorld) -> None:
    world.make(isr=(HERE,))
    response = world.ask(one_partition(B), listener="OUT")
    assert isinstance(response, FetchResponse)
    assert (response.error_code, response.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    replicas = world.led().replicas
    assert replicas is not None
    assert replicas.in_sync.followers[B].end_offset == -1
    response = world.ask(FetchRequest(replica_id=B), 12, listener="OUT")
    assert isinstance(response, FetchResponse)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@replicated()
async def test_a_session_of_a_follower_is_for_no_one_else(world: ReplicaWorld) -> None:
    world.make()
    follower = PlayedFollower(world, B)
    await follower.fetch({0: 0}, wait_ms=0)
    assert follower.session_id
    for node_id in (C, -1):
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=node_id), session_id=follower.session_id, session_epoch=1
        )
        response = world.ask(request)
        assert isinstance(response, FetchResponse)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@replicated()
async def test_a_batch_is_committed_when_all_have_asked_for_what_comes_behind_it(world: ReplicaWorld) -> None:
    world.make()
    followers = [PlayedFollower(world, B), PlayedFollower(world, C)]
    waiting = [one.send({0: 0}) for one in followers]
    await asyncio.sleep(0.1)
    committed = world.led().when_committed(world.append(b"a"), 30_000)
    for follower, answer in zip(followers, waiting, strict=True):
        assert not isinstance(answer, FetchResponse)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert answer.done(), "an append wakes"
        told = follower.told(answer.result())
        assert len(told[0].records or b"") > 0
    waiting = [one.send({0: 1}) for one in followers]
    await asyncio.sleep(0.01)
    assert committed is not None
    assert committed.done()
    assert [isinstance(one, FetchResponse) for one in waiting] == [False, False], "to be committed does not wake"
    began = asyncio.get_running_loop().time()
    for follower, answer in zip(followers, waiting, strict=True):
        assert not isinstance(answer, FetchResponse)
        assert follower.told(await answer)[0].high_watermark == 1, "told with the next answer"
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.49, abs=0.02)
    assert await followers[0].fetch() == {}, "and once"


@replicated()
async def test_the_order_of_the_checks_is_that_of_kafka(world: ReplicaWorld) -> None:
    world.make(partitions=3)
    world.change(0, leader=HERE)
    world.change(1, leader=C)
    world.change(2, replicas=[HERE, C], isr=[HERE, C], leader=HERE)

    async def code(index: int, epoch: int, offset: int = 0, **options: int) -> ErrorCode:
        follower = PlayedFollower(world, B)
        if "broker_epoch" in options:
            follower.broker_epoch = options.pop("broker_epoch")
        return ErrorCode((await follower.fetch({index: offset}, epoch=epoch, wait_ms=0, **options))[index].error_code)

    assert await PlayedFollower(world, B).fetch({0: 0}, topic_id=OTHER_ID, wait_ms=0)
    for index in (0, 1, 2):  # leading, leading not, and without a replica there
        assert await code(index, 0) == ErrorCode.FENCED_LEADER_EPOCH
        assert await code(index, 2) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert await code(1, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await code(2, 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert await code(2, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await code(0, 1, last_epoch=5) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await code(0, 1, offset=1, broker_epoch=1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await code(0, 1, broker_epoch=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await code(0, 1) == ErrorCode.NONE
    response = await PlayedFollower(world, B).fetch({0: 0}, topic_id=OTHER_ID, wait_ms=0)
    assert response[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@replicated()
async def test_who_has_to_cut_is_told_at_once_and_is_nowhere_yet(world: ReplicaWorld) -> None:
    world.make()
    world.append(b"a")
    world.change(leader=HERE)
    world.append(b"b")
    follower = PlayedFollower(world, B)
    told = (await follower.fetch({0: 5}, epoch=1, last_epoch=0, wait_ms=10_000))[0]
    assert told.diverging_epoch is not None
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (0, 1)
    assert not told.records
    replicas = world.led().replicas
    assert replicas is not None
    assert replicas.in_sync.followers[B].end_offset == -1
    told = (await follower.fetch({0: 1}, epoch=1, last_epoch=0))[0]
    assert told.diverging_epoch is None
    assert told.records is not None
    assert len(told.records) > 0


@replicated()
async def test_a_follower_that_is_idle_is_caught_up_as_long_as_it_asks(world: ReplicaWorld) -> None:
    world.make()
    followers = [PlayedFollower(world, B), PlayedFollower(world, C)]
    for one in followers:
        await one.fetch({0: 0}, wait_ms=0)
    for _ in range(200):  # more than a minute
        for one in followers[:1]:
            await one.fetch()
    partition = world.led()
    assert partition.replicas is not None
    world.append(b"a")
    partition.replicas.check()
    await asyncio.sleep(0.01)
    assert world.controller.isrs() == [[(HERE, B)]], "one asks, the other has not for a minute"


@replicated()
async def test_one_that_is_not_in_sync_joins_with_a_fetch_that_names_nothing(world: ReplicaWorld) -> None:
    world.make(isr=(HERE,))
    world.tell(world.registered(B, fenced=True))
    follower = PlayedFollower(world, B)
    await follower.fetch({0: 0}, wait_ms=0)
    await follower.fetch()
    assert world.controller.asked == []
    world.tell(world.registered(B))
    await follower.fetch()
    await asyncio.sleep(0.01)
    assert world.controller.isrs() == [[(HERE, B)]]
    replicas = world.led().replicas
    assert replicas is not None
    assert replicas.in_sync.isr == (HERE, B)


@replicated()
async def test_one_that_is_put_out_is_looked_at_again_with_each_fetch(world: ReplicaWorld) -> None:
    world.make()
    follower, other = PlayedFollower(world, B), PlayedFollower(world, C)
    await other.fetch({0: 0}, wait_ms=0)
    await follower.fetch({0: 0}, wait_ms=0)
    await follower.fetch()
    world.change(isr=[HERE, C])
    await follower.fetch()
    await asyncio.sleep(0.01)
    assert world.controller.isrs() == [[(HERE, C, B)]]


@replicated()
async def test_a_partition_that_is_forgotten_for_a_flush_comes_back(world: ReplicaWorld) -> None:
    world.make(partitions=2)
    follower = PlayedFollower(world, B)
    await follower.fetch({0: 0, 1: 0}, wait_ms=0)
    world.append(b"a")
    assert list(await follower.fetch()) == [0]
    world.append(b"b")
    waiting = follower.send({}, forget=(0,))
    await asyncio.sleep(0.1)
    assert not isinstance(waiting, FetchResponse)
    assert not waiting.done(), "nobody asks for that one now"
    world.append(b"c", index=1)
    assert list(follower.told(await waiting)) == [1]
    assert sorted(await follower.fetch({0: 1, 1: 1})) == [0, 1], "what is named is told again"


@replicated()
async def test_a_log_that_begins_later_is_told_at_once(world: ReplicaWorld) -> None:
    world.make(isr=(HERE,), replicas=(HERE, B))
    world.append(b"a")
    await asyncio.sleep(0.1)
    follower = PlayedFollower(world, B)
    await follower.fetch({0: 0}, wait_ms=0)
    await follower.fetch({0: 1}, wait_ms=0)
    waiting = follower.send()
    partition = world.led()
    partition.delete_before(1)
    await asyncio.sleep(0.001)
    assert not isinstance(waiting, FetchResponse)
    assert waiting.done()
    assert follower.told(waiting.result())[0].log_start_offset == 1
    reached = partition.replicas.when_begins_at(1) if partition.replicas else None
    assert reached is not None
    await follower.fetch({0: 1}, log_start=1, wait_ms=0)
    assert reached.done()


@replicated()
async def test_whoever_waits_is_told_when_another_node_leads(world: ReplicaWorld) -> None:
    world.make()
    follower = PlayedFollower(world, B)
    waiting = follower.send({0: 0}, wait_ms=100_000)
    await asyncio.sleep(1)
    world.change(leader=C)
    assert not isinstance(waiting, FetchResponse)
    told = follower.told(await waiting)[0]
    assert told.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert told.current_leader is not None
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (C, 1)


@replicated()
async def test_a_node_that_has_been_started_again_is_not_what_it_was(world: ReplicaWorld) -> None:
    """16"""
    world.make(isr=(HERE,))
    follower = PlayedFollower(world, B)
    world.tell(world.registered(B, broker_epoch=200))
    assert (await follower.fetch({0: 0}, wait_ms=0))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await asyncio.sleep(0.1)
    assert world.controller.asked == []
    again = PlayedFollower(world, B, broker_epoch=200)
    await again.fetch({0: 0}, wait_ms=0)
    await asyncio.sleep(0.1)
    (asked,) = world.controller.asked
    assert (asked.broker_id, asked.broker_epoch) == (HERE, EPOCHS[HERE])
    members = asked.topics[0].partitions[0].new_isr_with_epochs
    assert [(one.broker_id, one.broker_epoch) for one in members] == [(HERE, EPOCHS[HERE]), (B, 200)]


# -- other questions of followers, and of readers to a new leader


def listed(
    world: ReplicaWorld, replica_id: int, timestamp: int = -1, version: int = 11, *, listener: str = "IN"
) -> Any:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    response = list_offsets.handle(
        request,
        world.context(version, listener=listener),
        listeners=world.listeners,
        topics=world.topics,
        read_failures=ReadFailures(),
    )
    found = response.topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else found.offset


@replicated()
async def test_followers_are_told_the_end_of_the_log_and_readers_what_is_committed(world: ReplicaWorld) -> None:
    world.make()
    world.append(b"a")
    assert (listed(world, B), listed(world, -1)) == (1, 0)
    assert listed(world, B, listener="OUT") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert listed(world, -1, listener="OUT") == 0


@replicated()
async def test_a_new_leader_tells_no_end_before_it_knows_what_is_committed(world: ReplicaWorld) -> None:
    world.make()
    world.append(b"a", b"b")
    world.change(leader=HERE)
    assert listed(world, -1) == listed(world, -1, version=5) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert listed(world, -1, version=4) == ErrorCode.LEADER_NOT_AVAILABLE
    assert listed(world, -1, WALL_START_MS) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (listed(world, -1, -2), listed(world, B)) == (0, 2)
    await asyncio.sleep(0.1)
    for node_id in (B, C):
        await PlayedFollower(world, node_id).fetch({0: 2}, epoch=1, wait_ms=0)
    assert (listed(world, -1), listed(world, -1, WALL_START_MS), listed(world, -1, WALL_START_MS + 1)) == (2, 0, -1)


async def deleted(world: ReplicaWorld, offset: int, timeout_ms: int = 1000) -> tuple[int, int]:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    response = await delete_records.handle(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=timeout_ms),
        world.context(2),
        topics=world.topics,
        store=world.store,
        slices=world.slices,
        on_broken=world.broken.append,
    )
    result = response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


@replicated()
async def test_records_are_deleted_when_no_follower_that_is_alive_has_them(world: ReplicaWorld) -> None:
    world.make()
    world.append(b"a", b"b")
    await asyncio.sleep(0.1)
    followers = [PlayedFollower(world, B), PlayedFollower(world, C)]
    for one in followers:
        await one.fetch({0: 2}, wait_ms=0)
    assert await deleted(world, 1, 200) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    deleting = asyncio.ensure_future(deleted(world, 2))
    await asyncio.sleep(0.1)
    for one in followers:
        assert not deleting.done()
        await one.fetch({0: 2}, log_start=2, wait_ms=0)
    assert await deleting == (ErrorCode.NONE, 2)
    world.append(b"c")
    await asyncio.sleep(0.1)
    for one in followers:
        await one.fetch({0: 3}, log_start=2, wait_ms=0)
    world.tell(world.registered(C, fenced=True))
    deleting = asyncio.ensure_future(deleted(world, -1))
    await asyncio.sleep(0.1)
    await followers[0].fetch({0: 3}, log_start=3, wait_ms=0)
    assert await deleting == (ErrorCode.NONE, 3)
    world.tell(world.registered(C))
    deleting = asyncio.ensure_future(deleted(world, 3))
    await asyncio.sleep(0.1)
    world.change(leader=B)
    assert (await deleting)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@replicated()
async def test_a_fetch_that_is_tried_again_says_where_its_follower_was_when_it_asked(world: ReplicaWorld) -> None:
    world.make()
    follower = PlayedFollower(world, B)
    waiting = follower.send({0: 0})
    replicas = world.led().replicas
    assert replicas is not None
    progress = replicas.in_sync.followers[B]
    asked_ms = progress.fetched_ms
    await asyncio.sleep(0.3)
    world.append(b"a")
    assert not isinstance(waiting, FetchResponse)
    await waiting
    assert (progress.fetched_ms, progress.leader_end_offset) == (asked_ms, 0)
