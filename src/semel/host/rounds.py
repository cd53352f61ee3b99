"""A round over the connections that are ready: all are read, then the replies of all are made together and sent.

`_rounds.pyx` is the same, compiled, with more beside it. The simulated network serves its links by this one.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from semel.host.api import LaterReply, made

if TYPE_CHECKING:
    from semel.host.real_link import RealLink


class Reading(Protocol):
    """What a round does with one connection that is ready."""

    replies_later: bool
    """Whether its last reply was one that is made together with others."""

    def read(self) -> bool:
        """Whether there is a reply to be sent at the end of the round."""

    def make_reply(self) -> None: ...

    def send_reply(self) -> None: ...


def serve_readings(readings: Iterable[Reading]) -> int:
    """Whatever may do more than reply later begins when the replies before it are made. Returns how many replies were
    made together at the end."""
    kept: list[Reading] = []
    are_made = True
    for reading in readings:
        if not are_made and not reading.replies_later:
            for before in kept:
                before.make_reply()
            are_made = True
        if reading.read():
            kept.append(reading)
            are_made = are_made and not reading.replies_later
    together = 0 if are_made else sum(reading.replies_later for reading in kept)
    for reading in kept:
        reading.send_reply()
    return together


def serve_round(events: list[tuple[int, int]], readers: dict[int, Reader], serve: Callable[[int, int], None]) -> bool:
    """Whether any was ready. `serve(fd, events)` is for those that have nobody in `readers`, or more to tell of."""
    serve_readings(
        readers[fd] if fd in readers and happened == select.EPOLLIN else _Unusual(fd, happened, serve)
        for fd, happened in events
    )
    return bool(events)


class _Unusual:
    replies_later = False

    def __init__(self, fd: int, events: int, serve: Callable[[int, int], None]) -> None:
        self._fd = fd
        self._events = events
        self._serve = serve

    def read(self) -> bool:
        self._serve(self._fd, self._events)
        return False

    def make_reply(self) -> None:
        pass

    def send_reply(self) -> None:
        pass


class Reader:
    """Of a link that only reads at the moment: nothing of it waits to be sent, but for a reply until its round ends."""

    def __init__(
        self,
        link: RealLink,
        fd: int,
        get_buffer: Callable[[], memoryview],
        received: Callable[[int], bytes | LaterReply | None],
    ) -> None:
        self.replies_later = False
        self._link = link
        self._fd = fd
        self._get_buffer = get_buffer
        self._received = received
        self._reply: bytes | LaterReply | None = None
        self._sends_itself = False

    def take_reply(self) -> bytes | None:
        """The link has more to send: the reply that is kept for it, if there is one, goes before that."""
        reply, self._reply = self._reply, None
        self._sends_itself = True
        return made(reply)

    def may_reply(self) -> None:
        """All that the link had to send is on its way: what is replied next does not overtake anything."""
        self._sends_itself = False

    def end(self) -> None:
        """The link has ended, and its descriptor may be another's by now."""
        self._fd = -1
        reply, self._reply = self._reply, None
        made(reply)

    def read(self) -> bool:
        try:
            return self._read()
        except Exception as error:
            self._link.receiver_failed(error)
            return False

    def _read(self) -> bool:
        buffer = self._get_buffer()
        try:
            count = os.readv(self._fd, [buffer])
        except (BlockingIOError, InterruptedError):
            return False
        except (BufferError, TypeError):  # the link says what is wrong with the buffer
            self._link.ready(select.EPOLLIN)
            return False
        except OSError as error:
            self._link.read_failed(error.errno or 0)
            return False
        if count == 0:
            self._link.ready(select.EPOLLIN)
            return False
        reply = self._received(count)
        self.replies_later = reply is not None and type(reply) is not bytes
        if self._sends_itself:
            reply = made(reply)
            if reply is not None:
                self._link.send([reply])
        else:
            self._reply = reply
        if count == len(buffer):
            self._link.ready(select.EPOLLIN)
        return self._reply is not None

    def make_reply(self) -> None:
        try:
            made(self._reply)
        except Exception as error:
            self._link.receiver_failed(error)

    def send_reply(self) -> None:
        try:
            self._send_reply()
        except Exception as error:
            self._link.receiver_failed(error)

    def _send_reply(self) -> None:
        kept, self._reply = self._reply, None
        reply = made(kept)
        if reply is None:  # the link had more to send, and has taken it along, or it has ended
            return
        try:
            sent, error = os.write(self._fd, reply), 0
        except OSError as refusal:
            sent, error = 0, refusal.errno or 0
        if sent != len(reply):
            self._link.reply_refused(reply, sent, error)
