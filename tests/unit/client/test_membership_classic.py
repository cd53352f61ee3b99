"""Groups of the classic protocol on our broker, in virtual time: joining, sharing, leaving, dying, static members."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from membership_world import ClientWorld, Member, on_our_broker, partitions

from semel.client.errors import FencedInstance
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity
from semel.wire.spec.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

STRATEGIES = pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
ALL = partitions("t-0 t-1 t-2 t-3")


async def member(world: ClientWorld, *topics: str, **settings: Any) -> Member:
    return await Member(world.host(), world.address, *(topics or ("t",)), **settings).start()


async def settled(*members: Member, within_s: float = 120.0) -> None:
    """All of them have nothing to do, for a while."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    quiet = 0
    while quiet < 60:
        assert asyncio.get_running_loop().time() < deadline_s, [one.holds for one in members]
        await asyncio.sleep(0.1)
        quiet = quiet + 1 if all(one.membership.is_settled() for one in members) else 0


def shared(*members: Member) -> set[TopicPartition]:
    """What they hold together. Nobody holds what another does."""
    everything = [one for each in members for one in each.owner.holds]
    assert len(everything) == len(set(everything)), [each.holds for each in members]
    return set(everything)


@on_our_broker()
async def test_a_member_alone_gets_everything_and_gives_it_back_when_it_leaves(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one = await member(world)
    assert one.membership.identity == GroupIdentity("group", -1, "", None, False)
    assert not one.membership.is_settled()
    assert await one.poll()
    assert one.membership.is_settled()
    assert one.owner.taken_notes() == ["assign t-0 t-1 t-2 t-3"]
    assert one.membership.identity.generation_id == 1
    assert one.membership.identity.member_id
    await one.leave()
    assert one.owner.taken_notes() == ["revoke t-0 t-1 t-2 t-3"]
    assert one.membership.identity == GroupIdentity("group", -1, "", None, False)
    assert one.membership.is_settled()
    await one.close()


@STRATEGIES
@on_our_broker()
async def test_members_share_and_take_over_from_who_leaves(world: ClientWorld, strategy: str) -> None:
    await world.create_topic("t", 4)
    one = await member(world, partition_assignment_strategy=strategy)
    one.keep_polling()
    await settled(one)
    two = await member(world, partition_assignment_strategy=strategy)
    two.keep_polling()
    await settled(one, two)
    assert shared(one, two) == ALL
    assert len(one.owner.holds) == len(two.owner.holds) == 2
    assert one.membership.identity.generation_id == two.membership.identity.generation_id
    await two.close()
    await settled(one)
    assert one.owner.holds == ALL
    await one.close()


@on_our_broker()
async def test_eager_members_give_up_everything_at_each_rebalance(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one = await member(world, partition_assignment_strategy="range")
    one.keep_polling()
    await settled(one)
    one.owner.taken_notes()
    two = await member(world, partition_assignment_strategy="range")
    two.keep_polling()
    await settled(one, two)
    notes = one.owner.taken_notes()
    assert notes[0] == "revoke t-0 t-1 t-2 t-3"
    assert notes[1].startswith("assign")
    assert len(notes) == 2
    await two.close()
    await one.close()


@on_our_broker()
async def test_cooperative_members_give_up_only_what_moves(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one = await member(world, partition_assignment_strategy="cooperative-sticky")
    one.keep_polling()
    await settled(one)
    one.owner.taken_notes()
    two = await member(world, partition_assignment_strategy="cooperative-sticky")
    two.keep_polling()
    await settled(one, two)
    revoked = [note for note in one.owner.taken_notes() if note.startswith("revoke")]
    assert len(revoked) == 1
    assert len(revoked[0].split()) == 3
    assert two.owner.taken_notes()[-1] == "assign " + revoked[0].removeprefix("revoke ")
    await two.close()
    await settled(one)
    assert [note for note in one.owner.taken_notes() if note.startswith("revoke")] == []
    assert one.owner.holds == ALL
    await one.close()


@on_our_broker()
async def test_a_cooperative_member_reads_on_while_others_take_their_time(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one, slow = [await member(world, partition_assignment_strategy="cooperative-sticky") for _ in range(2)]
    for each in (one, slow):
        each.keep_polling()
    await settled(one, slow)
    for each in (one, slow):
        await each.stop_polling()
    held, wakes = one.holds, one.owner.wakes
    new = await member(world, partition_assignment_strategy="cooperative-sticky")
    new.keep_polling()
    await asyncio.sleep(5)
    assert one.owner.wakes > wakes, "a poll that waits for records is woken"
    began_s = asyncio.get_running_loop().time()
    assert await one.poll(wait=False)
    assert asyncio.get_running_loop().time() == began_s
    assert not await one.poll(1.0), "the slow one has not joined"
    assert one.holds == held
    wakes = one.owner.wakes
    slow.keep_polling()
    await asyncio.sleep(1)
    assert one.owner.wakes > wakes
    assert await one.poll(wait=False)
    one.keep_polling()
    await settled(one, slow, new)
    assert shared(one, slow, new) == ALL
    for each in (one, slow, new):
        await each.close()


@on_our_broker()
async def test_who_dies_is_missed_after_its_session(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one, two = [await member(world, session_timeout_ms=10_000, heartbeat_interval_ms=1000) for _ in range(2)]
    for each in (one, two):
        each.keep_polling()
    await settled(one, two)
    await two.die()
    await asyncio.sleep(5)
    assert len(one.owner.holds) == 2
    await asyncio.sleep(10)
    await settled(one)
    assert one.owner.holds == ALL
    await one.close()


@on_our_broker()
async def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one = await member(world, group_instance_id="one")
    two = await member(world, group_instance_id="two")
    for each in (one, two):
        each.keep_polling()
    await settled(one, two)
    held, generation = two.holds, one.membership.identity.generation_id
    one.owner.taken_notes()
    await two.close()
    await asyncio.sleep(10)
    again = await member(world, group_instance_id="two")
    again.keep_polling()
    await settled(one, again)
    assert again.holds == held
    assert one.owner.taken_notes() == []
    assert one.membership.identity.generation_id == again.membership.identity.generation_id == generation
    await one.close()
    await again.close()


@on_our_broker()
async def test_a_static_leader_that_comes_back_still_watches_the_topics(world: ClientWorld) -> None:
    """It makes no assignment when it returns (KIP-814), but it must notice new partitions as before."""
    await world.create_topic("t", 2)
    one = await member(world, group_instance_id="one", metadata_max_age_ms=5000)
    await one.poll()
    await one.die()
    again = await member(world, group_instance_id="one", metadata_max_age_ms=5000)
    again.keep_polling()
    await settled(again)
    assert again.holds == "t-0 t-1"
    await grow(world, "t", 3)
    await asyncio.sleep(6)
    await settled(again)
    assert again.holds == "t-0 t-1 t-2"
    await again.close()


@on_our_broker()
async def test_two_with_one_instance_id_do_not_live_together(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world, group_instance_id="same")
    await one.poll()
    two = await member(world, group_instance_id="same")
    await two.poll()
    await asyncio.sleep(4)
    assert isinstance(one.membership.failure, FencedInstance)
    with pytest.raises(FencedInstance, match="give every member an id of its own"):
        await one.poll()
    assert one.owner.taken_notes() == ["assign t-0 t-1", "lose t-0 t-1"]
    with pytest.raises(FencedInstance):
        await one.poll()
    assert two.holds == "t-0 t-1"
    await one.close()
    await two.close()


async def grow(world: ClientWorld, topic: str, count: int) -> None:
    client = await world.node.client()
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=1000
    )
    assert (await client.ask(request)).results[0].error_code == 0
    client.close()


@on_our_broker()
async def test_new_partitions_are_shared_out(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one, two = [await member(world, metadata_max_age_ms=5000) for _ in range(2)]
    for each in (one, two):
        each.keep_polling()
    await settled(one, two)
    await grow(world, "t", 5)
    await asyncio.sleep(6)
    await settled(one, two)
    assert len(shared(one, two)) == 5
    await one.close()
    await two.close()


@on_our_broker()
async def test_the_leader_watches_topics_that_only_others_read(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    leader = await member(world, "t", metadata_max_age_ms=5000)
    leader.keep_polling()
    await settled(leader)
    other = await member(world, "u", metadata_max_age_ms=3600_000)
    other.keep_polling()
    await settled(leader, other)
    assert (leader.holds, other.holds) == ("t-0 t-1", "")
    await world.create_topic("u", 2)
    await asyncio.sleep(6)
    await settled(leader, other)
    assert (leader.holds, other.holds) == ("t-0 t-1", "u-0 u-1")
    await other.close()
    await settled(leader)
    leader.cluster.stale()
    await asyncio.sleep(1)
    assert "u" not in leader.cluster.topics
    await leader.close()


@STRATEGIES
@on_our_broker()
async def test_a_changed_subscription_is_told_to_the_group(world: ClientWorld, strategy: str) -> None:
    await world.create_topic("t", 2)
    await world.create_topic("u", 1)
    one = await member(world, "t", partition_assignment_strategy=strategy)
    one.keep_polling()
    await settled(one)
    one.owner.topics = frozenset(["u"])
    one.cluster.watch(["u"])
    one.membership.subscription_changed()
    assert not one.membership.is_settled()
    await settled(one)
    assert one.holds == "u-0"
    assert one.owner.taken_notes() == ["assign t-0 t-1", "revoke t-0 t-1", "assign u-0"]
    generation = one.membership.identity.generation_id
    one.membership.subscription_changed()
    await settled(one)
    assert one.membership.identity.generation_id == generation, "nothing has changed"
    await one.close()


@on_our_broker()
async def test_a_member_can_leave_and_come_back(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world)
    await one.poll()
    await one.leave()
    one.membership.subscription_changed()
    await one.poll()
    assert one.owner.taken_notes() == ["assign t-0 t-1", "revoke t-0 t-1", "assign t-0 t-1"]
    await one.close()


@on_our_broker()
async def test_a_program_that_does_not_poll_loses_its_partitions_to_others(
    world: ClientWorld,
) -> None:
    await world.create_topic("t", 2)
    stuck = await member(world, max_poll_interval_ms=60_000)
    await stuck.poll()
    other = await member(world)
    other.keep_polling()
    await asyncio.sleep(50)
    assert other.holds == ""
    await asyncio.sleep(20)
    await settled(other)
    assert other.holds == "t-0 t-1"
    assert stuck.holds == "t-0 t-1", "it is not told before it polls"
    assert stuck.membership.identity.generation_id == -1
    stuck.owner.taken_notes()
    stuck.keep_polling()
    await settled(stuck, other)
    assert stuck.owner.taken_notes()[0] == "lose t-0 t-1"
    assert shared(stuck, other) == partitions("t-0 t-1")
    await stuck.close()
    await other.close()


@on_our_broker()
async def test_a_program_that_waits_inside_poll_is_not_away(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world, max_poll_interval_ms=60_000)
    await one.poll()
    one.membership.polled()
    await asyncio.sleep(600)
    assert one.membership.is_settled()
    one.membership.returned()
    await asyncio.sleep(59)
    assert one.membership.is_settled()
    await asyncio.sleep(2)
    assert not one.membership.is_settled()
    await one.close()


@on_our_broker()
async def test_heartbeats_go_on_while_the_program_works(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world, session_timeout_ms=10_000, heartbeat_interval_ms=3000)
    await one.poll()
    await asyncio.sleep(200)
    assert one.membership.is_settled()
    assert one.membership.identity.generation_id == 1
    await one.close()


@on_our_broker()
async def test_polls_without_time_get_there_too(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world)
    polls = 0
    while not await one.poll(0.0):
        polls += 1
        await asyncio.sleep(0.01)
        assert polls < 200
    assert one.owner.taken_notes() == ["assign t-0 t-1"]
    await one.close()


@on_our_broker()
async def test_a_broker_that_restarts_finds_its_members_again(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one, two = [await member(world) for _ in range(2)]
    for each in (one, two):
        each.keep_polling()
    await settled(one, two)
    notes = [each.owner.taken_notes() for each in (one, two)]
    assert notes
    await world.lose_broker(power=False, down_s=10)
    await asyncio.sleep(20)
    await settled(one, two)
    assert shared(one, two) == ALL
    assert [each.owner.taken_notes() for each in (one, two)] == [[], []]
    await one.close()
    await two.close()


@on_our_broker()
async def test_a_session_that_ends_by_our_own_clock_is_lost(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world)
    one.keep_polling()
    await settled(one)
    one.owner.taken_notes()
    await world.lose_broker(power=False, down_s=60)
    assert one.owner.taken_notes() == ["lose t-0 t-1"]
    await settled(one)
    assert one.owner.taken_notes() == ["assign t-0 t-1"]
    await one.close()
