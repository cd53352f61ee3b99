"""What commands print: columns, JSON, colours and progress, on a terminal and in a pipe."""

from __future__ import annotations

import argparse
import io
import json

import pytest

from semel.cli.output import (
    Cell,
    Output,
    Progress,
    add_output_arguments,
    bytes_of_json,
    count_text,
    duration_text,
    json_bytes,
    printable,
    size_text,
    time_text,
    wants_colours,
    width_of,
)
from semel.cli.positions import timestamp_ms


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def piped(**how: bool) -> tuple[Output, io.StringIO]:
    stream = io.StringIO()
    return Output(stream, io.StringIO(), **how), stream


# -- tables


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    output, stream = piped()
    output.table(("TOPIC", "PARTITIONS"), [("payments", 3), ("a", 12)])

    assert stream.getvalue().splitlines() == [
        "TOPIC     PARTITIONS",
        "payments           3",
        "a                 12",
    ]


def test_a_missing_number_is_a_dash_and_leaves_its_column_to_the_right() -> None:
    output, stream = piped()
    output.table(("A", "LAG"), [("x", None), ("y", 1000)])

    assert stream.getvalue().splitlines()[1:] == ["x     -", "y  1000"]


def test_the_last_column_has_no_blanks_behind_it() -> None:
    output, stream = piped()
    output.table(("NAME", "TEXT"), [("a", "long text"), ("b", "x")])

    assert all(line == line.rstrip() for line in stream.getvalue().splitlines())


def test_a_table_without_rows_has_its_titles() -> None:
    output, stream = piped()
    output.table(("NAME", "N"), [])

    assert stream.getvalue() == "NAME  N\n"


def test_wide_and_combining_characters_keep_the_columns() -> None:
    assert width_of("日本") == 4
    assert width_of("e\u0301") == 1
    output, stream = piped()
    output.table(("NAME", "X"), [("日本", "a"), ("abcd", "b")])

    assert stream.getvalue().splitlines()[1:] == ["日本  a", "abcd  b"]


def test_colours_do_not_move_the_columns() -> None:
    plain, plain_stream = piped()
    coloured, coloured_stream = piped(has_colours=True)
    for output in (plain, coloured):
        output.table(("STATE", "N"), [(Cell("Ongoing", "yellow"), 1), ("Empty", Cell(22, "red"))])

    assert "\x1b[33mOngoing\x1b[0m" in coloured_stream.getvalue()
    without = coloured_stream.getvalue()
    for code in ("\x1b[33m", "\x1b[31m", "\x1b[1m", "\x1b[0m"):
        without = without.replace(code, "")
    assert without == plain_stream.getvalue()


def test_a_name_cannot_send_control_characters_to_the_terminal() -> None:
    output, stream = piped()
    output.table(("CLIENT",), [("evil\x1b]0;title\x07",)])
    output.facts([("client", "a\nb")])

    assert "\x1b" not in stream.getvalue()
    assert "evil\\x1b]0;title\\x07" in stream.getvalue()
    assert "a\\nb" in stream.getvalue()
    assert printable("grün") == "grün"


def test_facts_stand_below_one_another() -> None:
    output, stream = piped()
    output.facts([("topic", "payments"), ("id", None)], indent="  ")

    assert stream.getvalue() == "  topic  payments\n  id     -\n"


# -- JSON


def test_json_is_one_line_in_a_pipe_and_indented_on_a_terminal() -> None:
    output, stream = piped(is_json=True)
    output.json({"a": [1]})
    assert stream.getvalue() == '{"a": [1]}\n'

    terminal = Terminal()
    Output(terminal, io.StringIO(), is_json=True).json({"a": [1]})
    assert len(terminal.getvalue().splitlines()) > 1
    assert json.loads(terminal.getvalue()) == {"a": [1]}


@pytest.mark.parametrize("value", [None, b"", b"text", "grün".encode(), b"\xff\x00", bytes(range(256))])
def test_bytes_come_back_from_json_as_they_were(value: bytes | None) -> None:
    assert bytes_of_json(json.loads(json.dumps(json_bytes(value)))) == value


def test_json_that_is_no_text_is_a_value_by_its_own_text() -> None:
    assert bytes_of_json({"a": 1}) == b'{"a":1}'
    assert bytes_of_json(3) == b"3"
    with pytest.raises(ValueError):
        bytes_of_json({"base64": "not base64!"})


# -- colours and options


def test_colours_are_for_terminals_that_want_them() -> None:
    assert wants_colours(Terminal(), {"TERM": "xterm"})
    assert not wants_colours(io.StringIO(), {"TERM": "xterm"})
    assert not wants_colours(Terminal(), {"NO_COLOR": "1"})
    assert wants_colours(Terminal(), {"NO_COLOR": ""})
    assert not wants_colours(Terminal(), {"TERM": "dumb"})


def test_json_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    parser = argparse.ArgumentParser()
    add_output_arguments(parser)

    assert Output.of(parser.parse_args([])).has_colours
    assert not Output.of(parser.parse_args(["--json"])).has_colours


def test_notes_do_not_go_where_results_go() -> None:
    stream, notes = io.StringIO(), io.StringIO()
    Output(stream, notes).note("by the way")

    assert (stream.getvalue(), notes.getvalue()) == ("", "by the way\n")


# -- progress


def test_progress_is_drawn_now_and_then_and_taken_away_at_the_end() -> None:
    stream = Terminal()
    now_s = [0.0]
    with Progress(stream, "reading", 200, "records", now_s=lambda: now_s[0], columns=80) as bar:
        bar.show(50)
        bar.show(60)
        now_s[0] = 1.0
        bar.advance(40, "payments/0")
    drawn = stream.getvalue().split("\r\x1b[K")

    assert drawn == [
        "",
        "reading  [######..................]  25%  50 of 200 records",
        "reading  [############............]  50%  100 of 200 records  payments/0",
        "",
    ]


def test_a_bar_is_no_wider_than_the_terminal() -> None:
    stream = Terminal()
    Progress(stream, "reading", 10, "records", columns=20).show(5)

    assert len(stream.getvalue().removeprefix("\r\x1b[K")) == 19


def test_nobody_sees_progress_in_a_pipe() -> None:
    notes = io.StringIO()
    with Output(Terminal(), notes).progress("reading", 10) as bar:
        bar.show(5)

    assert notes.getvalue() == ""
    assert bar.done == 5


# -- how things are told


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (250, "250 ms"),
        (1500, "1.5 s"),
        (42_000, "42 s"),
        (60_000, "1 min"),
        (125_000, "2 min 5 s"),
        (12_000_000, "3 h 20 min"),
        (353_000_000, "4 d 2 h"),
    ],
)
def test_durations_are_told_in_two_units_at_most(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (12 << 20, "12 MB"), (5 << 30, "5.0 GB"), (3000 << 40, "3000 TB")],
)
def test_sizes_are_told_in_the_unit_that_fits(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


def test_a_time_that_was_told_can_be_given_back() -> None:
    assert timestamp_ms(time_text(1_794_757_683_078)) == 1_794_757_683_078


def test_counts_agree_with_their_nouns() -> None:
    assert count_text(1, "record") == "1 record"
    assert count_text(12_000, "record") == "12,000 records"
