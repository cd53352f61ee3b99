"""Who may do what with groups: what each request asks the authoriser, and what a denial looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from broker_harness import Node, simulated

from semel.broker.authoriser import OPERATIONS, Operation, ResourceType
from semel.broker.handlers import HANDLERS
from semel.wire.apis import API
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request
from semel.wire.spec.consumer_group_describe import ConsumerGroupDescribeRequest
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel.wire.spec.delete_groups import DeleteGroupsRequest
from semel.wire.spec.describe_groups import DescribeGroupsRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.list_groups import ListGroupsRequest
from semel.wire.spec.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from semel.wire.spec.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from semel.wire.spec.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from semel.wire.spec.sync_group import SyncGroupRequest

Call = tuple[Operation, ResourceType, str | None]
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
DENIED_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_APIS = {*range(8, 17), 42, 47, 68, 69}


def on_group(operation: Operation, name: str = "g") -> Call:
    return operation, ResourceType.GROUP, name


def on_topic(operation: Operation, name: str = "t") -> Call:
    return operation, ResourceType.TOPIC, name


ALL_OF_GROUP = [on_group(operation) for operation in OPERATIONS[ResourceType.GROUP]]
ON_CLUSTER = (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")


class Row(NamedTuple):
    request: Request
    version: int
    asks: list[Call]  # of an authoriser that allows everything
    code_of: Callable[[Any], Any]  # the codes in an answer
    denied: Any  # what they are when everything is denied
    asks_when_denied: list[Call] | None = None  # when they are not the first one alone


def plain(response: Any) -> Any:
    return response.error_code


COMMIT = OffsetCommitRequest(
    group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])]
)
TABLE: dict[str, Row] = {
    "OffsetCommit": Row(
        COMMIT,
        9,
        [on_group(Operation.READ), on_topic(Operation.READ)],
        lambda response: response.topics[0].partitions[0].error_code,
        DENIED,
    ),
    "OffsetFetch": Row(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g", topics=[OffsetFetchRequestGroupTopic(name="t", partition_indexes=[0])]
                )
            ]
        ),
        9,
        [on_group(Operation.DESCRIBE), on_topic(Operation.DESCRIBE)],
        lambda response: response.groups[0].error_code,
        DENIED,
    ),
    "OffsetFetch of one group": Row(
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]),
        5,
        [on_group(Operation.DESCRIBE), on_topic(Operation.DESCRIBE)],
        plain,
        DENIED,
    ),
    "OffsetFetch of all topics": Row(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        9,
        [on_group(Operation.DESCRIBE), on_topic(Operation.DESCRIBE)],
        lambda response: response.groups[0].error_code,
        DENIED,
    ),
    "FindCoordinator": Row(
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
        6,
        [on_group(Operation.DESCRIBE)],
        lambda response: response.coordinators[0].error_code,
        DENIED,
    ),
    "FindCoordinator of a transactional id": Row(
        FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        6,
        [(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "x")],
        lambda response: response.coordinators[0].error_code,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "JoinGroup": Row(JoinGroupRequest(group_id="g"), 9, [on_group(Operation.READ)], plain, DENIED),
    "Heartbeat": Row(HeartbeatRequest(group_id="g"), 4, [on_group(Operation.READ)], plain, DENIED),
    "LeaveGroup": Row(
        LeaveGroupRequest(group_id="g", members=[LeavingMember(member_id="a")]),
        5,
        [on_group(Operation.READ)],
        plain,
        DENIED,
    ),
    "SyncGroup": Row(SyncGroupRequest(group_id="g"), 5, [on_group(Operation.READ)], plain, DENIED),
    "DescribeGroups": Row(
        DescribeGroupsRequest(groups=["g"], include_authorized_operations=True),
        6,
        [on_group(Operation.DESCRIBE), *ALL_OF_GROUP],
        lambda response: response.groups[0].error_code,
        DENIED,
    ),
    "ListGroups": Row(
        ListGroupsRequest(),
        5,
        [ON_CLUSTER],
        lambda response: (response.error_code, len(response.groups)),
        (0, 0),
        [ON_CLUSTER, on_group(Operation.DESCRIBE)],
    ),
    "DeleteGroups": Row(
        DeleteGroupsRequest(groups_names=["g"]),
        2,
        [on_group(Operation.DELETE)],
        lambda response: response.results[0].error_code,
        DENIED,
    ),
    "OffsetDelete": Row(
        OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition()])]
        ),
        0,
        [on_group(Operation.DELETE), on_topic(Operation.READ)],
        plain,
        DENIED,
    ),
    "ConsumerGroupHeartbeat": Row(
        ConsumerGroupHeartbeatRequest(
            group_id="k", member_id="b", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
        ),
        1,
        [on_group(Operation.READ, "k"), on_topic(Operation.DESCRIBE)],
        plain,
        DENIED,
    ),
    "ConsumerGroupDescribe": Row(
        ConsumerGroupDescribeRequest(group_ids=["k"]),
        1,
        [on_group(Operation.DESCRIBE, "k"), on_topic(Operation.DESCRIBE)],
        lambda response: response.groups[0].error_code,
        DENIED,
    ),
}


class Recorder:
    """Notes what it is asked, and allows it or not."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.denies: Callable[[Call], bool] = lambda call: False

    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        self.calls.append((operation, resource, name))
        return not self.denies((operation, resource, name))


