"""Produce to a partition with a follower, over connections, by the ordinary and the fast path: what is waited for, and
what is told when that fails."""

from __future__ import annotations

import asyncio

import pytest
from broker_harness import Node, RawClient, batch_of, produce_request, simulated
from short_ways import counted_produces
from test_several_listeners import SETTINGS, formatted

from semel.sim import link
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, ReplicaState
from semel.wire.spec.metadata_records import BrokerEndpoint, PartitionChangeRecord, RegisterBrokerRecord
from semel.wire.spec.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData

HERE, B = 1, 2
IN_A_CLUSTER = {**SETTINGS, "offsets.topic.replication.factor": "1", "min.insync.replicas": "1"}


class Follower:
    def __init__(self, node: Node, client: RawClient) -> None:
        self.node, self.client = node, client

    async def has(self, offset: int, index: int = 0) -> int:
        """Fetches as one that has all before the offset; the error code."""
        image = self.node.broker.image
        wanted = FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=B, replica_epoch=7),
            topics=[FetchRequestTopic(topic_id=image.topics["t"].topic_id, partitions=[wanted])],
        )
        response = await self.client.ask(request, 17)
        return int(response.error_code or response.responses[0].partitions[0].error_code)


async def replicated(node: Node, *, configs: dict[str, str | None] | None = None) -> tuple[RawClient, Follower]:
    """A topic of two partitions with a second replica each, which is in sync."""
    await formatted(node)
    client = await node.client()
    made = await client.create_topic("t", partitions=2, configs=configs or {})
    assert made.error_code == 0
    end_point = BrokerEndpoint(name="INSIDE", host="b", port=9094)
    changes = [
        PartitionChangeRecord(partition_id=index, topic_id=made.topic_id, replicas=[HERE, B], isr=[HERE, B])
        for index in range(2)
    ]
    registered = RegisterBrokerRecord(broker_id=B, broker_epoch=7, end_points=[end_point], fenced=False)
    await node.broker.controller.metadata.write([registered, *changes])
    link = await node.world.host("b").network.connect("broker", 9094)
    return client, Follower(node, RawClient(link))


async def change(node: Node, index: int = 0, *, leader: int = -2, isr: tuple[int, ...] | None = None) -> None:
    topic_id = node.broker.image.topics["t"].topic_id
    await node.broker.controller.metadata.write(
        [PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader, isr=isr)]
    )


def result_of(answer: asyncio.Future[object]) -> PartitionProduceResponse:
    found = answer.result().responses[0].partition_responses[0]  # type: ignore[attr-defined]
    assert isinstance(found, PartitionProduceResponse)
    return found


@simulated(settings=IN_A_CLUSTER, starts=False)
async def test_the_fast_path_waits_for_followers_as_the_ordinary_one_does(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "WHOLE_CHUNK_CHANCE", 1)
    lanes = counted_produces(monkeypatch)
    client, follower = await replicated(node)
    for number in range(4):
        answer = client.send(produce_request("t", batch_of(b"a")), 12)
        await asyncio.sleep(0.1)
        assert not answer.done()
        assert await follower.has(number + 1) == 0
        await asyncio.sleep(0.01)
        assert (result_of(answer).error_code, result_of(answer).base_offset) == (0, number)
    assert lanes.served == 3
    assert (await client.produce("t", batch_of(b"a"), acks=1)).error_code == 0, "the leader alone is enough"
    assert await client.values("t") == [b"a"] * 4
    assert await follower.has(5) == 0
    assert len(await client.values("t")) == 5


@pytest.mark.parametrize("first", [0, 3])
@simulated(settings=IN_A_CLUSTER, starts=False)
async def test_what_is_not_committed_in_time_is_told_so(
    node: Node, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "WHOLE_CHUNK_CHANCE", 1)
    lanes = counted_produces(monkeypatch)
    client, follower = await replicated(node)
    for number in range(first):
        answer = client.send(produce_request("t", batch_of(b"a")), 12)
        await asyncio.sleep(0.01)
        await follower.has(number + 1)
        await answer
    answers = [client.send(produce_request("t", batch_of(b"late")), 12) for _ in range(3)]
    await asyncio.sleep(0.9)
    assert not any(one.done() for one in answers)
    await asyncio.sleep(0.4)
    assert [result_of(one).error_code for one in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert [result_of(one).base_offset for one in answers] == [-1] * 3
    assert lanes.served == first + 2, "all but the first of them"
    again = client.send(produce_request("t", batch_of(b"on the same connection")), 12)
    await asyncio.sleep(0.01)
    await follower.has(first + 4)
    await again
    assert (result_of(again).error_code, result_of(again).base_offset) == (0, first + 3)


@pytest.mark.parametrize("first", [0, 3])
@simulated(settings=IN_A_CLUSTER, starts=False)
async def test_whoever_waits_is_told_who_leads_instead(node: Node, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "WHOLE_CHUNK_CHANCE", 1)
    client, follower = await replicated(node)
    inside = RawClient(await node.world.host("inside").network.connect("broker", 9094))
    for number in range(first):
        answer = inside.send(produce_request("t", batch_of(b"a")), 12)
        await asyncio.sleep(0.01)
        await follower.has(number + 1)
        await answer
    waiting = inside.send(produce_request("t", batch_of(b"b")), 12)
    await asyncio.sleep(0.1)
    await change(node, leader=B)
    response = await waiting
    result = response.responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (B, 1)
    assert [(one.node_id, one.host, one.port) for one in response.node_endpoints] == [(B, "b", 9094)]
    client.close()


@simulated(settings=IN_A_CLUSTER, starts=False)
async def test_of_a_request_for_several_partitions_each_is_told_its_own(node: Node) -> None:
    client, follower = await replicated(node)
    data = [PartitionProduceData(index=index, records=memoryview(batch_of(b"a"))) for index in range(2)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    answer = client.send(request, 12)
    await asyncio.sleep(0.1)
    assert await follower.has(1, 1) == 0
    await asyncio.sleep(0.1)
    assert not answer.done()
    response = await answer
    found = [(one.error_code, one.base_offset) for one in response.responses[0].partition_responses]
    assert found == [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 0)]


@simulated(settings=IN_A_CLUSTER, starts=False)
async def test_the_fast_path_ends_when_too_few_are_in_sync_and_comes_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "WHOLE_CHUNK_CHANCE", 1)
    lanes = counted_produces(monkeypatch)
    client, follower = await replicated(node, configs={"min.insync.replicas": "2"})
    end = 0

    async def write(count: int) -> None:
        nonlocal end
        for _ in range(count):
            answer = client.send(produce_request("t", batch_of(b"a")), 12)
            await asyncio.sleep(0.01)
            end += 1
            await follower.has(end)
            assert (await answer).responses[0].partition_responses[0].error_code == 0

    await write(3)
    assert lanes.served == 2
    await change(node, isr=(HERE,))
    refused = await client.produce("t", batch_of(b"x"))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert lanes.served == 2
    await change(node, isr=(HERE, B))
    await write(3)
    assert lanes.served == 4


@simulated(settings=IN_A_CLUSTER, starts=False)
async def test_a_client_that_poses_as_a_follower_moves_nothing(node: Node) -> None:
    client, follower = await replicated(node)
    answer = client.send(produce_request("t", batch_of(b"a")), 12)
    await asyncio.sleep(0.1)
    outside = Follower(node, await node.client())
    assert await outside.has(1) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await asyncio.sleep(0.1)
    assert not answer.done()
    await follower.has(1)
    assert (await answer).responses[0].partition_responses[0].error_code == 0
