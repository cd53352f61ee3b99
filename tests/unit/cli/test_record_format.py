"""Format strings, and what a record looks like on a terminal, in a pipe and as JSON."""

from __future__ import annotations

import json

import pytest

from semel.cli.failures import WrongCall
from semel.cli.record_format import FIELDS, render_for_terminal, render_format, render_json
from semel.client.values import Message

RECORD = Message("payments", 2, 17, 1_700_000_000_000, 0, b"42", b"10.00 EUR", (("source", b"till"), ("n", None)))


def shown(text: str, message: Message = RECORD, *, is_terminal: bool = False) -> bytes:
    return render_format(text, is_terminal=is_terminal)(message)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{value}", b"10.00 EUR\n"),
        ("{topic}/{partition}@{offset}", b"payments/2@17\n"),
        (r"{key}\t{value}", b"42\t10.00 EUR\n"),
        ("{timestamp}", b"1700000000000\n"),
        ("{headers}", b"source=till,n=\n"),
        ("{header:source}|{header:none}", b"till|\n"),
        ("{{{key}}}", b"{42}\n"),
        (r"a\\b\x00\0\n", b"a\\b\0\0\n\n"),
        ("grün", "grün\n".encode()),
        ("", b"\n"),
    ],
)
def test_fields_and_escapes_are_replaced(text: str, line: bytes) -> None:
    assert shown(text) == line


def test_every_field_that_help_names_is_known() -> None:
    for name in FIELDS:
        assert shown(f"{{{name}}}").endswith(b"\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{valu}", "{valu} is unknown; known are {topic}, "),
        ("{value", "'{' alone means nothing"),
        ("value}", "'}' alone means nothing"),
        (r"\q", r"'\\q' alone means nothing"),
        ("a\\", r"'\\' alone means nothing"),
        ("{}", "{} is unknown"),
    ],
)
def test_a_slip_in_a_format_is_told(text: str, problem: str) -> None:
    with pytest.raises(WrongCall) as raised:
        render_format(text, is_terminal=False)
    assert problem in str(raised.value)


def test_in_a_pipe_bytes_stay_as_they_are() -> None:
    assert shown("{value}", RECORD._replace(value=b"\xff\x1b[2J")) == b"\xff\x1b[2J\n"


def test_a_terminal_gets_nothing_that_controls_it() -> None:
    hostile = RECORD._replace(key=b"\x1b]0;x\x07", value=b"\xff a\tb\nc \x9b", headers=(("\x1b", b"\x1b"),))
    for line in (
        shown("{key} {value} {headers}", hostile, is_terminal=True),
        render_for_terminal(lambda text, colour: text, with_topic=True)(hostile),
    ):
        assert b"\x1b" not in line
        assert b"\\xff a\tb\nc" in line


def test_on_a_terminal_place_key_and_value_are_told_apart() -> None:
    painted = render_for_terminal(lambda text, colour: f"<{colour}:{text}>", with_topic=False)

    assert painted(RECORD) == b"<dim:2@17>  <cyan:42>  10.00 EUR\n"
    assert painted(RECORD._replace(key=None, value=None)) == b"<dim:2@17>  <dim:null>\n"


def test_json_has_everything_and_tells_null_from_empty() -> None:
    document = json.loads(render_json(RECORD._replace(key=None, value=b"\xff")))

    assert document == {
        "topic": "payments",
        "partition": 2,
        "offset": 17,
        "timestamp_ms": 1_700_000_000_000,
        "key": None,
        "value": {"base64": "/w=="},
        "headers": [["source", "till"], ["n", None]],
    }
    assert json.loads(render_json(RECORD._replace(key=b"")))["key"] == ""
