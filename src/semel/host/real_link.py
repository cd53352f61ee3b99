"""One TCP connection on the loop's readers and writers, without a transport: the hot path of the broker.

Reading: one `recv` an event, more only while the receiver's buffer comes back full. Sending: at once what the
socket takes (small answers when the round of `ready_links.py` is over), the rest queued by reference and continued when
the socket is writable, never more than `TURN_BYTES` in one turn of the loop, so that one fast reader does not starve
the others. TLS is a link of its own on top of this one (`tls_link.py`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Sequence

from semel.host.api import Buffer, FileRange, Part, Receiver, made
from semel.host.ready_links import READABLE, WRITABLE, ReadyLinks
from semel.host.real_file import RealFile

try:
    from semel.host._rounds import RangeSender, Reader
except ImportError:
    from semel.host.rounds import Reader  # type: ignore[assignment]

    RangeSender = None  # type: ignore[assignment,misc]

TURN_BYTES = 4 << 20
READS_PER_EVENT = 4
PARTS_PER_CALL = 64
LINGER_S = 1.0
# Answers up to this size are kept until the end of a round, as long as no more than that is kept already.
KEPT_BYTES = 16 << 10
# File ranges of an answer up to this size are read and leave with the rest of it in one call: less work than two calls
# for each of them, and a peer that sleeps is woken once.
READ_BYTES = 32 << 10

_log = logging.getLogger(__name__)


class RealLink:
    __slots__ = (
        "_closing",
        "_ended",
        "_fd",
        "_get_buffer",
        "_head_sent",
        "_kept_bytes",
        "_linger",
        "_loop",
        "_queue",
        "_reader",
        "_reading",
        "_ready_links",
        "_received",
        "_receiver",
        "_recv_into",
        "_send_bytes",
        "_sender",
        "_socket",
        "_writing",
        "peer",
        "unsent_bytes",
    )

    def __init__(self, ready_links: ReadyLinks, connected: socket.socket, peer: str) -> None:
        self.peer = peer
        self.unsent_bytes = 0
        self._loop = ready_links.loop
        self._ready_links = ready_links
        self._socket = connected
        self._fd = connected.fileno()
        self._recv_into = connected.recv_into
        self._send_bytes = connected.send
        self._queue: deque[Part] = deque()
        self._head_sent = 0  # of the file range at the head of the queue
        # In the queue until the round is over. They count as sent until the socket has refused them: otherwise whoever
        # looks would wait for a `drained` that only those get who were refused.
        self._kept_bytes = 0
        self._receiver: Receiver | None = None
        self._reader: Reader | None = None
        self._sender: RangeSender | None = None
        self._reading = False
        self._writing = False
        self._closing = False  # close_when_sent was called
        self._ended: list[BaseException | None] | None = None  # the reason, once the link has ended
        self._linger: asyncio.TimerHandle | None = None
        ready_links.join()

    def __repr__(self) -> str:
        return f"RealLink({self.peer})"

    # Reading

    def start(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise ValueError("the link was started already")
        self._receiver = receiver
        self._get_buffer = receiver.get_buffer
        self._received = receiver.received
        self._reader = Reader(self, self._fd, receiver.get_buffer, receiver.received)
        if self._ended is not None:
            self._loop.call_soon(self._announce)
        elif not self._closing:
            self._reading = True
            self._watch()

    def pause_reading(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._watch()

    def resume_reading(self) -> None:
        if not self._reading and not self._closing and self._ended is None and self._receiver is not None:
            self._reading = True
            self._watch()

    def _watch(self) -> None:
        events = (READABLE if self._reading else 0) | (WRITABLE if self._writing else 0)
        reader = self._reader if events == READABLE and not self._closing else None
        self._ready_links.watch(self._fd, self, events, reader)

    def ready(self, events: int) -> None:
        """An error or a reset counts for both: whoever reads or writes next is told what it was."""
        if events & ~WRITABLE and self._reading:
            if self._closing:
                self._discard()
            else:
                self._readable()
        if events & ~READABLE and self._writing:
            self._writable()

    def _readable(self) -> None:
        for _ in range(READS_PER_EVENT):
            try:
                buffer = self._get_buffer()
            except Exception as error:
                self.receiver_failed(error)
                return
            try:
                count = self._recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(error)
                return
            except Exception as error:  # not a buffer that can be written to
                self.receiver_failed(error)
                return
            if count == 0:
                self._end(None if buffer else ValueError("the receiver gave an empty buffer"))
                return
            try:
                reply = made(self._received(count))
            except Exception as error:
                self.receiver_failed(error)
                return
            if reply is not None:
                self.send([reply])
            if count < len(buffer) or not self._reading or self._closing:
                return

    def receiver_failed(self, error: Exception) -> None:
        _log.error("the receiver of %s failed: its connection is closed", self.peer, exc_info=error)
        self._end(error)

    def read_failed(self, error: int) -> None:
        self._end(OSError(error, os.strerror(error)))

    # Sending

    def reply_refused(self, reply: bytes, sent: int, error: int) -> None:
        """The socket took no more than `sent` bytes of a reply at the end of a round."""
        if error not in (0, errno.EAGAIN, errno.EINTR):
            self._end(OSError(error, os.strerror(error)))
        elif self._ended is None:
            self._wait_to_send(reply, sent)

    def _take_reply_along(self) -> None:
        """What its round has kept for it goes before anything else, and is kept here from now on."""
        reply = None if self._reader is None else self._reader.take_reply()
        if reply is not None:
            self._ready_links.keep(self)
            self._queue.append(reply)
            self._kept_bytes += len(reply)

    def send(self, parts: Sequence[Part]) -> None:
        if self._ended is not None or self._closing:
            for part in parts:
                if type(part) is FileRange:
                    part.release()
            return
        queue = self._queue
        self._take_reply_along()
        if len(parts) > 1 and not self._writing and sum(map(len, parts)) <= READ_BYTES:
            joined = self._read_and_joined(parts)
            if joined is None:
                return
            parts = (joined,)
        if len(parts) == 1 and type(parts[0]) is not FileRange:  # nearly every answer
            part = parts[0]
            if self._ready_links.is_serving and len(part) + self._kept_bytes <= KEPT_BYTES and not self._writing:
                if not queue:
                    self._ready_links.keep(self)
                queue.append(part)
                self._kept_bytes += len(part)
                return
            if queue:
                queue.append(part)
                self.unsent_bytes += len(part)
                if not self._writing:
                    self.send_kept()
                return
            self._send_alone(part)
            self._let_reader_reply()
            return
        queue.extend(parts)
        self.unsent_bytes += sum(map(len, parts))
        if not self._writing:
            self.send_kept()

    def _read_and_joined(self, parts: Sequence[Part]) -> bytes | None:
        """As one part; None if the link has ended because a range could not be read."""
        try:
            return b"".join([_read(part) if type(part) is FileRange else part for part in parts])  # type: ignore[misc]
        except Exception as error:
            self._end(error)
            return None
        finally:
            for part in parts:
                if type(part) is FileRange:
                    part.release()

    def _send_alone(self, part: Part) -> None:
        """Of bytes, with nothing before them in the queue."""
        try:
            sent = self._send_bytes(part)  # type: ignore[arg-type]
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._end(error)
            return
        if sent < len(part):
            self._wait_to_send(part, sent)

    def _wait_to_send(self, part: Part, sent: int) -> None:
        """What is left of bytes of which the socket has taken some, with nothing before them in the queue."""
        self._queue.append(memoryview(part)[sent:])  # type: ignore[arg-type]
        self.unsent_bytes = len(part) - sent
        self._send_when_writable()

    def send_kept(self) -> None:
        """Begin with a queue that nothing is sent from yet."""
        if self._writing or not self._queue:  # it has begun, because more came, or there is no link any more
            return
        if len(self._queue) == 1 and self._kept_bytes:
            self._kept_bytes = 0
            self._send_alone(self._queue.popleft())
        else:
            self.unsent_bytes += self._kept_bytes
            self._kept_bytes = 0
            self._begin_to_send()
        self._let_reader_reply()
        if self._closing and not self._queue and self._ended is None:
            self._shut_down()

    def _let_reader_reply(self) -> None:
        """By itself again, which it does not while something waits here that it would overtake."""
        if self._reader is not None and not self._queue:
            self._reader.may_reply()

    def _begin_to_send(self) -> None:
        sender = self._range_sender()
        if sender is not None:
            if not sender.begin():
                self._writing = True
                self._watch()
                self._give_range(sender)
                return
            self._account_for(sender)
        self._send_queue()
        if self._queue and self._ended is None:
            self._send_when_writable()

    def _send_when_writable(self) -> None:
        self._writing = True
        self._watch()
        self._give_range(self._range_sender())

    def _range_sender(self) -> RangeSender | None:
        """For a range that comes next and is sent in native code, with bytes before it and after it."""
        queue = self._queue
        if RangeSender is None or not queue:
            return None
        number = 0 if type(queue[0]) is FileRange else 1
        head = queue[0] if number else b""
        part = queue[number] if len(queue) > number else None
        if type(head) is not bytes or type(part) is not FileRange or not isinstance(part.file, RealFile):
            return None
        tail = queue[number + 1] if len(queue) > number + 1 else b""
        at = self._head_sent
        return RangeSender(
            self._fd,
            head,
            part.file.fd,
            part.position + at,
            part.length - at,
            tail if type(tail) is bytes else b"",
            TURN_BYTES,
        )

    def _give_range(self, sender: RangeSender | None) -> None:
        """To the round, which goes on with it when there is room."""
        if sender is not None:
            self._sender = sender
            self._ready_links.send_range(self._fd, sender)

    def _take_range_back(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            self._ready_links.send_range(self._fd, None)
            sender.end()
            self._account_for(sender)

    def _account_for(self, sender: RangeSender) -> None:
        """What it has sent leaves the queue."""
        self.unsent_bytes -= sender.head_sent + sender.sent + sender.tail_sent
        self._sent_of_run(sender.head_sent)
        self._head_sent += sender.sent
        if sender.tail_sent:
            self._send_range(0)  # all of it is sent
            self._sent_of_run(sender.tail_sent)

    def _writable(self) -> None:
        self._take_range_back()
        self._send_queue()
        if self._ended is not None:
            return
        if self._queue:
            self._give_range(self._range_sender())
            return
        self._writing = False
        self._watch()
        self._let_reader_reply()
        if self._closing:
            self._shut_down()
        elif self._receiver is not None:
            try:
                self._receiver.drained()
            except Exception as error:
                self.receiver_failed(error)

    def _send_queue(self) -> None:
        """Send from the queue until it is empty, the socket is full, or this turn's share is used up."""
        queue = self._queue
        left = TURN_BYTES
        try:
            while queue and left > 0:
                head = queue[0]
                sent = self._send_range(left) if type(head) is FileRange else self._send_run()
                left -= sent
                self.unsent_bytes -= sent
                if queue and queue[0] is head:  # not all of it: the socket is full
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:
            self._end(error)

    def _send_range(self, most: int) -> int:
        head = self._queue[0]
        assert type(head) is FileRange
        wanted = head.length - self._head_sent
        sent = 0
        if wanted:
            file = head.file
            if not isinstance(file, RealFile):
                raise TypeError(f"a real link can only send ranges of real files, not of {file!r}")
            sent = os.sendfile(self._fd, file.fd, head.position + self._head_sent, min(wanted, most))
            if sent == 0:
                raise _ended_early(head, wanted)
        if sent == wanted:
            self._queue.popleft()
            self._head_sent = 0
            head.release()
        else:
            self._head_sent += sent
        return sent

    def _send_run(self) -> int:
        """Send the byte parts before the next file range in one call; MSG_MORE joins them with what follows."""
        queue = self._queue
        if len(queue) == 1:
            part = queue[0]
            sent = self._send_bytes(part)  # type: ignore[arg-type]
            if sent == len(part):
                queue.clear()
            else:
                queue[0] = memoryview(part)[sent:]  # type: ignore[arg-type]
            return sent
        run: list[Buffer] = []
        flags = 0
        for part in queue:
            if type(part) is FileRange:
                flags = socket.MSG_MORE
                break
            if len(run) == PARTS_PER_CALL:
                flags = socket.MSG_MORE
                break
            run.append(part)  # type: ignore[arg-type]
        sent = self._socket.sendmsg(run, (), flags)
        self._sent_of_run(sent)
        return sent

    def _sent_of_run(self, sent: int) -> None:
        """Takes so many bytes out of the queue, before the next file range."""
        queue = self._queue
        while sent:
            part = queue[0]
            if sent < len(part):
                queue[0] = memoryview(part)[sent:]  # type: ignore[arg-type]
                break
            sent -= len(part)
            queue.popleft()

    # Ending

    def close(self) -> None:
        self._end(None)

    def close_when_sent(self) -> None:
        if self._ended is not None or self._closing:
            return
        # Closing a socket with unread bytes resets it, and the peer may lose our last answer: so they are read and
        # thrown away until the peer closes too, or for a moment.
        self._take_reply_along()
        self._closing = True
        self._reading = True
        self._watch()
        if not self._queue:
            self._shut_down()

    def _shut_down(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error)
        else:
            self._linger = self._loop.call_later(LINGER_S, self._end, None)

    def _discard(self) -> None:
        try:
            if not self._socket.recv(65536):
                self._end(None)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._end(error)

    def _end(self, reason: BaseException | None) -> None:
        if self._ended is not None:
            return
        self._ended = [reason]
        if self._linger is not None:
            self._linger.cancel()
        if self._reading or self._writing:
            self._reading = self._writing = False
            self._watch()
        self._ready_links.leave()
        if self._reader is not None:
            self._reader.end()
        for part in self._queue:
            if type(part) is FileRange:
                part.release()
        self._queue.clear()
        self.unsent_bytes = self._kept_bytes = 0
        self._socket.close()
        if self._receiver is not None:
            self._loop.call_soon(self._announce)  # later, so that nobody is told from inside their own send()

    def _announce(self) -> None:
        assert self._receiver is not None
        assert self._ended is not None
        try:
            self._receiver.closed(self._ended[0])
        except Exception:
            _log.exception("the receiver of %s failed at the end of its connection", self.peer)


def _read(part: FileRange) -> bytes:
    data = part.file.read_at(part.position, part.length)
    if len(data) < part.length:
        raise _ended_early(part, part.length - len(data))
    return data


def _ended_early(part: FileRange, missing_bytes: int) -> EOFError:
    return EOFError(f"{part!r} ended {missing_bytes} bytes early: the file was truncated while it was sent")
