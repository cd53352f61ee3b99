"""What a topic may be called, as Kafka has it."""

import re
from collections.abc import Iterable

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_MAX_LENGTH = 249


def wrong_with_name(name: str, others: Iterable[str]) -> str | None:
    """Why a topic cannot have this name; None when it can."""
    if not name or name in (".", "..") or len(name) > _MAX_LENGTH or not _LEGAL.match(name):
        return (
            f"a topic name has 1 to {_MAX_LENGTH} of the characters a-z, A-Z, 0-9, '.', '_' and '-', "
            f"and is neither '.' nor '..'; {name[:60]!r} is not one"
        )
    folded = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == folded:
            return f"'.' and '_' count as the same in names of metrics, so {name!r} collides with the topic {other!r}"
    return None
