"""What a node logs is one line for each record, whatever names and texts from outside it quotes.

Control characters are escaped, so that a name can neither begin a line of its own nor speak to a terminal. A traceback
follows its record on lines that begin with a bar.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from types import TracebackType

_FORM = "%(asctime)s %(levelname)s %(name)s %(message)s"
# All that ends a line or moves a cursor: C0, DEL, C1, the separators of lines and paragraphs, changes of direction, and
# halves of surrogate pairs, which could not be written at all.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BAR = "  | "
# A name may have 32,767 bytes, and a request many names.
_LONGEST = 4096


def one_line(text: str) -> str:
    line = _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text[:_LONGEST])
    return line if len(text) <= _LONGEST else f"{line}... ({len(text)} characters)"


class LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(_FORM)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        return _barred(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _barred(stack_info)


class JsonFormatter(logging.Formatter):
    """One JSON object in a line, for programs that collect logs; times are UTC."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, str] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def _barred(text: str) -> str:
    """A name in an exception may hold a line end: what follows it is a line of the traceback, and seen as such."""
    return "\n".join(f"{_BAR}{one_line(line)}" for line in text.split("\n"))


FORMS: dict[str, type[logging.Formatter]] = {"text": LineFormatter, "json": JsonFormatter}


def log_to_stderr(level: int, form: str = "text") -> None:
    """`form`: one of FORMS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMS[form]())
    logging.basicConfig(level=level, handlers=[handler])
