"""Why a query failed, found in what Spark says: pages of stacks and plans, with the cause somewhere in between."""

from __future__ import annotations

import re

from semel.spark.pipeline.decoding import STOPPED

_PLAN = "=== Streaming Query ==="
_TRACEBACK = "Traceback (most recent call last):"
_SQLSTATE = re.compile(r"\s*\bSQLSTATE: [0-9A-Z]{5}")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$", re.DOTALL)
_ERROR_CLASS = re.compile(r"^\[[A-Z_.]+\] ")
_OURS = "semel."


def cause_of(text: str) -> str:
    """One or a few lines that a person can act on."""
    told = _SQLSTATE.sub("", text.partition(_PLAN)[0]).strip()
    if STOPPED in told:
        return STOPPED[len("semel: ") :] + told.partition(STOPPED)[2]
    if _TRACEBACK in told:
        return _last_of_traceback(told) or told
    return _ERROR_CLASS.sub("", told)


def _last_of_traceback(text: str) -> str | None:
    """Our own errors speak for themselves; others are told with their class."""
    lines = text.rpartition(_TRACEBACK)[2].splitlines()
    starts = [number for number, line in enumerate(lines) if line and not line[0].isspace()]
    found = _PYTHON_ERROR.match("\n".join(lines[starts[0] :]).strip()) if starts else None
    if found is None:
        return None
    name, message = found[1], found[2] or ""
    if name.startswith(_OURS) and message:
        return message
    return f"{name.rpartition('.')[2]}: {message}" if message else name
