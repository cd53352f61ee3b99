"""Elements of an answer that are made when they are encoded, one after another, and not kept: an answer of many large
elements then takes the memory of its bytes, not that of its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

S = TypeVar("S")
T = TypeVar("T")


class NotMade(Exception):
    """An element could not be made. The cause says why: it is an error of ours, not of the encoding."""


class Lazy(Generic[T]):
    """An array whose length is known. Every walk makes its elements anew."""

    __slots__ = ("_make", "_of")

    def __init__(self, make: Callable[[Any], T], of: Sequence[Any]) -> None:
        self._make = make
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[T]:
        return map(self._made, self._of)

    def __getitem__(self, index: int) -> T:
        return self._made(self._of[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lazy | list | tuple):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def _made(self, one: Any) -> T:
        # An encoder would take these for values that do not fit the wire.
        try:
            return self._make(one)
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            raise NotMade(f"{type(error).__name__}: {error}") from error


def lazily(make: Callable[[S], T], of: Sequence[S]) -> list[T]:
    """What `make` makes of each, when it is encoded. For whoever reads the message it is as good as a list."""
    return cast("list[T]", Lazy(make, of))
