"""Requests that are answered together: they wait where they were read, and everything else waits for them."""

from __future__ import annotations

import asyncio
from itertools import accumulate
from random import Random

import pytest
from fake_links import Bench, FakeLink, body, framed, turn

from plain_kernels import plain
from semel.host.api import LaterReply, made
from semel.rpc import served_kernel
from semel.rpc.served import ServedConnection
from semel.rpc.served_kernel import ReplyBatch

PLAIN = plain("served_kernel", "rpc")
KERNELS = [PLAIN, served_kernel] if served_kernel.compiled else [PLAIN]


class PendingRequest:
    def __init__(self, lane: Lane, connection: ServedConnection, request: memoryview) -> None:
        self.is_made = False
        self.batch: ReplyBatch | None = None
        self.is_bad = bytes(request[4:13]) == b"quick bad"
        self.waits = bytes(request[4:14]) == b"quick wait"
        self.is_committed = bytes(request[4:18]) == b"quick wait not"
        self._lane = lane
        self._connection = connection
        self._request = request
        self._answer: bytes | None = None
        self.commit: asyncio.Future[None] | None = None

    def made(self) -> bytes | None:
        if not self.is_made:
            self._lane.settle()
        return self._answer

    def answered(self, now_ns: int) -> None:
        """It would be counted here."""

    def settle(self) -> None:
        """Answers with what the request is by now, in its place."""
        self.is_made = True
        self._body = bytes(self._request[4:])  # the next read may be written over it
        if not self.is_bad:
            self._answer = framed(bytes(self._request[4:]))
            self._lane.bench.dispatch.seen.append(b"settled: " + bytes(self._request[4:]))

    def end(self) -> None:
        if self.batch is not None:
            if self.is_bad:
                self.batch.send_in_turn()
        elif self.is_bad:
            self.answer_or_fall_back()
        elif self.waits:
            assert self._answer is not None
            self._answer = self._connection.answer_when(self.commits_of([self]), self._answer, self)

    def commits_of(self, answers: list[PendingRequest]) -> list[asyncio.Future[None]]:
        waiting = [one for one in answers if one.waits and not one.is_committed]
        for one in waiting:
            one.commit = self._lane.commit()
        return [one.commit for one in waiting if one.commit is not None]

    def after_failure(self) -> bytes:
        error = self.commit.exception() if self.commit is not None else None
        if isinstance(error, OSError):
            raise error
        return framed(b"refused " + self._body) if error else framed(self._body)

    def answer_or_fall_back(self) -> bytes | None:
        if self.is_bad:
            self._answer = self._connection.serve_alone(self._request[4:])
        return self._answer


