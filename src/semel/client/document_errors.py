"""Writes docs/errors.md from the classes: `python -m semel.client.document_errors > docs/errors.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from semel.client import errors
from semel.client.errors import (
    AbortTransactionError,
    FatalError,
    RestartProducerError,
    RetriableError,
    SemelError,
    code_text,
    error_for,
)
from semel.client.producer.refusals import WRITTEN
from semel.wire.errors import ErrorCode

OPENING = """\
# Errors

This page is written by `python -m semel.client.document_errors` from the classes in `src/semel/client/errors.py`.

Every error of the client is a `semel.errors.SemelError`. It is of one of four kinds, and the kind says what a program
can do about it; its text says what happened and what to do next. `code` is the broker's error code, if it gave one.
"""
KINDS = {
    RetriableError: "The same call may succeed later; the client has tried for as long as its settings allow.",
    AbortTransactionError: "The open transaction cannot be committed: abort it, begin another. The producer goes on.",
    RestartProducerError: "This producer is of no more use: close it, start a new one, which ends what it left open.",
    FatalError: "It will happen again until the program, its settings or its rights are changed.",
}


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield OPENING
    found = [
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, SemelError) and cls is not SemelError and cls not in KINDS
    ]
    found.sort(key=lambda cls: inspect.getsourcelines(cls)[1])
    for kind, sentence in KINDS.items():
        yield f"## {kind.__name__}\n\n{sentence}\n"
        yield "| error | means | do |"
        yield "|---|---|---|"
        for cls in found:
            if issubclass(cls, kind):
                meaning = " ".join((cls.__doc__ or "").split())
                yield f"| `{cls.__name__}` | {meaning} | {cls.advice} |"
        yield ""
    yield "## By the broker's code\n"
    yield "| code | | becomes |"
    yield "|---|---|---|"
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            text = code_text(code).partition(": ")[2].replace("|", "\\|")
            becomes = f"`{type(error_for(code, '')).__name__}`"
            if code in WRITTEN:
                becomes = "no error: the record counts as written"
            yield f"| {int(code)} {code.name} | {text} | {becomes} |"


if __name__ == "__main__":
    sys.stdout.write(page())
