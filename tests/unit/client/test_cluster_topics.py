"""Who leads what, topics that somebody waits for, and requests to nodes."""

from __future__ import annotations

import asyncio

import pytest
from known_cluster import asked_topics, known

from scripted_broker import ScriptedCluster, scripted, silent
from semel.client.cluster import Cluster
from semel.client.errors import (
    Closed,
    Disconnected,
    FatalError,
    NotAuthorised,
    SemelError,
    UnknownTopic,
    UnsupportedByBroker,
)
from semel.client.metadata import NO_NODE, Node
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.metadata import MetadataRequest

# -- who leads


@scripted(nodes=2)
async def test_a_node_that_lags_behind_does_not_bring_an_old_leader_back(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [1, 1])
    async with known(cluster) as client:
        await client.topic("t", 5)
        topic.move(0, 2)
        topic.move(0, 2)
        await client.refresh()
        assert client.leader_of("t", 0) == 2
        topic.leaders, topic.epochs = [1, 2], [1, 1]
        await client.refresh()
        assert (client.leader_of("t", 0), client.leader_of("t", 1)) == (2, 2)
        partition = client.partition("t", 0)
        assert partition is not None
        assert partition.leader_epoch == 2


@scripted(nodes=2)
async def test_a_topic_made_anew_begins_with_new_epochs(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    topic.epochs = [9]
    async with known(cluster) as client:
        await client.topic("t", 5)
        topic.topic_id, topic.leaders, topic.epochs = b"another topic id", [2], [0]
        await client.refresh()
        assert client.leader_of("t", 0) == 2
        assert client.topic_names == {b"another topic id": "t"}


@scripted(nodes=2)
async def test_a_named_leader_is_believed_if_it_is_newer_and_known(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    topic.epochs = [5]
    async with known(cluster) as client:
        await client.topic("t", 5)
        told: list[None] = []
        client.changed.append(lambda: told.append(None))
        assert not client.learn_leader("t", 0, 2, 5, [])
        assert not client.learn_leader("t", 0, 9, 6, [])
        assert not client.learn_leader("t", 7, 2, 6, [])
        assert not client.learn_leader("u", 0, 2, 6, [])
        assert not client.learn_leader("t", 0, -1, 6, [])
        assert client.leader_of("t", 0) == 1
        assert told == []
        assert client.learn_leader("t", 0, 2, 6, [])
        assert client.leader_of("t", 0) == 2
        assert client.learn_leader("t", 0, 7, 7, [Node(7, "broker7", 9092)])
        assert client.leader_of("t", 0) == 7
        assert len(told) == 2


@scripted()
async def test_a_leader_that_is_no_node_of_the_cluster_is_none(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [5])
    async with known(cluster) as client:
        await client.topic("t", 5)
        assert client.leader_of("t", 0) == NO_NODE
        assert client.leader_of("t", 3) == NO_NODE
        assert client.leader_of("u", 0) == NO_NODE


@scripted()
async def test_a_partition_without_a_leader_is_asked_for_again_until_it_has_one(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t", [-1])
    async with known(cluster) as client:
        await client.topic("t", 5)
        await asyncio.sleep(1)
        topic.move(0, 1)
        await asyncio.sleep(1.3)
        assert client.leader_of("t", 0) == 1
        asked = len(cluster.all(MetadataRequest))
        await asyncio.sleep(60)
        assert len(cluster.all(MetadataRequest)) == asked


# -- topics


@scripted()
async def test_only_topics_of_interest_are_asked_for(cluster: ScriptedCluster) -> None:
    for name in ("a", "b", "c"):
        cluster.topic(name)
    async with known(cluster) as client:
        assert asked_topics(cluster.all(MetadataRequest)[-1]) == []
        await client.topic("a", 5)
        client.watch(["b"])
        await asyncio.sleep(0.2)
        assert asked_topics(cluster.all(MetadataRequest)[-1]) == ["a", "b"]
        assert sorted(client.topics) == ["a", "b"]
        client.unwatch(["a"])
        await client.refresh()
        assert sorted(client.topics) == ["b"]
        client.watch_all(True)
        await asyncio.sleep(0.2)
        assert asked_topics(cluster.all(MetadataRequest)[-1]) is None
        assert sorted(client.topics) == ["a", "b", "c"]
        assert not cluster.all(MetadataRequest)[-1].body.allow_auto_topic_creation


@scripted()
async def test_with_all_topics_of_interest_a_watched_one_that_is_missing_is_known_as_missing(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("a")
    async with known(cluster) as client:
        client.watch(["gone"])
        client.watch_all(True)
        await client.refresh()
        assert client.topics["gone"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.topics["a"].is_usable


@scripted()
async def test_a_topic_that_is_known_is_given_without_asking(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with known(cluster) as client:
        await client.topic("t", 5)
        before = len(cluster.all(MetadataRequest))
        assert (await client.topic("t", 5)).name == "t"
        assert len(cluster.all(MetadataRequest)) == before


@scripted()
async def test_two_may_wait_for_a_topic_and_one_that_gives_up_does_not_give_up_for_the_other(
    cluster: ScriptedCluster,
) -> None:
    async with known(cluster) as client:
        impatient = asyncio.create_task(client.topic("t", 2))
        patient = asyncio.create_task(client.topic("t", 20))
        with pytest.raises(UnknownTopic, match="'t' was not found within 2 s"):
            await impatient
        await asyncio.sleep(3)
        cluster.topic("t")
        assert (await patient).is_usable
        assert cluster.loop.time() < 7


@pytest.mark.parametrize("how", ["cancelled", "timed out", "refused"])
@scripted()
async def test_a_topic_that_nobody_waits_for_any_more_is_not_asked_for(cluster: ScriptedCluster, how: str) -> None:
    async with known(cluster) as client:
        if how == "refused":
            cluster.topic("t").error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        waiting = asyncio.create_task(client.topic("t", 2))
        await asyncio.sleep(1)
        if how == "cancelled":
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(3)
        before = len(cluster.all(MetadataRequest))
        await asyncio.sleep(60)
        assert len(cluster.all(MetadataRequest)) == before
        await client.refresh()
        assert asked_topics(cluster.all(MetadataRequest)[-1]) == []


@scripted()
async def test_a_topic_that_is_watched_stays_so_though_one_gave_up_waiting_for_it(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        client.watch(["t"])
        with pytest.raises(UnknownTopic):
            await client.topic("t", 1)
        cluster.topic("t")
        await asyncio.sleep(1)
        assert client.topics["t"].is_usable


@scripted()
async def test_a_name_that_cannot_be_asked_for_spoils_nothing_for_others(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with known(cluster) as client:
        with pytest.raises(FatalError):
            await client.topic("\ud800", 5)
        assert (await client.topic("t", 5)).is_usable


@scripted()
async def test_a_topic_that_is_forbidden_is_told_at_once(cluster: ScriptedCluster) -> None:
    cluster.topic("t").error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with known(cluster) as client:
        with pytest.raises(NotAuthorised):
            await client.topic("t", 60)
        assert cluster.loop.time() < 1


@scripted()
async def test_a_wait_for_a_topic_ends_in_time_also_if_nobody_answers(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        cluster.rules[MetadataRequest] = silent
        with pytest.raises(UnknownTopic, match="within 3 s"):
            await client.topic("t", 3)
        assert cluster.loop.time() == pytest.approx(3, abs=0.01)


# -- asking


@scripted()
async def test_a_request_to_a_node_that_is_none_is_refused(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        with pytest.raises(Disconnected, match="node 9 is not part of the cluster"):
            await client.call(9, InitProducerIdRequest(), InitProducerIdResponse)


@scripted()
async def test_versions_are_limited_as_asked(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        await client.call(1, InitProducerIdRequest(), InitProducerIdResponse, at_most=3)
        assert cluster.asked[-1].version == 3
        with pytest.raises(UnsupportedByBroker, match="InitProducerId"):
            await client.call(1, InitProducerIdRequest(), InitProducerIdResponse, at_least=99)


@scripted()
async def test_a_request_has_its_time_and_the_connection_ends_with_it(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        cluster.rules[InitProducerIdRequest] = silent
        with pytest.raises(SemelError, match="did not answer InitProducerId within 2 s"):
            await client.call(1, InitProducerIdRequest(), InitProducerIdResponse, timeout_s=2)
        assert cluster.loop.time() == pytest.approx(2, abs=0.01)
        cluster.release(InitProducerIdRequest)
        await client.call(1, InitProducerIdRequest(), InitProducerIdResponse)


@scripted()
async def test_closing_tells_those_who_wait_and_leaves_nothing_behind(cluster: ScriptedCluster) -> None:
    client = Cluster(cluster.host(), cluster.settings())
    await client.start()
    cluster.rules[MetadataRequest] = silent
    waiting = [asyncio.create_task(client.refresh()), asyncio.create_task(client.topic("t", 60))]
    await asyncio.sleep(0.1)
    await client.close()
    await client.close()
    for task in waiting:
        with pytest.raises(Closed):
            await task
    with pytest.raises(Closed):
        await client.refresh()
    with pytest.raises(Closed):
        await client.topic("t", 5)
    client.stale()
    await cluster.settle()
    assert cluster.node(1).sessions == []
