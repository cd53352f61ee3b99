"""Opens connections that are ready for requests: TCP, TLS where asked for, the broker's versions, then the login."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from semel.host.api import Host, Link
from semel.peer.errors import AuthenticationFailed, PeerError, TimedOut, Unreachable, Unsupported
from semel.rpc.connection import Connection, VersionNotServed
from semel.wire.schema import Request, Response
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from semel.peer.security.sasl import Mechanism

R = TypeVar("R", bound=Response)


class Connector:
    """`timeout_s` is for opening a connection, and for each request of a login. Without `tls` nothing is encrypted; a
    function is asked for it at each connection.

    `login` gives a new exchange whenever somebody logs in; without it nobody does.
    """

    def __init__(
        self,
        host: Host,
        *,
        client_id: str,
        software_version: str,
        timeout_s: float,
        max_frame_bytes: int,
        tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        login: Callable[[], Mechanism] | None = None,
    ) -> None:
        self._host = host
        self._client_id = client_id
        self._software_version = software_version
        self._timeout_s = timeout_s
        self._max_frame_bytes = max_frame_bytes
        self._tls = tls
        self._login = login
        self._logins: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, ended: Callable[[Connection], None]) -> Connection:
        """Raises Unreachable, TimedOut, Unsupported, AuthenticationFailed; TokenUnavailable, BadSetting for a login."""
        address = f"{host}:{port}"
        connection: Connection | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                link = await self._reach(host, port)
                connection = Connection(
                    link,
                    client_id=self._client_id,
                    max_frame_bytes=self._max_frame_bytes,
                    ended=ended,
                )
                await connection.negotiate("semel", self._software_version, self._timeout_s)
                if self._login is not None:
                    await self._log_in(connection, self._login)
                return connection
        except TimeoutError:
            error: PeerError = TimedOut(f"{address} did not take the connection within {self._timeout_s:g} s")
        except ssl.SSLError as problem:
            error = AuthenticationFailed(f"{address}: TLS: {problem}")
        except OSError as problem:
            if isinstance(problem.__cause__, ssl.SSLError):  # TLS 1.3: our certificate is judged after the handshake
                error = AuthenticationFailed(f"{address}: TLS: {problem.__cause__}")
            else:
                error = Unreachable(f"cannot connect to {address}: {problem}")
        except VersionNotServed as problem:
            error = Unsupported(str(problem))
        except PeerError as problem:
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

        context = self._tls if isinstance(self._tls, ssl.SSLContext) else self._tls()
        secured = TlsLink(link, context, server_hostname=host)
        try:
            await secured.handshake()  # if it fails it ends the link below, after its last words
        except asyncio.CancelledError:
            secured.close()
            raise
        return secured

    async def _log_in(self, connection: Connection, login: Callable[[], Mechanism]) -> None:
        """Logs in, and again before the session ends, on the same connection (KIP-368)."""
        from semel.peer.security.sasl import authenticate

        async def call(request: Request, response: type[R]) -> R:
            at_least = 1 if isinstance(request, SaslHandshakeRequest) else 0
            version = connection.version_of(type(request), at_least=at_least)
            return await connection.send(request, version, response, self._timeout_s, is_login=True)

        mechanism = login()
        with connection.only_login():
            lifetime_ms = await authenticate(call, mechanism)
        if lifetime_ms > 0:
            again = asyncio.get_running_loop().create_task(self._log_in_again(connection, login, lifetime_ms))
            self._logins.add(again)
            again.add_done_callback(self._logins.discard)

    async def _log_in_again(self, connection: Connection, login: Callable[[], Mechanism], lifetime_ms: int) -> None:
        await asyncio.sleep(lifetime_ms / 1000 * self._host.random.uniform(0.85, 0.95))
        if connection.is_open:
            try:
                await self._log_in(connection, login)
            except (PeerError, OSError):
                connection.close()  # the next connection tells those who need it why

    async def close(self) -> None:
        for task in self._logins:
            task.cancel()
        await asyncio.gather(*self._logins, return_exceptions=True)
