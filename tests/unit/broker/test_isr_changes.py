"""AlterPartition: what is asked, how often, and what each answer means."""

from __future__ import annotations

import asyncio

import pytest
from replica_world import HERE, B, C, PlayedFollower, ReplicaWorld, replicated

from semel.log.errors import Refused
from semel.peer.errors import TimedOut
from semel.replication.replicas import Replicas
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import AlterPartitionResponse
from semel.wire.spec.metadata_records import BrokerRegistrationChangeRecord


def replicas(world: ReplicaWorld, index: int = 0) -> Replicas:
    found = world.led(index).replicas
    assert found is not None
    return found


@replicated()
async def test_one_request_is_under_way_and_the_next_has_all_that_came_meanwhile(world: ReplicaWorld) -> None:
    world.make(partitions=3, isr=(HERE,))
    world.controller.go.clear()
    follower = PlayedFollower(world, B)
    await follower.fetch({0: 0}, wait_ms=0)
    await asyncio.sleep(0.01)
    await follower.fetch({1: 0, 2: 0}, wait_ms=0)
    await asyncio.sleep(1)
    assert world.controller.isrs() == [[(HERE, B)]]
    assert replicas(world).in_sync.maximal == {HERE, B}
    world.controller.go.set()
    await asyncio.sleep(0.01)
    assert world.controller.isrs() == [[(HERE, B)], [(HERE, B), (HERE, B)]]
    assert [replicas(world, index).in_sync.isr for index in range(3)] == [(HERE, B)] * 3
    assert [replicas(world, index).in_sync.partition_epoch for index in range(3)] == [1] * 3


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_what_was_surely_not_done_is_given_up(code: ErrorCode) -> None:
    @replicated()
    async def give_up(world: ReplicaWorld) -> None:
        world.make(isr=(HERE,))
        world.controller.codes = [code]
        await PlayedFollower(world, B).fetch({0: 0}, wait_ms=0)
        await asyncio.sleep(5)
        assert len(world.controller.asked) == 1
        assert (replicas(world).in_sync.proposal, replicas(world).in_sync.maximal) == (None, {HERE})

    give_up()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_what_the_controller_knows_better_is_waited_for(code: ErrorCode) -> None:
    """20: it must not be taken for failed, it may have been done."""

    @replicated()
    async def wait(world: ReplicaWorld) -> None:
        world.make(isr=(HERE,))
        world.controller.codes = [code]
        await PlayedFollower(world, B).fetch({0: 0}, wait_ms=0)
        await asyncio.sleep(5)
        assert len(world.controller.asked) == 1
        assert replicas(world).in_sync.maximal == {HERE, B}
        world.change(isr=[HERE, B])
        assert (replicas(world).in_sync.proposal, replicas(world).in_sync.isr) == (None, (HERE, B))

    wait()


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        TimedOut("nobody answers"),
        Refused(ErrorCode.NOT_CONTROLLER, "not any more"),
    ],
)
def test_what_nobody_knows_the_end_of_is_asked_again_the_same(failure: ErrorCode | Exception) -> None:
    """20"""

    @replicated()
    async def ask_again(world: ReplicaWorld) -> None:
        world.make(isr=(HERE,))
        world.controller.codes = [failure] * 3
        await PlayedFollower(world, B).fetch({0: 0}, wait_ms=0)
        await asyncio.sleep(0.01)
        assert replicas(world).in_sync.maximal == {HERE, B}
        await asyncio.sleep(5)
        assert world.controller.isrs() == [[(HERE, B)]] * 4
        assert replicas(world).in_sync.isr == (HERE, B)

    ask_again()


@replicated()
async def test_an_error_of_the_whole_request_is_no_answer_to_its_parts(world: ReplicaWorld) -> None:
    answers = [AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)]
    alter_partition = world.controller.alter_partition

    async def stale(request):  # type: ignore[no-untyped-def]
        return answers.pop() if answers else await alter_partition(request)

    world.leading._changes._alter_partition = stale
    world.make(isr=(HERE,))
    await PlayedFollower(world, B).fetch({0: 0}, wait_ms=0)
    await asyncio.sleep(1)
    assert replicas(world).in_sync.isr == (HERE, B)