class Lane:
    """Answers whole requests that begin with "quick", together; some wait for something more; if they are bad, they
    turn out to be for the longer way."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.waiting: list[PendingRequest] = []
        self.commits: list[asyncio.Future[None]] = []

    def commit(self) -> asyncio.Future[None]:
        self.commits.append(asyncio.get_running_loop().create_future())
        return self.commits[-1]

    def __call__(self, connection: ServedConnection, buffer: memoryview, start: int, count: int) -> LaterReply | None:
        request = buffer[start : start + count]
        if bytes(request[4:9]) != b"quick" or int.from_bytes(request[:4]) != count - 4:
            return None
        if bytes(request[4:14]) == b"quick fail":
            raise RuntimeError("planted")
        if bytes(request[4:14]) != b"quick wait" and connection.has_outstanding:
            return None
        self.waiting.append(PendingRequest(self, connection, request))
        return self.waiting[-1]

    def settle(self) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one.settle()
        for one in waiting:
            one.end()


def connected(bench: Bench, lane: Lane) -> tuple[FakeLink, ServedConnection]:
    link = bench.connect()
    connection = bench.connection(link)
    connection.lane = lane
    return link, connection


def read(connection: ServedConnection, data: bytes) -> bytes | LaterReply | None:
    """As a round does: what comes back is not made yet."""
    buffer = connection.get_buffer()
    assert len(buffer) >= len(data)
    buffer[: len(data)] = data
    return connection.received(len(data))


@pytest.mark.parametrize("seed", range(20))
async def test_requests_keep_their_bytes_until_they_are_answered_whatever_comes_between(seed: int) -> None:
    random = Random(seed)
    bench = Bench()
    lane = Lane(bench)
    connections = [connected(bench, lane) for _ in range(8)]
    expected: list[list[bytes]] = [[] for _ in connections]
    waiting: list[tuple[int, bytes | LaterReply | None]] = []

    def end_round() -> None:
        for which, answer in waiting:
            reply = made(answer)
            if reply is not None:
                connections[which][0].send([reply])
        waiting.clear()

    for number in range(300):
        which = random.randrange(len(connections))
        if random.random() < 0.15 or which in [one for one, _ in waiting]:
            end_round()
        kind = random.choice(["quick", "quick", "quick", "other"])
        request = body(f"{kind} {number}", random.choice([20, 1000, 1083, 1084, 1085, 5000, 60_000]))
        expected[which].append(request)
        waiting.append((which, read(connections[which][1], framed(request))))
    end_round()
    assert [link.answers() for link, _ in connections] == expected


@pytest.mark.parametrize("seed", range(60))
async def test_several_requests_of_one_read_are_answered_in_order_however_they_are_cut(seed: int) -> None:
    random = Random(seed)
    bench = Bench()
    lane = Lane(bench)
    futures = bench.dispatch.later("quick bad late", may_go_on=True)
    ready = bench.dispatch.ready("quick bad ready")
    connections = [connected(bench, lane) for _ in range(3)]
    sent: list[list[bytes]] = []
    streams = []
    ends = []
    kinds = ["quick", "quick wait", "quick bad", "quick bad late", "quick bad ready", "other"]
    usual = ["quick", "quick wait", "quick wait not"]
    kinds = kinds[: random.randint(1, 6)] + random.choice([[], [random.choice(usual)] * 8, usual])
    for which in range(len(connections)):
        requests = [
            body(f"{random.choice(kinds)} {which} {number}", random.choice([25, 25, 25, 1000, 30_000]))
            for number in range(80)
        ]
        sent.append(requests)
        streams.append(b"".join(map(framed, requests)))
        ends.append([*accumulate(4 + len(request) for request in requests)])
    at = [0] * len(connections)
    while any(start < len(stream) for start, stream in zip(at, streams, strict=True)):
        replies = []
        for which in random.sample(range(len(connections)), random.randint(1, len(connections))):
            link, connection = connections[which]
            if link.is_paused or at[which] >= len(streams[which]):
                continue
            count = random.choice([50, 90, 200, 3000, 40_000, 100_000])
            if random.random() < 0.8:  # whole requests
                count = random.choice([end for end in ends[which] if end > at[which]][:5]) - at[which]
            data = streams[which][at[which] : at[which] + min(count, len(connection.get_buffer()))]
            at[which] += len(data)
            replies.append((link, read(connection, data)))
        for link, later in replies:
            reply = made(later)
            if reply is not None:
                link.send([reply])
        if random.random() < 0.7:
            waiting = [future for future in [*futures, *ready, *lane.commits] if not future.done()]
            for future in random.sample(waiting, len(waiting) // 2 + 1 if waiting else 0):
                future.set_result(None)
        await asyncio.sleep(0)
    for future in [*futures, *ready, *lane.commits]:
        if not future.done():
            future.set_result(None)
    await turn()
    for requests, (link, _) in zip(sent, connections, strict=True):
        # Those that wait for a future of their own are answered with nothing.
        assert link.answers() == [one for one in requests if not one.startswith(b"quick bad late")]
        assert not link.is_paused


async def test_several_requests_are_settled_together_and_their_answers_are_one() -> None:
    bench = Bench()
    lane = Lane(bench)
    (_, first), (_, second) = connected(bench, lane), connected(bench, lane)
    three = b"".join(framed(body(f"quick {number}")) for number in range(3))
    replies = [read(first, three), read(second, framed(body("quick 3")))]
    assert len(lane.waiting) == 4
    assert [made(reply) for reply in replies] == [three, framed(body("quick 3"))]
    assert [made(reply) for reply in replies] == [three, framed(body("quick 3"))], "the same when it is asked again"


async def test_several_that_wait_leave_when_the_last_thing_is_done_that_they_wait_for() -> None:
    bench = Bench()
    lane = Lane(bench)
    link, connection = connected(bench, lane)
    three = [body("quick wait 1", 14), body("quick wait 2", 14), body("quick 3")]
    assert made(read(connection, b"".join(map(framed, three)))) is None
    assert made(read(connection, framed(body("quick 4")))) is None, "it does not overtake those"
    assert made(read(connection, framed(body("quick wait 5", 14)))) is None
    lane.commits[0].set_result(None)
    lane.commits[2].set_result(None)
    await turn()
    assert link.answers() == []
    lane.commits[1].set_result(None)
    await turn()
    assert link.answers() == [*three, body("quick 4"), body("quick wait 5", 14)]
    assert made(read(connection, framed(body("quick 6")))) == framed(body("quick 6"))


async def test_one_that_goes_the_longer_way_does_not_let_those_beside_it_leave_too_early() -> None:
    bench = Bench()
    lane = Lane(bench)
    link, connection = connected(bench, lane)
    three = [body("quick bad 1"), body("quick wait 2", 14), body("quick bad 3")]
    assert made(read(connection, b"".join(map(framed, three)))) is None
    assert link.answers() == three[:1]
    lane.commits[-1].set_result(None)
    await turn()
    assert link.answers() == three[1:]


async def test_a_commit_that_fails_ends_the_connection_of_those_that_wait_for_it() -> None:
    bench = Bench()
    lane = Lane(bench)
    link, connection = connected(bench, lane)
    two = [body("quick wait 1", 14), body("quick wait 2", 14)]
    made(read(connection, b"".join(map(framed, two))))
    lane.commits[1].set_exception(OSError("planted"))
    lane.commits[0].set_result(None)
    await turn()
    await turn()
    assert link.answers() == []
    assert link.is_closed


@pytest.mark.parametrize("count", [1, 3])
async def test_a_commit_that_is_refused_is_told_in_the_answer_of_its_request(count: int) -> None:
    bench = Bench()
    lane = Lane(bench)
    link, connection = connected(bench, lane)
    requests = [body(f"quick wait {number}", 14) for number in range(count)]
    made(read(connection, b"".join(map(framed, requests))))
    made(read(connection, framed(body("quick 9", 14))))
    lane.commits[0].set_exception(ValueError("refused"))
    await turn()
    if count > 1:
        assert link.answers() == [], "those that came in one read leave together"
    for commit in lane.commits[1:]:
        commit.set_result(None)
    await turn()
    await turn()
    assert link.answers() == [b"refused " + requests[0], *requests[1:], body("quick 9", 14)]
    assert not link.is_closed


async def test_those_before_one_that_fails_are_answered() -> None:
    bench = Bench()
    link, connection = connected(bench, Lane(bench))
    requests = [body("quick 1"), body("quick bad 2"), body("quick fail"), body("quick 4")]
    assert made(read(connection, b"".join(map(framed, requests)))) is None
    assert link.answers() == requests[:2]
    assert link.is_closed
    assert len(bench.failures) == 1


async def test_no_more_than_so_many_are_served_in_one_turn() -> None:
    bench = Bench()
    lane = Lane(bench)
    link, connection = connected(bench, lane)
    requests = [body(f"quick {number}") for number in range(200)]
    made(read(connection, b"".join(map(framed, requests))))
    assert link.is_paused
    assert 50 < len(bench.dispatch.seen) < 100
    for _ in range(20):
        await asyncio.sleep(0)
    assert link.answers() == requests


async def test_what_goes_the_longer_way_begins_when_those_before_it_are_settled() -> None:
    bench = Bench()
    lane = Lane(bench)
    (_, first), (_, second), (_, third) = (connected(bench, lane) for _ in range(3))
    one, two = read(first, framed(body("quick 1"))), read(second, framed(body("quick 2")))
    assert bench.dispatch.seen == []
    read(third, framed(body("other")))
    assert bench.dispatch.seen == [b"settled: " + body("quick 1"), b"settled: " + body("quick 2"), body("other")]
    assert made(one) == framed(body("quick 1"))
    assert made(two) == framed(body("quick 2")), "though it was moved, the request before it is not overwritten"


async def test_a_frame_in_pieces_comes_together_between_those_that_wait() -> None:
    bench = Bench()
    lane = Lane(bench)
    (_, first), (link, second) = connected(bench, lane), connected(bench, lane)
    whole = framed(body("in pieces", 3000))
    answers = []
    for start in range(0, len(whole), 700):
        answers.append(read(first, framed(body(f"quick {start}"))))
        reply = made(read(second, whole[start : start + 700]))
        assert reply is None
    assert [made(answer) for answer in answers] == [framed(body(f"quick {start}")) for start in range(0, 3500, 700)]
    assert link.answers() == [whole[4:]]


async def test_a_buffer_that_fills_is_settled_in_time() -> None:
    bench = Bench(connections=400, connections_per_host=400)
    lane = Lane(bench)
    pairs = [connected(bench, lane) for _ in range(400)]
    answers = [read(connection, framed(body(f"quick {number}"))) for number, (_, connection) in enumerate(pairs)]
    assert 100 < len(lane.waiting) + len(bench.dispatch.seen) == 400
    assert len(lane.waiting) < 200
    seen = [bytes(one) for one in bench.dispatch.seen]
    assert seen == [b"settled: " + body(f"quick {number}") for number in range(len(seen))]
    assert all(answer is not None for answer in answers)


@pytest.mark.parametrize("kernel", KERNELS)
def test_there_is_always_room_for_half_a_buffer(kernel: object) -> None:
    class Answer:
        def __init__(self) -> None:
            self.is_made = False

        def made(self) -> bytes:
            self.is_made = True
            return b""

    for seed in range(50):
        random = Random(seed)
        shared = kernel.SharedBuffer(20_000)  # type: ignore[attr-defined]
        waiting: list[tuple[Answer, int, int]] = []
        for _ in range(100):
            free = shared.free()
            assert len(free) >= 10_000
            assert len(free) == 20_000 - shared.start
            start, count = shared.start, random.randint(1, len(free))
            waiting = [one for one in waiting if not one[0].is_made]
            assert all(begin + size <= start for _, begin, size in waiting)
            if random.random() < 0.8:
                waiting.append((Answer(), start, count))
                shared.keep(waiting[-1][0], count)
            else:
                shared.settle()
                assert all(answer.is_made for answer, _, _ in waiting)
                assert shared.start == 0
            if random.random() < 0.1:
                for answer, _, _ in waiting:
                    answer.made()
