"""Says on standard error that a command waits for a node, and when the node is back.

The client tries again by itself and says nothing, as a library should; somebody at a terminal wants to know. Commands
give their clients a network that watches the attempts to connect.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TextIO

from semel.cli.failures import CommandFailed, Exit
from semel.host.api import Host, Link, Listener, Network

_PATIENCE_S = 2.0
_REFUSED_FOR_S = 1.5
"""How long a node that was never reached may refuse: one that starts is ready long before."""
_FORGOTTEN_S = 5.0
"""After so long without an attempt nobody waits for the node any more."""


class NobodyListens(CommandFailed):
    exit_code = Exit.UNREACHABLE

    def __init__(self, addresses: Iterable[str]) -> None:
        super().__init__(
            f"nothing listens at {', '.join(addresses)}: start a node there (semel serve --data DIR), or name another "
            "with --bootstrap HOST:PORT or --context NAME"
        )


@contextmanager
def watched_host(*, gives_up: bool = False) -> Iterator[Host]:
    """The real host, whose network says what a command waits for; `gives_up` when all there is refuses."""
    from semel.host.real import real_host

    host = real_host()
    try:
        yield replace(host, network=WatchedNetwork(host.network, sys.stderr, gives_up=gives_up))
    finally:
        host.close()


class _Away:
    """A node that has not been reached since `since_s`."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.tried_s = since_s
        self.reason = "no answer"
        self.refuses = False
        self.is_told = False


class WatchedNetwork:
    def __init__(self, network: Network, notes: TextIO, *, gives_up: bool = False) -> None:
        self._network = network
        self._notes = notes
        self._gives_up = gives_up  # until somebody was reached
        self._away: dict[str, _Away] = {}

    @property
    def most_connections(self) -> int:
        return self._network.most_connections

    async def listen(self, host: str, port: int, accept: Callable[[Link], None]) -> Listener:
        return await self._network.listen(host, port, accept)

    async def connect(self, host: str, port: int) -> Link:
        """Raises OSError, or NobodyListens."""
        loop = asyncio.get_running_loop()
        address = f"{host}:{port}"
        away = self._away.get(address)
        if away is None or (not away.is_told and loop.time() - away.tried_s > _FORGOTTEN_S):
            away = self._away[address] = _Away(loop.time())
        timer = loop.call_at(max(away.since_s + _PATIENCE_S, loop.time()), self._tell, address, away)
        try:
            link = await self._network.connect(host, port)
        except OSError as error:
            away.reason, away.refuses = _reason_of(error), isinstance(error, ConnectionRefusedError)
            is_long = loop.time() >= away.since_s + _REFUSED_FOR_S
            if self._gives_up and is_long and all(one.refuses for one in self._away.values()):
                raise NobodyListens(self._away) from error
            if loop.time() >= away.since_s + _PATIENCE_S:
                self._tell(address, away)
            raise
        finally:
            timer.cancel()
            away.tried_s = loop.time()
        self._gives_up = False
        if away.is_told:
            self._note(f"{address} is back")
        self._away.pop(address, None)
        return link

    def _tell(self, address: str, away: _Away) -> None:
        if not away.is_told:
            away.is_told = True
            self._note(f"Waiting for {address}: {away.reason}")

    def _note(self, text: str) -> None:
        """A line of its own, also where a bar is drawn."""
        start = "\r\x1b[K" if self._notes.isatty() else ""
        self._notes.write(f"{start}{text}\n")
        self._notes.flush()


def _reason_of(error: OSError) -> str:
    """asyncio's own text names the address once more."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        text = error.strerror or str(error)
    else:
        text = os.strerror(error.errno)
    return text[:1].lower() + text[1:]
