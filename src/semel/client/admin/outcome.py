"""What became of the items of one call: done, failed, or to be tried again; and the error that tells of several.

A call takes one item or many, and returns a mapping from item to result when all of them succeeded. If one item was
asked for, its own error is raised. If several were, `AdminErrors` is: it names every item that failed, and keeps the
results of the others. It is an exception group, so `except* UnknownTopic` takes both forms, and it is a `SemelError`,
so `except SemelError` does too. (The alternatives were weighed: errors among the results, as in Go, are overlooked by
who does not look; one future per item, as in librdkafka's binding, needs a loop for every call; raising the first error
alone loses what has been done.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from semel.client.errors import (
    AbortTransactionError,
    AuthenticationFailed,
    BrokerRefused,
    Closed,
    FencedInstance,
    PositionError,
    RestartProducerError,
    SemelError,
    TimedOut,
    UnsupportedByBroker,
    error_for,
    is_retriable,
)
from semel.wire.errors import ErrorCode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SHOWN_ERRORS = 5

NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.ELECTION_NOT_NEEDED})
"""Codes that a producer tries again, but that are the answer to who asks for a thing by its name."""

_FOR_OTHERS = (AbortTransactionError, RestartProducerError, PositionError, FencedInstance)
"""Errors that tell a producer or a consumer what to do next."""

_WHOLE = (AuthenticationFailed, Closed, UnsupportedByBroker)
"""Errors that are not about an item."""

_PERHAPS_SERVED = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})


class AdminErrors(ExceptionGroup[SemelError], SemelError):
    """Some of the items of a call failed. `errors` says which and why, `results` has what came of the others."""

    errors: Mapping[Any, SemelError]
    results: Mapping[Any, Any]

    def __new__(cls, errors: Mapping[Any, SemelError], results: Mapping[Any, Any]) -> AdminErrors:
        shown = "; ".join(str(error) for error in list(errors.values())[:_SHOWN_ERRORS])
        more = len(errors) - _SHOWN_ERRORS
        text = f"{len(errors)} of {len(errors) + len(results)} failed: {shown}" + (
            f"; and {more} more" if more > 0 else ""
        )
        return super().__new__(cls, text, list(errors.values()))

    def __init__(self, errors: Mapping[Any, SemelError], results: Mapping[Any, Any]) -> None:
        self.errors = errors
        self.results = results
        self.code = None


def admin_error(code: int, doing: str, message: str | None = None) -> SemelError:
    """The error for a broker's code; without advice that is not for an administrator."""
    error = error_for(code, doing, message)
    if isinstance(error, _FOR_OTHERS):
        return BrokerRefused(str(error).removesuffix(f" ({error.advice})"), code=code)
    return error


class Sheet(Generic[K, V]):
    """The items of one call. `doing` says what is done with one, for the text of its error.

    `pending` is what still has to be asked, with the last reason why it was not done. `unsure` is what was sent once
    without an answer: a broker may have served it. `made_already` are the codes that then tell that it has.
    """

    def __init__(
        self,
        items: Iterable[K],
        doing: Callable[[K], str],
        *,
        final: Collection[int] = NOT_THERE,
        made_already: Collection[int] = (),
    ) -> None:
        self.pending: dict[K, SemelError | None] = dict.fromkeys(items)
        self.results: dict[K, V] = {}
        self.errors: dict[K, SemelError] = {}
        self.unsure: set[K] = set()
        self.doing = doing
        self._final = final
        self._made_already = made_already
        self._answered: set[K] = set()

    def accepts(self, item: K, code: int, message: str | None = None) -> bool:
        """Whether an answer's code is that of success. If not, the item has failed or is asked for again."""
        if item not in self.pending:
            return False
        if code == ErrorCode.NONE or (code in self._made_already and item in self.unsure):
            return True
        error = admin_error(code, self.doing(item), message)
        if is_retriable(code) and code not in self._final:
            if code in _PERHAPS_SERVED:
                self.unsure.add(item)
            self.again(item, error)
        else:
            self.fail(item, error)
        return False

    def done(self, item: K, result: V) -> None:
        del self.pending[item]
        self.results[item] = result

    def fail(self, item: K, error: SemelError) -> None:
        del self.pending[item]
        self.errors[item] = error

    def again(self, item: K, error: SemelError) -> None:
        self.pending[item] = error
        self._answered.add(item)

    def fail_all(self, error: SemelError, items: Iterable[K] | None = None) -> None:
        for item in list(self.pending if items is None else items):
            if item in self.pending:
                self.fail(item, error)

    def again_all(self, error: SemelError, items: Iterable[K] | None = None) -> None:
        for item in list(self.pending if items is None else items):
            if item in self.pending:
                self.again(item, error)

    def lost(self, items: Iterable[K], error: SemelError) -> None:
        """They were sent, and the answer did not come."""
        for item in items:
            if item in self.pending:
                self.unsure.add(item)
                self.again(item, error)

    def begin_round(self) -> None:
        self._answered.clear()

    def check_answered(self, items: Iterable[K]) -> None:
        """A broker that does not mention what it was asked for will not do so the next time either."""
        for item in items:
            if item in self.pending and item not in self._answered:
                self.fail(item, BrokerRefused(f"{self.doing(item)}: the broker's answer does not mention it"))

    def give_up(self, timeout_s: float) -> None:
        """The time is over for what is pending. Items that failed together share one error."""
        made: dict[int, SemelError] = {}
        for item, reason in list(self.pending.items()):
            error = made.get(id(reason))
            if error is None or reason is None:
                last = "no answer" if reason is None else str(reason)
                error = TimedOut(f"{self.doing(item)}: not done within {timeout_s:g} s; last: {last}")
                error.__cause__ = reason
                made[id(reason)] = error
            self.fail(item, error)

    def outcome(self) -> dict[K, V]:
        """The results, if nothing failed."""
        if not self.errors:
            return self.results
        errors = list(self.errors.values())
        # One reason for all of them (no broker answers, the broker is too old) is told once.
        if not self.results and all(error is errors[0] or isinstance(error, _WHOLE) for error in errors):
            raise errors[0]
        raise AdminErrors(self.errors, self.results)
