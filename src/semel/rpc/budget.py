"""The one budget of memory that clients of a node share: their requests, their answers, and what is kept for them.

Every byte that a peer can make the node keep is counted here, under the owner that keeps it. `OWNERS` says for each
owner what happens when the budget is full. It is counted when it is really there: a claim costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from sys import maxsize
from typing import NamedTuple

NO_LIMIT = -1
_LEAST_OVERDRAFT_BYTES = 4 << 20
_LARGEST_SMALL_BYTES = 1 << 20
# An eighth of the limit is little: so much may be overdrawn, and does not hold up the first of the line.
_LITTLE = 8


class Owner(IntEnum):
    """What memory is taken for."""

    REQUEST = 0  # frames that are not whole yet, and requests that are being served
    ANSWER = 1  # answers that are being made, or that their peer has not read yet
    SESSION = 2  # fetch sessions
    GROUP = 3  # metadata and assignments of group members


class _Rule(NamedTuple):
    """What happens when the budget is full."""

    waits: bool  # else it is refused at once
    rank: int  # who waits comes after all of a lower rank
    share: float  # the part of the limit that this owner may have


# ANSWER: `take_later` grants it before any request, for it is what gives a request's memory back.
# REQUEST: its connection is not read from until it is granted: in the order of `turn`. While somebody waits, the server
# gives up frames and answers that do not come on.
# SESSION: the fetch is answered without a session.
# GROUP: the member is refused.
# What waits can go on in the end, so it may take all; what is kept for long may not take the place of all others.
OWNERS = {
    Owner.REQUEST: _Rule(waits=True, rank=1, share=1.0),
    Owner.ANSWER: _Rule(waits=True, rank=0, share=1.0),
    Owner.SESSION: _Rule(waits=False, rank=0, share=0.25),
    Owner.GROUP: _Rule(waits=False, rank=0, share=0.25),
}


class Waiter:
    """Somebody in the line. `holds_bytes`: what it has already, and cannot give back before it is granted the rest."""

    __slots__ = ("granted", "holds_bytes", "is_waiting", "owner", "size_bytes")

    def __init__(self, size_bytes: int, granted: Callable[[], None], owner: Owner, holds_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.granted = granted
        self.owner = owner
        self.holds_bytes = holds_bytes
        self.is_waiting = True


class MemoryBudget:
    """A counter for each owner, and a line of those who wait. Who comes first is granted first, however large.

    If those that hold memory wait for more, nobody could ever give any back: then the first of the line is granted
    beyond the limit. So what is used is at most the limit, an eighth of it, and what one or two requests take.
    """

    def __init__(self, limit_bytes: int, when_short: Callable[[], None] = lambda: None) -> None:
        """`when_short` is called when somebody begins to wait and nobody waited before."""
        self.limit_bytes = maxsize if limit_bytes == NO_LIMIT else limit_bytes
        # Requests up to this size do not wait behind larger ones: they are taken anyway, until that is overdrawn.
        self.small_bytes = min(_LARGEST_SMALL_BYTES, self.limit_bytes // 256)
        self.used_bytes = 0
        self.waiting = 0
        self._of_owner = dict.fromkeys(Owner, 0)
        self._most_of_owner = {owner: int(self.limit_bytes * rule.share) for owner, rule in OWNERS.items()}
        self.when_short = when_short
        self._line: list[tuple[int, int, int, Waiter]] = []  # a heap; those that do not wait any more are passed over
        self._turns = count(1)
        self._numbers = count()
        self._held_by_waiting = 0
        self._is_granting = False

    def bytes_of(self, owner: Owner) -> int:
        return self._of_owner[owner]

    @property
    def is_overdrawn(self) -> bool:
        """Whether so much was taken by `take_anyway` that what comes next is better refused than counted."""
        return self.used_bytes > self.limit_bytes + max(self.limit_bytes // _LITTLE, _LEAST_OVERDRAFT_BYTES)

    def take(self, size_bytes: int, owner: Owner = Owner.REQUEST) -> bool:
        """Takes the bytes if they are there and nobody waits before us."""
        if not self.has_room(size_bytes, owner):
            return False
        self.take_anyway(size_bytes, owner)
        return True

    def has_room(self, size_bytes: int, owner: Owner) -> bool:
        """Whether `take` would take them."""
        if OWNERS[owner].waits and self.waiting:
            return False
        if self.used_bytes + size_bytes > self.limit_bytes:
            return False
        return self._of_owner[owner] + size_bytes <= self._most_of_owner[owner]

    def take_anyway(self, size_bytes: int, owner: Owner = Owner.REQUEST) -> None:
        """Counts what is in memory already and cannot be refused: bytes that have come, state read from a log."""
        self.used_bytes += size_bytes
        self._of_owner[owner] += size_bytes

    def turn(self) -> int:
        """A place in the line, for who may have to wait several times: it stays before younger ones."""
        return next(self._turns)

    def take_later(
        self,
        size_bytes: int,
        granted: Callable[[], None],
        owner: Owner = Owner.REQUEST,
        *,
        turn: int | None = None,
        holds_bytes: int = 0,
    ) -> Waiter:
        """Takes them when they are there, then calls `granted`: perhaps at once, before this returns.

        `holds_bytes`: what the caller holds of this budget meanwhile (REQUEST and ANSWER).
        """
        if not OWNERS[owner].waits:
            raise ValueError(f"{owner.name} does not wait for memory")
        waiter = Waiter(size_bytes, granted, owner, holds_bytes)
        place = self.turn() if turn is None else turn
        heappush(self._line, (OWNERS[owner].rank, place, next(self._numbers), waiter))
        self.waiting += 1
        self._held_by_waiting += holds_bytes
        self._grant()
        if self.waiting == 1 and waiter.is_waiting:
            self.when_short()
        return waiter

    def forget(self, waiter: Waiter) -> None:
        """It has gone. What it held is for the caller to give back."""
        if waiter.is_waiting:
            self._leave_line(waiter)
            self._grant()

    def give_back(self, size_bytes: int, owner: Owner = Owner.REQUEST) -> None:
        if size_bytes:
            self.used_bytes -= size_bytes
            self._of_owner[owner] -= size_bytes
            self._grant()

    def _leave_line(self, waiter: Waiter) -> None:
        waiter.is_waiting = False
        self.waiting -= 1
        self._held_by_waiting -= waiter.holds_bytes

    def _grant(self) -> None:
        """What is granted may give back, and ask for more, before it returns: that is seen here, not inside of it."""
        if self._is_granting:
            return
        self._is_granting = True
        try:
            while self.waiting:
                waiter = self._line[0][-1]
                if waiter.is_waiting:
                    if not self._may_have(waiter):
                        return
                    self._leave_line(waiter)
                    self.take_anyway(waiter.size_bytes, waiter.owner)
                    heappop(self._line)
                    waiter.granted()
                else:
                    heappop(self._line)
            self._line.clear()
        finally:
            self._is_granting = False

    def _may_have(self, first: Waiter) -> bool:
        if self.used_bytes + first.size_bytes <= self.limit_bytes:
            return True
        of_waiters = sum(self._of_owner[owner] for owner, rule in OWNERS.items() if rule.waits)
        return of_waiters <= self._held_by_waiting + self.limit_bytes // _LITTLE
