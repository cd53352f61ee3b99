"""What `semel produce` says when it fails: what was written, what was not, and what nobody can know."""

from __future__ import annotations

import argparse
import asyncio
import io
from collections.abc import Generator
from contextlib import suppress
from typing import Any, cast

import pytest

from semel.cli.failures import CommandFailed, Exit, exit_code_of
from semel.cli.main import parser_for
from semel.cli.output import Output
from semel.cli.producing import BadLine, _failed, _Sending
from semel.client.errors import (
    AbortTransactionError,
    Closed,
    Disconnected,
    NotAuthorised,
    ProducerFenced,
    RecordTooLarge,
    SemelError,
    TransactionFailed,
    TransactionTimedOut,
    UnknownTopic,
)
from semel.client.values import RecordMetadata


def sending(count: int, *, taken: int = 0, is_complete: bool = False) -> _Sending:
    made = _Sending(cast(Any, None), argparse.Namespace(), cast(Output, None))
    made.count, made.taken, made.is_complete = count, taken or count, is_complete
    return made


def failed(error: SemelError | BadLine, how: _Sending, *arguments: str) -> Exception:
    return _failed(error, how, parser_for("produce").parse_args(["produce", "t", "x", *arguments]))


def test_before_anything_was_written_the_error_is_told_as_it_is() -> None:
    error = UnknownTopic("no topic")

    assert failed(error, sending(0)) is error


def test_what_was_written_is_counted_and_what_follows_is_in_doubt() -> None:
    told = failed(Disconnected("gone"), sending(3, taken=5))

    assert str(told).startswith(
        "5 records sent, 3 acknowledged, 2 not, of which some may be written all the same: gone"
    )
    assert exit_code_of(told) is Exit.FAILED, "not all of it was done"
    none = failed(Disconnected("gone"), sending(0, taken=5))
    assert str(none).startswith("5 records sent, 0 acknowledged, 5 not")
    assert exit_code_of(none) is Exit.UNREACHABLE, "the same call may succeed later"
    assert str(failed(BadLine("line 4"), sending(3))) == "3 records written, then it failed: line 4"


@pytest.mark.parametrize(
    ("error", "code"),
    [(BadLine("x"), Exit.FAILED), (UnknownTopic("x"), Exit.NOT_FOUND), (Disconnected("x"), Exit.UNREACHABLE)],
    ids=["line", "topic", "connection"],
)
def test_a_transaction_that_fails_before_its_commit_counts_for_nothing(error: SemelError | BadLine, code: Exit) -> None:
    told = failed(error, sending(3), "--transactional-id", "till")

    assert str(told).startswith("the transaction was not committed, and no record counts: x")
    assert isinstance(told, CommandFailed)
    assert exit_code_of(told) is code


def test_a_commit_that_fails_is_in_doubt_unless_the_transaction_was_aborted() -> None:
    transactional = ("--transactional-id", "till")

    for error in (Disconnected("x"), ProducerFenced("x")):
        assert str(failed(error, sending(3, is_complete=True), *transactional)).startswith(
            "whether the transaction was"
        )
    for aborted in (AbortTransactionError("x"), TransactionTimedOut("x")):
        assert str(failed(aborted, sending(3, is_complete=True), *transactional)).startswith("the transaction was not")


class Sent:
    """A delivery that was decided."""

    def __init__(self, error: SemelError | None) -> None:
        self._error = error

    def __await__(self) -> Generator[None, None, RecordMetadata]:
        yield from ()
        if self._error is not None:
            raise self._error
        return RecordMetadata("t", 0, 1, 2, 0)


@pytest.mark.parametrize("kinds", [1, 2])
def test_failures_are_told_by_kind_and_what_the_command_gave_up_is_none(kinds: int) -> None:
    notes = io.StringIO()
    how = _Sending(cast(Any, None), argparse.Namespace(), Output(io.StringIO(), notes))

    async def settle() -> None:
        for number in range(300):
            error = NotAuthorised(f"t-{number % 3}") if number % kinds else RecordTooLarge(f"t-{number % 3}")
            with suppress(SemelError):
                await how._report(cast(Any, Sent(error)))
        for error in (None, Closed("closed"), TransactionFailed("given up")):
            with suppress(SemelError):
                await how._report(cast(Any, Sent(error)))

    asyncio.run(settle())
    how.tell_kinds(besides=RecordTooLarge("t-0"))
    assert how.count == 1
    told = [line.partition(" (")[0] for line in notes.getvalue().splitlines()]
    if kinds == 1:
        assert told == []
    else:
        assert told == ["semel produce: 150 records failed: t-1"]
