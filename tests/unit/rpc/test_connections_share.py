"""Connections beyond the share of this process: idle ones make room, and it is said once."""

from __future__ import annotations

import asyncio

import pytest
from fake_links import CLIENTS, Bench, FakeLink, body, framed, turn

from semel.sim.loop import run


def bench_of(most: int, **changes: int) -> Bench:
    bench = Bench(**changes)
    bench.server._host.network.most_connections = most  # type: ignore[misc]
    return bench


async def test_an_idle_connection_makes_room_for_a_new_one_and_those_that_wait_do_not() -> None:
    bench = bench_of(3)
    bench.dispatch.later("poll")
    polls, silent, other = (bench.connect(f"10.0.0.{number}:1") for number in range(3))
    polls.arrive(framed(body("poll")))
    new = bench.connect("10.0.0.9:1")
    assert [link.is_closed for link in (polls, silent, other, new)] == [False, True, False, False]
    new.arrive(framed(body("served")))
    assert new.answers() == [body("served")]


async def test_if_none_is_idle_the_new_one_is_refused() -> None:
    bench = bench_of(2)
    bench.dispatch.later("poll")
    links = [bench.connect(f"10.0.0.{number}:1") for number in range(2)]
    for link in links:
        link.arrive(framed(body("poll")))
    assert bench.connect().is_closed
    assert not any(link.is_closed for link in links)


def test_the_one_that_has_been_idle_for_longest_goes_first() -> None:
    async def scenario() -> None:
        bench = bench_of(3)
        await bench.server.listen(CLIENTS)
        links = [bench.connect(f"10.0.0.{number}:1") for number in range(3)]
        for number, link in enumerate([links[2], links[0], links[1]]):
            link.arrive(framed(body(f"asks {number}")))
            await asyncio.sleep(61)
        await asyncio.sleep(61)
        closed = []
        for number in range(3):
            bench.connect(f"10.0.1.{number}:1").arrive(framed(body("new")))
            await turn()
            closed += [link for link in links if link.is_closed and link not in closed]
        assert closed == [links[2], links[0], links[1]]
        bench.server.close()

    run(scenario())


def test_thousands_that_come_are_told_in_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = bench_of(10, connections=100_000, connections_per_host=100_000)
        for number in range(3000):
            bench.connect(f"10.0.0.1:{number}")
        assert len(caplog.records) == 2, "some were closed, and then new ones refused"
        await asyncio.sleep(61)
        assert len(caplog.records) == 4
        assert "9 like it" in caplog.text
        assert "2979 like it" in caplog.text
        assert "ulimit -n" in caplog.text

    run(scenario())


async def test_connections_that_wait_at_the_gate_have_a_limit_too() -> None:
    bench = bench_of(2)
    bench.server._closed_gates |= set(bench.server.listeners)
    links = [FakeLink() for _ in range(3)]
    for link in links:
        bench.server._accept(CLIENTS.name, link)
    assert [link.is_closed for link in links] == [False, False, True]
