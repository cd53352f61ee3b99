"""Groups of KIP-848 on our broker, in virtual time: the broker assigns, members give up, confirm and take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from membership_world import ClientWorld, Member, on_our_broker, partitions

from semel.client.errors import BrokerRefused, FatalError
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity
from semel.wire.spec.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState

ALL = partitions("t-0 t-1 t-2 t-3")
QUICK = {"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000"}


async def member(world: ClientWorld, *topics: str, **settings: Any) -> Member:
    wanted = topics or ("t",)
    return await Member(world.host(), world.address, *wanted, group_protocol="consumer", **settings).start()


def shared(*members: Member) -> set[TopicPartition]:
    everything = [one for each in members for one in each.owner.holds]
    assert len(everything) == len(set(everything)), [each.holds for each in members]
    return set(everything)


@on_our_broker()
async def test_a_member_alone_gets_everything_and_gives_it_back_when_it_leaves(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one = await member(world)
    assert not one.membership.is_settled()
    assert await one.poll()
    assert one.owner.taken_notes() == ["assign t-0 t-1 t-2 t-3"]
    identity = one.membership.identity
    assert identity.generation_id > 0
    assert len(identity.member_id) == 22
    await one.leave()
    assert one.owner.taken_notes() == ["revoke t-0 t-1 t-2 t-3"]
    assert one.membership.identity == GroupIdentity("group", -1, "", None, False)
    await one.close()


@on_our_broker(settings=QUICK)
async def test_members_share_and_nobody_reads_what_another_still_does(world: ClientWorld) -> None:
    """At every moment: no partition is with two."""
    await world.create_topic("t", 4)
    one = await member(world)
    one.keep_polling()
    await asyncio.sleep(3)
    two = await member(world)
    two.keep_polling()
    for _ in range(200):
        shared(one, two)
        await asyncio.sleep(0.05)
    assert shared(one, two) == ALL
    assert len(one.owner.holds) == len(two.owner.holds) == 2
    notes = one.owner.taken_notes()
    assert len(notes) == 2
    assert len(notes[1].split()) == 3, "only what moves is given up"
    await two.close()
    await asyncio.sleep(5)
    assert one.owner.holds == ALL
    await one.close()


@on_our_broker(settings=QUICK)
async def test_who_gives_up_slowly_holds_back_the_taker_only(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one = await member(world)
    one.keep_polling()
    await asyncio.sleep(3)
    one.owner.during["revoke"] = lambda: asyncio.sleep(20)
    two = await member(world)
    two.keep_polling()
    await asyncio.sleep(15)
    assert len(one.owner.holds) == 4
    assert two.holds == ""
    await asyncio.sleep(15)
    assert shared(one, two) == ALL
    assert len(two.owner.holds) == 2
    one.owner.during.clear()
    await one.close()
    await two.close()


@on_our_broker(settings=QUICK)
async def test_changes_are_told_at_once(world: ClientWorld) -> None:
    """A partition moves in far less than two intervals of heartbeats."""
    await world.create_topic("t", 2)
    await world.create_topic("u", 1)
    one = await member(world)
    one.keep_polling(0.01)
    await asyncio.sleep(3)
    one.owner.topics = frozenset(["t", "u"])
    one.cluster.watch(["u"])
    await one.cluster.refresh()
    one.membership.subscription_changed()
    await asyncio.sleep(0.1)
    assert one.holds == "t-0 t-1 u-0"
    await one.close()


@on_our_broker(settings=QUICK)
async def test_who_dies_is_missed_after_its_session(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one, two = [await member(world) for _ in range(2)]
    for each in (one, two):
        each.keep_polling()
    await asyncio.sleep(10)
    assert shared(one, two) == ALL
    await two.die()
    await asyncio.sleep(30)
    assert len(one.owner.holds) == 2
    await asyncio.sleep(30)
    assert one.owner.holds == ALL
    await one.close()


@on_our_broker(settings=QUICK)
async def test_a_static_member_comes_back_to_its_partitions(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one = await member(world, group_instance_id="one")
    two = await member(world, group_instance_id="two")
    for each in (one, two):
        each.keep_polling()
    await asyncio.sleep(10)
    held = two.holds
    assert len(shared(one, two)) == 4
    one.owner.taken_notes()
    await two.close()
    await asyncio.sleep(10)
    again = await member(world, group_instance_id="two")
    again.keep_polling()
    await asyncio.sleep(5)
    assert again.holds == held
    assert one.owner.taken_notes() == []
    await one.close()
    await again.close()


@on_our_broker(settings=QUICK)
async def test_an_instance_id_in_use_is_waited_for(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world, group_instance_id="same")
    one.keep_polling()
    await asyncio.sleep(2)
    two = await member(world, group_instance_id="same")
    assert not await two.poll(10.0)
    await one.close()
    assert await two.poll(5.0)
    assert two.holds == "t-0 t-1"
    await two.close()


@on_our_broker(settings=QUICK)
async def test_a_program_that_does_not_poll_loses_its_partitions_to_others(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    stuck = await member(world, max_poll_interval_ms=60_000)
    await stuck.poll()
    other = await member(world, max_poll_interval_ms=60_000)
    other.keep_polling()
    await asyncio.sleep(65)
    assert other.holds == "t-0 t-1"
    assert stuck.holds == "t-0 t-1", "it is not told before it polls"
    assert stuck.membership.identity.generation_id == -1
    stuck.owner.taken_notes()
    stuck.keep_polling()
    await asyncio.sleep(10)
    assert stuck.owner.taken_notes()[0] == "lose t-0 t-1"
    assert shared(stuck, other) == partitions("t-0 t-1")
    await stuck.close()
    await other.close()


@on_our_broker(settings=QUICK)
async def test_a_pattern_is_resolved_by_the_broker_and_its_topics_are_found_by_id(world: ClientWorld) -> None:
    await world.create_topic("log-a", 1)
    await world.create_topic("other", 1)
    one = Member(world.host(), world.address, group_protocol="consumer")
    one.owner.broker_pattern = "log-.*"
    await one.start()
    one.keep_polling()
    await asyncio.sleep(3)
    assert one.holds == "log-a-0"
    assert "log-a" in one.cluster.topics
    await world.create_topic("log-b", 1)
    await asyncio.sleep(20)
    assert one.holds == "log-a-0 log-b-0"
    one.owner.broker_pattern = None
    one.owner.topics = frozenset(["other"])
    one.cluster.watch(["other"])
    await one.cluster.refresh()
    one.membership.subscription_changed()
    await asyncio.sleep(5)
    assert one.holds == "other-0"
    await one.cluster.refresh()
    assert set(one.cluster.topics) == {"other"}, "what is no longer assigned is not watched"
    await one.close()


@on_our_broker()
async def test_a_pattern_that_is_none_fails(world: ClientWorld) -> None:
    await world.create_topic("t", 1)
    one = Member(world.host(), world.address, group_protocol="consumer")
    one.owner.broker_pattern = "((("
    await one.start()
    with pytest.raises(BrokerRefused, match="RE2") as caught:
        await one.poll()
    assert "(((" in str(caught.value)
    await one.close()


@on_our_broker()
async def test_an_assignor_that_the_broker_does_not_have_fails(world: ClientWorld) -> None:
    await world.create_topic("t", 1)
    one = await member(world, group_remote_assignor="clever")
    with pytest.raises(FatalError, match="group_remote_assignor"):
        await one.poll()
    await one.close()


@pytest.mark.parametrize("assignor", ["range", "uniform"])
@on_our_broker(settings=QUICK)
async def test_the_broker_s_assignor_can_be_chosen(world: ClientWorld, assignor: str) -> None:
    await world.create_topic("t", 2)
    await world.create_topic("u", 2)
    both = [await member(world, "t", "u", group_remote_assignor=assignor) for _ in range(2)]
    for each in both:
        each.keep_polling()
    await asyncio.sleep(10)
    assert len(shared(*both)) == 4
    if assignor == "range":
        assert sorted(each.holds for each in both) == ["t-0 u-0", "t-1 u-1"]
    for each in both:
        await each.close()


@on_our_broker(settings=QUICK)
async def test_new_partitions_are_shared_out(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one, two = [await member(world, metadata_max_age_ms=5000) for _ in range(2)]
    for each in (one, two):
        each.keep_polling()
    await asyncio.sleep(10)
    client = await world.node.client()
    wanted = CreatePartitionsTopic(name="t", count=5, assignments=None)
    assert (await client.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=1000))).results[0].error_code == 0
    await asyncio.sleep(10)
    assert len(shared(one, two)) == 5
    await one.close()
    await two.close()


@on_our_broker(settings=QUICK)
async def test_a_topic_that_is_made_again_is_another_one(world: ClientWorld) -> None:
    await world.create_topic("t", 2)
    one = await member(world, metadata_max_age_ms=1000)
    one.keep_polling()
    await asyncio.sleep(3)
    assert one.owner.taken_notes() == ["assign t-0 t-1"]
    client = await world.node.client()
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=1000)
    assert (await client.ask(gone)).responses[0].error_code == 0
    await world.create_topic("t", 2)
    await asyncio.sleep(20)
    assert one.owner.taken_notes() == ["revoke t-0 t-1", "assign t-0 t-1"]
    await one.close()


@on_our_broker(settings=QUICK)
async def test_a_broker_that_restarts_finds_its_members_again(world: ClientWorld) -> None:
    await world.create_topic("t", 4)
    one, two = [await member(world) for _ in range(2)]
    for each in (one, two):
        each.keep_polling()
    await asyncio.sleep(10)
    for each in (one, two):
        each.owner.taken_notes()
    await world.lose_broker(power=False, down_s=20)
    await asyncio.sleep(20)
    assert shared(one, two) == ALL
    assert [each.owner.taken_notes() for each in (one, two)] == [[], []]
    await one.close()
    await two.close()