async def prepared(node: Node) -> tuple[Any, Recorder]:
    """A group with an offset, and a KIP-848 group with a member."""
    client = await node.client()
    await client.create_topic("t")
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    assert (await client.ask(COMMIT, 9)).topics[0].partitions[0].error_code == 0
    enter = ConsumerGroupHeartbeatRequest(
        group_id="k", member_id="a", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert (await client.ask(enter)).error_code == 0
    recorder = node.authoriser
    assert isinstance(recorder, Recorder)
    recorder.calls.clear()
    return client, recorder


def test_every_served_api_of_groups_is_in_the_table() -> None:
    assert {API[key].name for key in HANDLERS if key in GROUP_APIS} == {name.split(" ")[0] for name in TABLE}


@pytest.mark.parametrize("name", TABLE)
@simulated(authoriser=Recorder)
async def test_a_request_asks_for_exactly_these_permissions(node: Node, name: str) -> None:
    row = TABLE[name]
    client, recorder = await prepared(node)
    response = await client.ask(row.request, row.version)
    assert recorder.calls == row.asks
    assert row.code_of(response) != row.denied


@pytest.mark.parametrize("name", TABLE)
@simulated(authoriser=Recorder)
async def test_a_denial_has_its_code_and_changes_nothing(node: Node, name: str) -> None:
    row = TABLE[name]
    client, recorder = await prepared(node)
    ends = [partition.log.end_offset for partition in node.broker.topics.online()]
    recorder.denies = lambda call: True
    response = await client.ask(row.request, row.version)
    first = row.asks[:1] if row.asks_when_denied is None else row.asks_when_denied
    assert recorder.calls[: len(first)] == first
    assert row.code_of(response) == row.denied
    assert [partition.log.end_offset for partition in node.broker.topics.online()] == ends


@simulated(authoriser=Recorder)
async def test_a_topic_that_may_not_be_seen_is_denied_by_itself(node: Node) -> None:
    client, recorder = await prepared(node)
    recorder.denies = lambda call: call[1] == ResourceType.TOPIC
    response = await client.ask(COMMIT, 9)
    assert response.topics[0].partitions[0].error_code == DENIED_TOPIC
    response = await client.ask(TABLE["OffsetFetch"].request, 9)
    assert response.groups[0].error_code == 0
    assert response.groups[0].topics[0].partitions[0].error_code == DENIED_TOPIC
    response = await client.ask(TABLE["OffsetFetch of all topics"].request, 9)
    assert list(response.groups[0].topics) == []
    response = await client.ask(TABLE["OffsetDelete"].request)
    assert response.topics[0].partitions[0].error_code == DENIED_TOPIC
    response = await client.ask(TABLE["ConsumerGroupHeartbeat"].request)
    assert response.error_code == DENIED_TOPIC
    response = await client.ask(TABLE["ConsumerGroupDescribe"].request)
    assert (response.groups[0].error_code, list(response.groups[0].members)) == (DENIED_TOPIC, [])
