"""Topics and partitions as requests name them, each once: what is named again is answered with the first of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

N = TypeVar("N", bound=Hashable)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


# Items of a long request that are worked on without a break.
_AT_ONCE = 200


def in_parts(items: Sequence[N]) -> list[Sequence[N]]:
    """Parts that can be worked on one after another; one, if there is nothing."""
    return [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)] or [items]


def by_name(named: Iterable[tuple[N, Sequence[K]]]) -> dict[N, list[K]]:
    """All that is asked of each topic, without repetitions, in the order in which it was named."""
    found: dict[N, dict[K, None]] = {}
    for name, asked in named:
        found.setdefault(name, {}).update(dict.fromkeys(asked))
    return {name: list(asked) for name, asked in found.items()}


def first_by_name(named: Iterable[tuple[N, Iterable[tuple[K, V]]]]) -> dict[N, list[V]]:
    """The same where more than a number is asked of each partition: what was asked first counts."""
    found: dict[N, dict[K, V]] = {}
    for name, asked in named:
        of_name = found.setdefault(name, {})
        for key, value in asked:
            of_name.setdefault(key, value)
    return {name: list(asked.values()) for name, asked in found.items()}
