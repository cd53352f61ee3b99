"""What `semel produce` does: takes records from where they are, sends them, and tells what became of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

from semel.cli.connection import client_settings, is_hasty, pairs
from semel.cli.failures import CommandFailed, Exit, WrongCall, exit_code_of, sentence_of
from semel.cli.output import Output, Progress, bytes_of_json, count_text
from semel.cli.standard_input import lines_of
from semel.cli.waiting import watched_host
from semel.client.errors import AbortTransactionError, Closed, SemelError, TransactionFailed
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.client.values import RecordMetadata

_MOST_UNDER_WAY = 20_000
"""Records whose fate is not known yet; reading waits while there are more."""
_MAX_BLOCK_MS = "15000"
_LAST_WAIT_S = 2.0
"""For what is under way when the command has failed or was interrupted."""
_OF_OUR_OWN = (Closed, TransactionFailed)
"""What becomes of records because the command gives up."""
_KNOWN = frozenset({"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"})


class BadLine(CommandFailed):
    """What is before it in standard input is sent all the same."""


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None
    partition: int | None = None


async def produce(options: argparse.Namespace) -> int:
    output = Output.of(options)
    _check(options)
    settings = {"max_block_ms": _MAX_BLOCK_MS} | client_settings(options)
    if options.transactional_id is not None:
        settings["transactional_id"] = options.transactional_id
    with watched_host(gives_up=is_hasty(settings)) as host:
        sending = _Sending(Producer(host=host, **settings), options, output)
        try:
            await sending.all()
        except (SemelError, BadLine) as error:
            await sending.give_up()
            sending.tell_kinds(besides=error)
            raise _failed(error, sending, options) from error
        except asyncio.CancelledError:
            await sending.give_up()
            if sending.taken:
                output.note(f"semel produce: interrupted: {_tally(sending, options)}")
                sending.tell_kinds()
            raise
        except BaseException:
            await sending.give_up()
            raise
    if not output.is_json:
        output.line(_told(sending.count, options.topic, sending.last))
    return Exit.OK


def _check(options: argparse.Namespace) -> None:
    if options.null and options.values:
        raise WrongCall("--null contradicts a VALUE: leave one of them out")
    if options.key_separator is not None and options.key is not None:
        raise WrongCall("--key contradicts --key-separator: leave one of them out")
    if options.key_separator == "":
        raise WrongCall("--key-separator: an empty text separates nothing")
    if options.input == "json" and (options.values or options.null or options.key_separator is not None):
        raise WrongCall("--input json is about standard input: leave out VALUE, --null and --key-separator")


def _failed(error: SemelError | BadLine, sending: _Sending, options: argparse.Namespace) -> Exception:
    """Of a transaction nothing counts, unless it was the commit that failed; else what was written before stays."""
    if options.transactional_id is None:
        if not sending.taken:
            return error
        if isinstance(error, BadLine):
            done = f"{count_text(sending.count, 'record')} written, then it failed"
        else:
            done = _tally(sending, options)
        failed = CommandFailed(f"{done}: {sentence_of(error)}")
        if not sending.count:
            failed.exit_code = exit_code_of(error) or Exit.FAILED
        return failed
    is_aborted = isinstance(error, AbortTransactionError)
    failed = CommandFailed(f"{_of_transaction(sending, is_aborted=is_aborted)}: {sentence_of(error)}")
    failed.exit_code = exit_code_of(error) or Exit.FAILED
    return failed


def _tally(sending: _Sending, options: argparse.Namespace) -> str:
    """What became of the records of a command that did not come to its end."""
    if options.transactional_id is not None:
        return _of_transaction(sending, is_aborted=False)
    left = sending.taken - sending.count
    text = f"{count_text(sending.taken, 'record')} sent, {sending.count:,} acknowledged"
    return f"{text}, {left:,} not, of which some may be written all the same" if left else text


def _of_transaction(sending: _Sending, *, is_aborted: bool) -> str:
    if sending.is_complete and not is_aborted:
        return "whether the transaction was committed is not known: look with semel consume before you send it again"
    return "the transaction was not committed, and no record counts"


def _told(count: int, topic: str, last: RecordMetadata | None) -> str:
    text = f"sent {count_text(count, 'record')} to {topic}"
    if count == 1 and last is not None and last.offset >= 0:
        return f"{text}: partition {last.partition}, offset {last.offset}"
    return text


# -- sending


class _Sending:
    def __init__(self, producer: Producer, options: argparse.Namespace, output: Output) -> None:
        self.taken = 0
        """Records that the producer has taken."""
        self.count = 0
        """Records that are written."""
        self.last: RecordMetadata | None = None
        self.is_complete = False
        self._producer = producer
        self._options = options
        self._output = output
        self._under_way: deque[Delivery] = deque()
        self._partitions: set[int] | None = None
        self._is_copy_exact = True
        self._failures: dict[tuple[object, ...], tuple[SemelError, int]] = {}
        """The first failure of each kind, and how many there are."""

    async def all(self) -> None:
        """Returns when every record is written; raises what came in the way of the first that is not."""
        producer = self._producer
        await producer.start()
        if self._options.transactional_id is not None:
            await producer.begin()
        await self._send_all()
        self.is_complete = True
        if self._options.transactional_id is not None:
            await producer.commit_until_known()
        await producer.close()

    async def _send_all(self) -> None:
        under_way = self._under_way
        with self._bar() as bar:
            try:
                async for records in _records(self._options, self._output):
                    await self._send(records)
                    while under_way and under_way[0].done():
                        await self._report(under_way.popleft())
                    self._output.stream.flush()
                    bar.show(self.count)
            except BadLine:
                await self._settle_all(bar)
                raise
            await self._settle_all(bar)

    async def give_up(self) -> None:
        """What is under way has a moment to arrive, and a transaction to be aborted; then it is known what arrived."""
        await self._producer.end(_LAST_WAIT_S)
        while self._under_way:
            with suppress(SemelError):
                await self._report(self._under_way.popleft())

    def tell_kinds(self, besides: Exception | None = None) -> None:
        """A line for each kind of failure, but for the one that is told anyway."""
        for error, count in self._failures.values():
            is_told = besides is not None and _kind_of(error) == _kind_of(besides)
            if not is_told and not isinstance(error, _OF_OUR_OWN):
                self._output.note(f"semel produce: {count_text(count, 'record')} failed: {sentence_of(error)}")

    async def _settle_all(self, bar: Progress) -> None:
        while self._under_way:
            await self._report(self._under_way.popleft())
            bar.show(self.count)

    async def _send(self, records: list[Record]) -> None:
        options, under_way = self._options, self._under_way
        for record in records:
            under_way.append(
                await self._producer.send(
                    options.topic,
                    record.value,
                    record.key,
                    partition=await self._partition(record.partition),
                    timestamp_ms=record.timestamp_ms,
                    headers=record.headers or None,
                )
            )
            self.taken += 1
            if len(under_way) > _MOST_UNDER_WAY:
                await self._report(under_way.popleft())

    async def _partition(self, read: int | None) -> int | None:
        """That of --partition, or the one that the record had where it was read, if this topic has it."""
        options = self._options
        if options.partition is not None or read is None:
            return cast(int | None, options.partition)
        if self._partitions is None:
            self._partitions = await self._producer.partitions_for(options.topic)
        if read in self._partitions:
            return read
        if self._is_copy_exact:
            self._is_copy_exact = False
            has = count_text(len(self._partitions), "partition")
            self._output.note(
                f"semel produce: {options.topic} has {has}, and records come from partition {read}: such records go "
                "where their keys say; for an exact copy, make it with as many partitions"
            )
        return None

    def _bar(self) -> Progress:
        """Who types sees enough."""
        output = self._output
        is_typed = bool(self._options.values) or sys.stdin.isatty()
        is_silent = output.is_quiet or is_typed or (output.is_json and output.is_terminal)
        return Progress(output.notes, "sending", None, "records written", is_silent=is_silent)

    async def _report(self, delivery: Delivery) -> None:
        try:
            self.last = await delivery
        except SemelError as error:
            first, count = self._failures.get(_kind_of(error), (error, 0))
            self._failures[_kind_of(error)] = first, count + 1
            raise
        except asyncio.CancelledError:
            self._under_way.appendleft(delivery)
            raise
        self.count += 1
        if self._output.is_json:
            topic, partition, offset, timestamp_ms, _ = self.last
            self._output.json_line(
                {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
            )


def _kind_of(error: Exception) -> tuple[object, ...]:
    return type(error), getattr(error, "code", None)


# -- records


async def _records(options: argparse.Namespace, output: Output) -> AsyncIterator[list[Record]]:
    headers: list[tuple[str, bytes | None]] = [
        (name, value.encode(errors="surrogateescape")) for name, value in pairs(options.headers, "--header").items()
    ]
    key = None if options.key is None else options.key.encode(errors="surrogateescape")
    if options.values or options.null:
        values = [value.encode(errors="surrogateescape") for value in options.values] if options.values else [None]
        yield [_of_line(value, key, headers, options) for value in values]
        return
    if sys.stdin.isatty():
        output.note("one record a line; Ctrl-D ends it")
    number = 0
    async for lines in lines_of(sys.stdin.fileno()):
        records = []
        bad: BadLine | None = None
        for line in lines:
            number += 1
            if options.input == "lines":
                records.append(_of_line(line, key, headers, options))
                continue
            try:
                records.append(_of_json(line, key, headers, options))
            except ValueError as error:
                bad = BadLine(f"line {number} of standard input is no record: {error}")
                break
        yield records
        if bad is not None:
            raise bad
        await asyncio.sleep(0)  # a file is always readable: without this nothing else would run


def _of_line(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]], options: argparse.Namespace
) -> Record:
    if options.key_separator is not None and value is not None:
        before, separator, after = value.partition(options.key_separator.encode(errors="surrogateescape"))
        if separator:
            key, value = before, after
    return Record(value, key, headers, options.timestamp)


def _of_json(
    line: bytes, key: bytes | None, headers: list[tuple[str, bytes | None]], options: argparse.Namespace
) -> Record:
    """Raises ValueError. The place that the record had is left aside."""
    try:
        document = json.loads(line)
    except ValueError:
        raise ValueError("it is no JSON") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    unknown = sorted(document.keys() - _KNOWN)
    if unknown:
        raise ValueError(f"{unknown[0]!r} is unknown; known are {', '.join(sorted(_KNOWN))}")
    when_ms = document.get("timestamp_ms")
    if when_ms is not None and (type(when_ms) is not int or when_ms < 0):
        raise ValueError("timestamp_ms is no number of milliseconds since 1970")
    partition = document.get("partition")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise ValueError("partition is no number from 0 on")
    own_key = bytes_of_json(document.get("key"))
    return Record(
        bytes_of_json(document.get("value")),
        key if own_key is None else own_key,
        headers + _headers(document.get("headers") or []),
        when_ms if options.timestamp is None else options.timestamp,
        partition,
    )


def _headers(given: Any) -> list[tuple[str, bytes | None]]:
    """Pairs, since a name may come twice; or an object, which is easier to write."""
    entries = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(entries, list) or not all(
        isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[0], str) for entry in entries
    ):
        raise ValueError('headers: allowed are [["name", "value"]] and {"name": "value"}')
    return [(name, bytes_of_json(value)) for name, value in entries]
