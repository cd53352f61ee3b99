"""What a topic may be called, as Kafka has it: the broker refuses every other name, and so does the client."""

from __future__ import annotations

import re

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_MAX_LENGTH = 249


def wrong_with_characters(name: str) -> str | None:
    """Why no topic can have this name; None if one can."""
    if name not in (".", "..") and len(name) <= _MAX_LENGTH and _LEGAL.match(name):
        return None
    return (
        f"a topic name has 1 to {_MAX_LENGTH} of the characters a-z, A-Z, 0-9, '.', '_' and '-', "
        f"and is neither '.' nor '..'; {name[:60]!r} is not one"
    )
