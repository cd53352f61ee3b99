"""Groups of both protocols and their offsets through the admin."""

from __future__ import annotations

from typing import Any

import pytest
from admin_fakes import FakeCluster, InTurn, faked
from admin_world import lost, on_broker
from group_requests import GROUP, enter, join, sync

from client_world import ClientWorld, batch_of
from semel.client.admin.admin import Admin
from semel.client.admin.group_values import PartitionLag
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import NewTopic
from semel.client.consumer.membership.protocol import Assignment, Subscription, assignment_bytes, subscription_bytes
from semel.client.errors import BadSetting, BrokerRefused, GroupNotEmpty, UnknownGroup, UnknownTopic
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndMetadata
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from semel.wire.spec.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from semel.wire.spec.join_group import JoinGroupRequestProtocol
from semel.wire.spec.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeavingMemberResult
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from semel.wire.spec.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def classic_member(world: ClientWorld, admin: Admin, **options: Any) -> str:
    """A member of a stable group of one that reads partition 0 of topic t; its id."""
    if "t" not in await admin.list_topics():
        await admin.create_topics(NewTopic("t", 2, 1))
    await admin.list_group_offsets(GROUP)  # finds the coordinator
    client = await world.node.client()
    protocol = JoinGroupRequestProtocol(name="range", metadata=subscription_bytes(Subscription(("t",), rack="r1")))
    joined = await join(client, protocols=[protocol], **options)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await join(client, protocols=[protocol], member_id=joined.member_id, **options)
    assert joined.error_code == 0
    synced = await sync(client, joined.generation_id, joined.member_id, assignment_bytes(Assignment((T0,))))
    assert synced.error_code == 0
    return str(joined.member_id)


@on_broker()
async def test_a_classic_group_is_listed_and_described(world: ClientWorld, admin: Admin) -> None:
    member_id = await classic_member(world, admin)
    listed = await admin.list_groups()
    assert (listed[GROUP].state, listed[GROUP].kind, listed[GROUP].protocol_type) == ("Stable", "classic", "consumer")
    group = (await admin.describe_groups(GROUP))[GROUP]
    assert (group.kind, group.state, group.assignor, group.epoch) == ("classic", "Stable", "range", None)
    assert group.coordinator is not None
    assert group.coordinator.node_id == 1
    (member,) = group.members
    assert (member.member_id, member.client_id, member.rack) == (member_id, "raw", "r1")
    assert (member.subscription, member.assignment) == (frozenset({"t"}), frozenset({T0}))
    assert member.metadata == subscription_bytes(Subscription(("t",), rack="r1"))
    assert await admin.list_groups(states=["Empty"]) == {}
    assert list(await admin.list_groups(states=["stable"], kinds=["classic"])) == [GROUP]
    assert await admin.list_groups(kinds=["consumer"]) == {}


@on_broker()
async def test_a_group_of_the_new_protocol_is_listed_and_described(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 2, 1))
    await admin.list_group_offsets(GROUP)
    client = await world.node.client()
    entered = await enter(client, rack_id="r2", instance_id="i1", subscribed_topic_regex="t.*")
    assert entered.error_code == 0
    assert list(await admin.list_groups(kinds=["consumer"])) == [GROUP]
    group = (await admin.describe_groups([GROUP]))[GROUP]
    assert (group.kind, group.protocol_type) == ("consumer", "consumer")
    assert group.epoch == group.target_epoch == entered.member_epoch
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack, member.pattern) == ("a", "i1", "r2", "t.*")
    assert member.subscription == {"t"}
    assert member.target == frozenset({T0, T1})
    assert member.epoch == entered.member_epoch


@on_broker()
async def test_groups_that_are_not_there_are_told(world: ClientWorld, admin: Admin) -> None:
    await classic_member(world, admin)
    with pytest.raises(UnknownGroup, match="'nobody'"):
        await admin.describe_groups("nobody")
    with pytest.raises(AdminErrors) as failed:
        await admin.describe_groups([GROUP, "nobody"])
    assert list(failed.value.results) == [GROUP]
    with pytest.raises(UnknownGroup):
        await admin.delete_groups("nobody")
    assert await admin.list_group_offsets(["nobody", GROUP]) == {"nobody": {}, GROUP: {}}


@on_broker()
async def test_offsets_are_committed_listed_and_deleted(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 3, 1))
    await admin.alter_group_offsets(GROUP, {T0: 5, T1: OffsetAndMetadata(7, "note", 0)})
    assert await admin.list_group_offsets(GROUP) == {
        GROUP: {T0: OffsetAndMetadata(5, ""), T1: OffsetAndMetadata(7, "note", 0)}
    }
    some = await admin.list_group_offsets(GROUP, [T1, TopicPartition("t", 2)], require_stable=True)
    assert list(some[GROUP]) == [T1]
    await admin.delete_group_offsets(GROUP, [T0])
    assert list((await admin.list_group_offsets(GROUP))[GROUP]) == [T1]
    with pytest.raises(AdminErrors) as failed:
        await admin.alter_group_offsets(GROUP, {T0: 1, TopicPartition("missing", 0): 1})
    assert isinstance(failed.value.errors[TopicPartition("missing", 0)], UnknownTopic)
    assert list(failed.value.results) == [T0]


