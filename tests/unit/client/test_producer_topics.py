"""Topics that are not there or not allowed, memory that is full, producers that are closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scripted_broker import ScriptedCluster, scripted
from semel.client.errors import (
    BadRecord,
    BadSetting,
    BrokerRefused,
    BufferFull,
    Closed,
    IllegalState,
    NotAuthorised,
    SemelError,
    UnknownTopic,
)
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.produce import ProduceRequest

# -- topics


@scripted()
async def test_a_topic_that_does_not_appear_is_refused_after_max_block(cluster: ScriptedCluster) -> None:
    async with cluster.producer(max_block_ms=5_000) as producer:
        with pytest.raises(UnknownTopic, match=r"'nowhere' was not found within 5 s.*UNKNOWN_TOPIC"):
            await producer.send("nowhere", b"x")
        assert 4 < cluster.loop.time() <= 5
        await asyncio.sleep(1)
        asked = len(cluster.all(MetadataRequest))
        await asyncio.sleep(60)
        assert len(cluster.all(MetadataRequest)) == asked, "nobody asks for it any more"


@scripted()
async def test_a_topic_that_appears_in_time_is_used(cluster: ScriptedCluster) -> None:
    async with cluster.producer() as producer:
        sending = asyncio.create_task(producer.send_and_wait("t", b"x"))
        await asyncio.sleep(5)
        cluster.topic("t")
        assert (await sending).offset == 0
        assert cluster.loop.time() < 6.5


@scripted()
async def test_topics_may_be_created_by_being_asked_for(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"x")
    asked = [asked for asked in cluster.all(MetadataRequest) if asked.body.topics]
    assert asked
    assert all(request.body.allow_auto_topic_creation for request in asked)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, BrokerRefused),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NotAuthorised),
    ],
)
@scripted()
async def test_a_topic_that_is_refused_for_good_is_refused_at_once(
    cluster: ScriptedCluster, code: int, kind: type[SemelError]
) -> None:
    cluster.topic("bad").error_code = code
    cluster.topic("good")
    async with cluster.producer() as producer:
        with pytest.raises(kind, match="'bad'"):
            await producer.send("bad", b"x")
        assert cluster.loop.time() < 1
        await producer.send_and_wait("good", b"x")
        await asyncio.sleep(1)
        asked = len(cluster.all(MetadataRequest))
        await asyncio.sleep(60)
        assert len(cluster.all(MetadataRequest)) == asked


@pytest.mark.parametrize("name", ["", None, 5, b"bytes"])
@scripted()
async def test_a_topic_is_named_by_a_text(cluster: ScriptedCluster, name: Any) -> None:
    async with cluster.producer() as producer:
        with pytest.raises(BadRecord, match="a topic is named by a text"):
            await producer.send(name, b"x")


@scripted()
async def test_a_name_that_no_request_can_carry_does_not_spoil_the_others(cluster: ScriptedCluster) -> None:
    cluster.topic("good")
    async with cluster.producer() as producer:
        with pytest.raises(SemelError):
            await producer.send("\ud800", b"x")
        assert cluster.loop.time() < 1
        await producer.send_and_wait("good", b"x")


# -- memory


@scripted()
async def test_send_waits_for_room_and_gives_up_after_max_block(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(buffer_memory=1000, max_block_ms=4000, linger_ms=0, batch_size=1) as producer:
        cluster.hold(ProduceRequest)
        first = await producer.send("t", b"x" * 700)
        with pytest.raises(BufferFull):
            await producer.send("t", b"x" * 700)
        assert cluster.loop.time() == pytest.approx(4, abs=0.01)
        waiting = asyncio.create_task(producer.send("t", b"y" * 700))
        await asyncio.sleep(1)
        (await cluster.next(ProduceRequest)).accept()
        await first
        second = await waiting
        (await cluster.next(ProduceRequest)).accept()
        assert (await second).offset == 1
        assert producer._accumulator.used_bytes == 0


@scripted()
async def test_a_send_that_waits_when_the_producer_is_closed_is_told_so(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    producer = cluster.producer(buffer_memory=1000, linger_ms=0, batch_size=1)
    await producer.start()
    cluster.hold(ProduceRequest)
    await producer.send("t", b"x" * 700)
    waiting = asyncio.create_task(producer.send("t", b"y" * 700))
    await asyncio.sleep(1)
    with pytest.raises(Closed, match="before the record was delivered"):
        await producer.close(timeout_s=2)
    with pytest.raises(Closed):
        await waiting


@scripted()
async def test_a_send_that_waits_when_its_transaction_fails_is_told_so_and_gives_its_room_back(
    cluster: ScriptedCluster,
) -> None:
    cluster.topic("t")
    settings: dict[str, Any] = {"transactional_id": "id", "buffer_memory": 1000, "linger_ms": 0, "batch_size": 1}
    async with cluster.producer(**settings) as producer:
        await producer.begin()
        cluster.hold(ProduceRequest)
        await producer.send("t", b"x" * 700)
        waiting = asyncio.create_task(producer.send("t", b"y" * 700))
        await asyncio.sleep(1)
        (await cluster.next(ProduceRequest)).refuse(ErrorCode.INVALID_RECORD)
        with pytest.raises(BadRecord):
            await waiting
        assert producer._accumulator.used_bytes == 0
        cluster.release(ProduceRequest)
        await producer.abort()


# -- life


@scripted()
async def test_a_producer_that_was_not_started_says_so(cluster: ScriptedCluster) -> None:
    producer = cluster.producer()
    for call in (producer.send("t", b"x"), producer.flush(), producer.partitions_for("t")):
        with pytest.raises(IllegalState, match="not started"):
            await call
    await producer.close()
    with pytest.raises(Closed):
        await producer.start()


@scripted()
async def test_a_closed_producer_refuses_everything(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    for settings in ({}, {"transactional_id": "id"}):
        producer = cluster.producer(**settings)
        await producer.start()
        if settings:
            await producer.begin()
        await producer.send_and_wait("t", b"x")
        await producer.close()
        await producer.close()
        for call in (producer.send("t", b"x"), producer.flush(), producer.partitions_for("t"), producer.start()):
            with pytest.raises(Closed):
                await call


@scripted()
async def test_while_it_closes_a_producer_takes_nothing_more(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [-1])
    producer = cluster.producer(linger_ms=1000)
    await producer.start()
    taken = await producer.send("t", b"1")
    closing = asyncio.create_task(producer.close(timeout_s=3))
    await asyncio.sleep(1)
    with pytest.raises(Closed):
        await producer.send("t", b"2")
    with pytest.raises(Closed, match="before the record was delivered"):
        await closing
    assert taken._batch.count == 1


@scripted()
async def test_bad_servers_are_refused_at_the_start(cluster: ScriptedCluster) -> None:
    for servers in ("nowhere", "host:", ":9092", "host:0", "host:99999", "host:port", "[::1]"):
        with pytest.raises(BadSetting, match="bootstrap_servers"):
            await cluster.producer(bootstrap_servers=servers).start()
