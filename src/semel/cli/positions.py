"""How `--from`, `--to` and `TOPIC/PARTITION` are written: `semel.views.positions`, with errors for argparse."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TypeVar

from semel.views import positions
from semel.views.positions import WHERE as WHERE
from semel.views.positions import Kind as Kind
from semel.views.positions import Place as Place
from semel.views.positions import Position as Position
from semel.views.refusals import Misasked

T = TypeVar("T")
_DIGITS = re.compile(r"[0-9]+")


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    def read(text: str) -> T:
        try:
            return parse(text)
        except Misasked as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


position = _argument(positions.position)
timestamp_ms = _argument(positions.timestamp_ms)
duration_ms = _argument(positions.duration_ms)
place = _argument(positions.place)


def at_least_one(text: str) -> int:
    if not _DIGITS.fullmatch(text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: 1 or more")
    return int(text)


def at_least_zero(text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: 0 or more")
    return int(text)