@on_broker()
async def test_offsets_of_a_group_with_members_are_left_to_them(world: ClientWorld, admin: Admin) -> None:
    await classic_member(world, admin)
    with pytest.raises(GroupNotEmpty, match="has members"):
        await admin.alter_group_offsets(GROUP, {T0: 5})
    with pytest.raises(GroupNotEmpty):
        await admin.delete_group_offsets(GROUP, [T0])
    with pytest.raises(GroupNotEmpty):
        await admin.delete_groups(GROUP)


@on_broker()
async def test_members_are_removed_by_name_and_all_of_them(world: ClientWorld, admin: Admin) -> None:
    member_id = await classic_member(world, admin)
    with pytest.raises(AdminErrors) as failed:
        await admin.remove_members(GROUP, member_ids=[member_id, "nobody"])
    assert list(failed.value.results) == [member_id]
    assert isinstance(failed.value.errors["nobody"], BrokerRefused)
    assert (await admin.describe_groups(GROUP))[GROUP].is_empty
    await classic_member(world, admin, group_instance_id="static")
    await admin.remove_members(GROUP, instance_ids=["static"])
    await classic_member(world, admin, group_instance_id="static")
    await admin.remove_members(GROUP, everybody=True)
    assert (await admin.describe_groups(GROUP))[GROUP].is_empty
    with pytest.raises(BadSetting, match="nobody is named"):
        await admin.remove_members(GROUP)
    with pytest.raises(BadSetting, match="either"):
        await admin.remove_members(GROUP, everybody=True, member_ids=["x"])


@on_broker(lost("DeleteGroups"))
async def test_a_group_that_is_gone_after_a_lost_answer_was_deleted(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    await admin.alter_group_offsets(GROUP, {T0: 5})
    await admin.delete_groups(GROUP)
    assert await admin.list_groups() == {}


@on_broker(lost("LeaveGroup"))
async def test_a_member_that_is_gone_after_a_lost_answer_was_removed(world: ClientWorld, admin: Admin) -> None:
    member_id = await classic_member(world, admin)
    await admin.remove_members(GROUP, member_ids=[member_id])
    assert (await admin.describe_groups(GROUP))[GROUP].is_empty


@on_broker(lost("OffsetCommit", "OffsetDelete"))
async def test_commits_and_deletions_of_offsets_are_repeated_after_a_lost_answer(
    world: ClientWorld, admin: Admin
) -> None:
    await admin.create_topics(NewTopic("t", 2, 1))
    await admin.alter_group_offsets(GROUP, {T0: 5, T1: 6})
    await admin.delete_group_offsets(GROUP, [T0])
    assert await admin.list_group_offsets(GROUP) == {GROUP: {T1: OffsetAndMetadata(6)}}


@on_broker()
async def test_the_lag_of_a_group_is_told_for_what_it_committed_and_what_it_reads(
    world: ClientWorld, admin: Admin
) -> None:
    await admin.create_topics([NewTopic("t", 2, 1), NewTopic("gone", 1, 1)])
    client = await world.node.client()
    assert (await client.produce("t", batch_of(*[b"x"] * 10), partition=1)).error_code == 0
    await admin.delete_records({T1: 2})
    gone = TopicPartition("gone", 0)
    await admin.alter_group_offsets(GROUP, {T1: 4, gone: 1})
    member_id = await classic_member(world, admin)
    await admin.delete_topics("gone")
    lags = (await admin.group_lag(GROUP))[GROUP]
    assert lags[T1] == PartitionLag(OffsetAndMetadata(4), 2, 10, None)
    assert lags[T1].lag == 6
    assert lags[T0] == PartitionLag(None, 0, 0, member_id)
    assert lags[T0].lag is None
    if gone in lags:  # a broker may drop the offsets of a deleted topic
        assert lags[gone].lag is None


def test_a_group_is_never_behind_by_less_than_nothing() -> None:
    assert PartitionLag(OffsetAndMetadata(9), 0, 5).lag == 0
    assert PartitionLag(OffsetAndMetadata(9), None, None).lag is None


# -- what our broker never says


@faked(1, 2)
async def test_the_coordinator_of_a_commit_is_looked_up_again_when_it_has_moved(cluster: FakeCluster) -> None:
    cluster.coordinators = {"g": 1}

    def commit(node_id: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        cluster.coordinators["g"] = 2
        code = ErrorCode.NONE if node_id == 2 else ErrorCode.NOT_COORDINATOR
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])

    cluster.answers[OffsetCommitRequest] = commit
    async with cluster.admin() as admin:
        await admin.alter_group_offsets("g", {T0: 1})
    assert cluster.nodes_asked(OffsetCommitRequest) == [1, 2]


