"""FindCoordinator and the classic protocol over the wire, in all their versions, on a whole broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import Node, simulated
from group_requests import GROUP, SETTINGS, check_replay, commit_request, enter, join, member, ready, sync, versions

from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.delete_groups import DeleteGroupsRequest
from semel.wire.spec.describe_groups import DescribeGroupsRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.list_groups import ListGroupsRequest
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic
from semel.wire.spec.sync_group import SyncGroupRequest

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
    told = {one.group_id: one.error_message for one in response.results}
    assert told["simple"] is None
    assert all((told[group_id] is not None) == (version >= 3) for group_id in (GROUP, "nowhere"))
    await client.ask(LeaveGroupRequest(group_id=GROUP, members=[LeavingMember(member_id=joined.member_id)]))
    response = await client.ask(DeleteGroupsRequest(groups_names=[GROUP]), version)
    assert response.results[0].error_code == 0
    check_replay(node)
