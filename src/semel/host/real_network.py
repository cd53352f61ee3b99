"""The real Network: raw non-blocking TCP sockets on the loop's readers."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from semel.host.api import KEEPALIVE_S, Link
from semel.host.complaints import Complaints
from semel.host.descriptors import shares
from semel.host.ready_links import ReadyLinks
from semel.host.real_link import RealLink

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
PAUSE_S = 0.1
KEEPALIVE_PROBES = 3
KEEPALIVE_INTERVAL_S = 10
KEEPALIVE_IDLE_S = KEEPALIVE_S - KEEPALIVE_PROBES * KEEPALIVE_INTERVAL_S

_log = logging.getLogger(__name__)


def _spelled(address: tuple[Any, ...]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _addresses(host: str, port: int, flags: int = 0) -> list[tuple[int, tuple[Any, ...]]]:
    """(family, address) of a host; numbers are not looked up, since a look-up takes a thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return [(family, (host, port))]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys((info[0], info[4]) for info in found))


class RealListener:
    def __init__(self, network: RealNetwork, sockets: list[socket.socket], accept: Callable[[Link], None]) -> None:
        self.port: int = sockets[0].getsockname()[1]
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._accept = accept
        self._sockets = sockets
        self._complaints = Complaints(_log)
        self._resumptions: dict[int, asyncio.TimerHandle] = {}
        for listening in sockets:
            self._watch(listening)

    def _watch(self, listening: socket.socket) -> None:
        self._resumptions.pop(listening.fileno(), None)
        self._loop.add_reader(listening.fileno(), self._acceptable, listening)

    def _acceptable(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if listening.fileno() < 0:  # closed by the last one accepted
                return
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the peer gave up while it waited
                continue
            except OSError as error:  # mostly: no descriptor left
                self._pause(listening, error)
                return
            self._welcome(connected, address)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """The connection stays in the backlog, so the socket stays readable: look away for a moment, do not spin."""
        self._complaints.say("accept", logging.ERROR, "cannot accept connections for the moment: %s", error)
        self._loop.remove_reader(listening.fileno())
        timer = self._loop.call_later(PAUSE_S, self._watch, listening)
        self._resumptions[listening.fileno()] = timer

    def _welcome(self, connected: socket.socket, address: tuple[Any, ...]) -> None:
        try:
            link = self._network.link(connected, address)
        except OSError:  # it is gone already
            connected.close()
            return
        try:
            self._accept(link)
        except Exception:
            _log.exception("a connection from %s could not be served: it is closed", link.peer)
            link.close()

    def close(self) -> None:
        for listening in self._sockets:
            timer = self._resumptions.pop(listening.fileno(), None)
            if timer is not None:
                timer.cancel()
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets = []


def _keep_alive(connected: socket.socket) -> None:
    """Not TCP_USER_TIMEOUT: that ends a connection whose reader has paused, too."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


def _listening_socket(family: int, address: tuple[Any, ...], send_buffer_bytes: int | None) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if send_buffer_bytes is not None:  # connections inherit it
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if family == socket.AF_INET6:  # IPv4 has a socket of its own
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


class RealNetwork:
    _ready_links: ReadyLinks | None = None
    _is_server = False

    def __init__(self, send_buffer_bytes: int | None = None) -> None:
        """`send_buffer_bytes`: what the system may hold for a peer that connects to us. Its own choice grows to
        megabytes, which have left the processor's caches by the time the peer reads them: it costs a third of the time
        of a fetch."""
        self._send_buffer_bytes = send_buffer_bytes
        self.most_connections = shares().connections

    def link(self, connected: socket.socket, address: tuple[Any, ...]) -> RealLink:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connected)
        loop = asyncio.get_running_loop()
        ready_links = self._ready_links
        if ready_links is None or ready_links.is_closed or ready_links.loop is not loop:
            ready_links = self._ready_links = ReadyLinks(loop)
            if self._is_server:
                ready_links.stay_wakeful()
        return RealLink(ready_links, connected, _spelled(address))

    async def listen(self, host: str, port: int, accept: Callable[[Link], None]) -> RealListener:
        sockets: list[socket.socket] = []
        refusal: OSError | None = None
        for family, address in await _addresses(host, port, socket.AI_PASSIVE):
            if sockets:  # with port 0 the first address chooses for all
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            try:
                sockets.append(_listening_socket(family, address, self._send_buffer_bytes))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    for listening in sockets:
                        listening.close()
                    raise
                refusal = error
        if not sockets:
            raise refusal or OSError(errno.EADDRNOTAVAIL, f"{host!r} has no address")
        self._is_server = True
        return RealListener(self, sockets, accept)

    async def connect(self, host: str, port: int) -> RealLink:
        loop = asyncio.get_running_loop()
        refusal: OSError | None = None
        for family, address in await _addresses(host, port):
            connected = socket.socket(family, socket.SOCK_STREAM)
            try:
                connected.setblocking(False)
                await loop.sock_connect(connected, address)
                return self.link(connected, connected.getpeername())
            except OSError as error:
                connected.close()
                refusal = refusal or error
            except BaseException:
                connected.close()
                raise
        raise refusal or OSError(errno.EADDRNOTAVAIL, f"{host!r} has no address")