def described(name: str, **fields: Any) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=name, **fields)])


@faked(1)
async def test_members_that_speak_in_unknown_ways_are_shown_without_what_they_say(cluster: FakeCluster) -> None:
    cluster.coordinators = {"g": 1}
    cluster.hidden = {69}
    members = [
        DescribedGroupMember(member_id="bad", member_metadata=b"\0\1\xff\xff", member_assignment=b"?"),
        DescribedGroupMember(member_id="silent"),
    ]
    cluster.answers[DescribeGroupsRequest] = InTurn(
        described("g", protocol_type="consumer", group_state="Stable", members=members),
        described("g", protocol_type="connect", group_state="Stable", members=members),
    )
    async with cluster.admin() as admin:
        for protocol_type in ("consumer", "connect"):
            group = (await admin.describe_groups("g"))["g"]
            assert group.protocol_type == protocol_type
            bad, silent = group.members
            assert (bad.subscription, bad.assignment, bad.assignment_bytes) == (frozenset(), frozenset(), b"?")
            assert (silent.subscription, silent.assignment) == (frozenset(), frozenset())


@faked(1)
async def test_a_dead_group_of_an_old_broker_is_not_there(cluster: FakeCluster) -> None:
    cluster.coordinators = {"g": 1}
    cluster.limits = {15: 4}
    cluster.hidden = {69}
    cluster.answers[DescribeGroupsRequest] = lambda node_id, request: described("g", group_state="Dead")
    async with cluster.admin() as admin:
        with pytest.raises(UnknownGroup):
            await admin.describe_groups("g")


@faked(1)
async def test_a_coordinator_that_loads_is_waited_for_in_both_protocols(cluster: FakeCluster) -> None:
    cluster.coordinators = {"g": 1}
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def modern(code: int) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(groups=[DescribedConsumerGroup(group_id="g", error_code=code)])

    cluster.answers[ConsumerGroupDescribeRequest] = InTurn(modern(loading), modern(ErrorCode.GROUP_ID_NOT_FOUND))
    cluster.answers[DescribeGroupsRequest] = InTurn(
        described("g", error_code=loading), described("g", group_state="Empty")
    )
    async with cluster.admin() as admin:
        assert (await admin.describe_groups("g"))["g"].state == "Empty"
    assert len(cluster.requests(ConsumerGroupDescribeRequest)) == 3
    assert len(cluster.requests(DescribeGroupsRequest)) == 2


@faked(1)
async def test_offsets_of_open_transactions_are_waited_for_if_asked_to(cluster: FakeCluster) -> None:
    cluster.coordinators = {"g": 1}

    def fetched(code: int) -> OffsetFetchResponse:
        partition = OffsetFetchResponseGroupPartition(partition_index=0, committed_offset=3, error_code=code)
        topic = OffsetFetchResponseGroupTopic(name="t", partitions=[partition])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])

    cluster.answers[OffsetFetchRequest] = InTurn(fetched(ErrorCode.UNSTABLE_OFFSET_COMMIT), fetched(0))
    async with cluster.admin() as admin:
        found = await admin.list_group_offsets("g", require_stable=True)
    assert found == {"g": {T0: OffsetAndMetadata(3)}}
    assert [request.require_stable for request in cluster.requests(OffsetFetchRequest)] == [True, True]
    assert cluster.versions_asked(OffsetFetchRequest) == [9, 9], "topics by name"


@faked(1)
async def test_old_brokers_are_asked_for_the_offsets_of_one_group_at_a_time(cluster: FakeCluster) -> None:
    cluster.coordinators = {"g": 1, "h": 1}
    cluster.limits = {9: 6}

    def fetch(node_id: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        offset = 3 if request.group_id == "g" else 4
        partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=offset)
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])

    cluster.answers[OffsetFetchRequest] = fetch
    async with cluster.admin() as admin:
        found = await admin.list_group_offsets(["g", "h"], [T0])
    assert found == {"g": {T0: OffsetAndMetadata(3)}, "h": {T0: OffsetAndMetadata(4)}}


@faked(1)
async def test_a_refusal_of_the_whole_group_is_told_for_every_member(cluster: FakeCluster) -> None:
    cluster.coordinators = {"g": 1}
    cluster.answers[LeaveGroupRequest] = InTurn(
        LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID),
        LeaveGroupResponse(members=[LeavingMemberResult(member_id="a"), LeavingMemberResult(member_id="b")]),
    )
    async with cluster.admin() as admin:
        with pytest.raises(AdminErrors) as failed:
            await admin.remove_members("g", member_ids=["a", "b"], reason="why not")
        assert set(failed.value.errors) == {"a", "b"}
        await admin.remove_members("g", member_ids=["a", "b"])
    assert cluster.requests(LeaveGroupRequest)[0].members[0].reason == "why not"
