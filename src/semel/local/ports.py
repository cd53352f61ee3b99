"""Ports of 127.0.0.1 for nodes that keep their addresses from one start to the next.

They lie below those that the system gives to outgoing connections, or one of those could sit on the port of a node that
is down. A port that is held is bound and does not listen: a node can still take it, for both say SO_REUSEADDR; nobody
else can, and whoever connects while the node is down is refused.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

HOST = "127.0.0.1"
_FIRST, _END = 20_000, 32_000
_ATTEMPTS = 1000


class HeldPorts:
    def __init__(self) -> None:
        self._held: dict[int, socket.socket] = {}

    def take(self, count: int) -> list[int]:
        """So many free ports, held from now on."""
        found: list[int] = []
        for port in random.SystemRandom().sample(range(_FIRST, _END), _ATTEMPTS):
            if len(found) == count:
                return found
            if port not in self._held and _is_free(port) and self._hold(port):
                found.append(port)
        raise OSError(f"found no {count} free ports between {_FIRST} and {_END} on {HOST}")

    def hold(self, ports: Iterable[int]) -> None:
        """Holds ports that were taken earlier. Raises OSError, which names the port, if somebody listens there."""
        for port in ports:
            if port not in self._held and not self._hold(port):
                raise OSError(f"port {port} of {HOST} is in use by another program")

    def _hold(self, port: int) -> bool:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((HOST, port))
        except OSError:
            held.close()
            return False
        self._held[port] = held
        return True

    def close(self) -> None:
        for held in self._held.values():
            held.close()
        self._held.clear()


def _is_free(port: int) -> bool:
    """Neither in use nor held by anybody."""
    with socket.socket() as trial:
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True
