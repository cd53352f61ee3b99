"""What counts as a long turn of a loop, by the clock and by the processor; and that the selector is one."""

import asyncio
import logging
import os
import selectors
import socket
import time

import pytest

from semel.host.loop_turns import LIMIT_MS, LoopTurns

MS = 1_000_000


class Worked:
    """A selector whose clocks a test moves."""

    def __init__(self) -> None:
        self.now_ns = self.processor_ns = 10**9
        self.asked_the_processor = 0
        self.turns = LoopTurns(lambda: self.now_ns, self._processor)

    def _processor(self) -> int:
        self.asked_the_processor += 1
        return self.processor_ns

    def turn(self, clock_ms: float, processor_ms: float) -> None:
        self.now_ns += round(clock_ms * MS)
        self.processor_ns += round(processor_ms * MS)
        self.turns.select(0)

    @property
    def counts(self) -> tuple[int, int]:
        return self.turns.by_processor.count, self.turns.by_clock.count


@pytest.fixture
def worked():
    one = Worked()
    yield one
    one.turns.close()


def test_a_turn_counts_by_what_the_processor_did_and_by_what_the_clock_says(worked):
    worked.turn(4.9, 4.9)
    assert worked.counts == (0, 0)
    worked.turn(30, 2)  # others had the processor
    assert worked.counts == (0, 1)
    worked.turn(7.5, 6.5)
    assert worked.counts == (1, 2)
    assert worked.turns.document() == {
        "over_ms": LIMIT_MS,
        "processor": {"count": 1, "longest_ms": 6.5},
        "clock": {"count": 2, "longest_ms": 30.0},
    }
    assert worked.turns.told() == (
        "turns of the loop over 5 ms: 1 by processor time, longest 6.5 ms; 2 by the clock, longest 30.0 ms"
    )


def test_many_short_turns_are_no_long_one_and_the_processor_is_hardly_asked(worked):
    before = worked.asked_the_processor
    for _ in range(10_000):
        worked.turn(0.01, 0.01)
    assert worked.counts == (0, 0)
    assert worked.turns.by_processor.longest_ms < 0.3
    assert worked.asked_the_processor - before < 400


def test_time_in_which_the_loop_sleeps_is_no_turn(worked):
    real_poll = worked.turns._poll

    def poll(timeout, most):
        worked.now_ns += 1000 * MS
        return real_poll(0, most)

    worked.turns._poll = poll
    for _ in range(5):
        worked.turn(0.1, 0.1)
    assert worked.counts == (0, 0)


def test_what_was_before_a_reset_is_forgotten(worked):
    worked.turn(50, 50)
    worked.now_ns += 100 * MS
    worked.processor_ns += 100 * MS
    worked.turns.reset()
    worked.turn(1, 1)
    assert worked.counts == (0, 0)
    assert worked.turns.by_clock.longest_ms == pytest.approx(1)


def test_a_long_turn_is_logged_for_who_looks_for_it(worked, caplog):
    with caplog.at_level(logging.DEBUG, "semel.host"):
        worked.turn(4, 4)
        worked.turn(12, 8)
    assert [record.getMessage() for record in caplog.records] == [
        "a turn of the loop took 12.0 ms, 8.0 ms of them of the processor"
    ]


def test_it_selects_as_the_selector_of_the_standard_library():
    counting, plain = LoopTurns(), selectors.EpollSelector()
    one, other = socket.socketpair()
    read_end, write_end = os.pipe()
    waits = selectors.EVENT_READ | selectors.EVENT_WRITE
    with one, other, counting, plain:
        for selector in (counting, plain):
            selector.register(one, waits, "both")
            selector.register(read_end, selectors.EVENT_READ, "read")
            selector.register(write_end, selectors.EVENT_WRITE, "write")

        def seen():
            found = [sorted((key.data, events) for key, events in one.select(0)) for one in (counting, plain)]
            assert found[0] == found[1]
            return found[0]

        assert seen() == [("both", selectors.EVENT_WRITE), ("write", selectors.EVENT_WRITE)]
        other.send(b"x")
        assert ("both", waits) in seen()
        for selector in (counting, plain):
            selector.modify(one, selectors.EVENT_READ, "both")
        assert ("both", selectors.EVENT_READ) in seen()
        os.close(read_end)  # an error for who writes, and nothing of the descriptor that is closed
        assert ("write", selectors.EVENT_WRITE) in seen()
        other.close()
        assert ("both", selectors.EVENT_READ) in seen()
        for selector in (counting, plain):
            selector.unregister(one)
            selector.unregister(write_end)
        assert seen() == []
        began = time.monotonic()
        counting.select(0.02)
        assert time.monotonic() - began >= 0.02
    os.close(write_end)


def test_a_loop_that_is_held_up_is_counted():
    turns = LoopTurns()

    async def work():
        await asyncio.sleep(0.001)
        until = time.thread_time() + 0.008
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=turns.new_loop) as runner:
        runner.run(work())
    assert turns.by_processor.count == 1
    assert 8 <= turns.by_processor.longest_ms < 9
    assert turns.by_clock.count >= 1
