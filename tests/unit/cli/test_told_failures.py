"""What a command raises becomes one sentence and an exit code; tracebacks are for those who ask."""

from __future__ import annotations

import argparse
import errno
import sys
from types import ModuleType

import pytest

from semel.cli import main as main_module
from semel.cli.failures import CommandFailed, Exit, NotFound, Terminated, WrongCall, exit_code_of, sentence_of
from semel.cli.main import main
from semel.cli.output import add_output_arguments
from semel.client.admin.outcome import AdminErrors
from semel.client.errors import (
    AuthenticationFailed,
    BadSetting,
    BrokerRefused,
    Disconnected,
    GroupNotEmpty,
    SemelError,
    TimedOut,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from semel.views.refusals import Misasked, Missing, Refusal
from semel.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandFailed("x"), Exit.FAILED),
        (WrongCall("x"), Exit.WRONG_CALL),
        (NotFound("x"), Exit.NOT_FOUND),
        (Terminated("x"), Exit.TERMINATED),
        (Refusal("x"), Exit.FAILED),
        (Misasked("x"), Exit.WRONG_CALL),
        (Missing("x"), Exit.NOT_FOUND),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (BadSetting("x"), Exit.WRONG_CALL),
        (UnknownTopic("x"), Exit.NOT_FOUND),
        (UnknownGroup("x"), Exit.NOT_FOUND),
        (BrokerRefused("x", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), Exit.NOT_FOUND),
        (BrokerRefused("x", code=ErrorCode.INVALID_CONFIG), Exit.FAILED),
        (Disconnected("x"), Exit.UNREACHABLE),
        (TimedOut("x"), Exit.UNREACHABLE),
        (AuthenticationFailed("x"), Exit.FAILED),
        (TopicExists("x"), Exit.FAILED),
        (GroupNotEmpty("x"), Exit.FAILED),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x.txt"), Exit.FAILED),
        (ZeroDivisionError(), None),
        (OSError(errno.EIO, "Input/output error"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_error_has_its_exit_code(error: BaseException, code: Exit | None) -> None:
    assert exit_code_of(error) is code


def test_several_errors_have_a_code_if_they_agree() -> None:
    missing: dict[str, SemelError] = {"a": UnknownTopic("a"), "b": UnknownTopic("b")}
    mixed: dict[str, SemelError] = {"a": UnknownTopic("a"), "b": TopicExists("b")}

    assert exit_code_of(AdminErrors(missing, {})) is Exit.NOT_FOUND
    assert exit_code_of(AdminErrors(mixed, {})) is Exit.FAILED
    assert sentence_of(AdminErrors(mixed, {})) == f"{UnknownTopic('a')}; {TopicExists('b')}"


def test_a_sentence_is_one_line() -> None:
    assert sentence_of(CommandFailed("first\n  second")) == "first second"
    assert sentence_of(FileNotFoundError(errno.ENOENT, "No such file", "x.txt")) == "x.txt: No such file"


def test_advice_to_try_again_is_given_once() -> None:
    inner = Disconnected("cannot connect to a:1")
    told = sentence_of(Disconnected(f"no broker answered: {inner}; is it running?"))

    assert told == "no broker answered: cannot connect to a:1; is it running? (try again later, or allow more time)"


# -- main


def install(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, with_debug: bool = True) -> None:
    """A command `fail` that raises."""
    command = ModuleType("semel.cli.fail")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        if with_debug:
            add_output_arguments(parser)
        parser.set_defaults(run=run)

    def run(options: argparse.Namespace) -> int:
        raise error

    command.add_arguments = add_arguments  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "semel.cli.fail", command)
    monkeypatch.setitem(main_module.COMMANDS, "fail", "fails")
    monkeypatch.setattr(main_module, "find_spec", lambda name: name)


def test_a_failure_is_told_in_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, NotFound("there is no topic 'x'"))

    assert main(["fail"]) == Exit.NOT_FOUND
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "semel fail: there is no topic 'x'\n")


def test_debug_shows_where_it_came_from(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, NotFound("there is no topic 'x'"))

    assert main(["fail", "--debug"]) == Exit.NOT_FOUND
    told = capsys.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert told.splitlines()[-1] == "semel fail: there is no topic 'x'"


def test_what_nobody_foresaw_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, ZeroDivisionError("division by zero"))

    assert main(["fail"]) == Exit.FAILED
    told = capsys.readouterr().err
    assert told == "semel fail: ZeroDivisionError: division by zero; this was not foreseen: --debug shows where\n"


def test_a_command_without_debug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ZeroDivisionError(), with_debug=False)
    with pytest.raises(ZeroDivisionError):
        main(["fail"])


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), Exit.INTERRUPTED), (Terminated("SIGTERM"), Exit.TERMINATED)]
)
def test_who_was_asked_to_end_says_nothing(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, error)

    assert main(["fail", "--debug"]) == code
    assert capsys.readouterr().err == ""
