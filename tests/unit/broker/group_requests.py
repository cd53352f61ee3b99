"""Requests of groups as raw clients send them, for tests on a whole broker."""

from __future__ import annotations

from typing import Any

from broker_harness import Node, RawClient

from semel.broker.handlers import HANDLERS
from semel.coordinator.group.state import GroupState
from semel.coordinator.shard import replay_batch
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
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
