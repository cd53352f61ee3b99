"""KIP-848 with a coordinator that fences, refuses, falls silent, or knows nothing of it; and what heartbeats say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from membership_world import Member, ScriptedGroup, owned_in, scripted

from semel.client.errors import (
    BrokerRefused,
    FatalError,
    FencedInstance,
    NotAuthorised,
    SemelError,
    UnsupportedByBroker,
)
from semel.client.values import GroupIdentity
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
)
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.metadata import MetadataRequest

_E = ErrorCode
BEAT = ConsumerGroupHeartbeatRequest
BOTH = "assign t-0 t-1"


async def started(group: ScriptedGroup, *topics: str, **settings: Any) -> Member:
    return await group.new_member(*(topics or ("t",)), group_protocol="consumer", **settings).start()


async def joined(group: ScriptedGroup, **settings: Any) -> Member:
    one = await started(group, **settings)
    assert await one.poll()
    assert one.owner.taken_notes() == [BOTH]
    await asyncio.sleep(1)
    return one


def beats(group: ScriptedGroup) -> list[Any]:
    """Those since this was last asked."""
    found = group.requests(BEAT)
    group.asked.clear()
    group.asked_s.clear()
    return found


# -- what is said


@scripted
async def test_everything_is_said_when_joining_and_only_changes_afterwards(group: ScriptedGroup) -> None:
    one = await joined(
        group,
        client_rack="r1",
        max_poll_interval_ms=77_000,
        group_remote_assignor="uniform",
        group_instance_id="i",
    )
    first, confirmed = beats(group)
    assert (first.member_epoch, first.instance_id, first.rack_id) == (0, "i", "r1")
    assert (first.rebalance_timeout_ms, first.server_assignor) == (77_000, "uniform")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], None)
    assert owned_in(first, group) == ""
    assert len(first.member_id) == 22
    assert confirmed.member_id == first.member_id
    assert (confirmed.member_epoch, owned_in(confirmed, group)) == (1, "t-0 t-1")
    await asyncio.sleep(5)
    (usual,) = beats(group)
    assert (usual.member_epoch, usual.rebalance_timeout_ms, usual.rack_id) == (1, -1, None)
    for said in (confirmed, usual):
        assert (said.subscribed_topic_names, said.subscribed_topic_regex, said.server_assignor) == (None, None, None)
    assert usual.topic_partitions is None
    one.owner.topics = frozenset(["t", "u"])
    one.membership.subscription_changed()
    await asyncio.sleep(0.1)
    (changed,) = beats(group)
    assert changed.subscribed_topic_names == ["t", "u"]
    assert changed.topic_partitions is None
    await one.close()


@scripted
async def test_heartbeats_come_as_often_as_the_broker_says(group: ScriptedGroup) -> None:
    one = await joined(group)
    beats(group)
    await asyncio.sleep(50)
    assert len(beats(group)) == 10
    await one.close()


@scripted
async def test_what_is_given_up_is_confirmed_at_once_and_only_then(group: ScriptedGroup) -> None:
    one = await joined(group)
    beats(group)
    group.target = ["t-1"]
    await asyncio.sleep(6)
    assert not one.membership.is_settled()
    assert {owned_in(beat, group) for beat in beats(group)} == {None}
    one.owner.during["revoke"] = lambda: asyncio.sleep(7)
    polling = asyncio.get_running_loop().create_task(one.poll())
    await asyncio.sleep(6.5)
    assert {owned_in(beat, group) for beat in beats(group)} == {None}, "the program still works on it"
    assert await polling
    await asyncio.sleep(0.1)
    assert [owned_in(beat, group) for beat in beats(group)] == ["t-1"]
    assert one.owner.taken_notes() == ["revoke t-0"]
    await one.close()


@scripted
async def test_partitions_are_given_up_before_others_are_taken(group: ScriptedGroup) -> None:
    group.topics["u"] = 1
    group.target = ["t-0", "t-1"]
    one = await joined(group)
    one.cluster.watch(["u"])
    await one.cluster.refresh()
    group.target = ["t-1", "u-0"]
    await asyncio.sleep(6)
    assert await one.poll()
    assert one.owner.taken_notes() == ["revoke t-0", "assign u-0"]
    await asyncio.sleep(0.1)
    assert owned_in(beats(group)[-1], group) == "t-1 u-0"
    await one.close()


@scripted
async def test_what_is_given_up_is_confirmed_while_the_program_still_takes_the_rest(group: ScriptedGroup) -> None:
    group.topics["u"] = 1
    group.target = ["t-0", "t-1"]
    one = await joined(group)
    one.cluster.watch(["u"])
    await one.cluster.refresh()
    group.target = ["t-1", "u-0"]
    await asyncio.sleep(6)
    beats(group)
    one.owner.during["assign"] = lambda: asyncio.sleep(3)
    polling = asyncio.get_running_loop().create_task(one.poll())
    await asyncio.sleep(0.5)
    (confirmed,) = beats(group)
    assert "t-0" not in (owned_in(confirmed, group) or "t-0")
    assert await polling
    await one.close()


@scripted
async def test_a_topic_that_is_made_again_is_another_one(group: ScriptedGroup) -> None:
    one = await joined(group)
    group.topic_ids["t"] = b"\5" * 16
    await one.cluster.refresh()
    assert one.membership.is_settled()
    group.target = ["t-0", "t-1"]
    await asyncio.sleep(6)
    assert await one.poll()
    assert one.owner.taken_notes() == ["revoke t-0 t-1", BOTH]
    await asyncio.sleep(0.1)
    assert owned_in(beats(group)[-1], group) == "t-0 t-1"
    await one.close()


@scripted
async def test_an_assignment_that_changes_nothing_is_confirmed_too(group: ScriptedGroup) -> None:
    """The broker may wait for it: it cannot know that we never took what it takes back."""
    one = await joined(group)
    beats(group)
    group.target = ["t-0", "t-1"]
    await asyncio.sleep(5)
    assert [owned_in(beat, group) for beat in beats(group)] == [None, "t-0 t-1"]
    assert one.membership.is_settled()
    await one.close()


@scripted
async def test_a_lost_answer_makes_the_next_heartbeat_say_everything(group: ScriptedGroup) -> None:
    one = await joined(group)
    beats(group)
    group.script[BEAT] = [None]
    await asyncio.sleep(6)
    lost, full, *_ = beats(group)
    assert lost.topic_partitions is None
    assert full.member_epoch == lost.member_epoch == 1
    assert (owned_in(full, group), full.subscribed_topic_names) == ("t-0 t-1", ["t"])
    assert full.rebalance_timeout_ms == one.settings.max_poll_interval_ms
    assert one.owner.taken_notes() == []
    await one.close()


@scripted
async def test_a_new_assignment_while_the_program_works_on_the_last_one_wins(group: ScriptedGroup) -> None:
    one = await joined(group)
    group.target = ["t-1"]
    await asyncio.sleep(6)
    group.target = ["t-0"]
    one.owner.during["revoke"] = lambda: asyncio.sleep(7)
    assert await one.poll()
    assert one.owner.taken_notes() == ["revoke t-0", "revoke t-1", "assign t-0"]
    await one.close()


# -- refusals


@pytest.mark.parametrize(
    ("request_class", "refusal"),
    [
        (BEAT, _E.COORDINATOR_LOAD_IN_PROGRESS),
        (BEAT, _E.NOT_COORDINATOR),
        (BEAT, _E.COORDINATOR_NOT_AVAILABLE),
        (BEAT, _E.UNRELEASED_INSTANCE_ID),
        (BEAT, _E.UNKNOWN_MEMBER_ID),
        (BEAT, _E.FENCED_MEMBER_EPOCH),
        (BEAT, None),
        (FindCoordinatorRequest, _E.COORDINATOR_NOT_AVAILABLE),
        (FindCoordinatorRequest, None),
    ],
)
@scripted
async def test_a_join_that_fails_is_tried_again(group: ScriptedGroup, request_class: Any, refusal: Any) -> None:
    group.script[request_class] = [refusal, refusal, refusal]
    one = await started(group)
    assert await one.poll(20.0)
    assert one.owner.taken_notes() == [BOTH]
    if request_class is BEAT:
        times = group.times(BEAT)[:4]
        assert times[1] - times[0] >= 0.08, "not without a pause"
        assert [beat.member_epoch for beat in group.requests(BEAT)[:4]] == [0] * 4
    await one.close()


@pytest.mark.parametrize("code", [_E.FENCED_MEMBER_EPOCH, _E.UNKNOWN_MEMBER_ID, _E.GROUP_ID_NOT_FOUND])
@scripted
async def test_who_is_fenced_loses_everything_and_joins_again(group: ScriptedGroup, code: int) -> None:
    one = await joined(group)
    beats(group)
    group.script[BEAT] = [code]
    await asyncio.sleep(30)
    assert len(beats(group)) == 1, "it does not join before the program knows"
    assert not one.membership.is_settled()
    assert one.membership.identity == GroupIdentity("group", -1, "", None, False)
    assert one.owner.taken_notes() == []
    assert await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1", BOTH]
    again = beats(group)[0]
    assert (again.member_epoch, owned_in(again, group), again.subscribed_topic_names) == (0, "", ["t"])
    await one.close()


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (_E.GROUP_AUTHORIZATION_FAILED, NotAuthorised, "so it is"),
        (_E.TOPIC_AUTHORIZATION_FAILED, NotAuthorised, "so it is"),
        (_E.FENCED_INSTANCE_ID, FencedInstance, "an id of its own"),
        (_E.INVALID_REQUEST, BrokerRefused, "so it is"),
        (_E.GROUP_MAX_SIZE_REACHED, BrokerRefused, "so it is"),
        (_E.UNSUPPORTED_ASSIGNOR, BrokerRefused, "group_remote_assignor"),
        (_E.INVALID_REGULAR_EXPRESSION, BrokerRefused, "RE2"),
        (_E.GROUP_ID_NOT_FOUND, FatalError, 'group_protocol="classic"'),
        (_E.UNSUPPORTED_VERSION, UnsupportedByBroker, 'group_protocol="classic"'),
    ],
)
@scripted
async def test_what_no_retry_can_mend_fails_every_poll(
    group: ScriptedGroup, code: int, error: type[SemelError], says: str
) -> None:
    group.script[BEAT] = [code]
    one = await started(group)
    for _ in range(2):
        with pytest.raises(error) as caught:
            await one.poll()
        assert says in str(caught.value)
        assert one.membership.failure is caught.value
        assert not one.membership.is_settled()
    assert len(beats(group)) == 1
    await one.close()
    assert beats(group) == []


@scripted
async def test_a_broker_without_kip_848_says_to_use_the_classic_protocol(group: ScriptedGroup) -> None:
    group.hidden = {BEAT.api_key}
    one = await started(group)
    with pytest.raises(UnsupportedByBroker, match='set group_protocol="classic"'):
        await one.poll()
    await one.close()


@scripted
async def test_a_broker_that_knows_no_patterns_is_not_given_one(group: ScriptedGroup) -> None:
    group.versions[BEAT] = (0, 0)
    one = group.new_member(group_protocol="consumer")
    one.owner.broker_pattern = "t.*"
    await one.start()
    with pytest.raises(UnsupportedByBroker):
        await one.poll()
    await one.close()


@scripted
async def test_an_older_broker_serves_names(group: ScriptedGroup) -> None:
    group.versions[BEAT] = (0, 0)
    one = await joined(group)
    await one.close()


@scripted
async def test_failing_while_a_member_loses_what_it_had(group: ScriptedGroup) -> None:
    one = await joined(group, group_instance_id="i")
    group.script[BEAT] = [_E.FENCED_INSTANCE_ID]
    await asyncio.sleep(6)
    with pytest.raises(FencedInstance):
        await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1"]
    await one.close()


@scripted
async def test_a_refused_commit_asks_the_coordinator_what_is_true(group: ScriptedGroup) -> None:
    one = await joined(group)
    beats(group)
    one.membership.commit_refused(_E.STALE_MEMBER_EPOCH)
    await asyncio.sleep(0.1)
    assert len(beats(group)) == 1
    assert one.membership.is_settled()
    await one.close()


# -- topics known by their ids only


@scripted
async def test_a_topic_whose_name_is_not_known_yet_is_asked_for_by_id(group: ScriptedGroup) -> None:
    group.topics["new"] = 1
    group.target = ["t-0", "new-0"]
    one = await started(group)
    assert await one.poll()
    assert one.owner.taken_notes() == ["assign t-0"], "what is known need not wait"
    wakes = one.owner.wakes
    await asyncio.sleep(1)
    assert one.owner.wakes > wakes
    assert await one.poll()
    assert one.owner.taken_notes() == ["assign new-0"]
    assert "new" in one.cluster.topics
    group.target = ["t-0"]
    await asyncio.sleep(6)
    assert await one.poll()
    await one.cluster.refresh()
    assert "new" not in one.cluster.topics
    await one.close()


@scripted
async def test_a_topic_that_nobody_knows_is_waited_for_with_pauses(group: ScriptedGroup) -> None:
    asked: list[Any] = []

    def count(request: MetadataRequest) -> float:
        asked.append(request)
        return 0.0

    unknown = AssignedTopicPartitions(topic_id=b"\7" * 16, partitions=[0])
    answer = ConsumerGroupHeartbeatResponse(
        member_id="",
        member_epoch=1,
        heartbeat_interval_ms=5000,
        assignment=MemberAssignment(topic_partitions=[unknown]),
    )
    group.script[BEAT] = [answer]
    group.epoch = 1
    one = await started(group)
    group.script[MetadataRequest] = [count] * 1000
    assert await one.poll()
    assert one.owner.taken_notes() == []
    await asyncio.sleep(20)
    assert 10 < len([request for request in asked if request.topics and request.topics[0].name is None]) < 40
    group.target = []
    await asyncio.sleep(6)
    asked.clear()
    await asyncio.sleep(20)
    assert asked == [], "no longer wanted"
    await one.close()


# -- leaving


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
@scripted
async def test_leaving_is_said_once(group: ScriptedGroup, instance_id: str | None, epoch: int) -> None:
    one = await joined(group, group_instance_id=instance_id)
    beats(group)
    await one.leave()
    assert one.owner.taken_notes() == ["revoke t-0 t-1"]
    assert [(beat.member_epoch, beat.instance_id) for beat in beats(group)] == [(epoch, instance_id)]
    await one.leave()
    await asyncio.sleep(60)
    assert beats(group) == []
    await one.die()


@scripted
async def test_who_leaves_while_it_joins_may_be_known_already(group: ScriptedGroup) -> None:
    group.script[BEAT] = [5.0]
    one = await started(group)
    assert not await one.poll(1.0)
    await one.leave()
    assert [beat.member_epoch for beat in beats(group)] == [0, -1]
    await one.die()


@scripted
async def test_a_member_can_leave_and_come_back(group: ScriptedGroup) -> None:
    one = await joined(group)
    await one.leave()
    beats(group)
    one.membership.subscription_changed()
    assert await one.poll()
    assert beats(group)[0].member_epoch == 0
    assert one.owner.taken_notes() == ["revoke t-0 t-1", BOTH]
    await one.close()


@scripted
async def test_a_program_that_is_away_leaves_and_comes_back_with_the_next_poll(group: ScriptedGroup) -> None:
    one = await joined(group, max_poll_interval_ms=60_000)
    await asyncio.sleep(62)
    assert beats(group)[-1].member_epoch == -1
    await asyncio.sleep(600)
    assert beats(group) == []
    assert await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1", BOTH]
    await one.close()
