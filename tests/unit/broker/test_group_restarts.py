"""Groups on a broker that is stopped, killed, robbed of its power, or of its offsets topic."""

from __future__ import annotations

import asyncio

import pytest
from broker_harness import ROOT, Node, simulated
from group_requests import (
    GROUP,
    SETTINGS,
    check_replay,
    commit,
    commit_request,
    enter,
    fetched,
    join,
    member,
    ready,
    sync,
)

from semel.records.compression import Codec
from semel.wire.errors import ErrorCode
from semel.wire.primitives import coordinator_partition
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from semel.wire.spec.describe_groups import DescribeGroupsRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol

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
async def test_when_the_offsets_topic_is_gone_everyone_looks_for_the_coordinator_again(node: Node) -> None:
    client, other = await ready(node), await node.client()
    joined = await member(client)
    first = await join(other)
    waiting = asyncio.ensure_future(join(other, member_id=first.member_id))
    await asyncio.sleep(0.1)
    await node.broker.controller.delete_topic(node.broker.image.topics["__consumer_offsets"])
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


@simulated(settings={**SETTINGS, "offsets.topic.compression.codec": "4"})
async def test_the_topic_is_compressed_when_that_is_asked_for(node: Node) -> None:
    client = await ready(node)
    await commit(node, client)
    await node.restart()
    (partition,) = await fetched(node, await node.client())
    assert partition.committed_offset == 5
    log = node.broker.topics.partition("__consumer_offsets", coordinator_partition(GROUP, 3)).log
    assert {header.codec for segment in log.segments for _, header, _ in segment.batches()} == {Codec.ZSTD}
    check_replay(node)


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


@simulated(settings=SETTINGS)
async def test_a_partition_that_is_offline_keeps_neither_the_broker_nor_the_other_groups_from_starting(
    node: Node,
) -> None:
    client = await ready(node)
    other = next(name for name in "abcdef" if coordinator_partition(name, 3) != coordinator_partition(GROUP, 3))
    for group_id in (GROUP, other):
        assert await commit(node, client, group_id=group_id) == 0
    await node.stop()
    directory = f"{ROOT}/__consumer_offsets-{coordinator_partition(GROUP, 3)}"
    # What was durable is gone: the log is not opened, because it cannot be made whole.
    name = f"{directory}/{0:020d}.log"
    node.disk.replace_file_now(name, node.disk.read_file(name)[:30])
    await node.start()
    client = await node.client()
    response = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP, other]))
    assert [found.error_code for found in response.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]
    assert await commit(node, client) == ErrorCode.NOT_COORDINATOR
    assert await commit(node, client, group_id=other) == 0


@simulated(settings={"offsets.topic.num.partitions": "100001"})
async def test_an_offsets_topic_that_cannot_be_created_has_no_coordinator(node: Node) -> None:
    client = await node.client()
    response = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
    assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "100001" in response.coordinators[0].error_message
