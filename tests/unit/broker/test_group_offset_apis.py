"""Offsets and KIP-848 over the wire, in all their versions, on a whole broker."""

from __future__ import annotations

import asyncio

import pytest
from broker_harness import Node, simulated
from group_requests import (
    GROUP,
    SETTINGS,
    check_replay,
    commit,
    enter,
    fetch_request,
    fetched,
    member,
    ready,
    topic_id,
    versions,
)

from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_describe import ConsumerGroupDescribeRequest
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel.wire.spec.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from semel.wire.spec.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from semel.wire.spec.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)

# -- offsets in every version


@pytest.mark.parametrize("version", versions("offset_commit"))
@simulated(settings=SETTINGS)
async def test_offset_commit_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    assert await commit(node, client, version) == 0
    (partition,) = await fetched(node, client)
    assert (partition.committed_offset, partition.metadata) == (5, "note")
    assert partition.committed_leader_epoch == (2 if version >= 6 else -1)
    assert await commit(node, client, version, index=2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = OffsetCommitRequestTopic(name="no", topic_id=bytes(16), partitions=[OffsetCommitRequestPartition()])
    response = await client.ask(OffsetCommitRequest(group_id=GROUP, topics=[unknown]), version)
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.topics[0].partitions[0].error_code == code
    assert await commit(node, client, version, member_id="m", generation_id_or_member_epoch=3) in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )
    check_replay(node)


@simulated(settings={**SETTINGS, "offsets.commit.timeout.ms": "700"})
async def test_a_commit_that_is_not_durable_in_time_is_answered_as_one_to_try_again(node: Node) -> None:
    client = await ready(node)
    assert await commit(node, client, 8) == 0
    node.hold_flushes(for_ms=2000)
    begun_s = asyncio.get_running_loop().time()
    assert await commit(node, client, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert asyncio.get_running_loop().time() - begun_s == pytest.approx(0.7, abs=0.1)
    node.let_flushes_go()
    await asyncio.sleep(3)
    assert await commit(node, client, 8) == 0
    assert not node.broken
    check_replay(node)


@simulated(settings={**SETTINGS, "offsets.commit.timeout.ms": "5000"})
async def test_a_commit_waits_as_long_as_it_may(node: Node) -> None:
    client = await ready(node)
    assert await commit(node, client, 8) == 0
    node.hold_flushes(for_ms=3000)
    assert await commit(node, client, 8) == 0
    node.let_flushes_go()


@pytest.mark.parametrize("version", versions("offset_fetch"))
@simulated(settings=SETTINGS)
async def test_offset_fetch_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    # A group that is not known carries no error.
    unknown = await fetched(node, client, version, (0, 1))
    assert [(one.committed_offset, one.error_code) for one in unknown] == [(-1, 0), (-1, 0)]
    await commit(node, client)
    there, missing = await fetched(node, client, version, (0, 1))
    assert (there.committed_offset, there.metadata, there.error_code) == (5, "note", 0)
    assert (missing.committed_offset, missing.metadata, missing.error_code) == (-1, "", 0)
    assert there.committed_leader_epoch == (2 if version >= 5 else -1)
    if version >= 2:
        request = OffsetFetchRequest(group_id=GROUP, topics=None)
        if version >= 8:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
        response = await client.ask(request, version)
        topics = response.topics if version < 8 else response.groups[0].topics
        assert [one.partition_index for one in topics[0].partitions] == [0]
        assert (topics[0].topic_id == topic_id(node)) if version >= 10 else (topics[0].name == "t")


@simulated(settings=SETTINGS)
async def test_many_groups_are_fetched_with_one_request(node: Node) -> None:
    client = await ready(node)
    await commit(node, client)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "other")]
    response = await client.ask(OffsetFetchRequest(groups=groups), 9)
    assert [(group.group_id, len(group.topics)) for group in response.groups] == [(GROUP, 1), ("other", 0)]


