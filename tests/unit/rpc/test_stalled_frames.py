"""Frames that do not come on hold no memory that others wait for; those that do are left alone."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest
from fake_links import MEGABYTE, Bench, FakeLink, body, framed, turn

from semel.sim.loop import run


def claim(bench: Bench, length: int, sent: int, number: int = 0) -> FakeLink:
    link = bench.connect(f"10.0.1.{number}:1")
    link.arrive(pack(">i", length) + b"x" * sent, 256 << 10)
    return link


async def test_claims_that_send_a_little_take_a_little() -> None:
    bench = Bench(connections=2000, connections_per_host=2000)
    for number in range(1000):
        claim(bench, 100 * MEGABYTE, 5000, number)
    assert 1000 * 5000 <= bench.server.budget.used_bytes <= 1000 * 4 * 5000
    buffers = sum(len(connection.get_buffer()) for connection in bench.server.connections)
    assert buffers <= bench.server.budget.used_bytes, "all of it is counted"


async def test_peers_that_claim_much_and_stop_take_what_they_sent_and_others_are_served_at_once() -> None:
    bench = Bench()
    for number in range(4):
        claim(bench, 100 * MEGABYTE, 1_200_000, number)
    other = bench.connect()
    other.arrive(framed(body("other", 90 * MEGABYTE)), MEGABYTE)
    assert [answer[:5] for answer in other.answers()] == [b"other"]


def test_frames_that_stop_are_given_up_when_somebody_waits_and_not_before() -> None:
    async def scenario() -> None:
        bench = Bench(requests_in_memory_bytes=10 * MEGABYTE, frame_bytes=10 * MEGABYTE)
        stalled = [claim(bench, 5 * MEGABYTE, 4_900_000, number) for number in range(2)]
        await asyncio.sleep(100)
        assert not any(link.is_closed for link in stalled), "nobody wants the memory"
        other = bench.connect()
        other.arrive(framed(body("other", 9 * MEGABYTE)), MEGABYTE)
        assert not other.answers()
        await asyncio.sleep(3.5)
        assert len(other.answers()) == 1
        assert sum(link.is_closed for link in stalled) >= 1
        assert not other.is_closed
        for link in stalled:
            link.end(None)
        await turn()
        assert bench.server.budget.used_bytes == 0
        bench.server.close()

    run(scenario())


def test_no_more_are_given_up_than_have_to_and_those_first_that_hold_most() -> None:
    async def scenario() -> None:
        bench = Bench(requests_in_memory_bytes=10 * MEGABYTE, frame_bytes=10 * MEGABYTE)
        small = [claim(bench, 2 * MEGABYTE, 1_200_000, number) for number in range(2)]
        large = claim(bench, 6 * MEGABYTE, 5_900_000, 9)
        other = bench.connect()
        other.arrive(framed(body("other", 3 * MEGABYTE)), MEGABYTE)
        await asyncio.sleep(5)
        assert len(other.answers()) == 1
        assert large.is_closed
        assert not any(link.is_closed for link in small)
        bench.server.close()

    run(scenario())


@pytest.mark.parametrize(("bytes_per_second", "is_kept"), [(400_000, True), (10_000, False)])
def test_a_frame_that_comes_on_is_kept_and_one_that_trickles_is_not(bytes_per_second: int, is_kept: bool) -> None:
    async def scenario() -> None:
        bench = Bench(requests_in_memory_bytes=10 * MEGABYTE, frame_bytes=10 * MEGABYTE)
        slow = claim(bench, 10 * MEGABYTE, 8_000_000)
        other = bench.connect()
        other.arrive(framed(body("other", 9 * MEGABYTE)), MEGABYTE)
        for _ in range(20):
            await asyncio.sleep(0.2)
            slow.arrive(b"x" * (bytes_per_second // 5))
        assert slow.is_closed is not is_kept
        assert bool(slow.answers()) is False
        if is_kept:
            slow.arrive(b"x" * (10 * MEGABYTE - 8_000_000 - 4 * bytes_per_second))
            assert len(slow.answers()) == 1
        await turn()
        assert len(other.answers()) == 1
        bench.server.close()

    run(scenario())


def test_a_peer_that_waits_for_us_is_not_given_up() -> None:
    async def scenario() -> None:
        bench = Bench(requests_in_memory_bytes=10 * MEGABYTE, frame_bytes=10 * MEGABYTE)
        flushes = bench.dispatch.later("hold", holds_request=True)
        holder = bench.connect()
        holder.arrive(framed(body("hold", 9 * MEGABYTE)), MEGABYTE)
        links = [claim(bench, 8 * MEGABYTE, 900_000, number) for number in range(3)]
        assert all(link.unread_bytes for link in links[1:])
        await asyncio.sleep(60)
        assert not any(link.is_closed for link in [holder, *links[1:]])
        flushes[0].set_result([framed(b"done")])
        await turn()
        assert not any(link.unread_bytes for link in links)
        bench.server.close()

    run(scenario())


def test_a_peer_that_stops_in_a_frame_and_does_not_read_is_given_up() -> None:
    async def scenario() -> None:
        bench = Bench(requests_in_memory_bytes=10 * MEGABYTE, frame_bytes=10 * MEGABYTE)
        commits = bench.dispatch.later("commit", may_go_on=True)
        stuck = bench.connect()
        stuck.is_stuck = True
        stuck.arrive(framed(body("commit")))
        stuck.arrive(pack(">i", 10 * MEGABYTE) + b"x" * (9 * MEGABYTE), MEGABYTE)
        commits[0].set_result([framed(bytes(2 * MEGABYTE))])
        await turn()
        assert stuck.is_paused
        other = bench.connect()
        other.arrive(framed(body("other", 9 * MEGABYTE)), MEGABYTE)
        await asyncio.sleep(4)
        assert stuck.is_ending
        assert len(other.answers()) == 1
        bench.server.close()

    run(scenario())


def test_what_comes_behind_a_request_that_waits_is_counted_and_much_of_it_is_given_up() -> None:
    async def scenario() -> None:
        bench = Bench(requests_in_memory_bytes=MEGABYTE, frame_bytes=MEGABYTE)
        bench.dispatch.later("poll")
        pollers = [bench.connect(f"10.0.2.{number}:1") for number in range(10)]
        for link in pollers:
            link.arrive(framed(body("poll")) + pack(">i", MEGABYTE) + b"x" * 200_000)
        assert bench.server.budget.used_bytes >= 10 * 200_000
        modest = bench.connect()
        modest.arrive(framed(body("poll")) + framed(body("next")))
        other = bench.connect()
        other.arrive(framed(body("other", 900_000)), 100_000)
        await asyncio.sleep(5)
        assert len(other.answers()) == 1
        assert any(link.is_closed for link in pollers)
        assert not modest.is_closed
        bench.server.close()

    run(scenario())


async def test_what_has_come_is_never_more_than_an_eighth_above_the_limit() -> None:
    bench = Bench(requests_in_memory_bytes=64 * MEGABYTE, connections=5000, connections_per_host=5000)
    links = [claim(bench, MEGABYTE, 200_000, number) for number in range(1000)]
    await turn()
    assert bench.server.budget.used_bytes <= (64 + 8) * MEGABYTE
    refused = [link for link in links if link.is_closed]
    assert refused
    assert not any(link.is_closed for link in links[:64])
    for link in links:
        link.end(None)
    await turn()
    assert bench.server.budget.used_bytes == 0
    assert not bench.server.holding


async def test_a_small_frame_in_pieces_does_not_wait_behind_large_ones() -> None:
    bench = Bench()
    holding = bench.dispatch.later("hold", holds_request=True)
    for number in range(3):
        link = bench.connect()
        link.arrive(framed(body(f"hold {number}", 100 * MEGABYTE)), MEGABYTE)
    assert len(holding) == 2
    small = bench.connect()
    small.arrive(framed(body("small", 600_000)), 50_000)
    assert len(small.answers()) == 1
