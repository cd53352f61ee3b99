"""How each listener of a node is secured, by its settings: its certificate, who may come, and how this node goes to
others.

Files are looked at again when somebody connects, at most once in a while: a certificate that was replaced is the one of
the next connection, and those that are open go on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from semel.config import BrokerConfig, ConfigError
from semel.config.listeners import SASL_PROTOCOLS, TLS_PROTOCOLS
from semel.config.security_settings import LISTENER_PREFIX
from semel.host.api import Clock, Jobs
from semel.peer.errors import BadSetting
from semel.security.logins import PLAIN, Credentials, Login, LoginRules

if TYPE_CHECKING:  # a node without TLS does without OpenSSL
    import ssl

    from semel.peer.security.sasl import Mechanism

logger = logging.getLogger("semel.security")

_LOOK_AGAIN_MS = 1000
_FILES = ("ssl.keystore.location", "ssl.truststore.location")
_STORES = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
)
_USER = "user_"
_JAAS = "sasl.jaas.config"


class Outgoing(NamedTuple):
    """How this node connects to others by a listener of theirs. `login` gives a new exchange for each connection."""

    tls: Callable[[], ssl.SSLContext] | None = None
    login: Callable[[], Mechanism] | None = None


class ServerTls:
    """The certificate of one listener, read again when its files change. Raises ConfigError when it is made; later
    what cannot be read is logged, and the certificate stays as it was."""

    def __init__(self, config: BrokerConfig, listener: str, clock: Clock) -> None:
        from semel.security.principal_mapping import parse_rules

        self._config = config
        self._listener = listener
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        rules = cast(str, config.of_listener(listener, "ssl.principal.mapping.rules"))
        try:
            self.rules = parse_rules(rules)
        except ValueError as error:
            raise ConfigError("ssl.principal.mapping.rules", rules, str(error)) from error
        self._stamps = self._stamps_now()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= _LOOK_AGAIN_MS:
            self._looked_ms = now_ms
            stamps = self._stamps_now()
            if stamps != self._stamps:
                try:
                    self._context = self._read()
                    self._stamps = stamps
                    logger.info("%s: the certificate was read again", self._listener)
                except ConfigError as error:
                    logger.error("%s goes on with the certificate as it was: %s", self._listener, error)
        return self._context

    def principal_of(self, certificate: dict[str, Any] | None) -> str | None:
        """None: no rule makes a principal of it."""
        from semel.security.principal_mapping import mapped, subject_of

        if certificate is None:
            return "User:ANONYMOUS"
        name = mapped(self.rules, subject_of(certificate))
        return None if not name else f"User:{name}"

    def _stamps_now(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(cast(str | None, self._config.of_listener(self._listener, name))) for name in _FILES]

    def _read(self) -> ssl.SSLContext:
        from semel.peer.security.tls import server_tls_context

        given = _stores(self._config, self._listener)
        wanted = cast(str, self._config.of_listener(self._listener, "ssl.client.auth"))
        try:
            return server_tls_context(
                client_certificates=wanted, ssl_key_password=given.pop("ssl_key_password"), **given
            )
        except BadSetting as error:
            raise _refused(error, self._listener) from error


class ListenerSecurity:
    """The guard of one listener. Without `tls` nothing is encrypted, without `logins` nobody logs in."""

    def __init__(self, config: BrokerConfig, name: str, protocol: str, credentials: Credentials, clock: Clock) -> None:
        self.tls = ServerTls(config, name, clock) if protocol in TLS_PROTOCOLS else None
        self.logins = _login_rules(config, name, credentials) if protocol in SASL_PROTOCOLS else None

    def new_login(self) -> Login | None:
        return None if self.logins is None else Login(self.logins)


def outgoing(config: BrokerConfig, listener: str, mechanism_setting: str, jobs: Jobs) -> Outgoing:
    """To a listener of other nodes. Raises ConfigError."""
    protocol = config.layout.protocol_of(listener)
    tls = _client_tls(config, listener) if protocol in TLS_PROTOCOLS else None
    login = _login_of_node(config, listener, mechanism_setting, jobs) if protocol in SASL_PROTOCOLS else None
    return Outgoing(tls, login)


def _client_tls(config: BrokerConfig, listener: str) -> Callable[[], ssl.SSLContext]:
    from semel.peer.security.tls import tls_context

    checks_host = bool(config.text("ssl.endpoint.identification.algorithm"))
    stamps: list[tuple[int, int, int] | None] = []
    made: list[ssl.SSLContext] = []

    def context() -> ssl.SSLContext:
        """Files that have changed are read again for the next connection."""
        now = [_stamp(cast(str | None, config.of_listener(listener, name))) for name in _FILES]
        if not made or now != stamps:
            given = _stores(config, listener)
            try:
                fresh = tls_context(ssl_check_hostname=checks_host, ssl_password=given.pop("ssl_key_password"), **given)
            except BadSetting as error:
                if not made:
                    raise _refused(error, listener) from error
                logger.error("%s goes on with the certificate as it was: %s", listener, error)
                return made[0]
            made[:], stamps[:] = [fresh], now
        return made[0]

    context()  # what is wrong is told at the start
    return context


def _login_of_node(config: BrokerConfig, listener: str, setting: str, jobs: Jobs) -> Callable[[], Mechanism]:
    from semel.peer.security.sasl import new_mechanism

    mechanism = config.str(setting)
    jaas = _jaas(config, listener, mechanism)

    def login() -> Mechanism:
        return new_mechanism(mechanism, sasl_jaas_config=jaas, in_thread=jobs.run_in_thread)

    if jaas is None:
        raise ConfigError(_jaas_name(listener, mechanism), None, f"username and password of this node for {mechanism}")
    try:
        login()
    except BadSetting as error:
        raise ConfigError(_jaas_name(listener, mechanism), "(hidden)", str(error)) from error
    return login


def _login_rules(config: BrokerConfig, listener: str, credentials: Credentials) -> LoginRules:
    mechanisms = cast(tuple[str, ...], config.of_listener(listener, "sasl.enabled.mechanisms"))
    if not mechanisms:
        raise ConfigError("sasl.enabled.mechanisms", None, f"at least one mechanism for the listener {listener}")
    return LoginRules(
        mechanisms,
        _users(config, listener) if PLAIN in mechanisms else {},
        credentials,
        session_ms=cast(int, config.of_listener(listener, "connections.max.reauth.ms")),
        delay_ms=config.int("connection.failed.authentication.delay.ms"),
    )


def _users(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Those of PLAIN: user_NAME="password" in its line."""
    from semel.peer.security.jaas import read_jaas

    jaas = _jaas(config, listener, PLAIN)
    if jaas is None:
        return {}
    try:
        login = read_jaas(jaas)
    except BadSetting as error:
        raise ConfigError(_jaas_name(listener, PLAIN), "(hidden)", str(error)) from error
    if login.short_name != "PlainLoginModule":
        raise ConfigError(_jaas_name(listener, PLAIN), "(hidden)", "the module PlainLoginModule, and no other")
    return {
        name.removeprefix(_USER): value for name, value in login.options.items() if name.startswith(_USER) and value
    }


def _jaas_name(listener: str, mechanism: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{_JAAS}"


def _jaas(config: BrokerConfig, listener: str, mechanism: str) -> str | None:
    return cast(str | None, config.get(_jaas_name(listener, mechanism), config.of_listener(listener, _JAAS)))


def _stores(config: BrokerConfig, listener: str) -> dict[str, Any]:
    """As keyword arguments."""
    return {name.replace(".", "_"): config.of_listener(listener, name) for name in _STORES}


def _refused(error: BadSetting, listener: str) -> ConfigError:
    name, _, why = str(error).partition(": ")
    return ConfigError(f"{name.replace('_', '.')} of the listener {listener}", None, why or str(error))


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    """Changes whenever the file does."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
