"""What `semel consume` does: finds where to begin and to end, polls, prints, and commits what was printed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from semel.cli.connection import client_settings, is_hasty, shown_options
from semel.cli.consume import ISOLATION
from semel.cli.failures import Exit, NotFound, WrongCall
from semel.cli.output import Output, Progress, count_text
from semel.cli.positions import Kind, Position
from semel.cli.record_format import Render, render_for_terminal, render_format, render_json
from semel.cli.waiting import watched_host
from semel.client.consumer.consumer import Consumer
from semel.client.metadata import TopicPartition
from semel.client.values import Message
from semel.views.refusals import no_such_topic

_POLL_MS = 200
_MOST_RECORDS = 2000
_COMMIT_INTERVAL_S = 1.0
_POLLS_WITHOUT_PARTITIONS = 15
"""How long a member without partitions waits for some before it ends: others read all of them."""


async def consume(options: argparse.Namespace) -> int:
    output = Output.of(options)
    render = _render(options, output)
    if options.follow and options.end is not None:
        raise WrongCall("--to contradicts --follow, which has no end: leave one of them out")
    settings = client_settings(options)
    settings |= {"isolation_level": ISOLATION[options.isolation], "allow_auto_create_topics": False}
    if not options.follow:
        settings.setdefault("fetch_max_wait_ms", 100)
    if options.group is not None:
        settings |= {"group_id": options.group, "enable_auto_commit": False, "auto_offset_reset": _reset(options)}
        if options.end is not None:
            raise WrongCall("--to contradicts --group, which reads on to the end: leave one of them out")
        if options.partitions:
            raise WrongCall("--partition contradicts --group, whose members share partitions: leave one of them out")
    if options.decode:
        settings |= dict.fromkeys(("key_deserializer", "value_deserializer"), _decoder(options.registry))
    with watched_host(gives_up=is_hasty(settings)) as host:
        async with Consumer(host=host, **settings) as consumer:
            places = await _places(consumer, options)
            reading = _Reading(consumer, options, output, _Printer(render, sys.stdout.buffer))
            if options.follow and output.is_terminal:
                output.note("following; Ctrl-C ends it")
            if options.group is not None:
                await reading.in_group()
            else:
                await reading.alone(places)
    return Exit.OK


def _decoder(url: str) -> object:
    from semel.serializers.any_text import AnyText
    from semel.serializers.registry import SchemaRegistry

    parts = urlsplit(url)
    if parts.username is None:
        return AnyText(SchemaRegistry(url))
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return AnyText(SchemaRegistry(place, basic_auth=(unquote(parts.username), unquote(parts.password or ""))))


def _render(options: argparse.Namespace, output: Output) -> Render:
    if options.json:
        if options.format is not None:
            raise WrongCall("--format contradicts --json: leave one of them out")
        return render_json
    if options.format is None and output.is_terminal:
        return render_for_terminal(output.paint, with_topic=len(options.topics) > 1)
    return render_format("{value}" if options.format is None else options.format, is_terminal=output.is_terminal)


def _reset(options: argparse.Namespace) -> str:
    start: Position = options.start
    if start.kind not in (Kind.EARLIEST, Kind.LATEST):
        raise WrongCall(
            f"with --group, --from can be earliest or latest: semel group reset {options.group} --to ... sets a group "
            "to another place"
        )
    return str(start.kind.value)


async def _places(consumer: Consumer, options: argparse.Namespace) -> list[TopicPartition]:
    places = []
    for topic in dict.fromkeys(options.topics):
        numbers = await consumer.partitions_for_topic(topic)
        if numbers is None:
            raise NotFound(no_such_topic(topic))
        missing = sorted(set(options.partitions) - numbers)
        if missing:
            raise NotFound(
                f"topic {topic!r} has no partition {missing[0]}; it has {count_text(len(numbers), 'partition')}"
            )
        places += [TopicPartition(topic, number) for number in sorted(options.partitions or numbers)]
    return places


class _Printer:
    """Bytes, and not texts: in a pipe values go through as they are."""

    def __init__(self, render: Render, stream: BinaryIO) -> None:
        self.count = 0
        self._render = render
        self._stream = stream

    def put(self, batches: Iterable[list[Message]]) -> None:
        for messages in batches:
            rest = memoryview(b"".join(map(self._render, messages)))
            # Without a buffer (PYTHONUNBUFFERED) a signal ends a write in the middle.
            while rest:
                rest = rest[self._stream.write(rest) :]
            self.count += len(messages)
        self._stream.flush()


class _Reading:
    def __init__(self, consumer: Consumer, options: argparse.Namespace, output: Output, printer: _Printer) -> None:
        self._consumer = consumer
        self._options = options
        self._output = output
        self._printer = printer
        self._printed: dict[TopicPartition, int] = {}
        """Where the group stands in what was printed but not committed yet."""
        self._before: dict[TopicPartition, int] | None = None
        """Where --to says that a partition ends."""
        self._committed_s = float("-inf")

    # -- without a group

    async def alone(self, places: list[TopicPartition]) -> None:
        consumer = self._consumer
        consumer.assign(places)
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        starts = await self._at(self._options.start, begins, ends)
        for place, offset in starts.items():
            consumer.seek(place, offset)
        if self._options.follow:
            while await self._poll():
                pass
            return
        if self._options.end is not None:
            ends = self._before = dict(await self._at(self._options.end, begins, ends))
        total = sum(max(ends[place] - starts[place], 0) for place in places)
        with self._bar(total) as bar:
            while await self._poll() and not await self._is_through(places, ends):
                left = [max(ends[place] - await consumer.position(place), 0) for place in places]
                bar.show(total - sum(left))
        self._tell_who_waits(places)

    def _bar(self, total: int) -> Progress:
        """Records on a terminal are progress enough."""
        output = self._output
        return Progress(output.notes, "reading", total, "offsets", is_silent=output.is_quiet or output.is_terminal)

    async def _at(
        self, where: Position, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        if where.kind is Kind.EARLIEST:
            return begins
        if where.kind is Kind.LATEST:
            return ends
        if where.kind is Kind.BEFORE_END:
            return {place: max(end - where.value, begins[place]) for place, end in ends.items()}
        if where.kind is Kind.OFFSET:
            return {place: self._nearest(place, where.value, begins[place], end) for place, end in ends.items()}
        since_ms = where.time_ms(round(time.time() * 1000))
        found = await self._consumer.offsets_for_times(dict.fromkeys(ends, since_ms))
        # A record may be there that is not committed yet: then the end is where reading begins.
        return {place: ends[place] if one is None else min(one.offset, ends[place]) for place, one in found.items()}

    def _nearest(self, place: TopicPartition, offset: int, begin: int, end: int) -> int:
        """Where a partition has nothing at the offset that was asked for, the nearest place is told and taken."""
        if begin <= offset <= end:
            return offset
        is_past = offset > end
        there = f"ends at offset {end}" if is_past else f"begins at offset {begin}"
        self._output.note(f"{place.topic}/{place.partition} {there}, not {offset}")
        return end if is_past else begin

    # -- with one

    async def in_group(self) -> None:
        consumer = self._consumer
        consumer.subscribe(dict.fromkeys(self._options.topics))
        try:
            await self._poll_in_group()
        except asyncio.CancelledError:
            if self._printed:
                await consumer.commit(self._printed)
            raise
        await consumer.commit()

    async def _poll_in_group(self) -> None:
        consumer = self._consumer
        ends: dict[TopicPartition, int] = {}
        polls_without = 0
        while await self._poll():
            if self._options.follow:
                continue
            places = consumer.assignment()
            new = places - ends.keys()
            if new:
                ends |= await consumer.end_offsets(new)
            if places:
                if await self._is_through(places, ends):
                    self._tell_who_waits(places)
                    return
            elif not consumer.group_metadata().is_outside:
                polls_without += 1
                if polls_without == _POLLS_WITHOUT_PARTITIONS:
                    self._output.note(f"other members of group {self._options.group} read all partitions")
                    return

    # -- both

    async def _poll(self) -> bool:
        """Prints what there is; whether to go on."""
        options, printer = self._options, self._printer
        most = _MOST_RECORDS if options.count is None else min(options.count - printer.count, _MOST_RECORDS)
        found = await self._consumer.poll(_POLL_MS, most)
        if found:
            printer.put(found.values() if self._before is None else _those_before(self._before, found))
            if options.group is not None:
                self._printed |= {place: messages[-1].offset + 1 for place, messages in found.items()}
        if self._printed:
            await self._commit_now_and_then(is_idle=not found)
        return options.count is None or printer.count < options.count

    async def _commit_now_and_then(self, *, is_idle: bool) -> None:
        """Not after every poll: a commit takes as long as many of them."""
        now_s = asyncio.get_running_loop().time()
        if is_idle or now_s - self._committed_s >= _COMMIT_INTERVAL_S:
            await self._consumer.commit()
            self._committed_s = now_s
            self._printed.clear()

    async def _is_through(self, places: Collection[TopicPartition], ends: Mapping[TopicPartition, int]) -> bool:
        for place in places:
            if await self._consumer.position(place) < ends[place]:
                return False
        return True

    def _tell_who_waits(self, places: Iterable[TopicPartition]) -> None:
        """Readers of committed records stop at the oldest open transaction: without a word that looks like the end."""
        if self._options.isolation != "committed":
            return
        for place in sorted(places):
            end, stable = self._consumer.highwater(place), self._consumer.last_stable_offset(place)
            if end is not None and stable is not None and stable < end:
                shown = f"{place.topic}/{place.partition}"
                self._output.note(
                    f"an open transaction holds back {shown} at offset {stable}, {end - stable} before its end: "
                    f"semel txn why-stuck {shown}{shown_options(self._options)}"
                )


def _those_before(
    ends: Mapping[TopicPartition, int], found: Mapping[TopicPartition, list[Message]]
) -> list[list[Message]]:
    return [[one for one in messages if one.offset < ends[place]] for place, messages in found.items()]
