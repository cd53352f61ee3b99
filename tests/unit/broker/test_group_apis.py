"""The APIs of groups over the wire, in all their versions, on a whole broker: forms, codes, restarts and power cuts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, RawClient, simulated

from semel.broker.handlers import HANDLERS
from semel.coordinator.group.state import GroupState
from semel.coordinator.shard import replay_batch
from semel.wire.errors import ErrorCode
from semel.wire.primitives import coordinator_partition
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.consumer_group_describe import ConsumerGroupDescribeRequest
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel.wire.spec.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from semel.wire.spec.delete_groups import DeleteGroupsRequest
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.describe_groups import DescribeGroupsRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.list_groups import ListGroupsRequest
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic
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
    OffsetFetchRequestTopic,
)
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "g"
SETTINGS = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "10"}


def versions(name: str) -> list[int]:
    return next(list(range(one.min_version, one.max_version + 1)) for one in HANDLERS.values() if one.module == name)


async def ready(node: Node) -> RawClient:
    client = await node.client()
    await client.create_topic("t", 2)
    found = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
    assert found.coordinators[0].error_code == 0
    return client


def topic_id(node: Node, name: str = "t") -> bytes:
    return node.broker.topics.by_name[name].topic_id


async def join(client: RawClient, version: int = 9, **options: Any) -> Any:
    request = JoinGroupRequest(
        **{
            "group_id": GROUP,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff")],
            **options,
        }
    )
    return await client.ask(request, version)


async def member(client: RawClient, version: int = 9, **options: Any) -> Any:
    """A member of a stable group of one."""
    joined = await join(client, version, **options)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await join(client, version, **{**options, "member_id": joined.member_id})
    assert joined.error_code == 0
    synced = await sync(client, joined.generation_id, joined.member_id, b"mine")
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    return joined


async def sync(client: RawClient, generation: int, member_id: str, assignment: bytes = b"", version: int = 5) -> Any:
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)],
    )
    return await client.ask(request, version)


def commit_request(node: Node, version: int, offset: int = 5, index: int = 0, **options: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_leader_epoch=2, committed_metadata="note"
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    if version >= 10:
        topic = OffsetCommitRequestTopic(topic_id=topic_id(node), partitions=[partition])
    return OffsetCommitRequest(**{"group_id": GROUP, "topics": [topic], **options})


async def commit(node: Node, client: RawClient, version: int = 9, **options: Any) -> int:
    response = await client.ask(commit_request(node, version, **options), version)
    return int(response.topics[0].partitions[0].error_code)


def fetch_request(node: Node, version: int, indexes: list[int], **options: Any) -> OffsetFetchRequest:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=indexes)]
        return OffsetFetchRequest(group_id=GROUP, topics=topics, **options)
    wanted = OffsetFetchRequestGroupTopic(name="t", partition_indexes=indexes)
    if version >= 10:
        wanted = OffsetFetchRequestGroupTopic(topic_id=topic_id(node), partition_indexes=indexes)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])], **options)


async def fetched(node: Node, client: RawClient, version: int = 9, indexes: tuple[int, ...] = (0,)) -> Any:
    response = await client.ask(fetch_request(node, version, list(indexes)), version)
    group = response if version < 8 else response.groups[0]
    assert group.error_code == 0
    (topic,) = group.topics
    return topic.partitions


def check_replay(node: Node) -> None:
    """What the coordinator holds is what its topic makes."""
    for shard in node.broker.groups.shards.loaded():
        replayed = GroupState()
        for segment in shard.partition.log.segments:
            for _, header, batch in segment.batches():
                replay_batch(replayed, header, batch)
        assert shard.state == replayed


# -- finding the coordinator


@pytest.mark.parametrize("version", versions("find_coordinator"))
@simulated(settings=SETTINGS)
async def test_the_coordinator_is_found_at_once_and_its_topic_with_it(node: Node, version: int) -> None:
    client = await node.client()
    for key_type, topic in ((0, "__consumer_offsets"), (1, "__transaction_state")):
        if version == 0 and key_type == 1:
            continue
        request = FindCoordinatorRequest(key="one", key_type=key_type)
        if version >= 4:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["one", "two"])
        response = await client.ask(request, version)
        for found in [response] if version < 4 else response.coordinators:
            assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
        assert topic in node.broker.topics.by_name
        if version >= 4:
            assert [found.key for found in response.coordinators] == ["one", "two"]


@simulated(
    settings={
        "offsets.topic.num.partitions": "7",
        "offsets.topic.segment.bytes": "1000000",
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.segment.bytes": "2000000",
    }
)
async def test_internal_topics_are_made_from_their_settings_and_fit_the_cluster(node: Node) -> None:
    client = await node.client()
    for key_type in (0, 1):
        await client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["one"]))
    for name, count, segment_bytes in (
        ("__consumer_offsets", 7, 1_000_000),
        ("__transaction_state", 5, 2_000_000),
    ):
        topic = node.broker.topics.by_name[name]
        config = topic.config
        assert len(topic.partitions) == count
        assert config.cleanup_policy == {"compact"}
        assert (config.segment_bytes, config.min_insync_replicas) == (segment_bytes, 1)
    response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]))
    assert response.topics[0].is_internal


@simulated(settings=SETTINGS)
async def test_many_who_look_at_once_make_one_topic(node: Node) -> None:
    clients = [await node.client() for _ in range(5)]
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    for response in await asyncio.gather(*(client.ask(request) for client in clients)):
        assert response.coordinators[0].error_code == 0
    joined = await join(clients[0])
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED


@simulated()
async def test_a_type_of_coordinator_that_is_not_known_is_refused(node: Node) -> None:
    client = await node.client()
    response = await client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["one"]))
    assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    response = await client.ask(FindCoordinatorRequest(key="one", key_type=7), 3)
    assert (response.error_code, response.node_id) == (ErrorCode.INVALID_REQUEST, -1)


@simulated()
async def test_without_its_topic_there_is_no_coordinator(node: Node) -> None:
    client = await node.client()
    assert (await join(client)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    response = await client.ask(HeartbeatRequest(group_id=GROUP, member_id="a"))
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@simulated(settings=SETTINGS)
async def test_group_version_1_is_a_finalized_feature(node: Node) -> None:
    client = await node.client()
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    response = await client.ask(request)
    assert {one.name: one.max_version_level for one in response.finalized_features}["group.version"] == 1


# -- the classic protocol in every version


@pytest.mark.parametrize("version", versions("join_group"))
@simulated(settings=SETTINGS)
async def test_join_group_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    joined = await join(client, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await join(client, version, member_id=joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert joined.protocol_name == "range"
    assert joined.members[0].member_id == joined.member_id
    refused = await join(client, version, protocol_type="connect")
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = await join(client, version, member_id="stranger")
    assert (unknown.error_code, unknown.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    check_replay(node)


@pytest.mark.parametrize("version", versions("sync_group"))
@simulated(settings=SETTINGS)
async def test_sync_group_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    joined = await join(client, 3)
    synced = await sync(client, 1, joined.member_id, b"mine", version)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    refused = await sync(client, 2, joined.member_id, b"", version)
    assert refused.error_code == ErrorCode.ILLEGAL_GENERATION
    check_replay(node)


@simulated(settings=SETTINGS)
async def test_from_version_5_on_a_sync_names_its_protocol(node: Node) -> None:
    client = await ready(node)
    joined = await join(client, 3)
    request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=joined.member_id)
    assert (await client.ask(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions("heartbeat"))
@simulated(settings=SETTINGS)
async def test_heartbeat_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    joined = await member(client)
    for generation, code in ((1, 0), (2, ErrorCode.ILLEGAL_GENERATION)):
        request = HeartbeatRequest(group_id=GROUP, member_id=joined.member_id, generation_id=generation)
        assert (await client.ask(request, version)).error_code == code


@pytest.mark.parametrize("version", versions("leave_group"))
@simulated(settings=SETTINGS)
async def test_leave_group_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    joined = await member(client)

    async def leave(group_id: str, member_id: str) -> int:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
        if version >= 3:
            request = LeaveGroupRequest(group_id=group_id, members=[LeavingMember(member_id=member_id)])
        response = await client.ask(request, version)
        return int(response.members[0].error_code if response.error_code == 0 and version >= 3 else response.error_code)

    assert await leave(GROUP, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await leave("nowhere", joined.member_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await leave("", joined.member_id) == ErrorCode.INVALID_GROUP_ID
    assert await leave(GROUP, joined.member_id) == 0
    check_replay(node)


@pytest.mark.parametrize("version", versions("describe_groups"))
@simulated(settings=SETTINGS)
async def test_describe_groups_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    joined = await member(client)
    request = DescribeGroupsRequest(groups=[GROUP, "nowhere"], include_authorized_operations=version >= 3)
    there, missing = (await client.ask(request, version)).groups
    assert (there.error_code, there.group_state, there.protocol_data) == (0, "Stable", "range")
    assert (there.members[0].member_id, there.members[0].member_assignment) == (joined.member_id, b"mine")
    assert there.members[0].client_id == "raw"
    assert there.members[0].client_host.startswith("/")
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 3:
        assert there.authorized_operations > 0


@pytest.mark.parametrize("version", versions("list_groups"))
@simulated(settings=SETTINGS)
async def test_list_groups_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    await member(client)
    await client.ask(commit_request(node, 9, group_id="simple"), 9)
    await enter(client, "modern")

    async def listed(**filters: Any) -> set[str]:
        response = await client.ask(ListGroupsRequest(**filters), version)
        assert response.error_code == 0
        return {group.group_id for group in response.groups}

    assert await listed() == {GROUP, "simple", "modern"}
    if version >= 4:
        assert await listed(states_filter=["stable"]) == {GROUP, "modern"}
        assert await listed(states_filter=["Empty", "Dead"]) == {"simple"}
    if version >= 5:
        assert await listed(types_filter=["Consumer"]) == {"modern"}
        assert await listed(types_filter=["classic"], states_filter=["Stable"]) == {GROUP}
        assert await listed(types_filter=["share"]) == set()


@pytest.mark.parametrize("version", versions("delete_groups"))
@simulated(settings=SETTINGS)
async def test_delete_groups_in_every_version(node: Node, version: int) -> None:
    client = await ready(node)
    joined = await member(client)
    await client.ask(commit_request(node, 9, group_id="simple"), 9)
    request = DeleteGroupsRequest(groups_names=[GROUP, "simple", "nowhere"])
    response = await client.ask(request, version)
    assert {one.group_id: one.error_code for one in response.results} == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": 0,
        "nowhere": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    await client.ask(LeaveGroupRequest(group_id=GROUP, members=[LeavingMember(member_id=joined.member_id)]))
    response = await client.ask(DeleteGroupsRequest(groups_names=[GROUP]), version)
    assert response.results[0].error_code == 0
    check_replay(node)


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


async def enter(client: RawClient, group_id: str = GROUP, version: int = 1, **options: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        **{
            "group_id": group_id,
            "member_id": "a",
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **options,
        }
    )
    return await client.ask(request, version)


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


# -- stops, kills, power cuts


@pytest.mark.parametrize("how", ["restart", "killed_and_started", "power_cut_and_started"])
@simulated(settings=SETTINGS)
async def test_groups_and_offsets_survive_the_broker(node: Node, how: str) -> None:
    client = await ready(node)
    joined = await member(client)
    await commit(node, client, member_id=joined.member_id, generation_id_or_member_epoch=1)
    await enter(client, "modern")
    await getattr(node, how)()
    client = await node.client()
    heartbeat = HeartbeatRequest(group_id=GROUP, member_id=joined.member_id, generation_id=1)
    assert (await client.ask(heartbeat)).error_code == 0
    assert (await sync(client, 1, joined.member_id)).assignment == b"mine"
    (partition,) = await fetched(node, client)
    assert partition.committed_offset == 5
    beat = ConsumerGroupHeartbeatRequest(group_id="modern", member_id="a", member_epoch=1)
    assert (await client.ask(beat)).error_code == 0
    check_replay(node)


@simulated(settings=SETTINGS)
async def test_members_who_died_with_the_broker_are_noticed_without_anyone_asking(node: Node) -> None:
    client = await ready(node)
    await member(client)
    await node.restart()
    await asyncio.sleep(11)
    client = await node.client()
    response = await client.ask(DescribeGroupsRequest(groups=[GROUP]))
    assert response.groups[0].group_state == "Empty"


@simulated(settings=SETTINGS)
async def test_a_commit_that_was_not_answered_may_be_lost_but_an_answered_one_is_not(node: Node) -> None:
    client = await ready(node)
    assert await commit(node, client, offset=1) == 0
    node.hold_flushes()
    pending = client.send(commit_request(node, 9, offset=2), 9)
    await asyncio.sleep(1)
    assert not pending.done()
    await node.power_cut_and_started()
    node.let_flushes_go()
    client = await node.client()
    (partition,) = await fetched(node, client)
    assert partition.committed_offset in (1, 2)
    check_replay(node)


@simulated(settings=SETTINGS)
async def test_many_commits_share_a_flush(node: Node) -> None:
    await ready(node)
    clients = [await node.client() for _ in range(20)]
    await commit(node, clients[0])
    node.disk.flush_latency_ms = (10, 10)
    before = node.flushes("__consumer_offsets")
    await asyncio.gather(*(commit(node, client) for client in clients))
    assert node.flushes("__consumer_offsets") - before <= 4


@simulated(settings=SETTINGS)
async def test_when_the_offsets_topic_is_deleted_everyone_looks_for_the_coordinator_again(node: Node) -> None:
    client, other = await ready(node), await node.client()
    joined = await member(client)
    first = await join(other)
    waiting = asyncio.ensure_future(join(other, member_id=first.member_id))
    await asyncio.sleep(0.1)
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="__consumer_offsets")]))
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    heartbeat = HeartbeatRequest(group_id=GROUP, member_id=joined.member_id, generation_id=1)
    assert (await client.ask(heartbeat)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
    assert (await client.ask(heartbeat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@simulated(settings=SETTINGS)
async def test_a_group_lives_in_the_partition_that_its_name_hashes_to(node: Node) -> None:
    client = await ready(node)
    await commit(node, client)
    holding = [index for index in range(3) if node.broker.topics.partition("__consumer_offsets", index).log.end_offset]
    assert holding == [coordinator_partition(GROUP, 3)]


@simulated(settings=SETTINGS)
async def test_a_client_that_hangs_up_while_it_waits_leaves_no_trace(node: Node) -> None:
    client, other = await ready(node), await node.client()
    first = await join(client)
    client.send(
        JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=first.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
    )
    client.close()
    await asyncio.sleep(600)
    response = await other.ask(DescribeGroupsRequest(groups=[GROUP]))
    assert response.groups[0].group_state in ("Empty", "Dead")
