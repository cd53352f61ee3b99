"""Opens connections that are ready for requests: TCP, TLS where asked for, the broker's versions, then the login."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from semel import __version__
from semel.client.errors import (
    AuthenticationFailed,
    Disconnected,
    SemelError,
    TimedOut,
    UnsupportedByBroker,
)
from semel.client.settings import ConnectionSettings
from semel.host.api import Host, Link
from semel.rpc import connection as rpc
from semel.rpc.connection import Connection
from semel.wire.errors import WireError
from semel.wire.schema import Request, Response
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest

R = TypeVar("R", bound=Response)


class Connector:
    def __init__(self, host: Host, settings: ConnectionSettings) -> None:
        self._host = host
        self._settings = settings
        self._timeout_s = settings.request_timeout_ms / 1000
        self._tls = _tls_context(settings) if settings.security_protocol in ("SSL", "SASL_SSL") else None
        if settings.security_protocol.startswith("SASL"):
            from semel.client.security.sasl import mechanism_for

            mechanism_for(settings, host)  # what is missing or wrong is said now, not at every connection
        self._logins: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, ended: Callable[[Connection], None]) -> Connection:
        """Raises Disconnected, TimedOut, AuthenticationFailed or UnsupportedByBroker."""
        address = f"{host}:{port}"
        connection: Connection | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                link = await self._reach(host, port)
                connection = Connection(
                    link,
                    client_id=self._settings.client_id,
                    max_frame_bytes=self._settings.max_frame_bytes,
                    ended=ended,
                )
                await connection.negotiate("semel", __version__, self._timeout_s)
                if self._settings.security_protocol.startswith("SASL"):
                    await self._log_in(connection)
                return connection
        except TimeoutError:
            error: SemelError = TimedOut(f"{address} did not take the connection within {self._timeout_s:g} s")
        except ssl.SSLError as problem:
            error = AuthenticationFailed(f"{address}: TLS: {problem}")
        except OSError as problem:
            if isinstance(problem.__cause__, ssl.SSLError):  # TLS 1.3: our certificate is judged after the handshake
                error = AuthenticationFailed(f"{address}: TLS: {problem.__cause__}")
            else:
                error = Disconnected(f"cannot connect to {address}: {problem}")
        except rpc.VersionNotServed as problem:
            error = UnsupportedByBroker(str(problem))
        except SemelError as problem:
            error = problem
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if connection is not None:
            connection.close()
        raise error

    async def _reach(self, host: str, port: int) -> Link:
        link = await self._host.network.connect(host, port)
        if self._tls is None:
            return link
        from semel.host.tls_link import TlsLink

        secured = TlsLink(link, self._tls, server_hostname=host)
        try:
            await secured.handshake()  # if it fails it ends the link below, after its last words
        except asyncio.CancelledError:
            secured.close()
            raise
        return secured

    async def _log_in(self, connection: Connection) -> None:
        """Logs in, and again before the session ends, on the same connection (KIP-368)."""
        from semel.client.security.sasl import authenticate, mechanism_for

        async def call(request: Request, response: type[R]) -> R:
            at_least = 1 if isinstance(request, SaslHandshakeRequest) else 0
            version = connection.version_of(type(request), at_least=at_least)
            return await connection.send(request, version, response, self._timeout_s, is_login=True)

        mechanism = mechanism_for(self._settings, self._host)
        with connection.only_login():
            lifetime_ms = await authenticate(call, mechanism)
        if lifetime_ms > 0:
            again = asyncio.get_running_loop().create_task(self._log_in_again(connection, lifetime_ms))
            self._logins.add(again)
            again.add_done_callback(self._logins.discard)

    async def _log_in_again(self, connection: Connection, lifetime_ms: int) -> None:
        await asyncio.sleep(lifetime_ms / 1000 * self._host.random.uniform(0.85, 0.95))
        if connection.is_open:
            try:
                await self._log_in(connection)
            except (SemelError, OSError):
                connection.close()  # the next connection tells those who need it why

    async def close(self) -> None:
        for task in self._logins:
            task.cancel()
        await asyncio.gather(*self._logins, return_exceptions=True)


def _tls_context(settings: ConnectionSettings) -> ssl.SSLContext:
    from semel.client.security.tls import context_for

    return context_for(settings)


def as_semel_error(error: BaseException) -> SemelError:
    """What a connection's future failed with, as an error of the client."""
    if isinstance(error, SemelError):
        return error
    if isinstance(error, TimeoutError):
        made: SemelError = TimedOut(str(error))
    elif isinstance(error, rpc.VersionNotServed | WireError):
        made = UnsupportedByBroker(str(error))
    elif isinstance(error, OSError):
        made = Disconnected(str(error))
    else:
        raise error
    made.__cause__ = error
    return made
