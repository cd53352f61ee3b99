"""The broker's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677): one exchange, from bytes to bytes.

The same is done for a user that is not there: with a salt that is his for ever, and keys that nobody has. A nonce of
ours is part of what the client signs, and is compared, so that an exchange cannot be played again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import NamedTuple

from semel.peer.security.scram import HASHES
from semel.security.errors import LoginRefused

_MOST_MESSAGE_BYTES = 4096
_FIRST = re.compile(r"n,(?:a=([^,\0]+))?,(n=([^,\0]+),r=([!-+\--~]+)((?:,[A-Za-z]=[^,\0]*)*))", re.DOTALL)
_LAST = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]+)(?:,[A-Za-z]=[^,\0]*)*),p=([A-Za-z0-9+/=]+)")
_ESCAPED = re.compile("=(2C|3D)")


class Credential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def keys_of(mechanism: str, salted_password: bytes) -> tuple[bytes, bytes]:
    """Stored key and server key."""
    digest = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    return hashlib.new(digest, client_key).digest(), hmac.digest(salted_password, b"Server Key", digest)


def credential_of(mechanism: str, password: str, salt: bytes, iterations: int) -> Credential:
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return Credential(salt, *keys_of(mechanism, salted), iterations)


class ScramServer:
    """`first` and then `last`, once each. `lookup` gives what a name's password is checked against, and whether there
    is such a user."""

    def __init__(self, mechanism: str, nonce: str, lookup: Callable[[str], tuple[Credential, bool]]) -> None:
        self.name = ""
        self._mechanism = mechanism
        self._server_nonce = nonce
        self._lookup = lookup
        self._header = b""
        self._nonce = ""
        self._signed = ""
        self._credential: Credential | None = None
        self._exists = False

    def first(self, message: bytes) -> bytes:
        """Our challenge; raises LoginRefused."""
        text = _text(message)
        found = _FIRST.fullmatch(text)
        if found is None:
            raise LoginRefused("the first message does not follow SCRAM")
        authorization, bare, name, client_nonce, extensions = found.groups()
        if ",m=" in extensions or "tokenauth=true" in extensions.lower():
            raise LoginRefused("it asks for an extension that is not served")
        self.name = _ESCAPED.sub(lambda code: "," if code[1] == "2C" else "=", name)
        if authorization is not None and authorization != name:
            raise LoginRefused(f"{self.name!r} asks to be somebody else")
        self._header = text[: text.index(bare)].encode()
        self._credential, self._exists = self._lookup(self.name)
        self._nonce = client_nonce + self._server_nonce
        salt = b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{bare},{challenge}"
        return challenge.encode()

    def last(self, message: bytes) -> bytes:
        """Our proof, when the client's is right; raises LoginRefused."""
        credential, self._credential = self._credential, None
        found = _LAST.fullmatch(_text(message))
        if found is None or credential is None:
            raise LoginRefused("the last message does not follow SCRAM")
        without_proof, header, nonce, proof_text = found.groups()
        try:
            is_ours = b64decode(header, validate=True) == self._header
            proof = b64decode(proof_text, validate=True)
        except ValueError:
            raise LoginRefused("the last message is not in base64") from None
        if not is_ours or not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise LoginRefused("its nonce or its channel binding is not that of this exchange")
        digest = HASHES[self._mechanism]
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, digest)
        is_right = False
        if len(proof) == len(signature):
            client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
            is_right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        ours = hmac.digest(credential.server_key, signed, digest)
        if not is_right or not self._exists:
            raise LoginRefused("wrong password" if self._exists else "there is no such user")
        return b"v=" + b64encode(ours)


def _text(message: bytes) -> str:
    if len(message) > _MOST_MESSAGE_BYTES:
        raise LoginRefused(f"a message of {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("a message that is not UTF-8") from None
