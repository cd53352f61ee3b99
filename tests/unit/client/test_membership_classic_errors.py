"""The classic protocol with a coordinator that refuses, moves, falls silent and elects what nobody has."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest
from membership_world import Member, ScriptedGroup, scripted, subscription_in

from semel.client.consumer.membership.assignors import RangeAssignor
from semel.client.errors import BrokerRefused, FencedInstance, NotAuthorised, SemelError
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity
from semel.wire.errors import ErrorCode
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from semel.wire.spec.leave_group import LeaveGroupRequest
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.sync_group import SyncGroupRequest

_E = ErrorCode
BOTH = "assign t-0 t-1"
SILENT = 100_000.0
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


async def started(group: ScriptedGroup, *topics: str, **settings: Any) -> Member:
    return await group.new_member(*(topics or ("t",)), **settings).start()


async def joined(group: ScriptedGroup, **settings: Any) -> Member:
    one = await started(group, **settings)
    assert await one.poll()
    assert one.owner.taken_notes() == [BOTH]
    group.asked.clear()
    group.asked_s.clear()
    return one


# -- joining


@scripted
async def test_the_id_that_the_coordinator_gives_is_used_at_once(group: ScriptedGroup) -> None:
    one = await started(group)
    await one.poll()
    assert [request.member_id for request in group.requests(JoinGroupRequest)] == ["", "member"]
    assert one.membership.identity == GroupIdentity("group", 1, "member", None, False)
    await one.close()


@scripted
async def test_what_a_join_says(group: ScriptedGroup) -> None:
    group.topics = {"t": 2, "u": 1}
    settings = {"session_timeout_ms": 20_000, "max_poll_interval_ms": 77_000, "client_rack": "r1", **COOPERATIVE}
    one = await started(group, "u", "t", **settings)
    await one.poll()
    one.owner.topics = frozenset(["t"])
    one.membership.subscription_changed()
    await one.poll()
    first, again = group.requests(JoinGroupRequest)[-2:]
    assert (first.session_timeout_ms, first.rebalance_timeout_ms) == (20_000, 77_000)
    told = subscription_in(first, "cooperative-sticky")
    assert (told.topics, told.owned, told.generation, told.rack) == (("t", "u"), (), -1, "r1")
    told = subscription_in(again, "cooperative-sticky")
    assert (told.topics, told.generation) == (("t",), 1)
    assert told.owned == (TopicPartition("t", 0), TopicPartition("t", 1)), "what is unsubscribed is given up before"
    assert again.reason == "the subscription has changed"
    assert again.member_id == "member"
    assert one.owner.taken_notes() == ["assign t-0 t-1 u-0", "revoke u-0", "assign"]
    await one.close()


RETRIED = [
    (JoinGroupRequest, _E.COORDINATOR_LOAD_IN_PROGRESS),
    (JoinGroupRequest, _E.NOT_COORDINATOR),
    (JoinGroupRequest, _E.COORDINATOR_NOT_AVAILABLE),
    (JoinGroupRequest, _E.REBALANCE_IN_PROGRESS),
    (JoinGroupRequest, _E.UNKNOWN_MEMBER_ID),
    (JoinGroupRequest, None),
    (SyncGroupRequest, _E.REBALANCE_IN_PROGRESS),
    (SyncGroupRequest, _E.NOT_COORDINATOR),
    (SyncGroupRequest, _E.ILLEGAL_GENERATION),
    (SyncGroupRequest, _E.UNKNOWN_MEMBER_ID),
    (SyncGroupRequest, None),
    (FindCoordinatorRequest, _E.COORDINATOR_NOT_AVAILABLE),
    (FindCoordinatorRequest, None),
]


@pytest.mark.parametrize(("request_class", "refusal"), RETRIED)
@scripted
async def test_a_join_that_fails_is_tried_again(group: ScriptedGroup, request_class: Any, refusal: Any) -> None:
    group.script[request_class] = [refusal, refusal, refusal]
    one = await started(group)
    assert await one.poll(20.0)
    assert one.owner.taken_notes() == [BOTH]
    await one.close()


@scripted
async def test_a_coordinator_that_is_loading_is_not_pestered(group: ScriptedGroup) -> None:
    group.script[JoinGroupRequest] = [_E.COORDINATOR_LOAD_IN_PROGRESS] * 8
    one = await started(group)
    assert await one.poll(60.0)
    times = group.times(JoinGroupRequest)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] >= 0.08
    assert max(pauses) > 0.5
    await one.close()


@scripted
async def test_a_lost_answer_to_sync_is_not_waited_for_as_long_as_members_may_take(group: ScriptedGroup) -> None:
    group.script[SyncGroupRequest] = [SILENT]
    one = await started(group, request_timeout_ms=3000, max_poll_interval_ms=300_000)
    assert await one.poll(10.0)
    assert one.owner.taken_notes() == [BOTH]
    await one.close()


@scripted
async def test_an_answer_to_join_is_waited_for_as_long_as_members_may_take(group: ScriptedGroup) -> None:
    group.script[JoinGroupRequest] = [0.0, 20.0]
    one = await started(group, request_timeout_ms=3000, max_poll_interval_ms=30_000)
    assert await one.poll(60.0)
    assert len(group.requests(JoinGroupRequest)) == 2
    await one.close()


FATAL = [
    (JoinGroupRequest, _E.GROUP_AUTHORIZATION_FAILED, NotAuthorised),
    (JoinGroupRequest, _E.INVALID_GROUP_ID, BrokerRefused),
    (JoinGroupRequest, _E.INVALID_SESSION_TIMEOUT, BrokerRefused),
    (JoinGroupRequest, _E.GROUP_MAX_SIZE_REACHED, BrokerRefused),
    (JoinGroupRequest, _E.FENCED_INSTANCE_ID, FencedInstance),
    (SyncGroupRequest, _E.FENCED_INSTANCE_ID, FencedInstance),
    (SyncGroupRequest, _E.GROUP_AUTHORIZATION_FAILED, NotAuthorised),
    (FindCoordinatorRequest, _E.GROUP_AUTHORIZATION_FAILED, NotAuthorised),
]


@pytest.mark.parametrize(("request_class", "code", "error"), FATAL)
@scripted
async def test_what_no_retry_can_mend_fails_every_poll(
    group: ScriptedGroup, request_class: Any, code: int, error: type[SemelError]
) -> None:
    group.script[request_class] = [code]
    one = await started(group)
    for _ in range(2):
        with pytest.raises(error) as caught:
            await one.poll()
        assert caught.value.code == code
        assert one.membership.failure is caught.value
        assert not one.membership.is_settled()
    assert one.owner.taken_notes() == []
    await one.close()


@scripted
async def test_no_assignor_in_common_is_told_with_our_names(group: ScriptedGroup) -> None:
    group.script[JoinGroupRequest] = [_E.INCONSISTENT_GROUP_PROTOCOL]
    one = await started(group, partition_assignment_strategy="sticky,range")
    with pytest.raises(BrokerRefused) as caught:
        await one.poll()
    assert "'group'" in str(caught.value)
    assert "sticky, range" in str(caught.value)
    assert "Member does not support protocol" in str(caught.value)
    assert "partition_assignment_strategy" in str(caught.value)
    await one.close()


@scripted
async def test_an_assignor_that_we_do_not_have_is_refused(group: ScriptedGroup) -> None:
    group.protocol = "lexicographic"
    one = await started(group)
    with pytest.raises(BrokerRefused, match="'lexicographic' was chosen"):
        await one.poll()
    assert group.requests(SyncGroupRequest) == []
    await one.close()


@scripted
async def test_a_sync_that_is_overtaken_claims_partitions_of_the_generation_that_gave_them(
    group: ScriptedGroup,
) -> None:
    """KAFKA-13419: what the next generation would have given was never heard, so it must not be claimed for it."""
    one = await joined(group, **COOPERATIVE)
    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS]
    group.script[SyncGroupRequest] = [_E.REBALANCE_IN_PROGRESS]
    await asyncio.sleep(4)
    assert await one.poll()
    assert group.generation == 3
    told = [subscription_in(request, "cooperative-sticky") for request in group.requests(JoinGroupRequest)]
    assert [(len(one.owned), one.generation) for one in told] == [(2, 1), (2, 1)]
    assert one.owner.taken_notes() == ["assign"]
    await one.close()


@scripted
async def test_a_join_may_take_as_long_as_the_slowest_member(group: ScriptedGroup) -> None:
    """Longer than any other request; and other requests do not wait behind it."""
    group.script[JoinGroupRequest] = [0.0, 290.0]
    one = await started(group, max_poll_interval_ms=300_000, request_timeout_ms=30_000)
    polling = asyncio.get_running_loop().create_task(one.poll())
    await asyncio.sleep(60)
    await asyncio.wait_for(one.cluster.refresh(), 1)
    assert await polling
    assert one.owner.taken_notes() == [BOTH]
    assert len(group.requests(JoinGroupRequest)) == 2
    assert group.requests(HeartbeatRequest) == []
    await one.close()


@scripted
async def test_a_join_that_is_never_answered_is_given_up_after_all(group: ScriptedGroup) -> None:
    group.script[JoinGroupRequest] = [0.0, 100_000.0]
    one = await started(group, max_poll_interval_ms=300_000)
    assert not await one.poll(304.0)
    assert await one.poll(10.0)
    await one.close()


@scripted
async def test_heartbeats_go_on_while_the_leader_thinks(group: ScriptedGroup) -> None:
    """Its metadata may be slow to come."""
    one = await joined(group, heartbeat_interval_ms=1000)
    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS]

    def with_a_stranger(request: JoinGroupRequest) -> JoinGroupResponse:
        answer = group.joined(request)
        stranger = JoinGroupResponseMember(member_id="stranger", metadata=b"\0\0\0\0\0\1\0\1u\xff\xff\xff\xff")
        answer.members = [*answer.members, stranger]
        return answer

    group.script[JoinGroupRequest] = [with_a_stranger]
    await asyncio.sleep(1.5)
    group.script[MetadataRequest] = [20.0]
    assert await one.poll()
    assert group.times(SyncGroupRequest)[-1] - group.times(JoinGroupRequest)[-1] > 19
    between = [at for at in group.times(HeartbeatRequest) if at > group.times(JoinGroupRequest)[-1]]
    assert len(between) >= 15
    await one.close()


@scripted
async def test_who_cannot_be_understood_is_assigned_nothing(group: ScriptedGroup) -> None:
    def with_a_stranger(request: JoinGroupRequest) -> JoinGroupResponse:
        answer = group.joined(request)
        answer.members = [*answer.members, JoinGroupResponseMember(member_id="stranger", metadata=b"\0\0\7\7\7\7\7")]
        return answer

    group.script[JoinGroupRequest] = [0.0, with_a_stranger]
    one = await started(group)
    assert await one.poll()
    assert one.owner.taken_notes() == [BOTH]
    assert {given.member_id for given in group.requests(SyncGroupRequest)[0].assignments} == {"member", "stranger"}
    await one.close()


# -- staying


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(("code", "next_id"), [(_E.UNKNOWN_MEMBER_ID, ""), (_E.ILLEGAL_GENERATION, "member")])
@scripted
async def test_who_is_out_loses_everything_and_joins_anew(
    group: ScriptedGroup, strategy: str, code: int, next_id: str
) -> None:
    one = await joined(group, partition_assignment_strategy=strategy)
    group.script[HeartbeatRequest] = [code]
    await asyncio.sleep(4)
    assert not one.membership.is_settled()
    assert one.membership.identity == GroupIdentity("group", -1, "", None, False)
    assert one.owner.taken_notes() == []
    assert await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1", BOTH]
    request = group.requests(JoinGroupRequest)[0]
    assert request.member_id == next_id
    assert subscription_in(request, strategy).owned == ()
    assert subscription_in(request, strategy).generation == -1
    await one.close()


@scripted
async def test_a_rebalance_is_joined_in_the_next_poll(group: ScriptedGroup) -> None:
    one = await joined(group)
    wakes = one.owner.wakes
    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS] * 3
    await asyncio.sleep(10)
    assert one.owner.wakes == wakes + 1
    assert group.requests(JoinGroupRequest) == []
    assert await one.poll()
    assert one.owner.taken_notes() == ["revoke t-0 t-1", BOTH]
    assert group.requests(JoinGroupRequest)[0].reason == "the group rebalances"
    await one.close()


@scripted
async def test_a_fenced_instance_fails(group: ScriptedGroup) -> None:
    one = await joined(group, group_instance_id="i")
    group.script[HeartbeatRequest] = [_E.FENCED_INSTANCE_ID]
    await asyncio.sleep(4)
    with pytest.raises(FencedInstance):
        await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1"]
    await one.close()
    assert one.owner.taken_notes() == []


@pytest.mark.parametrize("refusal", [_E.NOT_COORDINATOR, _E.COORDINATOR_LOAD_IN_PROGRESS, None])
@scripted
async def test_a_heartbeat_that_fails_is_soon_tried_again(group: ScriptedGroup, refusal: Any) -> None:
    one = await joined(group, heartbeat_interval_ms=3000)
    group.script[HeartbeatRequest] = [refusal, refusal]
    await asyncio.sleep(4.5)
    assert len(group.requests(HeartbeatRequest)) == 3
    assert one.membership.is_settled()
    await asyncio.sleep(3)
    assert len(group.requests(HeartbeatRequest)) == 4
    await one.close()


@scripted
async def test_silence_for_a_whole_session_is_the_end_of_it(group: ScriptedGroup) -> None:
    one = await joined(group, session_timeout_ms=12_000, heartbeat_interval_ms=2000)
    group.script[HeartbeatRequest] = [_E.COORDINATOR_LOAD_IN_PROGRESS] * 1000
    await asyncio.sleep(11.5)
    assert one.membership.is_settled()
    await asyncio.sleep(4.0)
    assert not one.membership.is_settled()
    group.script.clear()
    assert await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1", BOTH]
    assert group.requests(JoinGroupRequest)[0].member_id == "member", "it may still be known, and would be waited for"
    await one.close()


@scripted
async def test_a_heartbeat_that_is_not_answered_does_not_cost_the_session(group: ScriptedGroup) -> None:
    one = await joined(group, session_timeout_ms=45_000)
    group.script[HeartbeatRequest] = [100_000.0]
    await asyncio.sleep(60)
    assert one.membership.is_settled()
    assert len(group.requests(HeartbeatRequest)) > 5
    await one.close()


@scripted
async def test_a_refused_commit_asks_the_coordinator_what_is_true(group: ScriptedGroup) -> None:
    one = await joined(group)
    one.membership.commit_refused(_E.UNKNOWN_MEMBER_ID)
    await asyncio.sleep(0.1)
    assert len(group.requests(HeartbeatRequest)) == 1
    assert one.membership.is_settled(), "the commit was of an older generation"
    group.script[HeartbeatRequest] = [_E.UNKNOWN_MEMBER_ID]
    one.membership.commit_refused(_E.UNKNOWN_MEMBER_ID)
    await asyncio.sleep(0.1)
    assert not one.membership.is_settled()
    assert await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1", BOTH]
    await one.close()


@scripted
async def test_an_answer_that_a_join_has_overtaken_is_not_heeded(group: ScriptedGroup) -> None:
    one = await joined(group, **COOPERATIVE)
    group.script[HeartbeatRequest] = [(2.0, _E.ILLEGAL_GENERATION)]
    await asyncio.sleep(4)
    assert len(group.requests(HeartbeatRequest)) == 1
    one.owner.topics = frozenset(["t", "u"])
    one.membership.subscription_changed()
    assert await one.poll()
    assert one.owner.taken_notes() == ["assign"]
    assert one.membership.is_settled()
    await one.close()


@pytest.mark.parametrize("heartbeat", [_E.COORDINATOR_LOAD_IN_PROGRESS, SILENT, None])
@scripted
async def test_a_session_that_ends_while_we_join_again_is_lost_too(group: ScriptedGroup, heartbeat: Any) -> None:
    """A cooperative member has its partitions all the time, and others may have been given them."""
    one = await joined(group, session_timeout_ms=12_000, heartbeat_interval_ms=2000, **COOPERATIVE)
    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS, *[heartbeat] * 1000]
    group.script[JoinGroupRequest] = [_E.COORDINATOR_LOAD_IN_PROGRESS] * 1000
    await asyncio.sleep(3)
    assert not await one.poll(8.0)
    assert one.owner.taken_notes() == []
    assert not await one.poll(8.0)
    assert one.owner.taken_notes() == ["lose t-0 t-1"]
    group.script.clear()
    assert await one.poll()
    assert one.owner.taken_notes() == [BOTH]
    await asyncio.sleep(5)
    assert len(group.requests(SyncGroupRequest)) == 1, "the join of before is given up"
    await one.close()


@scripted
async def test_a_session_ends_while_nobody_can_be_asked(group: ScriptedGroup) -> None:
    one = await joined(group, session_timeout_ms=12_000, heartbeat_interval_ms=2000, **COOPERATIVE)
    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS]
    await asyncio.sleep(3)
    group.script[FindCoordinatorRequest] = [(29.0, _E.COORDINATOR_NOT_AVAILABLE)] * 10
    group.script[JoinGroupRequest] = [_E.NOT_COORDINATOR]
    assert not await one.poll(8.0)
    assert one.owner.taken_notes() == []
    assert not await one.poll(8.0)
    assert one.owner.taken_notes() == ["lose t-0 t-1"]
    await one.close()


@scripted
async def test_a_coordinator_that_dies_during_a_long_join_is_given_a_session_s_time_to_come_back(
    group: ScriptedGroup,
) -> None:
    one = await joined(group, session_timeout_ms=12_000, heartbeat_interval_ms=2000, **COOPERATIVE)
    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS, *[_E.COORDINATOR_LOAD_IN_PROGRESS] * 20]
    group.script[JoinGroupRequest] = [(100.0, None), *[_E.COORDINATOR_LOAD_IN_PROGRESS] * 8]
    await asyncio.sleep(3)
    assert not await one.poll(100.0)
    assert await one.poll(11.0)
    assert one.owner.taken_notes() == ["assign"]
    await one.close()


# -- leaving


@scripted
async def test_leaving_says_who_and_why(group: ScriptedGroup) -> None:
    one = await joined(group)
    await one.membership.leave(reason="enough")
    (request,) = group.requests(LeaveGroupRequest)
    assert [(member.member_id, member.reason) for member in request.members] == [("member", "enough")]
    await one.membership.leave()
    assert len(group.requests(LeaveGroupRequest)) == 1
    await asyncio.sleep(60)
    assert group.requests(HeartbeatRequest) == []
    await one.die()


@scripted
async def test_an_old_coordinator_is_told_in_its_own_way(group: ScriptedGroup) -> None:
    group.versions = {LeaveGroupRequest: (0, 2), JoinGroupRequest: (0, 5), SyncGroupRequest: (0, 2)}
    one = await joined(group)
    await one.leave()
    (request,) = group.requests(LeaveGroupRequest)
    assert request.member_id == "member"
    await one.die()


@scripted
async def test_a_static_member_says_nothing_when_it_leaves(group: ScriptedGroup) -> None:
    one = await joined(group, group_instance_id="i")
    await one.leave()
    assert one.owner.taken_notes() == ["revoke t-0 t-1"]
    assert group.requests(LeaveGroupRequest) == []
    await one.die()


@scripted
async def test_leaving_does_not_wait_for_a_join_under_way(group: ScriptedGroup) -> None:
    group.script[JoinGroupRequest] = [0.0, 250.0]
    one = await started(group)
    assert not await one.poll(5.0)
    began_s = asyncio.get_running_loop().time()
    await one.leave()
    assert asyncio.get_running_loop().time() - began_s < 1
    assert [request.members[0].member_id for request in group.requests(LeaveGroupRequest)] == ["member"]
    await one.die()


@scripted
async def test_a_coordinator_that_is_gone_does_not_keep_us(group: ScriptedGroup) -> None:
    one = await joined(group)
    group.script[LeaveGroupRequest] = [None]
    await one.leave()
    assert one.owner.taken_notes() == ["revoke t-0 t-1"]
    await one.die()


@scripted
async def test_who_was_dropped_loses_when_it_leaves(group: ScriptedGroup) -> None:
    one = await joined(group)
    group.script[HeartbeatRequest] = [_E.UNKNOWN_MEMBER_ID]
    await asyncio.sleep(4)
    await one.leave()
    assert one.owner.taken_notes() == ["lose t-0 t-1"]
    assert group.requests(LeaveGroupRequest) == []
    await one.die()


@scripted
async def test_a_program_that_is_away_leaves_with_a_warning(group: ScriptedGroup, caplog: Any) -> None:
    one = await joined(group, max_poll_interval_ms=60_000)
    with caplog.at_level(logging.WARNING, "semel.client.group"):
        await asyncio.sleep(62)
    (request,) = group.requests(LeaveGroupRequest)
    assert request.members[0].member_id == "member"
    assert "max_poll_interval_ms (60000 ms)" in caplog.text
    beats = len(group.requests(HeartbeatRequest))
    await asyncio.sleep(600)
    assert len(group.requests(HeartbeatRequest)) == beats
    assert len(group.requests(LeaveGroupRequest)) == 1
    assert group.requests(JoinGroupRequest) == [], "it joins again when the program is back"
    assert await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1", BOTH]
    await one.close()


@scripted
async def test_a_program_that_goes_away_while_it_joins_holds_nobody_up(group: ScriptedGroup) -> None:
    group.script[JoinGroupRequest] = [0.0, 250.0]
    one = await started(group, max_poll_interval_ms=60_000)
    assert not await one.poll(1.0)
    await asyncio.sleep(61)
    assert [request.members[0].member_id for request in group.requests(LeaveGroupRequest)] == ["member"]
    assert await one.poll()
    assert one.owner.taken_notes() == [BOTH]
    await one.close()


@scripted
async def test_a_member_that_goes_away_while_it_joins_again_holds_nobody_up(group: ScriptedGroup) -> None:
    one = await joined(group, max_poll_interval_ms=60_000, **COOPERATIVE)
    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS]
    group.script[JoinGroupRequest] = [250.0]
    await asyncio.sleep(4)
    assert not await one.poll(1.0)
    beats = len(group.requests(HeartbeatRequest))
    await asyncio.sleep(61)
    assert len(group.requests(HeartbeatRequest)) == beats
    assert [request.members[0].member_id for request in group.requests(LeaveGroupRequest)] == ["member"]
    assert await one.poll()
    assert one.owner.taken_notes() == ["lose t-0 t-1", BOTH]
    await one.close()


@scripted
async def test_a_static_member_that_is_away_falls_silent(group: ScriptedGroup) -> None:
    one = await joined(group, max_poll_interval_ms=60_000, group_instance_id="i")
    await asyncio.sleep(62)
    beats = len(group.requests(HeartbeatRequest))
    await asyncio.sleep(60)
    assert group.requests(LeaveGroupRequest) == []
    assert len(group.requests(HeartbeatRequest)) == beats
    await one.close()


# -- assignors of the program


class Broken(RangeAssignor):
    name = "broken"

    def __init__(self) -> None:
        self.fails_in = ""

    def assign(self, partitions: Any, subscriptions: Any) -> Any:
        if self.fails_in == "assign":
            raise KeyError("no such weight")
        given = dict(super().assign(partitions, subscriptions))
        if self.fails_in == "stranger":
            given["stranger"] = given["member"]
        return given

    def on_assignment(self, assignment: Any, identity: Any) -> None:
        if self.fails_in == "on_assignment":
            raise KeyError("no such weight")


@scripted
async def test_an_assignor_that_fails_is_told_in_poll_and_tried_again(group: ScriptedGroup) -> None:
    assignor = Broken()
    assignor.fails_in = "assign"
    one = await started(group, partition_assignment_strategy=assignor)
    for _ in range(2):
        with pytest.raises(KeyError, match="no such weight"):
            await one.poll()
    assignor.fails_in = "stranger"
    with pytest.raises(ValueError, match="'stranger', who is no member"):
        await one.poll()
    assignor.fails_in = ""
    assert await one.poll()
    assert one.owner.taken_notes() == [BOTH]
    await one.close()


@scripted
async def test_an_assignor_that_fails_afterwards_costs_nothing_but_an_error(group: ScriptedGroup) -> None:
    assignor = Broken()
    assignor.fails_in = "on_assignment"
    one = await started(group, partition_assignment_strategy=assignor)
    with pytest.raises(KeyError):
        await one.poll()
    assert one.owner.taken_notes() == [BOTH]
    assert one.membership.is_settled()
    await one.close()


class Greedy(RangeAssignor):
    """Says that it is cooperative, and is not."""

    name = "greedy"
    is_cooperative = True


@scripted
async def test_a_cooperative_assignor_must_be_one(group: ScriptedGroup) -> None:
    one = await joined(group, partition_assignment_strategy=Greedy)

    def with_another(request: JoinGroupRequest) -> JoinGroupResponse:
        answer = group.joined(request)
        another = JoinGroupResponseMember(member_id="another", metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")
        answer.members = [*answer.members, another]
        return answer

    group.script[HeartbeatRequest] = [_E.REBALANCE_IN_PROGRESS]
    group.script[JoinGroupRequest] = [with_another]
    await asyncio.sleep(4)
    with pytest.raises(ValueError, match="calls itself cooperative"):
        await one.poll()
    await one.close()
