"""What `semel produce` says when it fails: what was written, what was not, and what nobody can know."""

from __future__ import annotations

import argparse
from typing import Any, cast

import pytest

from semel.cli.failures import CommandFailed, Exit, exit_code_of
from semel.cli.main import parser_for
from semel.cli.output import Output
from semel.cli.producing import BadLine, _failed, _Sending
from semel.client.errors import (
    AbortTransactionError,
    Disconnected,
    ProducerFenced,
    SemelError,
    TransactionTimedOut,
    UnknownTopic,
)


def sending(count: int, *, is_complete: bool = False) -> _Sending:
    made = _Sending(cast(Any, None), argparse.Namespace(), cast(Output, None))
    made.count, made.is_complete = count, is_complete
    return made


def failed(error: SemelError | BadLine, how: _Sending, *arguments: str) -> Exception:
    return _failed(error, how, parser_for("produce").parse_args(["produce", "t", "x", *arguments]))


def test_before_anything_was_written_the_error_is_told_as_it_is() -> None:
    error = UnknownTopic("no topic")

    assert failed(error, sending(0)) is error


def test_what_was_written_is_counted_and_what_follows_is_in_doubt() -> None:
    told = failed(Disconnected("gone"), sending(3))

    assert str(told).startswith("3 records written, then it failed, and some after these may be written too: gone")
    assert exit_code_of(told) is Exit.FAILED, "not all of it was done"
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
