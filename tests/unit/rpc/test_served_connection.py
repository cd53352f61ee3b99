"""One connection of a client: frames from bytes, answers in order, and when it is not read from."""

from __future__ import annotations

from struct import pack

import pytest
from fake_links import MEGABYTE, Bench, body, framed, turn

from semel.host.api import FileRange
from semel.rpc.served import CloseConnection
from semel.sim.disk import SimDisk

SHARED_BYTES = 256 << 10


def file_range(disk: SimDisk, data: bytes) -> FileRange:
    file = disk.open("/file", create=True)
    file.write_at(0, data)
    return FileRange(file, 0, len(data))


# -- frames


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 7, 1000])
async def test_frames_are_put_together_from_any_pieces(chunk_bytes: int) -> None:
    bench = Bench()
    link = bench.connect()
    sent = [body(f"request {number}", 8 + number * 13) for number in range(10)]
    link.arrive(b"".join(map(framed, sent)), chunk_bytes)
    assert bench.dispatch.seen == link.answers() == sent
    assert bench.server.budget.used_bytes == 0


@pytest.mark.parametrize("length", [SHARED_BYTES - 4, SHARED_BYTES - 3, SHARED_BYTES, SHARED_BYTES + 1, 10 * MEGABYTE])
@pytest.mark.parametrize("chunk_bytes", [100_003, 1 << 30])
async def test_frames_larger_than_the_shared_buffer_are_served(length: int, chunk_bytes: int) -> None:
    bench = Bench()
    link = bench.connect()
    large, small = body("large", length), body("small")
    link.arrive(framed(small) + framed(large) + framed(small), chunk_bytes)
    assert bench.dispatch.seen == [small, large, small]
    assert bench.server.budget.used_bytes == 0


async def test_two_connections_do_not_mix_their_halves() -> None:
    bench = Bench()
    one, other = bench.connect(), bench.connect()
    first, second = framed(body("first", 500)), framed(body("second", 700))
    for start in range(0, 1000, 50):
        one.arrive(first[start : start + 50])
        other.arrive(second[start : start + 50])
    assert one.answers() == [first[4:]]
    assert other.answers() == [second[4:]]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 7, 100 * MEGABYTE + 1, (1 << 31) - 1])
async def test_a_length_that_cannot_be_closes_that_connection_alone(length: int) -> None:
    bench = Bench()
    link, other = bench.connect(), bench.connect()
    link.arrive(framed(body("before")) + pack(">i", length) + b"x" * 100)
    assert link.answers() == [body("before")], "what came before is answered"
    assert link.is_closed
    await turn()
    assert len(bench.server.connections) == 1
    other.arrive(framed(body("fine")))
    assert other.answers() == [body("fine")]
    assert bench.server.budget.used_bytes == 0


async def test_before_authentication_less_is_allowed() -> None:
    bench = Bench(frame_bytes_before_authentication=1000)
    link = bench.connect()
    bench.connection(link).is_authenticated = False
    link.arrive(framed(body("x", 1000)))
    assert len(link.answers()) == 1
    link.arrive(pack(">i", 1001))
    assert link.is_closed


async def test_a_large_frame_takes_memory_as_it_arrives() -> None:
    bench = Bench()
    link = bench.connect()
    link.arrive(pack(">i", 100 * MEGABYTE) + b"x" * 1000)
    connection, budget = bench.connection(link), bench.server.budget
    assert len(connection.get_buffer()) <= budget.used_bytes <= 16 << 10
    link.arrive(b"x" * (5 * MEGABYTE))
    assert len(connection.get_buffer()) <= 4 * MEGABYTE
    assert budget.used_bytes <= 9 * MEGABYTE


async def test_the_buffer_of_a_large_frame_is_used_again_but_not_while_its_request_needs_it() -> None:
    bench = Bench()
    link = bench.connect()
    bench.dispatch.later("hold", holds_request=True)
    link.arrive(framed(body("hold", MEGABYTE)), 100_000)
    assert bench.server.buffers.spare_bytes == MEGABYTE // 2, "where its first bytes were"
    other = bench.connect()
    for number in range(3):
        other.arrive(framed(body(f"other {number}", MEGABYTE)), 100_000)
        assert bench.server.buffers.spare_bytes == MEGABYTE + MEGABYTE // 2
    assert [answer[:7] for answer in other.answers()] == [b"other 0", b"other 1", b"other 2"]


