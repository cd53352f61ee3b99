"""Finding a cluster and knowing it: bootstrap, refreshes, nodes that come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from known_cluster import known

from scripted_answers import DEFAULTS
from scripted_broker import Asked, ScriptedCluster, scripted, silent
from semel.client.cluster import Cluster
from semel.client.errors import (
    BadSetting,
    Disconnected,
    UnsupportedByBroker,
)
from semel.client.metadata import Node
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.metadata import MetadataRequest, MetadataResponse

# -- bootstrap


@scripted(nodes=3)
async def test_the_cluster_is_found_through_any_of_its_addresses(cluster: ScriptedCluster) -> None:
    cluster.node(1).stop()
    cluster.node(3).stop()
    async with known(cluster) as client:
        assert sorted(client.view.nodes) == [1, 2, 3]
        assert client.view.cluster_id == "scripted"
        assert client.view.nodes[2] == Node(2, "broker2", 9092)
    assert cluster.loop.time() < 2


@scripted(nodes=4)
async def test_addresses_are_not_always_tried_in_the_same_order(cluster: ScriptedCluster) -> None:
    firsts = set()
    for number in range(12):
        cluster.asked.clear()
        client = Cluster(cluster.host(f"client{number}"), cluster.settings())
        await client.start()
        firsts.add(cluster.all(MetadataRequest)[0].broker.node_id)
        await client.close()
    assert len(firsts) > 2


@scripted()
async def test_a_cluster_that_is_not_there_is_told_with_its_address_and_advice(cluster: ScriptedCluster) -> None:
    cluster.node(1).stop()
    with pytest.raises(
        Disconnected, match=r"no broker answered at broker1:9092 within 4 s: .*nobody listens"
    ) as caught:
        async with known(cluster, bootstrap_timeout_ms=4_000):
            pass
    assert "is it running, and is the address right?" in str(caught.value)
    assert 2.5 < cluster.loop.time() <= 4


@scripted()
async def test_a_cluster_that_is_silent_is_told_within_the_time(cluster: ScriptedCluster) -> None:
    cluster.rules[ApiVersionsRequest] = silent
    with pytest.raises(Disconnected, match=r"within 4 s: \S.*; is it running"):
        async with known(cluster, bootstrap_timeout_ms=4_000):
            pass
    assert cluster.loop.time() == pytest.approx(4, abs=0.01)


@scripted(nodes=2)
async def test_a_silent_address_does_not_keep_us_from_a_good_one(cluster: ScriptedCluster) -> None:
    cluster.node(1).rules[ApiVersionsRequest] = silent
    for number in range(6):
        client = Cluster(cluster.host(f"client{number}"), cluster.settings(bootstrap_timeout_ms=4_000))
        await client.start()
        await client.close()


@scripted()
async def test_a_cluster_that_comes_late_is_found(cluster: ScriptedCluster) -> None:
    cluster.node(1).stop()
    client = Cluster(cluster.host(), cluster.settings())
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(5)
    await cluster.node(1).start()
    await starting
    assert cluster.loop.time() < 6.5
    await client.close()


@scripted()
async def test_what_is_hopeless_is_told_at_once(cluster: ScriptedCluster) -> None:
    cluster.limits[3] = (90, 99)
    with pytest.raises(UnsupportedByBroker, match="Metadata"):
        async with known(cluster):
            pass
    assert cluster.loop.time() < 1


@scripted()
async def test_a_broker_that_knows_no_brokers_yet_is_asked_again(cluster: ScriptedCluster) -> None:
    left = 3

    def empty_at_first(asked: Asked) -> Any:
        nonlocal left
        left -= 1
        return MetadataResponse() if left >= 0 else DEFAULTS[MetadataRequest](asked)

    cluster.rules[MetadataRequest] = empty_at_first
    async with known(cluster) as client:
        assert list(client.view.nodes) == [1]


@scripted()
async def test_no_address_at_all_is_refused(cluster: ScriptedCluster) -> None:
    with pytest.raises(BadSetting, match="bootstrap_servers"):
        async with known(cluster, bootstrap_servers=[]):
            pass


# -- refreshes


@scripted()
async def test_refreshes_that_are_asked_for_together_are_not_one_each(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        before = len(cluster.all(MetadataRequest))
        await asyncio.gather(*[client.refresh() for _ in range(50)])
        assert len(cluster.all(MetadataRequest)) <= before + 2


@scripted()
async def test_who_asks_while_a_refresh_runs_gets_one_that_began_later(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        cluster.hold(MetadataRequest)
        cluster.skip(MetadataRequest)
        first = asyncio.create_task(client.refresh())
        running = await cluster.next(MetadataRequest)
        later = [asyncio.create_task(client.refresh()) for _ in range(3)]
        await asyncio.sleep(0.1)
        answer = DEFAULTS[MetadataRequest](running)
        assert answer is not None
        running.answer(answer)
        await first
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in later)
        cluster.release(MetadataRequest)
        (held,) = cluster.held(MetadataRequest)
        held.answer(answer)
        await asyncio.gather(*later)


@scripted()
async def test_what_is_stale_is_refreshed_once_and_not_more_often_than_allowed(cluster: ScriptedCluster) -> None:
    async with known(cluster, retry_backoff_ms=200) as client:
        await asyncio.sleep(1)
        before = len(cluster.all(MetadataRequest))
        until_s = cluster.loop.time() + 2
        while cluster.loop.time() < until_s:
            client.stale()
            client.stale()
            await asyncio.sleep(0.001)
        asked = cluster.all(MetadataRequest)[before:]
        assert asked[0].at_s == pytest.approx(1, abs=0.01), "the first one at once"
        assert 9 <= len(asked) <= 11


@scripted()
async def test_knowledge_has_an_age(cluster: ScriptedCluster) -> None:
    async with known(cluster, metadata_max_age_ms=60_000):
        before = len(cluster.all(MetadataRequest))
        await asyncio.sleep(301)
        assert len(cluster.all(MetadataRequest)) == before + 5


@scripted()
async def test_failed_refreshes_are_tried_again_after_longer_and_longer_pauses(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        cluster.node(1).stop()
        await asyncio.sleep(1)
        tries: list[float] = []
        original = client._connector.open

        async def counted(*arguments: Any) -> Any:
            tries.append(cluster.loop.time())
            return await original(*arguments)

        client._connector.open = counted  # type: ignore[method-assign]
        client.stale()
        await asyncio.sleep(30)
        assert 20 <= len(tries) <= 45
        await cluster.node(1).start()
        await asyncio.sleep(3)
        await client.refresh()


@scripted()
async def test_a_refresh_that_fails_tells_those_who_wait(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        cluster.node(1).stop()
        with pytest.raises(Disconnected):
            await client.refresh()


@scripted()
async def test_one_who_gives_up_waiting_does_not_end_the_refresh_of_the_others(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        cluster.hold(MetadataRequest)
        cluster.skip(MetadataRequest)
        first = asyncio.create_task(client.refresh())
        running = await cluster.next(MetadataRequest)
        impatient, patient = asyncio.create_task(client.refresh()), asyncio.create_task(client.refresh())
        await cluster.settle()
        answer = DEFAULTS[MetadataRequest](running)
        assert answer is not None
        running.answer(answer)
        shared = await cluster.next(MetadataRequest)
        await first
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        shared.answer(answer)
        await patient
        assert len(cluster.held(MetadataRequest)) == 0
        cluster.release(MetadataRequest)


@scripted()
async def test_what_is_found_stale_during_a_refresh_is_refreshed_again(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        cluster.hold(MetadataRequest)
        cluster.skip(MetadataRequest)
        refreshing = asyncio.create_task(client.refresh())
        running = await cluster.next(MetadataRequest)
        client.stale()
        await asyncio.sleep(0.5)
        answer = DEFAULTS[MetadataRequest](running)
        assert answer is not None
        cluster.release(MetadataRequest)
        running.answer(answer)
        await refreshing
        again = await cluster.next(MetadataRequest)
        assert again.at_s - running.at_s == pytest.approx(0.6, abs=0.02)


@scripted()
async def test_news_are_told_and_no_news_are_not(cluster: ScriptedCluster) -> None:
    topic = cluster.topic("t")
    async with known(cluster) as client:
        await client.topic("t", 5)
        told: list[float] = []
        client.changed.append(lambda: told.append(cluster.loop.time()))
        await client.refresh()
        assert told == []
        topic.move(0, 1)
        await client.refresh()
        assert len(told) == 1


# -- a cluster that changes


@scripted(nodes=2)
async def test_a_node_that_has_moved_is_found_at_its_new_place(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        await client.call(2, InitProducerIdRequest(), InitProducerIdResponse)
        cluster.node(2).stop()
        cluster.node(2).port = 9999
        await cluster.node(2).start()
        await client.refresh()
        answer = await client.call(2, InitProducerIdRequest(), InitProducerIdResponse)
        assert answer.error_code == 0


@scripted(nodes=3)
async def test_when_all_known_nodes_are_gone_the_addresses_are_asked_again(cluster: ScriptedCluster) -> None:
    door = cluster.brokers.pop(3)  # an address that is none of the cluster's nodes
    async with known(cluster, bootstrap_servers=door.address) as client:
        assert sorted(client.view.nodes) == [1, 2]
        for node_id in (1, 2):
            cluster.node(node_id).stop()
            del cluster.brokers[node_id]
        for node_id in (11, 12):
            await cluster.add_node(node_id)
        await client.refresh()
        assert sorted(client.view.nodes) == [11, 12]


@scripted(nodes=3)
async def test_a_broker_may_ask_us_to_begin_again(cluster: ScriptedCluster) -> None:
    door = cluster.brokers.pop(3)
    async with known(cluster, bootstrap_servers=door.address) as client:
        for node_id in (1, 2):
            cluster.node(node_id).rules[MetadataRequest] = lambda asked: MetadataResponse(
                error_code=ErrorCode.REBOOTSTRAP_REQUIRED
            )
        for _ in range(3):
            await client.refresh()
        assert sorted(client.view.nodes) == [1, 2]
