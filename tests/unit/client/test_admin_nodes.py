"""Which nodes the admin asks: leaders of partitions, coordinators of groups, all of them, or the one that was named."""

from __future__ import annotations

import asyncio

import pytest
from admin_fakes import FakeCluster, InTurn, faked

from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import ConfigResource, OffsetSpec
from semel.client.errors import (
    BadSetting,
    NotAuthorised,
    TimedOut,
    UnknownTopic,
    UnsupportedByBroker,
)
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.schema import Response
from semel.wire.spec.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from semel.wire.spec.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult
from semel.wire.spec.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from semel.wire.spec.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def listed(node_id: int, request: ListOffsetsRequest, code: int = 0) -> ListOffsetsResponse:
    """Offsets that tell which node gave them."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=node_id, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# -- leaders


@faked(1, 2)
async def test_partitions_are_asked_of_their_leaders_one_request_per_node(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1, 2, 1], "u": [2]}
    cluster.answers[ListOffsetsRequest] = listed
    async with cluster.admin() as admin:
        found = await admin.list_offsets(["t", TopicPartition("u", 0)], OffsetSpec.LATEST)
    assert {str(place): offset.offset for place, offset in found.items()} == {"t-0": 1, "t-1": 2, "t-2": 1, "u-0": 2}
    assert sorted(cluster.nodes_asked(ListOffsetsRequest)) == [1, 2]


@faked(1, 2)
async def test_a_leader_that_has_moved_is_found(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}

    def answer(node_id: int, request: ListOffsetsRequest) -> Response:
        if node_id == cluster.topics["t"][0] == 2:
            return listed(node_id, request)
        cluster.topics["t"] = [2]
        return listed(node_id, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    cluster.answers[ListOffsetsRequest] = answer
    async with cluster.admin() as admin:
        found = await admin.list_offsets({TopicPartition("t", 0): OffsetSpec.EARLIEST})
    assert found[TopicPartition("t", 0)].offset == 2
    assert cluster.nodes_asked(ListOffsetsRequest) == [1, 2]


@faked(1)
async def test_a_partition_without_a_leader_is_waited_for(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [-1]}
    cluster.answers[ListOffsetsRequest] = listed
    async with cluster.admin() as admin:
        call = asyncio.ensure_future(admin.list_offsets("t"))
        await asyncio.sleep(5)
        assert not call.done()
        cluster.topics = {"t": [1]}
        assert (await call)[TopicPartition("t", 0)].offset == 1
        cluster.topics = {"t": [-1]}
        with pytest.raises(TimedOut, match="LEADER_NOT_AVAILABLE"):
            await admin.list_offsets([TopicPartition("t", 0)])
    assert len(cluster.requests(ListOffsetsRequest)) == 1


@faked(1)
async def test_a_partition_that_is_not_there_is_told_at_once(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}
    cluster.answers[ListOffsetsRequest] = listed
    loop = asyncio.get_running_loop()
    async with cluster.admin() as admin:
        before_s = loop.time()
        with pytest.raises(AdminErrors) as failed:
            await admin.list_offsets([TopicPartition("t", 0), TopicPartition("t", 7), TopicPartition("missing", 0)])
        with pytest.raises(UnknownTopic):
            await admin.list_offsets("missing")
        assert loop.time() - before_s < 1
    assert {str(place) for place in failed.value.errors} == {"t-7", "missing-0"}
    assert all(isinstance(error, UnknownTopic) for error in failed.value.errors.values())
    assert [str(place) for place in failed.value.results] == ["t-0"]


@faked(1)
async def test_a_leader_that_does_not_know_the_partition_yet_is_asked_again(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}
    cluster.answers[ListOffsetsRequest] = InTurn(
        lambda node_id, request: listed(node_id, request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), listed
    )
    async with cluster.admin() as admin:
        await admin.list_offsets("t")
    assert len(cluster.requests(ListOffsetsRequest)) == 2


@faked(1)
async def test_new_kinds_of_offsets_are_not_asked_of_brokers_that_do_not_know_them(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}
    cluster.answers[ListOffsetsRequest] = listed
    cluster.limits = {2: 6}
    async with cluster.admin() as admin:
        await admin.list_offsets("t", OffsetSpec.EARLIEST, isolation_level="read_committed")
        with pytest.raises(UnsupportedByBroker):
            await admin.list_offsets("t", OffsetSpec.MAX_TIMESTAMP)
        with pytest.raises(BadSetting, match="OffsetSpec"):
            await admin.list_offsets("t", -77)
        with pytest.raises(BadSetting, match="isolation_level"):
            await admin.list_offsets("t", isolation_level="chaos")
    assert cluster.versions_asked(ListOffsetsRequest) == [6]
    assert [request.isolation_level for request in cluster.requests(ListOffsetsRequest)] == [1]


# -- coordinators


def deleted(node_id: int, request: DeleteGroupsRequest, code: int = 0) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    )


@faked(1, 2)
async def test_groups_are_asked_of_their_coordinators_one_request_per_node(cluster: FakeCluster) -> None:
    cluster.coordinators = {"a": 1, "b": 2, "c": 1}
    cluster.answers[DeleteGroupsRequest] = deleted
    async with cluster.admin() as admin:
        await admin.delete_groups(["a", "b", "c"])
    assert sorted((node, sorted(request.groups_names)) for node, _, request in cluster.asked) == [  # type: ignore[attr-defined]
        (1, ["a", "c"]),
        (2, ["b"]),
    ]


@faked(1, 2)
async def test_a_coordinator_that_has_moved_is_looked_up_again(cluster: FakeCluster) -> None:
    cluster.coordinators = {"a": 1}

    def answer(node_id: int, request: DeleteGroupsRequest) -> Response:
        if node_id == 2:
            return deleted(node_id, request)
        cluster.coordinators["a"] = 2
        return deleted(node_id, request, ErrorCode.NOT_COORDINATOR)

    cluster.answers[DeleteGroupsRequest] = answer
    async with cluster.admin() as admin:
        await admin.delete_groups("a")
    assert cluster.nodes_asked(DeleteGroupsRequest) == [1, 2]


@faked(1)
async def test_a_group_that_we_may_not_see_fails_alone(cluster: FakeCluster) -> None:
    from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

    def find(node_id: int, request: FindCoordinatorRequest) -> Response:
        (key,) = request.coordinator_keys
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED if key == "secret" else ErrorCode.NONE
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=1, error_code=code)])

    cluster.answers[FindCoordinatorRequest] = find
    cluster.answers[DeleteGroupsRequest] = deleted
    async with cluster.admin() as admin:
        with pytest.raises(AdminErrors) as failed:
            await admin.delete_groups(["mine", "secret"])
    assert isinstance(failed.value.errors["secret"], NotAuthorised)
    assert list(failed.value.results) == ["mine"]


# -- all nodes, and named ones


@faked(1, 2, 3)
async def test_lists_are_gathered_from_all_nodes(cluster: FakeCluster) -> None:
    cluster.answers[ListGroupsRequest] = lambda node_id, request: ListGroupsResponse(
        groups=[ListedGroup(group_id=f"group{node_id}", group_type="Classic")]
    )
    async with cluster.admin() as admin:
        groups = await admin.list_groups()
    assert list(groups) == ["group1", "group2", "group3"]
    assert groups["group1"].kind == "classic"


@faked(1, 2)
async def test_a_node_that_leaves_the_cluster_is_not_waited_for(cluster: FakeCluster) -> None:
    def answer(node_id: int, request: ListGroupsRequest) -> Response | None:
        if node_id == 1:
            return ListGroupsResponse(groups=[ListedGroup(group_id="group1")])
        cluster.node_ids = (1,)
        return None

    cluster.answers[ListGroupsRequest] = answer
    async with cluster.admin() as admin:
        assert list(await admin.list_groups()) == ["group1"]


@faked(1)
async def test_filters_that_a_broker_does_not_know_are_not_left_out_silently(cluster: FakeCluster) -> None:
    cluster.answers[ListGroupsRequest] = lambda node_id, request: ListGroupsResponse()
    cluster.limits = {16: 4}
    async with cluster.admin() as admin:
        await admin.list_groups(states=["Stable"])
        with pytest.raises(UnsupportedByBroker):
            await admin.list_groups(kinds=["consumer"])


@faked(1, 2, 3)
async def test_settings_of_a_node_are_asked_of_that_node(cluster: FakeCluster) -> None:
    cluster.answers[DescribeConfigsRequest] = lambda node_id, request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name)
            for one in request.resources
        ]
    )
    resources = [ConfigResource.broker(2), ConfigResource.topic("t"), ConfigResource.all_brokers()]
    async with cluster.admin() as admin:
        assert set(await admin.describe_configs(resources)) == set(resources)
        with pytest.raises(BadSetting, match="1, 2, 3"):
            await admin.describe_configs(ConfigResource.broker(9))
    asked = {node: [one.resource_name for one in request.resources] for node, _, request in cluster.asked}  # type: ignore[attr-defined]
    assert asked == {2: ["2"], 1: ["t", ""]}


@faked(1)
async def test_a_node_that_is_not_part_of_the_cluster_is_refused_at_once(cluster: FakeCluster) -> None:
    async with cluster.admin() as admin:
        with pytest.raises(BadSetting, match="nodes are 1"):
            await admin.describe_log_dirs([5])