# -- what the peer broke, and what we broke


@pytest.mark.parametrize("length", [12, 300_000])
async def test_a_request_that_breaks_the_protocol_closes_its_connection(length: int) -> None:
    def refuse(data: bytes) -> None:
        raise CloseConnection("no such thing")

    bench = Bench()
    bench.dispatch.rules[b"bad"] = refuse
    link = bench.connect()
    link.arrive(framed(body("good")) + framed(body("bad", length)) + framed(body("never seen")), 1000)
    assert link.answers() == [body("good")]
    assert link.is_closed
    assert len(bench.dispatch.seen) == 2
    assert bench.server.budget.used_bytes == 0
    assert not bench.failures


@pytest.mark.parametrize("length", [12, 300_000])
async def test_a_bug_of_ours_closes_one_connection_gives_its_memory_back_and_is_reported(length: int) -> None:
    def fail(data: bytes) -> None:
        raise ZeroDivisionError("a bug")

    bench = Bench()
    bench.dispatch.rules[b"bug"] = fail
    link, other = bench.connect(), bench.connect()
    link.arrive(framed(body("bug", length)), 1000)
    assert link.is_closed
    assert isinstance(bench.failures[0], ZeroDivisionError)
    assert bench.server.budget.used_bytes == 0
    other.arrive(framed(body("fine")))
    assert other.answers() == [body("fine")]


async def test_a_bug_behind_an_awaited_answer_is_reported_too() -> None:
    bench = Bench()
    waiting = bench.dispatch.later("wait")
    link = bench.connect()
    link.arrive(framed(body("wait")))
    waiting[0].set_exception(ZeroDivisionError("a bug"))
    await turn()
    assert link.is_closed
    assert isinstance(bench.failures[0], ZeroDivisionError)


@pytest.mark.parametrize("how", ["refused", "cancelled"])
async def test_an_awaited_answer_that_does_not_come_closes_the_connection(how: str) -> None:
    bench = Bench()
    waiting = bench.dispatch.later("wait")
    link = bench.connect()
    link.arrive(framed(body("wait")))
    if how == "refused":
        waiting[0].set_exception(CloseConnection("lost"))
    else:
        waiting[0].cancel()
    await turn()
    assert link.is_closed
    assert not bench.failures


# -- order


async def test_while_an_answer_is_outstanding_nothing_more_is_read() -> None:
    bench = Bench()
    waiting = bench.dispatch.later("wait")
    link = bench.connect()
    link.arrive(framed(body("wait")) + framed(body("same read")))
    link.arrive(framed(body("next read")))
    assert link.is_paused
    assert bench.dispatch.seen == [body("wait")]
    waiting[0].set_result([framed(b"waited")])
    await turn()
    assert link.answers() == [b"waited", body("same read"), body("next read")]
    assert not link.is_paused


async def test_requests_that_may_go_on_are_served_meanwhile_and_answered_in_order() -> None:
    bench = Bench()
    waiting = bench.dispatch.later("wait", may_go_on=True)
    link = bench.connect()
    for name in ("wait 0", "quick", "wait 1", "wait 2"):
        link.arrive(framed(body(name)))
    assert len(bench.dispatch.seen) == 4
    assert not link.is_paused
    waiting[2].set_result([framed(b"2")])
    waiting[1].set_result([framed(b"1")])
    await turn()
    assert link.answers() == []
    waiting[0].set_result([framed(b"0")])
    await turn()
    assert link.answers() == [b"0", body("quick"), b"1", b"2"]


async def test_answers_that_one_flush_lets_go_leave_in_order_and_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    commits = bench.dispatch.ready("ready")
    link = bench.connect()
    calls: list[int] = []
    send = link.send
    monkeypatch.setattr(link, "send", lambda parts: (calls.append(len(parts)), send(parts)))
    for number in range(4):
        link.arrive(framed(body(f"ready {number}")))
    link.arrive(framed(body("quick")))
    assert not link.is_paused
    commits[1].set_result(None)
    await turn()
    assert link.answers() == []
    commits[0].set_result(None)
    commits[2].set_result(None)
    await turn()
    assert link.answers() == [body("ready 0"), body("ready 1"), body("ready 2")]
    commits[3].set_result(None)
    await turn()
    assert link.answers() == [body("ready 3"), body("quick")]
    assert calls == [3, 2]


