"""A Link in memory that the test holds in its hands, and a server on it whose requests the test answers itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

from semel.config import ListenerKind, NodeListener
from semel.host.api import FileRange, Host, Link, Part, Receiver, made
from semel.metrics.node_counts import RequestCounts
from semel.rpc.budget import MemoryBudget
from semel.rpc.served import Answer, DeferredReply, HeldReply, PromisedReply, ServedConnection
from semel.rpc.server import Limits, Server

MEGABYTE = 1 << 20


class FakeLink:
    """Takes what is sent, at once or only when `drain` is called; bytes arrive when the test says so."""

    def __init__(self, peer: str = "10.0.0.1:5000") -> None:
        self.peer = peer
        self.unsent_bytes = 0
        self.sent = bytearray()
        self.is_paused = False
        self.is_stuck = False
        self.is_closed = False
        self.is_ending = False
        self._waiting = bytearray()
        self._queue: list[Part] = []
        self._receiver: Receiver | None = None

    # -- the Link

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if self.is_stuck:
                self._queue.append(part)
                self.unsent_bytes += len(part)
            else:
                self._take(part)

    def _take(self, part: Part) -> None:
        if isinstance(part, FileRange):
            self.sent += part.read()
            part.release()
        else:
            self.sent += part

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self._deliver()

    def close(self) -> None:
        self.end(None)

    def close_when_sent(self) -> None:
        self.is_ending = True
        if not self._queue:
            self.end(None)

    # -- the other side

    def arrive(self, data: bytes, chunk_bytes: int = 1 << 30) -> None:
        """Bytes come in, at most so many in one read; those for which nobody reads wait."""
        for start in range(0, len(data), chunk_bytes):
            self._waiting += data[start : start + chunk_bytes]
            self._deliver()

    def _deliver(self) -> None:
        while self._waiting and not self.is_paused and not self.is_closed and not self.is_ending:
            assert self._receiver is not None
            buffer = self._receiver.get_buffer()
            count = min(len(buffer), len(self._waiting))
            assert count
            buffer[:count] = self._waiting[:count]
            del self._waiting[:count]
            reply = made(self._receiver.received(count))
            if reply is not None:
                self.send([reply])

    @property
    def unread_bytes(self) -> int:
        return len(self._waiting)

    def drain(self) -> None:
        """The peer reads again."""
        self.is_stuck = False
        queue, self._queue = self._queue, []
        self.unsent_bytes = 0
        for part in queue:
            self._take(part)
        if self.is_ending:
            self.end(None)
        elif self._receiver is not None:
            self._receiver.drained()

    def end(self, reason: BaseException | None) -> None:
        if not self.is_closed:
            self.is_closed = True
            for part in self._queue:
                if isinstance(part, FileRange):
                    part.release()
            if self._receiver is not None:
                asyncio.get_running_loop().call_soon(self._receiver.closed, reason)

    def answers(self) -> list[bytes]:
        """The frames that were sent, taken out."""
        frames = []
        while len(self.sent) >= 4:
            end = 4 + int.from_bytes(self.sent[:4], "big")
            frames.append(bytes(self.sent[4:end]))
            del self.sent[:end]
        return frames


def listener(name: str, kind: ListenerKind = ListenerKind.CLIENTS | ListenerKind.BROKERS) -> NodeListener:
    return NodeListener(name, "PLAINTEXT", "", 0, kind, "node", 0)


CLIENTS = listener("PLAINTEXT")


class FakeListener:
    port = 9092

    def close(self) -> None:
        pass


class FakeNetwork:
    most_connections = 1 << 30

    async def listen(self, host: str, port: int, accept: Callable[[Link], None]) -> FakeListener:
        return FakeListener()


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def body(text: str, length: int = 12) -> bytes:
    """A frame's content: eight bytes is the least that can be a request."""
    return text.encode().ljust(length, b".")


class Dispatcher:
    """Answers each request with its own bytes, unless the test set something else for how it begins."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.rules: dict[bytes, Callable[[bytes], Answer]] = {}

    def __call__(self, connection: ServedConnection, frame: memoryview) -> Answer:
        data = bytes(frame)
        self.seen.append(data)
        for beginning, rule in self.rules.items():
            if data.startswith(beginning):
                return rule(data)
        return [framed(data)]

    def later(
        self, beginning: str, *, may_go_on: bool = False, holds_request: bool = False
    ) -> list[asyncio.Future[Any]]:
        """Requests that begin so wait: the list holds their answers to be."""
        futures: list[asyncio.Future[Any]] = []

        def rule(data: bytes) -> DeferredReply:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            futures.append(future)
            return DeferredReply(future, may_go_on=may_go_on, holds_request=holds_request)

        self.rules[beginning.encode()] = rule
        return futures

    def ready(self, beginning: str) -> list[asyncio.Future[None]]:
        """Requests that begin so are answered with their own bytes when the future of each, in the list, is done."""
        futures: list[asyncio.Future[None]] = []

        def rule(data: bytes) -> HeldReply:
            futures.append(asyncio.get_running_loop().create_future())
            return HeldReply([framed(data)], futures[-1])

        self.rules[beginning.encode()] = rule
        return futures

    def promised(self, beginning: str) -> list[PromisedReply]:
        """Requests that begin so are promised an answer: the list holds the promises."""
        promises: list[PromisedReply] = []

        def rule(data: bytes) -> PromisedReply:
            promises.append(PromisedReply())
            return promises[-1]

        self.rules[beginning.encode()] = rule
        return promises


def limits(**changes: int) -> Limits:
    return Limits(
        **{
            "connections": 100,
            "connections_per_host": 100,
            "idle_ms": 600_000,
            "frame_bytes": 100 * MEGABYTE,
            "frame_bytes_before_authentication": 512 << 10,
            **changes,
        }
    )


class Bench:
    """A server with fake links."""

    def __init__(self, requests_in_memory_bytes: int = 256 * MEGABYTE, **changes: int) -> None:
        self.dispatch = Dispatcher()
        self.failures: list[BaseException] = []
        host = Host(clock=None, disk=None, network=FakeNetwork(), random=None, jobs=None)  # type: ignore[arg-type]
        budget = MemoryBudget(requests_in_memory_bytes)
        self.server = Server(
            host, limits(**changes), self.dispatch, self.failures.append, budget, RequestCounts(lambda: 0)
        )
        self.server.listeners[CLIENTS.name] = CLIENTS
        self.server.open_gate()

    def connect(self, peer: str = "10.0.0.1:5000", listener: NodeListener | None = None) -> FakeLink:
        link = FakeLink(peer)
        self.server._accept((listener or CLIENTS).name, link)
        return link

    def connection(self, link: FakeLink) -> ServedConnection:
        (found,) = [connection for connection in self.server.connections if connection.link is link]
        return found


async def turn() -> None:
    """Lets done callbacks run."""
    for _ in range(5):
        await asyncio.sleep(0)
