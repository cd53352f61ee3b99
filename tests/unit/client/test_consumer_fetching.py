"""Fetching from brokers that follow a script: how much is asked for, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consumer_world import Shelf, at, consumer_of, values_of

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchResponse


def offsets_asked(asked: Asked) -> dict[int, int]:
    return {part.partition: part.fetch_offset for topic in asked.body.topics for part in topic.partitions}


@scripted()
async def test_the_next_answer_is_asked_for_when_the_last_is_begun_and_no_earlier(cluster: ScriptedCluster) -> None:
    """A program that does not read holds one answer per partition; one that does, at most two."""
    cluster.topic("t")
    shelf = Shelf(cluster)
    for number in range(6):
        shelf.put("t-0", b"%d" % number * 50)
    async with consumer_of(cluster, "t", max_partition_fetch_bytes=1) as consumer:
        first = await consumer.getmany(timeout_ms=1000, max_records=1)
        assert len(values_of(first)) == 1
        await asyncio.sleep(10)
        held = [offsets_asked(asked)[0] for asked in shelf.fetches() if offsets_asked(asked)]
        assert held == [0, 1], "the second waits to be read"
        await consumer.getmany(timeout_ms=1000, max_records=1)
        await asyncio.sleep(10)
        assert [offsets_asked(asked)[0] for asked in shelf.fetches() if offsets_asked(asked)] == [0, 1, 2]


@scripted()
async def test_one_fetch_is_in_flight_per_node_and_it_waits_at_the_broker(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1])
    shelf = Shelf(cluster)
    async with consumer_of(cluster, "t", fetch_max_wait_ms=500) as consumer:
        assert await consumer.getmany(timeout_ms=10_000) == {}
        assert 19 <= len(shelf.fetches()) <= 22, "one each half second, not one per partition"
        assert all(asked.body.max_wait_ms == 500 for asked in shelf.fetches())


@scripted()
async def test_a_fetch_that_leaves_a_full_partition_out_does_not_park(cluster: ScriptedCluster) -> None:
    """Or the full one would starve behind it when it has been read."""
    cluster.topic("t", [1, 1])
    shelf = Shelf(cluster)
    loop = asyncio.get_running_loop()
    for number in range(20):
        shelf.put("t-0", b"%d" % number)
    async with consumer_of(cluster, "t", fetch_max_wait_ms=5000, max_partition_fetch_bytes=1) as consumer:
        began_s = loop.time()
        got = []
        while len(got) < 20:
            got += values_of(await consumer.getmany(timeout_ms=20_000, max_records=1))
            await asyncio.sleep(0.001)
        assert got == [b"%d" % number for number in range(20)]
        assert loop.time() - began_s < 1


@scripted()
async def test_a_poll_for_one_partition_waits_at_the_broker_though_another_is_full(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1])
    shelf = Shelf(cluster)
    for number in range(3):
        shelf.put("t-0", b"%d" % number)
    async with consumer_of(cluster, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([at("t-0"), at("t-1")])
        await consumer.getmany(timeout_ms=100, max_records=1)
        before = len(shelf.fetches())
        assert await consumer.getmany(at("t-1"), timeout_ms=10_000) == {}
        assert len(shelf.fetches()) - before < 25
        asyncio.get_running_loop().call_later(0.3, shelf.put, "t-1", b"there")
        began_s = asyncio.get_running_loop().time()
        assert values_of(await consumer.getmany(at("t-1"), timeout_ms=10_000)) == [b"there"]
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(0.3, abs=0.01)


@scripted()
async def test_a_partition_that_gave_records_is_asked_for_after_the_others(cluster: ScriptedCluster) -> None:
    cluster.topic("t", [1, 1, 1])
    shelf = Shelf(cluster)
    async with consumer_of(cluster, fetch_max_wait_ms=100) as consumer:
        consumer.assign([at("t-0"), at("t-1"), at("t-2")])
        await consumer.getmany(timeout_ms=1000)
        assert list(offsets_asked(shelf.fetches()[0])) == [0, 1, 2]
        shelf.put("t-0", b"v")
        await consumer.getmany(timeout_ms=1000)
        await consumer.getmany(timeout_ms=1000)
        assert list(offsets_asked(shelf.fetches()[-1])) == [1, 2, 0]


@scripted()
async def test_the_settings_of_a_fetch_are_what_the_program_said(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    settings = {
        "fetch_min_bytes": 17,
        "fetch_max_bytes": 1234,
        "fetch_max_wait_ms": 321,
        "max_partition_fetch_bytes": 99,
        "isolation_level": "read_committed",
        "client_rack": "here",
    }
    async with consumer_of(cluster, "t", **settings) as consumer:
        await consumer.getmany(timeout_ms=50)
        body = shelf.fetches()[0].body
        assert (body.min_bytes, body.max_bytes, body.max_wait_ms) == (17, 1234, 321)
        assert (body.isolation_level, body.rack_id) == (1, "here")
        assert body.topics[0].partitions[0].partition_max_bytes == 99
        assert shelf.fetches()[0].version == 18
        assert body.topics[0].topic_id == cluster.topics["t"].topic_id


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 17])
@scripted()
async def test_old_brokers_are_read_too(cluster: ScriptedCluster, version: int) -> None:
    cluster.limits = {1: (4, version)}
    cluster.topic("t")
    shelf = Shelf(cluster)
    shelf.put("t-0", b"a", b"b")
    async with consumer_of(cluster, "t") as consumer:
        assert values_of(await consumer.getmany(timeout_ms=1000)) == [b"a", b"b"]
        shelf.put("t-0", b"c")
        assert (await consumer.getone()).value == b"c"
        assert {asked.version for asked in shelf.fetches()} == {version}


@scripted()
async def test_a_lost_session_is_begun_again_without_losing_anything(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    plain = cluster.rules[FetchRequest]
    errors = [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    epochs: list[int] = []

    def fetch(asked: Asked) -> Any:
        epochs.append(asked.body.session_epoch)
        if asked.body.session_epoch > 0 and errors:
            return FetchResponse(error_code=errors.pop())
        answer = plain(asked)
        if isinstance(answer, FetchResponse):
            answer.session_id = 5
        return answer

    cluster.rules[FetchRequest] = fetch
    async with consumer_of(cluster, "t", max_partition_fetch_bytes=1) as consumer:
        for number in range(6):
            shelf.put("t-0", b"%d" % number)
        got = [(await consumer.getone()).value for _ in range(6)]
        assert got == [b"%d" % number for number in range(6)]
        assert epochs[:5] == [0, 1, 0, 1, 0]


@scripted()
async def test_a_throttled_connection_is_left_in_peace(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    shelf = Shelf(cluster)
    plain = cluster.rules[FetchRequest]
    times: list[float] = []

    def fetch(asked: Asked) -> Any:
        times.append(asked.at_s)
        answer = plain(asked)
        if isinstance(answer, FetchResponse) and len(times) == 1:
            answer.throttle_time_ms = 3000
        return answer

    cluster.rules[FetchRequest] = fetch
    shelf.put("t-0", b"a")
    async with consumer_of(cluster, "t") as consumer:
        await consumer.getone()
        assert await consumer.getmany(timeout_ms=5000) == {}
        assert times[1] - times[0] == pytest.approx(3.0, abs=0.1)