async def test_a_ready_answer_that_may_never_leave_ends_its_connection_after_those_before_it() -> None:
    bench = Bench()
    commits = bench.dispatch.ready("ready")
    link, other = bench.connect(), bench.connect()
    for number in range(3):
        link.arrive(framed(body(f"ready {number}")))
    commits[0].set_result(None)
    commits[1].set_exception(OSError("the partition is closed"))
    await turn()
    assert link.answers() == [body("ready 0")]
    assert link.is_closed
    assert commits[2].cancelled()
    other.arrive(framed(body("quick")))
    assert other.answers() == [body("quick")]


async def test_a_promise_is_sent_where_it_is_kept_but_not_before_those_it_came_after() -> None:
    bench = Bench()
    waiting = bench.dispatch.later("wait", may_go_on=True)
    promises = bench.dispatch.promised("promise")
    link = bench.connect()
    link.arrive(framed(body("promise 0")))
    link.arrive(framed(body("held")))
    assert link.is_paused, "as while any answer is outstanding"
    promises[0].keep([framed(b"0")])
    assert link.answers() == [b"0", body("held")], "no turn of the loop in between"
    link.arrive(framed(body("wait")))
    link.arrive(framed(body("promise 1")))
    promises[1].keep([framed(b"1")])
    assert link.answers() == []
    waiting[0].set_result([framed(b"waited")])
    await turn()
    assert link.answers() == [b"waited", b"1"]


async def test_a_promise_that_cannot_be_kept_closes_its_connection_and_is_reported() -> None:
    bench = Bench()
    promises = bench.dispatch.promised("promise")
    link = bench.connect()
    link.arrive(framed(body("promise")))
    promises[0].fail(ValueError("ours"))
    await turn()
    assert link.is_closed
    assert [type(error) for error in bench.failures] == [ValueError]


async def test_a_promise_to_a_peer_that_has_left_is_given_up_and_its_ranges_are_released() -> None:
    bench = Bench()
    promises = bench.dispatch.promised("promise")
    link = bench.connect()
    link.arrive(framed(body("promise")))
    link.close()
    await turn()
    assert promises[0].future.cancelled()
    late_range = file_range(SimDisk(), b"late")
    promises[0].keep([framed(b"head"), late_range])
    promises[0].fail(ValueError("too late to matter"))
    await turn()
    assert late_range.released
    assert (link.answers(), bench.failures) == ([], [])


async def test_one_that_waits_for_its_turn_blocks_what_comes_after_it_until_it_is_answered() -> None:
    bench = Bench()
    committing, polling = bench.dispatch.later("commit", may_go_on=True), bench.dispatch.later("poll")
    link = bench.connect()
    link.arrive(framed(body("commit")) + framed(body("poll")) + framed(body("after")))
    assert link.is_paused
    committing[0].set_result([framed(b"committed")])
    await turn()
    assert (link.answers(), link.is_paused) == ([b"committed"], True)
    polling[0].set_result([framed(b"polled")])
    await turn()
    assert link.answers() == [b"polled", body("after")]


async def test_a_request_without_an_answer_does_not_disturb_the_order() -> None:
    bench = Bench()
    bench.dispatch.rules[b"silent"] = lambda data: None
    waiting = bench.dispatch.later("wait", may_go_on=True)
    link = bench.connect()
    link.arrive(b"".join(framed(body(name)) for name in ("silent 1", "wait", "silent 2", "quick")))
    waiting[0].set_result(None)
    await turn()
    assert link.answers() == [body("quick")]


@pytest.mark.parametrize("follower", ["wait more", "quick"])
async def test_only_so_many_answers_are_outstanding_at_once(follower: str) -> None:
    """Also those that are complete and only wait for their turn: they hold memory as well."""
    bench = Bench()
    waiting = bench.dispatch.later("wait", may_go_on=True)
    link = bench.connect()
    link.arrive(framed(body("wait")))
    for _ in range(500):
        link.arrive(framed(body(follower)))
    assert link.is_paused
    assert len(bench.dispatch.seen) == 64
    for _ in range(50):
        for future in waiting:
            if not future.done():
                future.set_result([framed(b"waited")])
        await turn()
    assert len(bench.dispatch.seen) == len(link.answers()) == 501
    assert not link.is_paused


