"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677): both sides prove that they know the password, and nobody sends it.

Names and passwords are taken as the UTF-8 that they are: Kafka's tools store credentials without SASLprep, so preparing
them would lock out whoever has a password that SASLprep changes. For ASCII there is no difference. A hostile broker
costs us a bounded amount of work, and gets no more than a proof against which it can try guesses.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Protocol

from semel.host.api import Arguments, Result
from semel.peer.errors import AuthenticationFailed, BadSetting

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
"""Half a second of SHA-512 on a machine of 2020; Kafka itself allows 16384."""
MOST_CHALLENGE_BYTES = 4096
FEWEST_NONCE_CHARACTERS = 18
_HEADER = "n,,"  # no channel binding, no other identity
_PRINTABLE = re.compile(r"[!-+\--~]+")  # without the comma, which ends an attribute
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_ATTRIBUTE = re.compile(r"([A-Za-z])=([^,\0]+)")


class InThread(Protocol):
    """Runs a function away from the event loop; `Jobs.run_in_thread` of a Host is one."""

    def __call__(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Awaitable[Result]: ...


class State(Enum):
    """START --first()--> FIRST_SENT --server-first--> PROOF_SENT --server-final--> FINISHED; anything else FAILED."""

    START = auto()
    FIRST_SENT = auto()
    PROOF_SENT = auto()
    FINISHED = auto()
    FAILED = auto()


class Scram:
    """One exchange. `nonce` must be new and unpredictable for each: printable ASCII without a comma."""

    refusal: str | None = None

    def __init__(
        self,
        name: str,
        username: str,
        password: str,
        *,
        nonce: str,
        in_thread: InThread,
        is_delegation_token: bool = False,
    ) -> None:
        if name not in HASHES:
            raise BadSetting(f"{name} is not a SCRAM mechanism; there are {' and '.join(HASHES)}")
        if not username or "\0" in username:
            raise BadSetting(f"{name} needs a user name without NUL characters")
        if not password:
            raise BadSetting(f"{name} needs a password")
        if not _PRINTABLE.fullmatch(nonce) or len(nonce) < FEWEST_NONCE_CHARACTERS:
            raise ValueError(f"a nonce has {FEWEST_NONCE_CHARACTERS} printable characters or more, and no comma")
        self.name = name
        self._username = username
        self._password = _utf8(name, password)
        self._nonce = nonce
        self._in_thread = in_thread
        escaped = _utf8(name, username).decode().replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}" + (",tokenauth=true" if is_delegation_token else "")
        self._server_signature = b""
        self._state = State.START

    def __repr__(self) -> str:
        return f"Scram({self.name}, {self._username!r}, {self._state.name})"

    @property
    def finished(self) -> bool:
        """Whether both sides have proved themselves."""
        return self._state is State.FINISHED

    async def first(self) -> bytes:
        self._expect(State.START)
        self._state = State.FIRST_SENT
        return (_HEADER + self._first_bare).encode()

    async def next(self, challenge: bytes) -> bytes | None:
        """Our answer to the server's message, or None when nothing is left to be said."""
        step = {State.FIRST_SENT: self._prove, State.PROOF_SENT: self._check_server}.get(self._state)
        if step is None:
            raise self._failed(f"it sent {len(challenge)} bytes that the exchange has no place for")
        self._state = State.FAILED  # until the step has succeeded
        return await step(challenge)

    def _expect(self, state: State) -> None:
        if self._state is not state:
            raise ValueError(f"an exchange that is {self._state.name} cannot begin")

    async def _prove(self, challenge: bytes) -> bytes:
        server_first = self._text(challenge)
        attributes = self._attributes(server_first)
        if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
            raise self._failed("its first message does not carry a nonce, a salt and a number of iterations")
        nonce, salt_text, iterations_text = (value for _, value in attributes[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not _PRINTABLE.fullmatch(nonce):
            raise self._failed("its nonce does not begin with ours, or adds nothing to it")
        salt = self._bytes(salt_text, "salt")
        iterations = int(iterations_text) if _NUMBER.fullmatch(iterations_text) else 0
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise self._failed(
                f"it asks for {iterations_text[:20]} iterations; allowed are {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        digest = HASHES[self.name]
        salted = await self._in_thread(hashlib.pbkdf2_hmac, digest, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        without_proof = f"c={_base64(_HEADER.encode())},r={nonce}"
        signed = ",".join((self._first_bare, server_first, without_proof)).encode()
        client_signature = hmac.digest(stored_key, signed, digest)
        proof = bytes(key ^ signature for key, signature in zip(client_key, client_signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        self._state = State.PROOF_SENT
        return f"{without_proof},p={_base64(proof)}".encode()

    async def _check_server(self, challenge: bytes) -> None:
        name, value = self._attributes(self._text(challenge))[0]
        if name != "v":
            raise self._failed("its last message does not carry a signature")
        if not hmac.compare_digest(self._bytes(value, "signature"), self._server_signature):
            raise self._failed(
                "it does not know the password either: its signature is wrong. This may not be our broker"
            )
        self._state = State.FINISHED

    # Reading what the server says

    def _text(self, challenge: bytes) -> str:
        if len(challenge) > MOST_CHALLENGE_BYTES:
            raise self._failed(f"it sent a message of {len(challenge)} bytes, more than {MOST_CHALLENGE_BYTES}")
        try:
            return challenge.decode()
        except UnicodeDecodeError:
            raise self._failed("it sent a message that is not UTF-8") from None

    def _attributes(self, text: str) -> list[tuple[str, str]]:
        attributes = []
        for part in text.split(","):
            found = _ATTRIBUTE.fullmatch(part)
            if found is None:
                raise self._failed("it sent a message that does not follow SCRAM")
            attributes.append((found[1], found[2]))
        if attributes[0][0] == "e":
            raise self._failed(f"it says: {attributes[0][1][:200]!r}")
        if attributes[0][0] == "m":
            raise self._failed("it demands an extension that we do not know")
        return attributes

    def _bytes(self, text: str, what: str) -> bytes:
        try:
            return b64decode(text, validate=True)
        except ValueError:
            raise self._failed(f"its {what} is not base64") from None

    def _failed(self, why: str) -> AuthenticationFailed:
        self._state = State.FAILED
        return AuthenticationFailed(
            f"the login of {self._username!r} by {self.name} failed at the broker's answer: {why}"
        )


def _utf8(mechanism: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadSetting(f"{mechanism}: the user name or the password cannot be written as UTF-8") from None


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
