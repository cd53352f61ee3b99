"""Pictures in a window: cut to its size, with colours that end."""

from __future__ import annotations

import argparse
import io

import pytest

from semel.cli.live import cut, draw_again, fitted
from semel.cli.output import Output
from semel.cli.top import show

DOCUMENT = {
    "cluster_id": "abc",
    "offline_partitions": 1,
    "under_replicated_partitions": 0,
    "nodes": [{"node": 1, "address": "h:1", "leads": 3, "records_per_s": 1234.5, "round_trip_ms": None}],
    "topics": [{"topic": f"t{number}", "partitions": 1, "records_per_s": 5.5} for number in range(10)],
    "groups": [{"group": "g\x1b[2J", "state": "Stable", "lag": 7, "partitions": 2}],
    "transactions": None,
}


def test_a_line_is_cut_to_the_window_and_its_colour_ends() -> None:
    assert cut("abcdef", 3) == "abc"
    assert cut("\x1b[31mabcdef\x1b[0m", 3) == "\x1b[31mabc\x1b[0m"
    assert cut("\x1b[31mabc\x1b[0m", 3) == "\x1b[31mabc\x1b[0m"
    assert cut("\u6f22\u5b57", 3) == "\u6f22"


def test_what_does_not_fit_below_is_counted() -> None:
    lines = fitted("\n".join(map(str, range(10))), 80, 6).split("\r\n")[:-1]
    assert [line.removesuffix("\x1b[K") for line in lines] == [
        "0",
        "1",
        "2",
        "3",
        "... 6 more lines: a larger window shows them",
    ]
    assert "more" not in fitted("1\n2", 80, 3)


async def test_a_pipe_gets_one_picture_after_the_other() -> None:
    stream = io.StringIO()
    options = argparse.Namespace(every=0.0, count=3)

    async def draw(picture: Output) -> None:
        picture.line("picture")

    assert await draw_again(options, Output(stream, stream), draw) == 0
    assert stream.getvalue() == "picture\n\n" * 3


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_top_tells_what_is_wrong_and_leaves_out_what_is_too_much(columns: int) -> None:
    stream = io.StringIO()
    show(Output(stream, stream), DOCUMENT)
    text = stream.getvalue()
    assert "partitions without a leader: 1" in text
    assert "under-replicated" not in text
    assert "no answer" in text
    assert "... and 2 more" in text
    assert "transactions: no answer" in text
    assert "\x1b" not in text, "a name must not move the cursor"
    assert all(len(line) <= 60 for line in text.splitlines())
