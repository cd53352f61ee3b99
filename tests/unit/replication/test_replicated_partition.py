"""A partition of several replicas on its leader: what is committed, who is told, and what followers get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from leader_world import LEADER, Assigned, B, C, LeaderWorld

from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.records.control import ControlType
from semel.replication.partition import FollowerFetch
from semel.sim.loop import run
from semel.wire.errors import ErrorCode


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def in_virtual_time() -> None:
        run(test())

    in_virtual_time.__name__ = test.__name__
    return in_virtual_time


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(Refused) as refusal:
        call()
    return ErrorCode(refusal.value.code)


@simulated
async def test_a_batch_is_committed_when_the_whole_isr_has_flushed_it_the_leader_as_well() -> None:
    world = LeaderWorld(flush_ms=1000)
    committed = world.partition.when_committed(world.append(b"a"))
    assert committed is not None
    world.fetch(B, 1)
    world.fetch(C, 1)
    assert world.log.high_watermark == 0, "the leader flushes still"
    await asyncio.sleep(5)
    assert world.log.high_watermark == 1
    assert committed.done()
    world.append(b"b")
    await asyncio.sleep(5)
    assert (world.log.flushed_offset, world.log.high_watermark) == (2, 1)
    assert world.fetch(B, 2).high_watermark == 1
    assert world.fetch(C, 2).high_watermark == 2, "told in the answer that moves it"


@simulated
async def test_without_flushes_what_is_written_counts() -> None:
    world = LeaderWorld(flush_ms=1000, **{"flush.messages": "1000"})
    world.append(b"a")
    assert world.log.high_watermark == 0
    world.fetch(B, 1)
    world.fetch(C, 1)
    assert (world.log.flushed_offset, world.log.high_watermark) == (0, 1)


@simulated
async def test_a_leader_that_is_alone_in_the_isr_commits_by_itself() -> None:
    for overrides in ({}, {"flush.messages": "1000"}):
        world = LeaderWorld(Assigned(isr=(LEADER,)), **overrides)
        world.append(b"a")
        await asyncio.sleep(1)
        assert world.log.high_watermark == 1


@simulated
async def test_followers_read_what_is_not_committed_and_readers_do_not() -> None:
    world = LeaderWorld()
    world.append(b"a")
    await asyncio.sleep(1)
    asked = FollowerFetch(B, 7, 0, 0, -1, 0, 1 << 20)
    fetched = world.partition.fetch_as_replica(asked, at_least_one=True, counts=True)
    assert isinstance(fetched.records, FileRange)
    fetched.records.release()
    assert world.partition.fetch(0, 1 << 20, read_committed=False, at_least_one=True).records is None


@simulated
async def test_followers_are_woken_by_appends_and_not_by_what_is_committed() -> None:
    world = LeaderWorld()
    assert world.partition.replicas is not None
    woken: list[int] = []
    world.partition.replicas.end_watchers["fetch"] = lambda: woken.append(world.log.end_offset)
    world.append(b"a")
    assert woken == [1]
    world.fetch(B, 1)
    world.fetch(C, 1)
    await asyncio.sleep(1)
    assert (woken, world.log.high_watermark) == ([1], 1)
    world.partition.resign()
    assert woken == [1, 1]


@simulated
async def test_a_write_is_refused_when_too_few_are_in_sync() -> None:
    world = LeaderWorld(Assigned(isr=(LEADER,)), **{"min.insync.replicas": "2"})
    assert code_of(lambda: world.append(b"a")) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.log.end_offset == 0
    assert world.partition.rules_for(-1) is None
    for write in (
        lambda: world.partition.append_record(b"k", b"v"),
        lambda: world.partition.append_marker(ControlType.COMMIT, 5, 0, 0, bumps_epoch=False),
    ):
        assert code_of(write) == ErrorCode.NOT_ENOUGH_REPLICAS
    world.append(b"a", acks=1)
    await asyncio.sleep(1)
    assert (world.log.end_offset, world.log.high_watermark) == (1, 0), "nobody reads what is on too few"
    world.partition.follow_state(Assigned(isr=(LEADER, B), partition_epoch=1))
    world.fetch(B, 1)
    assert world.log.high_watermark == 1
    world.append(b"b")


@simulated
async def test_the_generation_rises_when_enough_become_too_few_and_the_other_way_round() -> None:
    world = LeaderWorld(**{"min.insync.replicas": "2"})
    numbers = [world.partition._generation.number]
    for epoch, isr in enumerate([(LEADER, B), (LEADER,), (LEADER, C), (LEADER, B, C)], 1):
        world.partition.follow_state(Assigned(isr=isr, partition_epoch=epoch))
        numbers.append(world.partition._generation.number)
    assert numbers == [0, 0, 1, 2, 2]


@simulated
async def test_what_was_committed_by_too_few_is_called_so() -> None:
    world = LeaderWorld(Assigned(isr=(LEADER, B)), **{"min.insync.replicas": "1"})
    committed = world.partition.when_committed(world.append(b"a"))
    await asyncio.sleep(1)
    assert world.partition.replicas is not None
    assert committed is not None

    world.log.config = replace(world.log.config, min_insync_replicas=3)
    world.partition.advance(1)
    with pytest.raises(Refused) as refusal:
        await committed
    assert refusal.value.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@simulated
async def test_waiting_ends_with_the_time_of_the_request() -> None:
    world = LeaderWorld()
    partition = world.partition
    patient = partition.when_committed(world.append(b"a"), 5000)
    hasty = partition.when_committed(world.append(b"b"), 1000)
    assert list(world.context.waiting) == [partition]
    assert patient is not None
    assert hasty is not None
    clock = partition.clock
    assert partition.expire_waiting(clock.monotonic_ms() + 999)
    assert not hasty.done()
    assert partition.expire_waiting(clock.monotonic_ms() + 1000)
    with pytest.raises(Refused) as refusal:
        await hasty
    assert refusal.value.code == ErrorCode.REQUEST_TIMED_OUT
    world.fetch(B, 1)
    world.fetch(C, 1)
    await asyncio.sleep(1)
    await patient
    assert not partition.expire_waiting(0)


@simulated
async def test_a_duplicate_waits_for_the_batch_that_it_repeats() -> None:
    world = LeaderWorld()
    first = world.append(b"a", producer_id=5, sequence=0)
    assert world.append(b"a", producer_id=5, sequence=0) == first
    committed = world.partition.when_committed(first, 1000)
    await asyncio.sleep(0.5)
    assert committed is not None
    assert not committed.done()
    world.fetch(B, 1)
    world.fetch(C, 1)
    await committed
    assert world.partition.when_committed(world.append(b"a", producer_id=5, sequence=0)) is None


@simulated
async def test_a_fetch_is_judged_in_the_order_of_kafka() -> None:
    world = LeaderWorld()
    world.append(b"a")
    assert world.partition.replicas is not None
    followers = world.partition.replicas.in_sync.followers
    world.log.epochs.entries[:] = [(0, 0)]
    assert code_of(lambda: world.fetch(9, 0, leader_epoch=1)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert code_of(lambda: world.fetch(9, 0, leader_epoch=0)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert code_of(lambda: world.fetch(9, 0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(lambda: world.fetch(B, 0, last_fetched_epoch=3)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(lambda: world.fetch(B, 2)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.fetch(B, 7, last_fetched_epoch=0).diverging == (0, 1)
    assert code_of(lambda: world.fetch(B, 1, broker_epoch=6)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert followers[B].end_offset == -1, "none of these has told where it is"
    world.fetch(B, 1, broker_epoch=-1)
    assert followers[B].end_offset == 1


@simulated
async def test_records_that_were_found_are_let_go_when_the_follower_is_an_old_one() -> None:
    world = LeaderWorld()
    world.append(b"a")
    code_of(lambda: world.fetch(B, 0, broker_epoch=6))
    assert world.log.segments[0].file.pins == 0  # type: ignore[attr-defined]


@simulated
async def test_a_follower_that_has_caught_up_is_proposed_and_joins_when_that_is_confirmed() -> None:
    world = LeaderWorld(Assigned(isr=(LEADER,)))
    world.append(b"a")
    await asyncio.sleep(1)
    world.context.fenced.add(B)
    world.fetch(B, 1)
    assert world.context.proposals == []
    world.context.fenced.clear()
    world.fetch(B, 0)
    assert world.context.proposals == []
    world.fetch(B, 1)
    (proposal,) = world.context.proposals
    assert (proposal.isr, proposal.broker_epochs) == ((LEADER, B), (70, 7))
    replicas = world.partition.replicas
    assert replicas is not None
    world.fetch(B, 1)
    assert len(world.context.proposals) == 1, "one at a time"
    replicas.adopt(proposal, (LEADER, B), 1)
    assert replicas.is_in_sync(B)


@simulated
async def test_a_follower_that_is_silent_for_too_long_is_proposed_to_leave_and_holds_back_no_longer() -> None:
    world = LeaderWorld()
    replicas = world.partition.replicas
    assert replicas is not None
    world.append(b"a")
    await asyncio.sleep(29)
    world.fetch(B, 1)
    replicas.check()
    assert world.context.proposals == []
    await asyncio.sleep(2)
    replicas.check()
    (proposal,) = world.context.proposals
    assert proposal.isr == (LEADER, B)
    assert world.log.high_watermark == 0
    replicas.adopt(proposal, (LEADER, B), 1)
    assert world.log.high_watermark == 1


@simulated
async def test_a_term_that_follows_keeps_what_is_known_only_if_nobody_led_in_between() -> None:
    for epoch, expected in ((1, 1), (2, -1)):
        world = LeaderWorld()
        world.append(b"a")
        world.fetch(B, 1)
        following = world.partition.next_term(epoch, Assigned(partition_epoch=1))
        assert following.replicas is not None
        assert following.replicas.in_sync.followers[B].end_offset == expected
        assert following.replicas.in_sync.epoch_start == 1


@simulated
async def test_a_partition_gets_its_second_replica_in_the_middle_of_a_term() -> None:
    world = LeaderWorld(Assigned((LEADER,), (LEADER,)), **{"flush.messages": "1000"})
    partition = world.partition
    assert partition.replicas is None
    assert not partition.needs_commit(-1)
    number = partition._generation.number
    partition.follow_state(Assigned((LEADER, B), (LEADER,), 1))
    assert partition.needs_commit(-1)
    assert partition._generation.number > number, "lanes answered without waiting"
    world.append(b"a")
    world.fetch(B, 1)
    assert [one.isr for one in world.context.proposals] == [(LEADER, B)]
    assert not partition.is_closed


@simulated
async def test_whoever_deletes_records_waits_for_all_that_are_alive() -> None:
    world = LeaderWorld()
    for node_id in (B, C):
        world.append(b"a")
        world.fetch(node_id, 0)
    await asyncio.sleep(1)
    world.fetch(B, 2)
    world.fetch(C, 2)
    replicas = world.partition.replicas
    assert replicas is not None
    woken: list[bool] = []
    replicas.end_watchers["fetch"] = lambda: woken.append(True)
    world.partition.delete_before(2)
    assert woken, "followers are told at once"
    reached = replicas.when_begins_at(2)
    assert reached is not None
    world.fetch(B, 2, log_start=2)
    assert (reached.done(), replicas.low_watermark) == (False, 0)
    world.context.fenced.add(C)
    replicas.check()
    await reached
    assert replicas.when_begins_at(2) is None
    following = replicas.when_begins_at(3)
    assert following is not None
    world.partition.resign()
    with pytest.raises(Refused):
        await following


@simulated
async def test_the_end_is_known_when_all_from_before_this_leader_is_committed() -> None:
    world = LeaderWorld()
    world.append(b"a")
    following = world.partition.next_term(1, Assigned(partition_epoch=1))
    assert not following.knows_end
    world.partition = following
    world.fetch(B, 1)
    world.fetch(C, 1)
    await asyncio.sleep(1)
    assert following.knows_end
