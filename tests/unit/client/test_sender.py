"""When a batch is sent, and with which others."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from producer_steps import ONE_RECORD_EACH

from scripted_broker import ScriptedCluster, scripted
from semel.records.batch import HEADER_BYTES
from semel.wire.spec.produce import ProduceRequest

# -- when


@scripted()
async def test_a_batch_that_is_not_full_lingers(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=40) as producer:
        await producer.send_and_wait("t", b"first")
        began_s = cluster.loop.time()
        first = await producer.send("t", b"a")
        await asyncio.sleep(0.02)
        second = await producer.send("t", b"b")
        await asyncio.gather(first, second)
        assert cluster.loop.time() - began_s == pytest.approx(0.040, abs=0.001)
    assert cluster.produced[-1].values == (b"a", b"b")


@scripted()
async def test_without_linger_given_a_batch_that_is_awaited_goes_at_once(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"first")
        began_s = cluster.loop.time()
        await producer.send_and_wait("t", b"a")
        assert cluster.loop.time() == pytest.approx(began_s, abs=0.0001)


@scripted()
async def test_without_linger_given_a_batch_that_nobody_awaits_waits_for_five_milliseconds(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"first")
        began_s = cluster.loop.time()
        await producer.send("t", b"a")
        await producer.send("t", b"b")
        asked = [await cluster.next(ProduceRequest), await cluster.next(ProduceRequest)]
        assert asked[1].at_s - began_s == pytest.approx(0.005, abs=0.0001)
        assert asked[1].values == [b"a", b"b"]


@scripted()
async def test_a_linger_that_is_given_holds_also_if_somebody_awaits(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    async with cluster.producer(linger_ms=5) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        began_s = cluster.loop.time()
        awaited = asyncio.create_task(producer.send_and_wait("t", b"a", partition=0))
        await asyncio.sleep(0.002)
        await producer.send("t", b"another turn of the sender", partition=1)
        await awaited
        assert cluster.loop.time() - began_s == pytest.approx(0.005, abs=0.0001)


@scripted()
async def test_a_full_batch_goes_at_once_and_the_begun_one_lingers(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=1000, batch_size=300) as producer:
        deliveries = [await producer.send("t", b"x" * 100) for _ in range(3)]
        await asyncio.gather(*deliveries[:2])
        assert cluster.loop.time() < 0.01
        assert not deliveries[2].done()
        await deliveries[2]
        assert cluster.loop.time() == pytest.approx(1, abs=0.01)
    assert [len(batch.values) for batch in cluster.produced] == [2, 1]


@scripted()
async def test_a_flush_waits_for_no_linger_and_only_for_what_is_there(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=10_000) as producer:
        delivery = await producer.send("t", b"a")
        await producer.flush()
        assert delivery.done()
        assert cluster.loop.time() < 0.01
        late = await producer.send("t", b"b")
        await asyncio.sleep(1)
        assert not late.done(), "after the flush batches linger again"


@scripted()
async def test_a_flush_ends_though_others_go_on_sending(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:

        async def send_on() -> None:
            while True:
                await producer.send("t", b"more")
                await asyncio.sleep(0.0001)

        cluster.world.wires.latency_ms = (0.3, 0.3)
        sending = asyncio.create_task(send_on())
        delivery = await producer.send("t", b"a")
        await producer.flush(timeout_s=5)
        assert delivery.done()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


@scripted()
async def test_nothing_lingers_while_somebody_waits_for_room(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(linger_ms=10_000, buffer_memory=1000) as producer:
        for _ in range(8):
            await producer.send("t", b"x" * 300)
            assert producer._accumulator.used_bytes <= 1000 + HEADER_BYTES
        assert cluster.loop.time() < 0.1


# -- what goes together


@scripted()
async def test_batches_for_one_node_share_a_request_but_only_one_of_each_partition(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1])
    async with cluster.producer(batch_size=1, linger_ms=50) as producer:
        for _ in range(2):
            for number in range(3):
                await producer.send("t", b"x", partition=number)
        await producer.flush()
    for asked in cluster.all(ProduceRequest):
        partitions = [batch.partition for batch in asked.sent]
        assert len(partitions) == len(set(partitions))
    assert max(len(asked.sent) for asked in cluster.all(ProduceRequest)) == 3


@scripted(nodes=2)
async def test_each_node_gets_what_it_leads(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 2, 1])
    async with cluster.producer() as producer:
        await asyncio.gather(*[producer.send_and_wait("t", b"x", partition=number) for number in range(3)])
    for asked in cluster.all(ProduceRequest):
        for batch in asked.sent:
            assert cluster.topics["t"].leaders[batch.partition] == asked.broker.node_id


@scripted()
async def test_no_more_requests_wait_on_a_connection_than_allowed(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ONE_RECORD_EACH, max_in_flight_requests_per_connection=3) as producer:
        await producer.send_and_wait("t", b"first")
        cluster.hold(ProduceRequest)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(5)]
        await cluster.settle()
        held = cluster.held(ProduceRequest)
        assert [asked.values for asked in held] == [[b"0"], [b"1"], [b"2"]]
        held[0].accept()
        await cluster.settle()
        assert [asked.values for asked in cluster.held(ProduceRequest)] == [[b"1"], [b"2"], [b"3"]]
        cluster.release(ProduceRequest)
        for asked in cluster.held(ProduceRequest):
            asked.accept()
        await asyncio.gather(*deliveries)
    assert cluster.logs("t") == [b"first", b"0", b"1", b"2", b"3", b"4"]


@scripted()
async def test_a_request_stays_within_its_size_and_an_oversized_batch_goes_alone(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1, 1])
    async with cluster.producer(linger_ms=50, max_request_size=1000, batch_size=5000) as producer:
        for number, size in enumerate([300, 300, 300, 800]):
            await producer.send("t", b"x" * size, partition=number)
        await producer.flush()
    sizes = [sorted(len(value or b"") for value in asked.values) for asked in cluster.all(ProduceRequest)]
    assert sorted(sizes) == [[300], [300, 300], [800]] or sorted(sizes) == [[300, 300], [300], [800]]


@scripted()
async def test_the_next_request_begins_with_another_partition(cluster: ScriptedCluster) -> None:
    """Two requests' worth for each of three partitions, and a size that lets only one into a request."""
    cluster.topic("t", [1, 1, 1])
    settings: dict[str, Any] = {"max_request_size": 700, "batch_size": 600, "max_in_flight_requests_per_connection": 1}
    async with cluster.producer(linger_ms=1000, **settings) as producer:
        for _ in range(4):
            for number in range(3):
                await producer.send("t", b"x" * 500, partition=number)
        await producer.flush()
    order = [asked.sent[0].partition for asked in cluster.all(ProduceRequest)]
    for start in range(0, 12, 3):
        assert sorted(order[start : start + 3]) == [0, 1, 2], order


@scripted()
async def test_no_partition_is_starved_however_often_the_sender_is_woken(cluster: ScriptedCluster) -> None:
    """What wakes it between two answers must not decide whose turn it is."""
    cluster.topic("t", [1, 1])
    settings: dict[str, Any] = {"max_request_size": 700, "batch_size": 600, "max_in_flight_requests_per_connection": 1}
    async with cluster.producer(linger_ms=1000, **settings) as producer:
        for number in (0, 1):
            for _ in range(7):
                await producer.send("t", b"x" * 500, partition=number)
        cluster.world.wires.latency_ms = (1.0, 1.0)
        for _ in range(6):
            await cluster.next(ProduceRequest)
            producer._sender.wake()
        await producer.flush()
    order = [asked.sent[0].partition for asked in cluster.all(ProduceRequest)]
    assert Counter(order[1:7]) == {0: 3, 1: 3}, order
