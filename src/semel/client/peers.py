"""What the client takes from `peer`: connections as its settings describe them, and the peer's errors as its own.

A program sees errors of the client only: what `peer` raises becomes one on its way through here.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from semel import __version__
from semel.client.errors import (
    AuthenticationFailed,
    BadSetting,
    Closed,
    Disconnected,
    RetriableError,
    SemelError,
    TimedOut,
    UnsupportedByBroker,
)
from semel.client.settings import ConnectionSettings
from semel.host.api import Host
from semel.peer import errors as peer
from semel.peer.backoff import Backoff
from semel.peer.connector import Connector
from semel.peer.nodes import Nodes
from semel.rpc.connection import Connection, VersionNotServed
from semel.wire.errors import WireError

if TYPE_CHECKING:
    from semel.peer.security.sasl import Mechanism

KINDS: dict[type[peer.PeerError], type[SemelError]] = {
    peer.Unreachable: Disconnected,
    peer.TimedOut: TimedOut,
    peer.AuthenticationFailed: AuthenticationFailed,
    peer.TokenUnavailable: RetriableError,
    peer.Unsupported: UnsupportedByBroker,
    peer.BadSetting: BadSetting,
    peer.Closed: Closed,
}
"""What each error of `peer` is called by the client."""


# -- connections


class ClientConnector(Connector):
    """Opens connections as the settings describe them."""

    def __init__(self, host: Host, settings: ConnectionSettings) -> None:
        """Raises BadSetting now for what is missing or wrong, not at every connection."""
        login = None
        tls = tls_context_for(settings) if settings.security_protocol in ("SSL", "SASL_SSL") else None
        if settings.security_protocol.startswith("SASL"):
            mechanism_for(settings, host)
            login = partial(mechanism_for, settings, host)
        super().__init__(
            host,
            client_id=settings.client_id,
            software_version=__version__,
            timeout_s=settings.request_timeout_ms / 1000,
            max_frame_bytes=settings.max_frame_bytes,
            tls=tls,
            login=login,
        )

    async def open(self, host: str, port: int, ended: Callable[[Connection], None]) -> Connection:
        """Raises Disconnected, TimedOut, UnsupportedByBroker, AuthenticationFailed, or what a token provider raised."""
        with own_errors():
            return await super().open(host, port, ended)


class ClientNodes(Nodes):
    """A connection to each node, with the pauses that the settings describe."""

    def __init__(self, host: Host, settings: ConnectionSettings, connector: ClientConnector) -> None:
        backoff = Backoff(host.random, settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        idle_s = settings.connections_max_idle_ms / 1000
        super().__init__(host.random, connector.open, backoff=backoff, idle_s=idle_s)

    async def connect(self, node_id: int) -> Connection:
        """Waits for a connection; raises Closed, or why the attempt that runs or begins now failed."""
        with own_errors():
            return await super().connect(node_id)


def mechanism_for(settings: ConnectionSettings, host: Host) -> Mechanism:
    """A new exchange of the mechanism that the settings ask for. Raises BadSetting."""
    from semel.peer.security.sasl import new_mechanism

    with own_errors():
        return new_mechanism(
            settings.sasl_mechanism,
            sasl_plain_username=settings.sasl_plain_username,
            sasl_plain_password=settings.sasl_plain_password,
            sasl_jaas_config=settings.sasl_jaas_config,
            sasl_oauth_token_provider=settings.sasl_oauth_token_provider,
            in_thread=host.jobs.run_in_thread,
        )


def tls_context_for(settings: ConnectionSettings) -> ssl.SSLContext:
    """The context for the client's connections. Raises BadSetting."""
    given = settings.ssl_context
    if given is not None:
        if not isinstance(given, ssl.SSLContext):
            raise BadSetting(f"ssl_context: {type(given).__name__} is not allowed; allowed is an ssl.SSLContext")
        return given
    from semel.peer.security.tls import tls_context

    with own_errors():
        return tls_context(
            ssl_cafile=settings.ssl_cafile,
            ssl_certfile=settings.ssl_certfile,
            ssl_keyfile=settings.ssl_keyfile,
            ssl_password=settings.ssl_password,
            ssl_check_hostname=settings.ssl_check_hostname and settings.ssl_endpoint_identification_algorithm != "",
            ssl_truststore_location=settings.ssl_truststore_location,
            ssl_truststore_type=settings.ssl_truststore_type,
            ssl_truststore_certificates=settings.ssl_truststore_certificates,
            ssl_keystore_location=settings.ssl_keystore_location,
            ssl_keystore_type=settings.ssl_keystore_type,
            ssl_keystore_certificate_chain=settings.ssl_keystore_certificate_chain,
            ssl_keystore_key=settings.ssl_keystore_key,
        )


# -- errors


def as_semel_error(error: BaseException) -> SemelError:
    """What a connection's future failed with, as an error of the client."""
    if isinstance(error, SemelError):
        return error
    if isinstance(error, TimeoutError):
        made: SemelError = TimedOut(str(error))
    elif isinstance(error, VersionNotServed | WireError):
        made = UnsupportedByBroker(str(error))
    elif isinstance(error, OSError):
        made = Disconnected(str(error))
    else:
        raise error
    made.__cause__ = error
    return made


@contextmanager
def own_errors() -> Iterator[None]:
    """Errors of `peer` leave this as the client's, with the same text, code and cause."""
    try:
        yield
    except SemelError:
        raise
    except peer.PeerError as error:
        made = KINDS[type(error)](error.text, code=error.code)
        raise made.with_traceback(error.__traceback__) from error.__cause__
