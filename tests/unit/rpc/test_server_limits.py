"""Accepting, counting and closing connections."""

from __future__ import annotations

import asyncio

import pytest
from fake_links import CLIENTS, Bench, FakeLink, body, framed, turn

from semel.sim.loop import run


async def test_connections_are_limited_in_all() -> None:
    bench = Bench(connections=2)
    links = [bench.connect(f"10.0.0.{number}:1") for number in range(3)]
    assert [link.is_closed for link in links] == [False, False, True]
    links[0].end(None)
    await turn()
    assert not bench.connect("10.0.0.9:1").is_closed


async def test_connections_are_limited_per_address() -> None:
    bench = Bench(connections_per_host=2)
    links = [bench.connect(f"10.0.0.1:{number}") for number in range(3)]
    other = bench.connect("10.0.0.2:1")
    assert [link.is_closed for link in [*links, other]] == [False, False, True, False]
    links[1].end(None)
    await turn()
    assert not bench.connect("10.0.0.1:7").is_closed
    assert bench.connect("10.0.0.1:8").is_closed


async def test_refused_connections_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(connections=0)
    for number in range(1000):
        bench.connect(f"10.0.0.1:{number}")
    assert 1 <= len(caplog.records) <= 10
    assert "max.connections" in caplog.text


async def test_addresses_of_gone_connections_are_forgotten() -> None:
    bench = Bench()
    for number in range(100):
        bench.connect(f"10.0.0.{number}:1").end(None)
    await turn()
    assert not bench.server._per_host
    assert not bench.server.connections


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def scenario() -> None:
        bench = Bench(idle_ms=1000, requests_in_memory_bytes=500)
        await bench.server.listen(CLIENTS)
        waiting = bench.dispatch.later("wait", holds_request=True)
        idle, polls, starved, talks = (bench.connect(f"10.0.0.1:{number}") for number in range(4))
        polls.arrive(framed(body("wait", 400)), 100)
        starved.arrive(framed(body("waits for memory", 400))[:200], 100)
        for _ in range(6):
            await asyncio.sleep(0.5)
            talks.arrive(framed(body("still here")))
        assert idle.is_closed
        assert not polls.is_closed, "the peer waits for us"
        assert not starved.is_closed, "the peer waits for us"
        assert not talks.is_closed
        waiting[0].set_result([framed(b"done")])
        await asyncio.sleep(3)
        assert polls.is_closed
        bench.server.close()

    run(scenario())


def test_a_peer_that_neither_reads_nor_writes_is_idle() -> None:
    async def scenario() -> None:
        bench = Bench(idle_ms=1000)
        await bench.server.listen(CLIENTS)
        link = bench.connect()
        link.is_stuck = True
        for _ in range(20):
            link.arrive(framed(body("x", 100_000)))
        await asyncio.sleep(3)
        assert link.is_ending
        bench.server.close()

    run(scenario())


def test_idle_connections_stay_when_there_is_no_limit() -> None:
    async def scenario() -> None:
        bench = Bench(idle_ms=-1)
        await bench.server.listen(CLIENTS)
        link = bench.connect()
        await asyncio.sleep(100_000)
        assert not link.is_closed

    run(scenario())


async def test_connections_before_the_gate_opens_wait_and_are_served_then() -> None:
    bench = Bench()
    bench.server._closed_gates |= set(bench.server.listeners)
    link = FakeLink()
    bench.server._accept(CLIENTS.name, link)
    assert not bench.server.connections
    bench.server.open_gate()
    link.arrive(framed(body("early")))
    assert link.answers() == [body("early")]


async def test_a_server_that_closes_ends_connections_that_still_wait_at_the_gate() -> None:
    bench = Bench()
    bench.server._closed_gates |= set(bench.server.listeners)
    link = FakeLink()
    bench.server._accept(CLIENTS.name, link)
    bench.server.close()
    assert link.is_closed
