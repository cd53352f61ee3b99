"""Callbacks are neither lost nor doubled: polls that run out of time, listeners that fail, are slow or misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from membership_world import ClientWorld, Member, ScriptedGroup, scripted

from semel.client.errors import IllegalState
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest
from semel.wire.spec.leave_group import LeaveGroupRequest

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def pause(seconds: float) -> Callable[[], Awaitable[None]]:
    return lambda: asyncio.sleep(seconds)


async def fails() -> None:
    await asyncio.sleep(0.01)
    raise LookupError("the listener has failed")


async def started(group: ScriptedGroup, **settings: Any) -> Member:
    return await group.new_member("t", **settings).start()


async def joined(group: ScriptedGroup, **settings: Any) -> Member:
    one = await started(group, **settings)
    assert await one.poll()
    assert one.owner.taken_notes() == ["assign t-0 t-1"]
    return one


async def shaken(group: ScriptedGroup, one: Member) -> None:
    """The coordinator wants partitions to be given up; in the classic protocol they come back at once."""
    if one.settings.group_protocol == "classic":
        group.script[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
    else:
        group.target = []
    await asyncio.sleep(6)
    assert not one.membership.is_settled()


def after_shaking(one: Member) -> list[str]:
    return ["revoke t-0 t-1", "assign t-0 t-1"] if one.settings.group_protocol == "classic" else ["revoke t-0 t-1"]


def now_s() -> float:
    return asyncio.get_running_loop().time()


@PROTOCOLS
@scripted
async def test_a_poll_ends_with_the_callback_that_it_is_in(group: ScriptedGroup, protocol: str) -> None:
    one = await joined(group, group_protocol=protocol)
    await shaken(group, one)
    one.owner.during["revoke"] = pause(5)
    began_s = now_s()
    assert not await one.poll(1.0)
    assert now_s() - began_s == pytest.approx(5, abs=0.1)
    assert one.owner.taken_notes() == ["revoke t-0 t-1"]
    assert one.holds == ""
    assert await one.poll()
    assert one.owner.taken_notes() == after_shaking(one)[1:]
    assert one.membership.is_settled()
    await one.close()


@PROTOCOLS
@scripted
async def test_who_cancels_twice_leaves_the_callback_to_itself(group: ScriptedGroup, protocol: str) -> None:
    one = await joined(group, group_protocol=protocol)
    await shaken(group, one)
    one.owner.during["revoke"] = pause(5)
    polling = asyncio.get_running_loop().create_task(one.membership.reconcile())
    one.owner.is_inside = True
    for _ in range(2):
        await asyncio.sleep(1)
        polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    assert polling.cancelled()
    assert not one.membership.is_settled()
    began_s = now_s()
    assert await one.poll()
    assert now_s() - began_s > 2.5, "the next poll waits for it"
    assert one.owner.taken_notes() == after_shaking(one)
    await one.close()


@PROTOCOLS
@scripted
async def test_a_listener_that_fails_in_revoke_is_told_once_and_not_called_again(
    group: ScriptedGroup, protocol: str
) -> None:
    one = await joined(group, group_protocol=protocol)
    await shaken(group, one)
    one.owner.during["revoke"] = fails
    with pytest.raises(LookupError):
        await one.poll()
    assert await one.poll()
    assert one.owner.taken_notes() == after_shaking(one)
    assert one.membership.is_settled()
    one.owner.during.clear()
    await one.close()


@PROTOCOLS
@scripted
async def test_a_listener_that_fails_in_assign_keeps_its_partitions(group: ScriptedGroup, protocol: str) -> None:
    one = await started(group, group_protocol=protocol)
    one.owner.during["assign"] = fails
    with pytest.raises(LookupError):
        await one.poll()
    assert await one.poll()
    assert one.owner.taken_notes() == ["assign t-0 t-1"]
    assert one.holds == "t-0 t-1"
    assert one.membership.is_settled()
    await one.close()


@PROTOCOLS
@scripted
async def test_an_error_in_a_poll_that_ran_out_of_time_is_told_by_the_next(group: ScriptedGroup, protocol: str) -> None:
    one = await started(group, group_protocol=protocol)

    async def slow_failure() -> None:
        await asyncio.sleep(3)
        await fails()

    one.owner.during["assign"] = slow_failure
    assert not await one.poll(1.0)
    assert not one.membership.is_settled()
    with pytest.raises(LookupError):
        await one.poll()
    assert one.membership.is_settled()
    assert one.owner.taken_notes() == ["assign t-0 t-1"]
    await one.close()


@PROTOCOLS
@scripted
async def test_a_listener_that_fails_does_not_keep_us_in_the_group(group: ScriptedGroup, protocol: str) -> None:
    one = await joined(group, group_protocol=protocol)
    one.owner.during["revoke"] = fails
    with pytest.raises(LookupError):
        await one.leave()
    assert one.holds == ""
    assert one.membership.identity.generation_id == -1
    if protocol == "classic":
        assert len(group.requests(LeaveGroupRequest)) == 1
    else:
        assert group.requests(ConsumerGroupHeartbeatRequest)[-1].member_epoch == -1
    await one.die()


@PROTOCOLS
@scripted
async def test_a_listener_cannot_poll_or_leave(group: ScriptedGroup, protocol: str) -> None:
    one = await started(group, group_protocol=protocol)
    one.owner.during["assign"] = one.membership.leave
    with pytest.raises(IllegalState, match="a rebalance listener cannot"):
        await one.poll()
    one.owner.during["revoke"] = one.membership.reconcile
    with pytest.raises(IllegalState, match="a rebalance listener cannot"):
        await one.leave()
    await one.die()


@PROTOCOLS
@scripted
async def test_a_listener_that_is_stuck_costs_the_membership(group: ScriptedGroup, protocol: str) -> None:
    one = await joined(group, group_protocol=protocol, max_poll_interval_ms=60_000)
    await shaken(group, one)
    one.owner.during["revoke"] = pause(100)
    group.asked.clear()
    polling = asyncio.get_running_loop().create_task(one.poll())
    await asyncio.sleep(80)
    assert one.membership.identity.generation_id == -1
    if protocol == "classic":
        assert len(group.requests(LeaveGroupRequest)) == 1
    else:
        assert [beat.member_epoch for beat in group.requests(ConsumerGroupHeartbeatRequest)][-1] == -1
    assert await polling
    assert one.owner.taken_notes() == ["revoke t-0 t-1", "assign t-0 t-1"]
    await one.close()


@PROTOCOLS
@scripted
async def test_leaving_waits_for_a_callback_under_way(group: ScriptedGroup, protocol: str) -> None:
    one = await started(group, group_protocol=protocol)
    one.owner.during["assign"] = pause(5)
    polling = asyncio.get_running_loop().create_task(one.membership.reconcile())
    one.owner.is_inside = True
    await asyncio.sleep(1)
    for _ in range(2):
        polling.cancel()
        await asyncio.sleep(0.1)
    await one.leave()
    assert one.owner.taken_notes() == ["assign t-0 t-1", "revoke t-0 t-1"]
    await one.close()


@PROTOCOLS
@scripted
async def test_leaving_that_is_cancelled_is_leaving_all_the_same(group: ScriptedGroup, protocol: str) -> None:
    one = await joined(group, group_protocol=protocol)
    one.owner.during["revoke"] = pause(5)
    one.owner.is_inside = True
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(one.membership.leave(), 1)
    assert one.owner.taken_notes() == ["revoke t-0 t-1"]
    assert one.membership.is_settled()
    assert one.membership.identity.generation_id == -1
    one.owner.during.clear()
    one.membership.subscription_changed()
    assert await one.poll()
    await one.close()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "consumer"])
def test_whatever_polls_do_every_partition_is_with_one_member_in_the_end(seed: int, strategy: str) -> None:
    """Polls of random length, slow and failing listeners, members that come and go. The owners check the rest: that
    nothing is assigned twice, and nothing is called outside of poll."""
    chance = random.Random(f"{strategy}/{seed}")
    settings: dict[str, Any] = {"group_protocol": "consumer"}
    if strategy != "consumer":
        settings = {"partition_assignment_strategy": strategy}

    async def polling(one: Member, until_s: float) -> None:
        while now_s() < until_s:
            try:
                await one.poll(chance.choice([0.0, 0.001, 0.01, 0.5, 5.0]))
            except LookupError:
                pass
            await asyncio.sleep(chance.choice([0.0, 0.01, 1.0]))

    async def whims() -> None:
        await asyncio.sleep(chance.choice([0.0, 0.0, 0.01, 2.0]))
        if chance.random() < 0.1:
            raise LookupError("a whim")

    async def scenario(world: ClientWorld) -> None:
        await world.create_topic("t", 7)
        members: list[Member] = []
        for _ in range(4):
            one = await Member(world.host(), world.address, "t", **settings).start()
            one.owner.during = dict.fromkeys(["revoke", "lose", "assign"], whims)
            members.append(one)
        async with asyncio.TaskGroup() as tasks:
            for one in members:
                tasks.create_task(polling(one, now_s() + chance.uniform(30, 90)))
            await asyncio.sleep(chance.uniform(10, 25))
        for one in members:
            one.owner.during.clear()
        leaver = members.pop()
        await leaver.close()
        for one in members:
            one.keep_polling()
        await asyncio.sleep(60)
        held = [each for one in members for each in one.owner.holds]
        assert len(held) == len(set(held)) == 7
        for one in members:
            await one.close()

    ClientWorld(seed).run(scenario)


@PROTOCOLS
@pytest.mark.parametrize("after_s", [0.0, 0.003, 0.5, 3.0])
@scripted
async def test_leaving_ends_a_poll_that_waits(group: ScriptedGroup, protocol: str, after_s: float) -> None:
    """Another task closes the consumer while the program waits inside poll."""
    group.script[JoinGroupRequest] = [0.0, 2.0]
    group.script[ConsumerGroupHeartbeatRequest] = [2.0]
    one = await started(group, group_protocol=protocol)
    polling = asyncio.get_running_loop().create_task(one.poll())
    await asyncio.sleep(after_s)
    one.owner.is_inside = True
    await one.membership.leave()
    assert one.membership.is_settled()
    await asyncio.wait_for(polling, 1)
    assert one.holds == ""
    await asyncio.sleep(60)
    assert one.membership.identity.generation_id == -1
    await one.die()


@PROTOCOLS
@scripted
async def test_nothing_is_assigned_to_who_is_leaving(group: ScriptedGroup, protocol: str) -> None:
    one = await joined(group, group_protocol=protocol)
    one.owner.during["revoke"] = pause(5)
    leaving = asyncio.get_running_loop().create_task(one.membership.leave())
    await asyncio.sleep(1)
    assert await one.poll()
    await leaving
    assert one.owner.taken_notes() == ["revoke t-0 t-1"]
    assert one.holds == ""
    await one.die()


@scripted
async def test_a_poll_that_waits_does_not_join_again_for_who_is_leaving(group: ScriptedGroup) -> None:
    one = await joined(group, partition_assignment_strategy="cooperative-sticky")
    await shaken(group, one)
    group.script[JoinGroupRequest] = [100.0]
    polling = asyncio.get_running_loop().create_task(one.poll())
    await asyncio.sleep(1)
    joins = len(group.requests(JoinGroupRequest))
    one.owner.during["revoke"] = pause(5)
    await one.membership.leave()
    await polling
    assert len(group.requests(JoinGroupRequest)) == joins
    assert one.owner.taken_notes() == ["revoke t-0 t-1"]
    await one.die()
