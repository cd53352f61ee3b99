"""Pictures that are drawn again and again until Ctrl-C: `semel top` and `--watch`.

On a terminal each takes the place of the one before, cut to the window, and the screen is given back at the end. In a
pipe they follow each other, with --json one document in each line.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import time
from collections.abc import Awaitable, Callable

from semel.cli.failures import Exit
from semel.cli.output import Output, width_of
from semel.cli.positions import at_least_one

_EVERY_S = 2.0
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m)")
_PLAIN = "\x1b[0m"

# Asks the cluster, and draws what it says.
Draw = Callable[[Output], Awaitable[None]]


def add_live_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every", type=_seconds, default=_EVERY_S, metavar="SECONDS", help=f"how often (default {_EVERY_S:.0f})"
    )
    parser.add_argument("--count", type=at_least_one, metavar="N", help="end after so many pictures")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; allowed: 0.1 to 3600 seconds")
    return value


async def draw_again(options: argparse.Namespace, output: Output, draw: Draw) -> int:
    """Returns after --count pictures; Ctrl-C ends it, too, and is no failure."""
    import asyncio  # not for who asks for help

    screen = _Screen(output)
    drawn = 0
    try:
        while True:
            began_s = time.monotonic()
            await screen.draw(draw)
            drawn += 1
            if drawn == options.count:
                return Exit.OK
            await asyncio.sleep(max(0.0, options.every - (time.monotonic() - began_s)))
    finally:
        screen.leave()


class _Screen:
    def __init__(self, output: Output) -> None:
        self._output = output
        self._is_live = output.is_terminal and not output.is_json
        self._has_entered = False

    async def draw(self, draw: Draw) -> None:
        output = self._output
        if not self._is_live:
            await draw(output)
            if not output.is_json:
                output.line()
            output.stream.flush()
            return
        picture = io.StringIO()
        await draw(Output(picture, picture, has_colours=output.has_colours, is_quiet=True))
        columns, rows = shutil.get_terminal_size()
        if not self._has_entered:
            self._has_entered = True
            output.stream.write(_ENTER)
        output.stream.write(_HOME + fitted(picture.getvalue(), columns, rows) + _END_OF_SCREEN)
        output.stream.flush()

    def leave(self) -> None:
        if self._has_entered:
            self._output.stream.write(_LEAVE)
            self._output.stream.flush()


def fitted(text: str, columns: int, rows: int) -> str:
    """The text as a window of this size shows it: lines are cut, and so is what does not fit below."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) > rows - 1:
        left = len(lines) - (rows - 2)
        lines = [*lines[: rows - 2], f"... {left} more lines: a larger window shows them"]
    return "\r\n".join(cut(line, columns) + _END_OF_LINE for line in lines) + "\r\n"


def cut(line: str, columns: int) -> str:
    """As much of a line as so many columns hold. Colours take none, and end with the line."""
    left, shown = columns, []
    for part in _ESCAPE.split(line):
        if _ESCAPE.fullmatch(part):
            shown.append(part)
            continue
        for character in part:
            left -= width_of(character)
            if left < 0:
                return "".join(shown) + (_PLAIN if len(shown) and "\x1b" in line else "")
            shown.append(character)
    return "".join(shown)


def title(output: Output, name: str) -> None:
    """The first line of a picture: what it is, and when."""
    output.line(f"{output.paint(name, 'bold')}  {time.strftime('%H:%M:%S')}")
