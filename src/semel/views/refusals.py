"""Why a view cannot be shown, or a change is not made: one sentence that says what is wrong and what to do next."""

from __future__ import annotations


class Refusal(Exception):
    """It is not done: what is there does not allow it."""


class Misasked(Refusal):
    """It was asked for in a way that is not understood; nothing was done."""


class Missing(Refusal):
    """The topic, group, transactional id or partition is not there."""


def no_such_topic(*names: str) -> str:
    which = " and ".join(repr(name) for name in names)
    return f"there is no topic {which}; semel topic list shows what there is, semel topic create makes one"
