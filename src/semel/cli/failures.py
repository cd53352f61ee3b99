"""Why a command ends otherwise than well: exit codes that scripts can use, and one sentence for whoever reads.

A command raises; `main` tells. Errors of the client carry their advice with them and get their code here.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.client.errors import SemelError


class Exit(IntEnum):
    """Documented in docs/command-line.md."""

    OK = 0
    FAILED = 1
    WRONG_CALL = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    BROKEN = 70
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


EXIT_CODES = {
    Exit.OK: "it was done",
    Exit.FAILED: "it was not done, or not all of it; for a command that looks for faults: it found one",
    Exit.WRONG_CALL: "the call was wrong: an option, a setting, a file; nothing was done",
    Exit.NOT_FOUND: "the topic, group, transactional id or context is not there",
    Exit.UNREACHABLE: "no broker answered, or not in time: the same call may succeed later",
    Exit.BROKEN: "`semel serve`: the node stopped at once, since it could promise nothing any more",
    Exit.INTERRUPTED: "Ctrl-C ended it",
    Exit.CLOSED_PIPE: "whoever read its output had enough (`| head`)",
    Exit.TERMINATED: "SIGTERM ended it",
}


class CommandFailed(Exception):
    """A sentence that says what was wrong and what to do next."""

    exit_code = Exit.FAILED


class WrongCall(CommandFailed):
    exit_code = Exit.WRONG_CALL


class NotFound(CommandFailed):
    exit_code = Exit.NOT_FOUND


class Terminated(CommandFailed):
    """Somebody wanted it to end, and so it did: there is nothing to tell."""

    exit_code = Exit.TERMINATED


def exit_code_of(error: BaseException) -> Exit | None:
    """The code for an error that is told in a sentence; None for one that nobody foresaw."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    # Only a command that has used the client can have met one of its errors: the others need not import it.
    if "semel.client.errors" in sys.modules:
        from semel.client.errors import SemelError

        if isinstance(error, SemelError):
            return _of_client(error)
    if "semel.views.refusals" in sys.modules:
        from semel.views.refusals import Misasked, Missing, Refusal

        if isinstance(error, Refusal):
            is_missing, is_wrong = isinstance(error, Missing), isinstance(error, Misasked)
            return Exit.NOT_FOUND if is_missing else Exit.WRONG_CALL if is_wrong else Exit.FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return Exit.FAILED
    return None


def _of_client(error: SemelError) -> Exit:
    from semel.client.errors import BadSetting, Disconnected, SemelError, TimedOut, UnknownGroup, UnknownTopic
    from semel.wire.errors import ErrorCode

    if isinstance(error, ExceptionGroup):
        codes = {_of_client(one) for one in error.exceptions if isinstance(one, SemelError)}
        return codes.pop() if len(codes) == 1 else Exit.FAILED
    if isinstance(error, BadSetting):
        return Exit.WRONG_CALL
    if isinstance(error, UnknownTopic | UnknownGroup) or error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return Exit.NOT_FOUND
    if isinstance(error, Disconnected | TimedOut):
        return Exit.UNREACHABLE
    return Exit.FAILED


def sentence_of(error: BaseException) -> str:
    """What to print for it, in one line. An error that wraps another has the advice of both: it is given once."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ExceptionGroup):
        return "; ".join(sentence_of(one) for one in error.exceptions)
    text = " ".join(str(error).split())
    advice = getattr(error, "advice", "")
    return f"{text.replace(f' ({advice})', '')} ({advice})" if advice else text
