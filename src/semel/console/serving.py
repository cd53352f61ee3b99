"""Serves the console on a socket, until it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp


class CannotListen(Exception):
    """One sentence that says why, and what to do."""


class _Server(uvicorn.Server):
    """Whoever started it hears signals; it is told by `should_exit`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        advice = {
            errno.EADDRINUSE: "choose another with --port, 0 for any that is free",
            errno.EACCES: "choose one above 1023 with --port",
        }.get(error.errno or 0, "choose an address of this machine with --host")
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}; {advice}") from None
    listening.listen(128)
    return listening


async def serve(
    app: ASGIApp, listening: socket.socket, closing: asyncio.Event, certificate: tuple[Path, Path] | None = None
) -> None:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
        ssl_certfile=None if certificate is None else str(certificate[0]),
        ssl_keyfile=None if certificate is None else str(certificate[1]),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    finally:
        closing.set()
        server.should_exit = True
        await asyncio.wait([serving])
