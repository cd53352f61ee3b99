"""A quicker dispatch for requests like the last one: whole frames go to it first, and nothing else changes."""

from __future__ import annotations

import pytest
from fake_links import Bench, body, framed, turn

from semel.rpc.served import Answer, CloseConnection, ServedConnection


class ShortWay:
    """Answers what begins with "short", by its length."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.failure: Exception | None = None

    def __call__(self, connection: ServedConnection, frame: memoryview) -> Answer:
        self.seen.append(bytes(frame))
        if self.failure is not None:
            raise self.failure
        return [framed(b"%d" % len(frame))] if frame[:5] == b"short" else None


@pytest.mark.parametrize("chunk_bytes", [3, 7, 1 << 20])
async def test_what_it_answers_is_dispatched_nowhere_else_and_the_rest_is(chunk_bytes: int) -> None:
    bench, way = Bench(), ShortWay()
    link = bench.connect()
    bench.connection(link).short_way = way
    sent = [body("short one", 30), body("another", 40), body("short two", 50), body("last", 60)]
    for frame in sent:
        link.arrive(framed(frame), chunk_bytes)
    assert way.seen == sent
    assert bench.dispatch.seen == [sent[1], sent[3]]
    assert link.answers() == [b"30", sent[1], b"50", sent[3]]


async def test_frames_that_come_together_are_all_served_in_order() -> None:
    bench, way = Bench(), ShortWay()
    link = bench.connect()
    bench.connection(link).short_way = way
    sent = [body("short one", 30), body("another", 40), body("short two", 50)]
    link.arrive(b"".join(map(framed, sent)))
    assert way.seen == sent
    assert link.answers() == [b"30", sent[1], b"50"]


async def test_an_answer_waits_for_those_before_it() -> None:
    bench, way = Bench(), ShortWay()
    link = bench.connect()
    bench.connection(link).short_way = way
    slow = bench.dispatch.later("slow", may_go_on=True)
    link.arrive(framed(body("slow")))
    link.arrive(framed(body("short", 30)))
    assert link.answers() == []
    slow[0].set_result([framed(b"slow")])
    await turn()
    assert link.answers() == [b"slow", b"30"]


async def test_a_frame_above_the_limit_is_refused_though_it_came_whole() -> None:
    bench, way = Bench(frame_bytes=100), ShortWay()
    link = bench.connect()
    bench.connection(link).short_way = way
    link.arrive(framed(body("short", 100)))
    assert not link.is_closed
    link.arrive(framed(body("short", 101)))
    assert link.is_closed
    assert len(way.seen) == 1


@pytest.mark.parametrize("failure", [CloseConnection("broken"), RuntimeError("planted")])
async def test_what_fails_in_it_closes_the_connection(failure: Exception) -> None:
    bench, way = Bench(), ShortWay()
    link, other = bench.connect(), bench.connect()
    bench.connection(link).short_way = way
    way.failure = failure
    link.arrive(framed(body("short")))
    assert link.is_closed
    other.arrive(framed(body("fine")))
    assert other.answers() == [body("fine")]


async def test_a_connection_that_has_ended_serves_nothing() -> None:
    bench, way = Bench(), ShortWay()
    link = bench.connect()
    connection = bench.connection(link)
    connection.short_way = way
    connection.close()
    frame = framed(body("short"))
    connection.get_buffer()[: len(frame)] = frame
    connection.received(len(frame))
    assert way.seen == []
