"""Failed records that the program has not seen. `flush`, `commit` and `close` raise them, each once.

A program sees a failure when it awaits the delivery, asks for its result, or has given it a callback. Everything else
is counted here by kind of error, with the first of each kind: memory does not grow with the number of records.
Deliveries of the blocking producer are looked at in the program's threads, so a lock guards the counts. Only failures
take it.
"""

from __future__ import annotations

import logging
import threading
from typing import TypeAlias

from semel.client.errors import SemelError

logger = logging.getLogger("semel.producer")

_Kind: TypeAlias = tuple[type[SemelError], int | None]


class UnseenFailures:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[_Kind, Unseen] = {}

    def add(self, error: SemelError, count: int) -> Unseen:
        """Counts records that failed. Call `see` on what it returns when the program looks at one of them."""
        kind = type(error), error.code
        with self._lock:
            entry = self._kinds.get(kind)
            if entry is None:
                entry = self._kinds[kind] = Unseen(self, kind, error)
            entry.count += count
            return entry

    def _seen(self, entry: Unseen, count: int) -> None:
        with self._lock:
            entry.count -= count
            if entry.count <= 0 and self._kinds.get(entry.kind) is entry:
                del self._kinds[entry.kind]

    def take(self, refusal: SemelError | None = None) -> SemelError | None:
        """What to raise: the first failure with the count of the others, or None. Nothing is unseen afterwards.
        A transaction's `refusal` says more than the failure of a record, and is raised in its place."""
        with self._lock:
            entries, self._kinds = list(self._kinds.values()), {}
        if not entries:
            return None
        count = sum(entry.count for entry in entries)
        if refusal is not None:
            return _counted(refusal, count, "")
        return _counted(entries[0].error, count - 1, "other ")

    def clear(self) -> None:
        with self._lock:
            self._kinds = {}


class Unseen:
    """Failed records of one kind."""

    __slots__ = ("_owner", "count", "error", "kind")

    def __init__(self, owner: UnseenFailures, kind: _Kind, error: SemelError) -> None:
        self._owner = owner
        self.kind = kind
        self.error = error
        self.count = 0

    def see(self, count: int = 1) -> None:
        self._owner._seen(self, count)


def raise_or_note(lost: SemelError | None, error: BaseException | None) -> None:
    """At the end of a producer: an exception that is on its way is not replaced, it gets a note."""
    if lost is None:
        return
    if error is None:
        raise lost
    logger.error("the producer was closed because of %s, and records were lost: %s", type(error).__name__, lost)
    error.add_note(f"records were not delivered either: {lost}")


def _counted(error: SemelError, count: int, which: str) -> SemelError:
    if not count:
        return error
    records = f"{count:,} {which}record{' was' if count == 1 else 's were'} not delivered"
    made = type(error)(f"{error.text}; {records}", code=error.code, advice=error.advice)
    made.__cause__ = error.__cause__ or error
    return made
