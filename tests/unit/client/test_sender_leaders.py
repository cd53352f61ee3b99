"""To whom batches are sent, and under which name of their topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from producer_steps import refusing

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.errors import UnsupportedByBroker
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.produce import LeaderIdAndEpoch, NodeEndpoint, ProduceRequest

# -- to whom


@scripted(nodes=2)
async def test_a_partition_that_has_moved_is_followed(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        topic.move(0, 2)
        cluster.node(1).rules[ProduceRequest] = refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await producer.send_and_wait("t", b"2")
    assert {asked.broker.node_id for asked in cluster.all(ProduceRequest)[:-1]} == {1}
    assert cluster.all(ProduceRequest)[-1].broker.node_id == 2
    assert cluster.logs("t") == [b"1", b"2"]


@scripted(nodes=2)
async def test_a_leader_named_with_the_refusal_is_followed_at_once(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        topic.move(0, 2)
        cluster.hold(MetadataRequest)
        cluster.node(1).rules[ProduceRequest] = refusing(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=1),
            node_endpoints=[NodeEndpoint(node_id=2, host="broker2", port=9092)],
        )
        before_s = cluster.loop.time()
        await producer.send_and_wait("t", b"2")
        assert cluster.loop.time() == pytest.approx(before_s, abs=0.001), "no pause, no metadata"
        assert cluster.held(MetadataRequest) == []


@scripted(nodes=2)
async def test_an_old_leader_named_with_the_refusal_is_no_news(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    topic.epochs = [5]
    async with cluster.producer() as producer:
        cluster.node(1).rules[ProduceRequest] = refusing(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
        )
        delivery = await producer.send("t", b"1")
        first = await cluster.next(ProduceRequest)
        cluster.node(1).rules.clear()
        second = await cluster.next(ProduceRequest)
        await delivery
        assert second.broker.node_id == 1
        assert second.at_s - first.at_s >= 0.08


@scripted()
async def test_a_partition_without_a_leader_waits_for_one(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [1, -1])
    async with cluster.producer() as producer:
        delivery = await producer.send("t", b"1", partition=1)
        await asyncio.sleep(3)
        assert not delivery.done()
        topic.move(1, 1)
        await delivery
        assert cluster.loop.time() < 4


@scripted()
async def test_topics_go_by_id_where_both_sides_know_ids(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
    (asked,) = cluster.all(ProduceRequest)
    assert asked.version == 13
    assert asked.body.topic_data[0].topic_id == cluster.topics["t"].topic_id


@scripted()
async def test_topics_go_by_name_where_a_topic_has_no_id(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.topic("u").topic_id = NO_UUID
    async with cluster.producer(linger_ms=10) as producer:
        both = [await producer.send(name, b"1") for name in ("t", "u")]
        await asyncio.gather(*both)
    (asked,) = cluster.all(ProduceRequest)
    assert asked.version == 12
    assert {topic.name for topic in asked.body.topic_data} == {"t", "u"}


@scripted()
async def test_topics_go_by_name_to_a_broker_that_knows_no_ids(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.limits[0] = (0, 9)
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
    (asked,) = cluster.all(ProduceRequest)
    assert (asked.version, asked.body.topic_data[0].name) == (9, "t")


@scripted()
async def test_a_broker_that_serves_no_version_we_know_fails_the_records_with_that(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    cluster.limits[0] = (90, 99)
    async with cluster.producer() as producer:
        with pytest.raises(UnsupportedByBroker, match="Produce"):
            await producer.send_and_wait("t", b"1")
        assert cluster.loop.time() < 1


@scripted()
async def test_a_topic_made_anew_is_written_to_under_its_new_id(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"1")
        topic.topic_id = b"another topic id"
        cluster.logs.values.clear()
        cluster.logs.forget_producers()
        cluster.rules[ProduceRequest] = unless_id_is(topic.topic_id)
        assert (await producer.send_and_wait("t", b"2")).offset == 0
    assert cluster.logs("t") == [b"2"]


def unless_id_is(topic_id: bytes) -> Any:
    def rule(asked: Asked) -> None:
        if asked.body.topic_data[0].topic_id == topic_id:
            asked.accept()
        else:
            asked.refuse(ErrorCode.UNKNOWN_TOPIC_ID)

    return rule
