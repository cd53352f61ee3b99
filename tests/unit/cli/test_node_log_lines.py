"""One line for each record, whatever is in it."""

from __future__ import annotations

import io
import json
import logging

import pytest

from semel.cli.log_lines import JsonFormatter, LineFormatter, one_line

FORGED = "g\n2026-01-01 00:00:00,000 CRITICAL semel the node stops\x1b[2J\r\u2028\x85\u202e"


def logged(say: object, *args: object, formatter: type[logging.Formatter] = LineFormatter, **rest: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    getattr(logger, str(say))(*args, **rest)
    return stream.getvalue()


@pytest.mark.parametrize("text", ["group %s", "group %r", FORGED + "%s"])
def test_a_name_can_neither_begin_a_line_nor_speak_to_a_terminal(text: str) -> None:
    line = logged("info", text, FORGED)
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    assert all(character.isprintable() for character in line[:-1])
    assert "CRITICAL" in line, "it can still be read"


def test_lines_of_a_traceback_cannot_be_taken_for_records() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        lines = logged("error", "a request of %s failed", "10.0.0.1:5", exc_info=error).split("\n")
    assert "a request of 10.0.0.1:5 failed" in lines[0]
    assert any("ValueError" in line for line in lines)
    assert all(line.startswith("  | ") and line.isprintable() for line in lines[1:-1])


def test_what_cannot_be_written_is_escaped_and_the_rest_is_left_as_it_is() -> None:
    assert one_line("größe 𝄞 \ud800 \t") == "größe 𝄞 \\ud800 \\t"


def test_a_line_has_an_end() -> None:
    line = one_line("x" * 100_000)
    assert len(line) < 4200
    assert line.endswith("(100000 characters)")


def test_as_json_each_record_is_one_object_in_one_line_whatever_it_quotes() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        line = logged("error", "group %s", FORGED, formatter=JsonFormatter, exc_info=error)
    assert line.endswith("\n")
    assert line[:-1].isascii()
    assert line[:-1].isprintable()
    found = json.loads(line)
    assert found["message"] == f"group {FORGED}"
    assert (found["level"], found["logger"]) == ("ERROR", "test")
    assert found["time"].endswith("Z")
    assert "ValueError" in found["exception"]
    cut = json.loads(logged("info", "%s", "x" * 100_000, formatter=JsonFormatter))["message"]
    assert len(cut) < 4200
    assert cut.endswith("(100000 characters)")
