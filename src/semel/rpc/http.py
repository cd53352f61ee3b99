"""Answers GET requests of monitoring systems, on the loop of the node: a few connections, nothing else of HTTP.

The protocol is h11's, which is loaded with this module; it is optional (`pip install 'semel[metrics]'`). A connection
is served one request at a time, and not read from until its answer has left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

import h11

from semel.host.api import Host, Link, Listener

logger = logging.getLogger("semel.rpc")

# When there are more, the one that was heard of least recently goes.
_MOST_CONNECTIONS = 16
_BUFFER_BYTES = 4096
_MOST_HEADER_BYTES = 16 << 10
_TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    parts: list[bytes]
    content_type: str = _TEXT
    status: int = 200


# Makes a page for a reader that sent this in its Accept header.
MakePage = Callable[[str], Awaitable[Page]]


class HttpServer:
    """`pages` by path."""

    def __init__(self, host: Host, pages: dict[str, MakePage]) -> None:
        self._host = host
        self._pages = pages
        self._listener: Listener | None = None
        self._connections: dict[_Connection, None] = {}  # the one that was heard of last is the last

    async def listen(self, host: str, port: int) -> int:
        """Returns the port. Raises OSError."""
        self._listener = await self._host.network.listen(host, port, self._accept)
        return self._listener.port

    def _accept(self, link: Link) -> None:
        if len(self._connections) >= _MOST_CONNECTIONS:
            next(iter(self._connections)).end()
        connection = _Connection(self, link)
        self._connections[connection] = None
        link.start(connection)

    def heard_of(self, connection: _Connection) -> None:
        if self._connections.pop(connection, True) is None:
            self._connections[connection] = None

    def forget(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)

    async def page(self, path: str, accept: str) -> Page:
        make = self._pages.get(path)
        if make is None:
            known = ", ".join(self._pages)
            return Page([f"There is no page {path!r:.200} here. There are: {known}\n".encode()], status=404)
        try:
            return await make(accept)
        except Exception:
            logger.exception("the page %s could not be made", path)
            return Page([b"The page could not be made; the log of the node says why.\n"], status=500)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.end()


class _Connection:
    """The Receiver of a link."""

    def __init__(self, server: HttpServer, link: Link) -> None:
        self._server = server
        self._link = link
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEADER_BYTES)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._request: h11.Request | None = None
        self._answering: asyncio.Task[None] | None = None
        self._is_open = True

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._server.heard_of(self)
        self._http.receive_data(bytes(self._buffer[:count]))
        self._go_on()

    def _go_on(self) -> None:
        try:
            while self._is_open and self._answering is None:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    return
                if isinstance(event, h11.Request):
                    self._request = event
                elif isinstance(event, h11.EndOfMessage):
                    assert self._request is not None
                    self._link.pause_reading()
                    self._answering = asyncio.get_running_loop().create_task(self._answer(self._request))
                elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                    self._link.close_when_sent()
                    return
        except h11.RemoteProtocolError as error:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._send(Page([f"{error}\n".encode()], status=error.error_status_hint), has_body=True)
            self._link.close_when_sent()

    async def _answer(self, request: h11.Request) -> None:
        if request.method in (b"GET", b"HEAD"):
            path = request.target.partition(b"?")[0].decode("ascii", "replace")
            accept = b", ".join(value for name, value in request.headers if name == b"accept")
            page = await self._server.page(path, accept.decode("latin-1"))
        else:
            page = Page([b"Only GET is served here.\n"], status=405)
        if not self._is_open:
            return
        self._send(page, has_body=request.method != b"HEAD")
        self._answering = None
        if self._http.our_state is h11.MUST_CLOSE:
            self._link.close_when_sent()
        elif not self._link.unsent_bytes:
            self.drained()

    def _send(self, page: Page, *, has_body: bool) -> None:
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(sum(map(len, page.parts)))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *([("Allow", "GET, HEAD")] if page.status == 405 else []),
        ]
        parts = [
            self._http.send(
                h11.Response(status_code=page.status, headers=headers, reason=HTTPStatus(page.status).phrase)
            )
        ]
        if has_body:
            parts += [self._http.send(h11.Data(data=part)) for part in page.parts]
        parts.append(self._http.send(h11.EndOfMessage()))
        self._link.send([part for part in parts if part])

    def drained(self) -> None:
        """The answer has left: the next request may come."""
        if self._answering is not None or not self._is_open or self._http.our_state is not h11.DONE:
            return
        self._http.start_next_cycle()
        self._link.resume_reading()
        self._go_on()

    def closed(self, reason: BaseException | None) -> None:
        self._end()

    def end(self) -> None:
        self._end()
        self._link.close()

    def _end(self) -> None:
        self._is_open = False
        self._server.forget(self)
        if self._answering is not None:
            self._answering.cancel()
