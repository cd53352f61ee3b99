"""All links of a loop in one epoll set, which the loop watches as one descriptor.

A turn of asyncio's loop costs as much as a small request. So the links that are ready are served here in one go, round
after round for a while, and the loop has its turn in between. Small answers are kept until the round is over: those of
one link leave in one call, and a peer that sleeps is woken once, not for each of them. A round is in `_rounds`, or in
`rounds` where that is not compiled.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Protocol

from semel.host.rounds import serve_round
from semel.host.wakefulness import Wakefulness

if TYPE_CHECKING:
    from semel.host._rounds import RangeSender, Reader

try:
    from semel.host._rounds import serve_round as serve_compiled_round
except ImportError:
    serve_compiled_round = None  # type: ignore[assignment]

ROUNDS_PER_TURN = 4
EVENTS_PER_ROUND = 64

READABLE, WRITABLE = select.EPOLLIN, select.EPOLLOUT


class Member(Protocol):
    def ready(self, events: int) -> None:
        """The system has something to tell of its socket."""

    def send_kept(self) -> None:
        """The round is over: what was kept may go."""


class ReadyLinks:
    """Lives as long as it has members: the last that leaves closes the set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_serving = False
        self._epoll = select.epoll()
        self._fd = self._epoll.fileno()
        self._poll = self._epoll.poll
        self._members = 0
        self._watched: dict[int, Member] = {}
        self._readers: dict[int, Reader] = {}
        self._senders: dict[int, RangeSender] = {}
        self._held_up: set[int] = set()
        self._keeping: list[Member] = []
        loop.add_reader(self._epoll.fileno(), self._serve)

    @property
    def is_closed(self) -> bool:
        return self._epoll.closed

    def stay_wakeful(self) -> None:
        """For a server, whose clients wait for every answer."""
        wakefulness = Wakefulness(self.loop)
        self.loop.add_reader(self._epoll.fileno(), wakefulness.serve, self._serve, self._held_up.__len__)

    def join(self) -> None:
        self._members += 1

    def leave(self) -> None:
        self._members -= 1
        if self._members == 0:
            if not self.loop.is_closed():
                self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def watch(self, fd: int, member: Member, events: int, reader: Reader | None = None) -> None:
        """Tell `member` of `events`, and of no others that it asked for before; 0 is for nothing at all. What can be
        read is for `reader`, if there is one."""
        if reader is not None:
            self._readers[fd] = reader
        else:
            self._readers.pop(fd, None)
        if events & WRITABLE:
            self._held_up.add(fd)
        else:
            self._held_up.discard(fd)
            self._senders.pop(fd, None)
        if not events:
            if self._watched.pop(fd, None) is not None:
                self._epoll.unregister(fd)
        elif fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._watched[fd] = member

    def send_range(self, fd: int, sender: RangeSender | None) -> None:
        """Who goes on when there is room, of a member that waits for it; None: the member itself."""
        if sender is not None:
            self._senders[fd] = sender
        else:
            self._senders.pop(fd, None)

    def keep(self, member: Member) -> None:
        """Call its `send_kept` when the round is over. Only while `is_serving`."""
        self._keeping.append(member)

    def _serve(self) -> None:
        for _ in range(ROUNDS_PER_TURN):
            if self._epoll.closed:
                return
            self.is_serving = True
            try:
                if not self._serve_round():
                    return
            finally:
                self.is_serving = False
                if self._keeping:
                    kept, self._keeping = self._keeping, []
                    for member in kept:
                        member.send_kept()

    def _serve_round(self) -> bool:
        """Whether any was ready."""
        if serve_compiled_round is not None:
            return serve_compiled_round(self._fd, self._readers, self._senders, self._ready)
        return serve_round(self._poll(0, EVENTS_PER_ROUND), self._readers, self._ready)

    def _ready(self, fd: int, events: int) -> None:
        member = self._watched.get(fd)
        if member is not None:  # else one before it has closed it
            try:
                member.ready(events)
            except Exception as error:
                self.loop.call_exception_handler({"message": f"{member} failed", "exception": error})
