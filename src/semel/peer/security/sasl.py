"""SASL over the Kafka protocol: the mechanism that is asked for, and the conversation with the broker.

A mechanism knows nothing of connections: it gives bytes and takes bytes. `authenticate` carries them, in SaslHandshake
and SaslAuthenticate, through a call that it is given.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from semel.peer.errors import AuthenticationFailed, BadSetting, Unreachable, code_text
from semel.peer.security.jaas import user_and_password
from semel.peer.security.oauthbearer import OAuthBearer
from semel.peer.security.scram import HASHES, InThread, Scram
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

MOST_ROUNDS = 8
_NONCE_BYTES = 24
_SHOWN_CHARACTERS = 500
_GSSAPI = "GSSAPI (Kerberos) is not supported: use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"

R = TypeVar("R", bound=Response)


class Call(Protocol):
    """One request and its answer, in a version that both sides know; SaslHandshake in version 1 at least."""

    def __call__(self, request: Request, response: type[R], /) -> Awaitable[R]: ...


class Mechanism(Protocol):
    """One exchange, for one login. Raises AuthenticationFailed when the broker's bytes are not acceptable."""

    name: str
    refusal: str | None
    """Why the broker has refused, when it said so before it ended the exchange."""

    @property
    def finished(self) -> bool:
        """Whether everything that this side needs to see has been seen."""

    async def first(self) -> bytes: ...

    async def next(self, challenge: bytes) -> bytes | None:
        """What to send next; None: nothing more."""


class Plain:
    """PLAIN (RFC 4616): the password itself, so only over TLS or a network that is trusted."""

    name = "PLAIN"
    refusal: str | None = None

    def __init__(self, username: str, password: str) -> None:
        if not username or not password:
            raise BadSetting("PLAIN needs a user name and a password")
        if "\0" in username or "\0" in password:
            raise BadSetting("PLAIN: user name and password cannot hold a NUL character")
        self._username = username
        self._password = password
        self.finished = False

    def __repr__(self) -> str:
        return f"Plain({self._username!r})"

    async def first(self) -> bytes:
        try:
            return f"\0{self._username}\0{self._password}".encode()
        except UnicodeEncodeError:
            raise BadSetting("PLAIN: the user name or the password cannot be written as UTF-8") from None

    async def next(self, challenge: bytes) -> None:
        """The broker has nothing to prove: that it did not refuse is all there is."""
        self.finished = True


def new_nonce() -> str:
    """Cryptographic chance: the random of a Host is for jitter, and can be foretold."""
    return secrets.token_urlsafe(_NONCE_BYTES)


def new_mechanism(
    sasl_mechanism: str,
    *,
    sasl_plain_username: str | None = None,
    sasl_plain_password: str | None = None,
    sasl_jaas_config: str | None = None,
    sasl_oauth_token_provider: Any = None,
    in_thread: InThread,
    nonce: Callable[[], str] = new_nonce,
) -> Mechanism:
    """A new exchange of the mechanism with this name. Raises BadSetting, with the arguments' names."""
    name = sasl_mechanism.upper()
    if name == "GSSAPI":
        raise BadSetting(f"sasl_mechanism: {_GSSAPI}")
    if name == OAuthBearer.name:
        if sasl_oauth_token_provider is None:
            raise BadSetting("OAUTHBEARER needs sasl_oauth_token_provider")
        return OAuthBearer(sasl_oauth_token_provider, in_thread=in_thread)
    if name != Plain.name and name not in HASHES:
        raise BadSetting(f"sasl_mechanism: {name} is not known; known are PLAIN, {', '.join(HASHES)} and OAUTHBEARER")
    is_token = False
    username, password = sasl_plain_username, sasl_plain_password
    if sasl_jaas_config is not None:
        if username is not None or password is not None:
            raise BadSetting("sasl_jaas_config and sasl_plain_username or sasl_plain_password are given: one is enough")
        username, password, is_token = user_and_password(sasl_jaas_config, name)
    if not username or not password:
        raise BadSetting(f"{name} needs sasl_plain_username and sasl_plain_password")
    if name == Plain.name:
        return Plain(username, password)
    return Scram(name, username, password, nonce=nonce(), in_thread=in_thread, is_delegation_token=is_token)


async def authenticate(call: Call, mechanism: Mechanism) -> int:
    """Logs in on a connection. Returns for how many milliseconds the broker lets it live, 0 for ever.

    Raises AuthenticationFailed, with the broker's words if it had any, and whatever `call` raises.
    """
    offer = await call(SaslHandshakeRequest(mechanism=mechanism.name), SaslHandshakeResponse)
    if offer.error_code != ErrorCode.NONE:
        raise _not_offered(mechanism, offer)
    token: bytes | None = await mechanism.first()
    for _ in range(MOST_ROUNDS):
        answer = await _say(call, mechanism, token or b"")
        token = await mechanism.next(bytes(answer.auth_bytes))
        if token is None:
            if not mechanism.finished:
                raise AuthenticationFailed(f"the broker ended the login by {mechanism.name} before its end")
            return max(answer.session_lifetime_ms, 0)
    raise AuthenticationFailed(f"the broker does not come to an end with {mechanism.name}")


async def _say(call: Call, mechanism: Mechanism, token: bytes) -> SaslAuthenticateResponse:
    try:
        answer = await call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
    except (ConnectionError, Unreachable) as error:
        if mechanism.refusal is not None:  # some brokers hang up once they have said it
            raise AuthenticationFailed(mechanism.refusal) from error
        raise
    if answer.error_code != ErrorCode.NONE:
        said = [part for part in (mechanism.refusal, _shown(answer.error_message)) if part]
        raise AuthenticationFailed(
            f"the login by {mechanism.name} failed: {'; '.join(said) or code_text(answer.error_code)}",
            code=answer.error_code,
        )
    return answer


def _not_offered(mechanism: Mechanism, offer: SaslHandshakeResponse) -> AuthenticationFailed:
    if offer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(_shown(name) for name in offer.mechanisms) or "none"
        why = f"the broker does not offer {mechanism.name}; it offers: {offered}"
    elif offer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        why = "the broker expects no login on this port: security_protocol should be PLAINTEXT or SSL"
    else:
        why = f"the broker does not let us log in: {code_text(offer.error_code)}"
    return AuthenticationFailed(why, code=offer.error_code)


def _shown(text: str | None) -> str:
    """A peer's words, made safe for a log."""
    return "" if text is None else "".join(c if c.isprintable() else "?" for c in text[:_SHOWN_CHARACTERS])