@replicated()
async def test_nothing_is_asked_again_for_a_term_that_is_over(world: ReplicaWorld) -> None:
    world.make(isr=(HERE,))
    world.controller.codes = [TimedOut("nobody answers")] * 100
    await PlayedFollower(world, B).fetch({0: 0}, wait_ms=0)
    await asyncio.sleep(1)
    count = len(world.controller.asked)
    assert count > 1
    world.change(leader=B, isr=[B])
    await asyncio.sleep(10)
    assert len(world.controller.asked) <= count + 1


@replicated()
async def test_an_answer_that_comes_after_newer_metadata_changes_nothing(world: ReplicaWorld) -> None:
    """19"""
    world.make(isr=(HERE,))
    world.controller.go.clear()
    await PlayedFollower(world, B).fetch({0: 0}, wait_ms=0)
    await asyncio.sleep(0.01)
    world.change(isr=[HERE, B])
    world.change(isr=[HERE, C])
    world.controller.go.set()
    await asyncio.sleep(1)
    assert (replicas(world).in_sync.isr, replicas(world).in_sync.partition_epoch) == ((HERE, C), 2)


@replicated(replica_lag_time_max_ms="10000")
async def test_who_is_silent_leaves_the_isr_and_the_others_go_on(world: ReplicaWorld) -> None:
    world.make(partitions=250)
    follower = PlayedFollower(world, B)
    await follower.fetch(dict.fromkeys(range(250), 0), wait_ms=0)
    committed = [world.led(index).when_committed(world.append(b"a", index=index)) for index in range(250)]
    for _ in range(8):
        await follower.fetch(dict.fromkeys(range(250), 1), wait_ms=0)
        await asyncio.sleep(2)
    assert {isr for isrs in world.controller.isrs() for isr in isrs} == {(HERE, B)}
    assert len(world.controller.asked) <= 3
    assert all(one is not None and one.done() for one in committed)


@replicated()
async def test_a_request_that_waits_for_others_ends_with_its_time(world: ReplicaWorld) -> None:
    world.make()
    committed = world.led().when_committed(world.append(b"a"), 1500)
    assert committed is not None
    began = asyncio.get_running_loop().time()
    with pytest.raises(Refused) as refusal:
        await committed
    assert refusal.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert 1.5 <= asyncio.get_running_loop().time() - began < 1.65
    await asyncio.sleep(1)
    assert world.leading._expiry is None, "nobody waits, so nobody looks"


@replicated()
async def test_a_node_that_is_fenced_holds_nothing_back(world: ReplicaWorld) -> None:
    world.make(isr=(HERE, C))
    followers = [PlayedFollower(world, B), PlayedFollower(world, C)]
    world.controller.codes = [ErrorCode.INELIGIBLE_REPLICA] * 10
    for one in followers:
        await one.fetch({0: 0}, wait_ms=0)
    committed = world.led().when_committed(world.append(b"a"))
    await followers[1].fetch({0: 1}, wait_ms=0)
    await asyncio.sleep(1)
    assert committed is not None
    assert not committed.done(), "B has just had all, and may join"
    world.tell(world.registered(B, fenced=True))
    await asyncio.sleep(0.01)
    assert committed.done()


@replicated()
async def test_only_a_node_in_its_newest_start_that_is_there_to_stay_may_join(world: ReplicaWorld) -> None:
    """16, 18"""
    can_join, is_stale = world.leading.can_join, world.leading.is_stale
    assert can_join(B, 102)
    assert can_join(B, -1)
    assert not can_join(B, 101)
    assert not can_join(9, -1)
    assert [is_stale(B, epoch) for epoch in (-1, 101, 102, 103)] == [False, True, False, False]
    world.tell(BrokerRegistrationChangeRecord(broker_id=B, broker_epoch=102, in_controlled_shutdown=1))
    assert not can_join(B, 102)
    assert world.leading.is_alive(B)
    world.tell(BrokerRegistrationChangeRecord(broker_id=C, broker_epoch=103, fenced=1))
    assert not can_join(C, 103)
    assert not world.leading.is_alive(C)


@replicated()
async def test_who_is_told_to_look_and_to_end_at_the_same_time_ends(world: ReplicaWorld) -> None:
    """As a broker that stops: the record that fences it comes just before it closes."""
    world.make()
    await asyncio.sleep(0.01)
    world.leading.look_soon()
    await asyncio.wait_for(world.leading.close(), 60)