@simulated(settings=SETTINGS)
async def test_a_topic_id_that_is_not_known_has_no_offsets(node: Node) -> None:
    client = await ready(node)
    wanted = OffsetFetchRequestGroupTopic(topic_id=b"x" * 16, partition_indexes=[0])
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])]
    response = await client.ask(OffsetFetchRequest(groups=groups), 10)
    (topic,) = response.groups[0].topics
    assert topic.topic_id == b"x" * 16
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [1, 2, 9])
@simulated()
async def test_without_its_coordinator_a_fetch_is_refused_where_its_version_has_room(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t", 2)
    response = await client.ask(fetch_request(node, version, [0]), version)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version == 1:
        assert response.topics[0].partitions[0].error_code == code
    else:
        assert (response if version < 8 else response.groups[0]).error_code == code


@simulated(settings=SETTINGS)
async def test_offset_delete_answers_for_each_partition(node: Node) -> None:
    client = await ready(node)
    await client.create_topic("old", 1)
    joined = await member(client)
    await commit(node, client, member_id=joined.member_id, generation_id_or_member_epoch=1)

    async def delete(group_id: str, topic: str, index: int) -> tuple[int, int]:
        partitions = [OffsetDeleteRequestPartition(partition_index=index)]
        request = OffsetDeleteRequest(
            group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        )
        response = await client.ask(request)
        code = response.topics[0].partitions[0].error_code if response.topics else 0
        return response.error_code, code

    assert await delete(GROUP, "t", 0) == (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert await delete(GROUP, "old", 0) == (0, 0)
    assert await delete(GROUP, "old", 1) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await delete("nowhere", "t", 0) == (ErrorCode.GROUP_ID_NOT_FOUND, 0)
    assert await delete("", "t", 0) == (ErrorCode.INVALID_GROUP_ID, 0)
    await client.ask(LeaveGroupRequest(group_id=GROUP, members=[LeavingMember(member_id=joined.member_id)]))
    assert await delete(GROUP, "t", 0) == (0, 0)
    (partition,) = await fetched(node, client)
    assert partition.committed_offset == -1
    check_replay(node)


# -- KIP-848


@pytest.mark.parametrize("version", versions("consumer_group_heartbeat"))
@simulated(settings=SETTINGS)
async def test_consumer_group_heartbeat_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    entered = await enter(client, version=version)
    assert (entered.error_code, entered.member_id, entered.member_epoch) == (0, "a", 1)
    (assigned,) = entered.assignment.topic_partitions
    assert (assigned.topic_id, list(assigned.partitions)) == (topic_id(node), [0, 1])
    refused = await enter(client, version=version, member_epoch=7)
    assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused.error_message
    check_replay(node)


@simulated(settings=SETTINGS)
async def test_new_partitions_and_deleted_topics_reach_a_consumer_group(node: Node) -> None:
    client = await ready(node)
    await enter(client, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    await client.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)]))
    beat = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=1)
    response = await client.ask(beat)
    assert list(response.assignment.topic_partitions[0].partitions) == [0, 1, 2]
    await client.create_topic("t2", 1)
    beat.member_epoch = 2
    response = await client.ask(beat)
    assert len(response.assignment.topic_partitions) == 2
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    beat.member_epoch = 3
    response = await client.ask(beat)
    assert [one.topic_id for one in response.assignment.topic_partitions] == [topic_id(node, "t2")]
    check_replay(node)


@pytest.mark.parametrize("version", versions("consumer_group_describe"))
@simulated(settings=SETTINGS)
async def test_consumer_group_describe_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    await enter(client)
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP, "nowhere"], include_authorized_operations=True)
    there, missing = (await client.ask(request, version)).groups
    assert (there.error_code, there.group_state, there.members[0].member_id) == (0, "Stable", "a")
    assert there.authorized_operations > 0
    assert there.members[0].member_type == (1 if version >= 1 else -1)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