# -- a peer that does not read


async def test_a_peer_that_does_not_read_its_answers_is_not_read_from() -> None:
    bench = Bench()
    link = bench.connect()
    link.is_stuck = True
    for _ in range(100):
        link.arrive(framed(body("big", 100_000)))
    assert link.is_paused
    assert link.unsent_bytes < 1_200_000, "a bounded amount of memory"
    served = len(bench.dispatch.seen)
    assert served < 15
    link.drain()
    assert len(link.answers()) == 100
    assert not link.is_paused


async def test_a_fetch_of_the_default_size_does_not_stop_reading_and_a_second_one_does() -> None:
    bench = Bench()
    link = bench.connect()
    link.is_stuck = True
    link.arrive(framed(body("big", MEGABYTE + 1000)))
    assert link.unsent_bytes > MEGABYTE
    assert not link.is_paused
    link.arrive(framed(body("big", MEGABYTE + 1000)))
    assert link.is_paused
    link.drain()
    assert not link.is_paused


async def test_answers_that_come_due_for_a_stuck_peer_do_not_lift_the_pause() -> None:
    bench = Bench()
    waiting = bench.dispatch.later("wait", may_go_on=True)
    link = bench.connect()
    link.is_stuck = True
    link.arrive(framed(body("wait")))
    waiting[0].set_result([b"x" * (2 * MEGABYTE)])
    await turn()
    assert link.is_paused
    link.arrive(framed(body("more")))
    assert bench.dispatch.seen == [body("wait")]
    link.drain()
    assert not link.is_paused
    assert len(bench.dispatch.seen) == 2


# -- memory


async def test_who_finds_no_memory_waits_and_is_served_in_order() -> None:
    bench = Bench(requests_in_memory_bytes=1000)
    holding = bench.dispatch.later("hold", holds_request=True)
    links = [bench.connect() for _ in range(4)]
    for number, link in enumerate(links):
        link.arrive(framed(body(f"hold {number}", 600)), 100)
    assert bench.server.budget.used_bytes == 600 + 3 * 96, "and what had come of the others"
    assert [link.is_paused for link in links] == [True] * 4
    for number in range(4):
        assert len(holding) == number + 1
        holding[number].set_result([framed(b"done")])
        await turn()
    assert [link.answers() for link in links] == [[b"done"]] * 4
    assert [data[:6] for data in bench.dispatch.seen] == [b"hold %d" % number for number in range(4)]
    assert bench.server.budget.used_bytes == 0
    assert [link.is_paused for link in links] == [False] * 4


async def test_a_large_request_is_not_overtaken_by_small_ones() -> None:
    bench = Bench(requests_in_memory_bytes=1000)
    holding = bench.dispatch.later("hold", holds_request=True)
    first, large, small = (bench.connect() for _ in range(3))
    first.arrive(framed(body("hold", 600)), 100)
    large.arrive(framed(body("large", 900)), 100)
    small.arrive(framed(body("small", 200)), 100)
    assert [data[:5] for data in bench.dispatch.seen] == [b"hold."]
    holding[0].set_result(None)
    await turn()
    assert [data[:5] for data in bench.dispatch.seen] == [b"hold.", b"large", b"small"]


async def test_whole_frames_in_one_read_cost_nothing() -> None:
    bench = Bench(requests_in_memory_bytes=1)
    link = bench.connect()
    link.arrive(framed(body("whole", 1000)))
    assert len(link.answers()) == 1


@pytest.mark.parametrize("stage", ["arriving", "waiting for memory", "held by its request"])
async def test_memory_is_given_back_when_the_peer_leaves(stage: str) -> None:
    bench = Bench(requests_in_memory_bytes=1000)
    holding = bench.dispatch.later("hold", holds_request=True)
    link, other = bench.connect(), bench.connect()
    if stage == "arriving":
        link.arrive(framed(body("x", 900))[:500], 100)
    elif stage == "waiting for memory":
        other.arrive(framed(body("hold", 600)), 100)
        link.arrive(framed(body("x", 900))[:500], 100)
    else:
        link.arrive(framed(body("hold", 900)), 100)
    assert bench.server.budget.used_bytes
    link.end(ConnectionResetError())
    await turn()
    if stage == "waiting for memory":
        holding[0].set_result(None)
        await turn()
    assert bench.server.budget.used_bytes == 0
    last = bench.connect()
    last.arrive(framed(body("served", 1000)), 100)
    assert len(last.answers()) == 1


