"""Logins at one listener: which mechanisms there are, and the exchange of one connection, from bytes to a principal.

NEW --handshake--> EXCHANGING --authenticate--> DONE --handshake--> EXCHANGING ... (again, before a session ends)
                       |
                       +--> FAILED: nothing more is answered
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, NoReturn, Protocol

from semel.peer.security.scram import HASHES
from semel.security.errors import LoginRefused
from semel.security.scram_server import Credential, ScramServer

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *HASHES)
_NONCE_BYTES = 24
_SALT_BYTES = 24
_ITERATIONS = 8192
_MOST_PLAIN_BYTES = 4096
_MOST_ROUNDS = 2


class Credentials(Protocol):
    def __call__(self, name: str, mechanism: str) -> Credential | None:
        """What is committed for a user; None if there is nothing."""


class LoginRules(NamedTuple):
    """What a listener says of logins. `users` are those of PLAIN, with their passwords."""

    mechanisms: tuple[str, ...]
    users: Mapping[str, str]
    credentials: Credentials
    session_ms: int = 0
    delay_ms: int = 0

    def __repr__(self) -> str:
        return f"LoginRules({', '.join(self.mechanisms)}, {len(self.users)} users of PLAIN)"


class State(Enum):
    NEW = auto()
    EXCHANGING = auto()
    DONE = auto()
    FAILED = auto()


MOVES = {
    State.NEW: {State.EXCHANGING, State.FAILED},
    State.EXCHANGING: {State.DONE, State.FAILED},
    State.DONE: {State.EXCHANGING, State.FAILED},
    State.FAILED: frozenset[State](),
}


class Told(NamedTuple):
    """What the peer is told in one round. `principal`: the login is over."""

    answer: bytes
    principal: str | None = None


class Login:
    """That of one connection. A later one has to be by the same mechanism and the same principal."""

    _secret = secrets.token_bytes(32)  # for salts of users that are not there: the same as long as the node runs

    def __init__(self, rules: LoginRules) -> None:
        self.rules = rules
        self.state = State.NEW
        self.principal: str | None = None
        self._mechanism = ""
        self._round: Callable[[bytes], Told] | None = None

    def _move(self, state: State) -> None:
        if state not in MOVES[self.state]:
            raise LoginRefused(f"a login that is {self.state.name} does not become {state.name}")
        self.state = state

    def choose(self, mechanism: str) -> bool:
        """False: it is not offered, and another may be chosen."""
        if self.state is State.EXCHANGING:
            self.fail("a second handshake in the middle of a login")
        if mechanism not in self.rules.mechanisms:
            return False
        if self._mechanism not in ("", mechanism):
            self.fail(f"it logged in by {self._mechanism} and asks for {mechanism}")
        self._move(State.EXCHANGING)
        self._mechanism = mechanism
        if mechanism == PLAIN:
            self._round = self._plain
        else:
            scram = ScramServer(mechanism, secrets.token_urlsafe(_NONCE_BYTES), self._looked_up)
            self._round = lambda message: self._scram_first(scram, message)
        return True

    def respond(self, message: bytes) -> Told:
        """Raises LoginRefused: the connection has failed for good."""
        if self.state is not State.EXCHANGING or self._round is None:
            self.fail("a message without a handshake")
        try:
            told = self._round(message)
        except LoginRefused:
            self.state = State.FAILED
            raise
        if told.principal is not None:
            if self.principal not in (None, told.principal):
                self.fail(f"{self.principal} has become {told.principal}")
            self.principal = told.principal
            self._round = None
            self._move(State.DONE)
        return told

    def fail(self, why: str) -> NoReturn:
        self.state = State.FAILED
        raise LoginRefused(why)

    # -- mechanisms

    def _plain(self, message: bytes) -> Told:
        """RFC 4616. A comparison takes the same time for every name and password."""
        try:
            authorization, name, password = bytes(message).decode().split("\0")
        except (UnicodeDecodeError, ValueError):
            raise LoginRefused("the message does not follow PLAIN") from None
        if len(message) > _MOST_PLAIN_BYTES or not name or not password:
            raise LoginRefused("the message does not follow PLAIN")
        known = self.rules.users.get(name)
        expected = self._secret.hex() if known is None else known
        is_right = hmac.compare_digest(_hashed(password), _hashed(expected))
        if known is None or not is_right:
            raise LoginRefused(f"{name!r}: " + ("there is no such user" if known is None else "wrong password"))
        if authorization not in ("", name):
            raise LoginRefused(f"{name!r} asks to be somebody else")
        return Told(b"", f"User:{name}")

    def _scram_first(self, scram: ScramServer, message: bytes) -> Told:
        challenge = scram.first(bytes(message))
        self._round = lambda last: self._scram_last(scram, last)
        return Told(challenge)

    def _scram_last(self, scram: ScramServer, message: bytes) -> Told:
        try:
            return Told(scram.last(bytes(message)), f"User:{scram.name}")
        except LoginRefused as refusal:
            raise LoginRefused(f"{scram.name!r}: {refusal}") from None

    def _looked_up(self, name: str) -> tuple[Credential, bool]:
        found = self.rules.credentials(name, self._mechanism)
        if found is not None:
            return found, True
        digest = HASHES[self._mechanism]
        salt = hmac.digest(self._secret, f"{self._mechanism} {name}".encode(), digest)[:_SALT_BYTES]
        keys = secrets.token_bytes(hashlib.new(digest).digest_size)
        return Credential(salt, keys, keys, _ITERATIONS), False


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
