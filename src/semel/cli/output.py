"""What commands print: tables and facts in columns, JSON for programs, colours on a terminal, a bar while they work.

Results go to standard output, everything else (notes, progress) to standard error. Texts that come from a cluster are
made harmless: control characters in them would reach the terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TextIO

from semel.views.wording import count_text as count_text
from semel.views.wording import duration_text as duration_text
from semel.views.wording import size_text as size_text
from semel.views.wording import time_text as time_text

NOTHING = "-"
"""Stands where a table has no value."""
_GAP = "  "
_BAR_WIDTH = 24
_REDRAW_S = 0.1
_USUAL_COLUMNS = 80
_COLOURS = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}


class Cell(NamedTuple):
    """A value of a table with a colour; one of `bold`, `dim`, `red`, `green`, `yellow`, `blue`, `cyan`."""

    value: object
    colour: str


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json` and `--debug`, for every command that prints."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("--debug", action="store_true", help="tell what the client does, and where an error came from")


class Output:
    """Where a command prints. `is_json` and `has_colours` say how."""

    def __init__(
        self, stream: TextIO, notes: TextIO, *, is_json: bool = False, has_colours: bool = False, is_quiet: bool = False
    ) -> None:
        self.stream = stream
        self.notes = notes
        self.is_json = is_json
        self.has_colours = has_colours
        self.is_terminal = stream.isatty()
        self.is_quiet = is_quiet or not notes.isatty()
        """Nobody watches: no progress is shown."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Output:
        """As the options, the streams of this process and NO_COLOR ask for."""
        is_json = bool(getattr(options, "json", False))
        return cls(sys.stdout, sys.stderr, is_json=is_json, has_colours=not is_json and wants_colours(sys.stdout))

    @property
    def columns(self) -> int:
        """How wide the terminal is; 80 where there is none."""
        return _columns_of(self.stream)

    # -- for people

    def line(self, text: str = "") -> None:
        self.stream.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Beside the result: standard error, so that a pipe carries results alone."""
        self.stream.flush()
        self.notes.write(f"{text}\n")
        self.notes.flush()

    def paint(self, text: str, colour: str) -> str:
        """`text` in a colour, where there are colours."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.has_colours else text

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[object]], *, indent: str = "") -> None:
        """Columns as wide as they need to be. One that holds only numbers stands to the right."""
        shown = [[_shown(value) for value in row] for row in rows]
        is_number = [all(row[index].is_number for row in shown) and bool(shown) for index in range(len(titles))]
        widths = [
            max([width_of(title), *(width_of(row[index].text) for row in shown)]) for index, title in enumerate(titles)
        ]

        def put(cells: Sequence[_Shown]) -> None:
            parts = []
            for index, cell in enumerate(cells):
                pad = " " * (widths[index] - width_of(cell.text))
                text = self.paint(cell.text, cell.colour) if cell.colour else cell.text
                is_last = index == len(cells) - 1
                parts.append(pad + text if is_number[index] else text if is_last else text + pad)
            self.line(indent + _GAP.join(parts))

        put([_Shown(title, False, "bold") for title in titles])
        for row in shown:
            put(row)

    def facts(self, facts: Iterable[tuple[str, object]], *, indent: str = "") -> None:
        """Name and value, one below the other."""
        shown = [(name, _shown(value)) for name, value in facts]
        widest = max((width_of(name) for name, _ in shown), default=0)
        for name, cell in shown:
            pad = " " * (widest - width_of(name))
            text = self.paint(cell.text, cell.colour) if cell.colour else cell.text
            self.line(f"{indent}{self.paint(name, 'bold')}{pad}{_GAP}{text}")

    # -- for programs

    def json(self, document: object) -> None:
        """The one document of a command that was asked for JSON; easy to read on a terminal, one line in a pipe."""
        self.stream.write(json_text(document, indent=2 if self.is_terminal else None) + "\n")

    def json_line(self, document: object) -> None:
        """One of many."""
        self.stream.write(json_text(document) + "\n")

    # -- while it works

    def progress(self, label: str, total: int | None = None, unit: str = "") -> Progress:
        """A bar on standard error, only if that is a terminal: `with output.progress("reading", 100) as bar: ...`"""
        return Progress(self.notes, label, total, unit, is_silent=self.is_quiet)


class Progress:
    """`advance` or `show` may be called as often as one likes: the line is drawn ten times a second at most."""

    def __init__(
        self,
        stream: TextIO,
        label: str,
        total: int | None,
        unit: str = "",
        *,
        is_silent: bool = False,
        now_s: Callable[[], float] = time.monotonic,
        columns: int | None = None,
    ) -> None:
        self.done = 0
        self.total = total
        self._stream = stream
        self._label = label
        self._unit = f" {unit}" if unit else ""
        self._is_silent = is_silent
        self._now_s = now_s
        self._columns = columns
        self._drawn_s = float("-inf")
        self._is_drawn = False

    def advance(self, count: int = 1, note: str = "") -> None:
        self.show(self.done + count, note)

    def show(self, done: int, note: str = "") -> None:
        self.done = done
        if self._is_silent:
            return
        now_s = self._now_s()
        if now_s - self._drawn_s >= _REDRAW_S:
            self._drawn_s = now_s
            self._draw(note)

    def _draw(self, note: str) -> None:
        if self.total:
            share = min(self.done / self.total, 1.0)
            full = int(share * _BAR_WIDTH)
            amount = (
                f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] {share:4.0%}  {self.done:,} of {self.total:,}{self._unit}"
            )
        else:
            amount = f"{self.done:,}{self._unit}"
        line = f"{self._label}  {amount}" + (f"  {printable(note)}" if note else "")
        columns = self._columns or _columns_of(self._stream)
        self._stream.write(f"\r\x1b[K{line[: columns - 1]}")
        self._stream.flush()
        self._is_drawn = True

    def close(self) -> None:
        """Takes the line away: what follows stands in its place."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# -- pieces


class _Shown(NamedTuple):
    text: str
    is_number: bool
    colour: str = ""


def _shown(value: object) -> _Shown:
    if isinstance(value, Cell):
        return _shown(value.value)._replace(colour=value.colour)
    if value is None:
        return _Shown(NOTHING, True)
    if isinstance(value, bool):
        return _Shown("yes" if value else "no", False)
    if isinstance(value, int | float):
        return _Shown(str(value), True)
    text = printable(str(value))
    return _Shown(text or NOTHING, False)


def wants_colours(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """NO_COLOR (no-color.org): set and not empty means none."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """With control characters spelled out: a name must not move the cursor or change the terminal's title."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _columns_of(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def json_text(document: object, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False, default=_json_value)


def _json_value(value: Any) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return json_bytes(bytes(value))
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be printed as JSON")


def json_bytes(value: bytes | None) -> object:
    """Bytes as a text where they are UTF-8, else as {"base64": ...}; None is null. `bytes_of_json` is the way back."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(value).decode()}


def bytes_of_json(value: object) -> bytes | None:
    """Raises ValueError for what `json_bytes` does not write; numbers and other JSON are taken as their text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        import base64

        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