async def test_without_a_limit_nobody_waits() -> None:
    bench = Bench(requests_in_memory_bytes=-1)
    link = bench.connect()
    link.arrive(framed(body("x", 5 * MEGABYTE)), 100_000)
    assert len(link.answers()) == 1


# -- ends


async def test_a_peer_that_leaves_cancels_what_it_waited_for() -> None:
    bench = Bench()
    committing, polling = bench.dispatch.later("commit", may_go_on=True), bench.dispatch.later("poll")
    link = bench.connect()
    link.arrive(framed(body("commit")) + framed(body("poll")))
    link.end(None)
    await turn()
    assert committing[0].cancelled()
    assert polling[0].cancelled()
    assert not bench.server.connections


async def test_closing_sends_what_was_answered_and_cancels_the_rest() -> None:
    bench = Bench()
    polling = bench.dispatch.later("poll")
    link = bench.connect()
    link.is_stuck = True
    link.arrive(framed(body("answered")) + framed(body("poll")))
    bench.server.close()
    assert link.is_ending
    assert not link.is_closed
    link.drain()
    assert link.answers() == [body("answered")]
    assert link.is_closed
    assert polling[0].cancelled()


@pytest.mark.parametrize("ending", ["in its turn", "before its turn"])
async def test_file_ranges_that_are_never_sent_are_released(ending: str) -> None:
    waiting_range = file_range(SimDisk(), b"x" * 100)
    late_range = FileRange(waiting_range.file, 0, 50)
    bench = Bench()
    waiting = bench.dispatch.later("wait", may_go_on=True)
    late = bench.dispatch.later("late", may_go_on=True)
    bench.dispatch.rules[b"range"] = lambda data: [waiting_range]
    link = bench.connect()
    link.arrive(framed(body("wait")) + framed(body("late")) + framed(body("range")))
    late[0].set_result([late_range])
    if ending == "in its turn":
        await turn()
    # Otherwise the answer is there, but the connection has not heard of it when it ends.
    bench.connection(link).close()
    await turn()
    assert waiting[0].cancelled()
    assert waiting_range.released
    assert late_range.released


async def test_bytes_that_come_after_the_end_are_not_served() -> None:
    bench = Bench()
    link = bench.connect()
    bench.connection(link).close()
    link.arrive(framed(body("late")))
    assert bench.dispatch.seen == []


async def test_random_pieces_pauses_and_answers_keep_the_order() -> None:
    import random

    chance = random.Random(5)
    for _ in range(50):
        bench = Bench(requests_in_memory_bytes=5000)
        committing, polling = bench.dispatch.later("commit", may_go_on=True), bench.dispatch.later("poll")
        link = bench.connect()
        names = [f"{chance.choice(['commit', 'poll', 'quick'])} {number}" for number in range(60)]
        frames = [body(name, chance.randint(12, 3000)) for name in names]
        data = b"".join(map(framed, frames))
        sent = 0
        answers: list[bytes] = []
        for _ in range(2000):
            count = chance.randint(1, 2000)
            link.arrive(data[sent : sent + count])
            sent += count
            if chance.random() < 0.5:
                link.is_stuck = True
            for future in chance.sample(committing + polling, len(committing + polling)):
                if not future.done() and chance.random() < 0.5:
                    future.set_result([framed(b"later")])
            await turn()
            if link.is_stuck and chance.random() < 0.5:
                link.drain()
            answers += link.answers()
            if len(answers) == len(frames):
                break
        assert bench.dispatch.seen == frames
        assert answers == [frame if frame.startswith(b"quick") else b"later" for frame in frames]
        assert bench.server.budget.used_bytes == 0
        assert not link.is_paused


async def test_a_server_that_closes_ends_connections_in_the_order_in_which_they_came() -> None:
    """And not in that of their addresses in memory: a simulated run is the same every time."""
    bench = Bench()
    links = [bench.connect(f"10.0.0.1:{5000 + number}") for number in range(50)]
    assert [connection.link for connection in bench.server.connections] == links
    bench.connection(links[7]).close()
    links[7].end(None)
    await turn()
    assert [connection.link for connection in bench.server.connections] == links[:7] + links[8:]
