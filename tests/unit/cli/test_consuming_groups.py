"""When a reader in a group ends, and what it has committed by then, with a consumer that is made up."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import pytest

from semel.cli.consuming import _Printer, _Reading
from semel.cli.main import parser_for
from semel.cli.output import Output
from semel.client.consumer.consumer import Consumer
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity, Message

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
Found = dict[TopicPartition, list[Message]]


def records(place: TopicPartition, *offsets: int) -> Found:
    return {place: [Message(*place, offset, 0, 0, None, b"%d" % offset) for offset in offsets]}


class MadeUpConsumer:
    """Each poll takes the next step: partitions that are assigned from then on, and what it returns; the last waits."""

    def __init__(
        self,
        *steps: tuple[Collection[TopicPartition], Found],
        end: int = 3,
        is_outside: bool = False,
        last_poll: int = 0,
    ) -> None:
        self.committed: list[Mapping[TopicPartition, int]] = []
        self.positions: dict[TopicPartition, int] = {}
        self.polls = 0
        self.is_waiting = asyncio.Event()
        self._last_poll = last_poll
        self._steps = list(steps)
        self._end = end
        self._is_outside = is_outside
        self._assigned: frozenset[TopicPartition] = frozenset()

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = list(topics)

    async def poll(self, timeout_ms: float, most: int) -> Found:
        self.polls += 1
        if self.polls == self._last_poll:
            self.is_waiting.set()
            await asyncio.Event().wait()
        assigned, found = self._steps.pop(0) if self._steps else (self._assigned, {})
        self._assigned = frozenset(assigned)
        for place, messages in found.items():
            assert len(messages) <= most
            self.positions[place] = messages[-1].offset + 1
        return found

    def assignment(self) -> frozenset[TopicPartition]:
        return self._assigned

    def group_metadata(self) -> GroupIdentity:
        return GroupIdentity("g", is_outside=self._is_outside and self.polls < 50)

    async def position(self, place: TopicPartition) -> int:
        return self.positions.get(place, 0)

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self._end)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self.committed.append(dict(self.positions if offsets is None else offsets))

    def highwater(self, place: TopicPartition) -> int | None:
        return None

    last_stable_offset = highwater


def reading(consumer: MadeUpConsumer, *arguments: str) -> tuple[_Reading, io.BytesIO, io.StringIO]:
    options = parser_for("consume").parse_args(["consume", "t", "--group", "g", *arguments])
    printed, notes = io.BytesIO(), io.StringIO()
    printer = _Printer(lambda message: cast(bytes, message.value) + b"\n", cast(Any, printed))
    return _Reading(cast(Consumer, consumer), options, Output(io.StringIO(), notes), printer), printed, notes


async def test_it_ends_when_all_that_is_assigned_is_read() -> None:
    consumer = MadeUpConsumer(([], {}), ([ZERO, ONE], records(ZERO, 0, 1, 2)), ([ZERO, ONE], records(ONE, 0, 1, 2)))
    run, printed, _ = reading(consumer)
    await run.in_group()

    assert printed.getvalue() == b"0\n1\n2\n" * 2
    assert consumer.committed[-1] == {ZERO: 3, ONE: 3}


async def test_a_partition_that_comes_later_is_read_too() -> None:
    consumer = MadeUpConsumer(
        ([ZERO], records(ZERO, 0, 1)), ([ZERO, ONE], records(ZERO, 2)), ([ONE], records(ONE, 0, 1, 2))
    )
    run, printed, _ = reading(consumer)
    await run.in_group()

    assert len(printed.getvalue().splitlines()) == 6


async def test_who_gets_no_partition_ends_and_says_why() -> None:
    consumer = MadeUpConsumer()
    run, printed, notes = reading(consumer)
    await run.in_group()

    assert printed.getvalue() == b""
    assert notes.getvalue() == "other members of group g read all partitions\n"


async def test_before_it_is_a_member_it_waits() -> None:
    consumer = MadeUpConsumer(is_outside=True)
    run, _, _ = reading(consumer)
    await run.in_group()

    assert consumer.polls > 50


async def test_no_more_is_polled_than_is_to_be_printed() -> None:
    consumer = MadeUpConsumer(([ZERO], records(ZERO, 0, 1)), ([ZERO], records(ZERO, 2)), end=100)
    run, printed, _ = reading(consumer, "--count", "3")
    await run.in_group()

    assert printed.getvalue() == b"0\n1\n2\n"
    assert consumer.committed[-1] == {ZERO: 3}


async def test_what_was_printed_is_committed_when_nothing_more_comes() -> None:
    consumer = MadeUpConsumer(([ZERO], records(ZERO, 0)), ([ZERO], records(ZERO, 1)), end=100, last_poll=5)
    run, _, _ = reading(consumer, "--follow")
    task = asyncio.ensure_future(run.in_group())
    await consumer.is_waiting.wait()

    assert consumer.committed == [{ZERO: 1}, {ZERO: 2}], "at first, and when a poll brought nothing"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(consumer.committed) == 2, "there was nothing left to commit"


async def test_who_is_ended_commits_what_is_printed_and_no_more() -> None:
    consumer = MadeUpConsumer(([ZERO], records(ZERO, 0)), ([ZERO], records(ZERO, 1)), end=100, last_poll=3)
    run, _, _ = reading(consumer, "--follow")
    task = asyncio.ensure_future(run.in_group())
    await consumer.is_waiting.wait()
    consumer.positions[ZERO] = 50  # a poll that was cut short has moved on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert consumer.committed[-1] == {ZERO: 2}
