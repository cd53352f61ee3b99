"""For the tests of SASL: a SCRAM server as the RFC spells it out, and brokers that answer."""

import hashlib
import hmac
from base64 import b64decode, b64encode

from semel.wire.spec.sasl_authenticate import SaslAuthenticateResponse
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def inline(function, *arguments):
    return function(*arguments)


class NaiveScramServer:
    """RFC 5802, section 3, word by word and slowly. It knows one user, and judges what a client says."""

    def __init__(self, digest, username, password, *, salt=b"some salt", iterations=4096, nonce="server-part"):
        self._digest = digest
        self.username = username
        self._salted = self._iterated(password.encode(), salt, iterations)
        self._salt, self._iterations, self._nonce = salt, iterations, nonce
        self.accepted = False
        self.extensions = {}

    def _hmac(self, key, text):
        return hmac.new(key, text, self._digest).digest()

    def _iterated(self, password, salt, iterations):
        last = result = self._hmac(password, salt + b"\0\0\0\1")
        for _ in range(iterations - 1):
            last = self._hmac(password, last)
            result = bytes(a ^ b for a, b in zip(result, last, strict=True))
        return result

    def first(self, message):
        header, self._bare = message.decode()[:3], message.decode()[3:]
        assert header == "n,,"
        name, nonce, *extensions = self._bare.split(",")
        assert name.startswith("n=")
        assert name[2:].replace("=2C", ",").replace("=3D", "=") == self.username
        assert nonce.startswith("r=")
        self.extensions = dict(part.split("=", 1) for part in extensions)
        self._whole_nonce = nonce[2:] + self._nonce
        self._first = f"r={self._whole_nonce},s={b64encode(self._salt).decode()},i={self._iterations}"
        return self._first.encode()

    def final(self, message):
        without_proof, _, proof = message.decode().rpartition(",p=")
        assert without_proof == f"c={b64encode(b'n,,').decode()},r={self._whole_nonce}"
        signed = f"{self._bare},{self._first},{without_proof}".encode()
        stored = hashlib.new(self._digest, self._hmac(self._salted, b"Client Key")).digest()
        signature = self._hmac(stored, signed)
        key = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
        self.accepted = hashlib.new(self._digest, key).digest() == stored
        if not self.accepted:
            return b"e=invalid-proof"
        server_signature = self._hmac(self._hmac(self._salted, b"Server Key"), signed)
        return b"v=" + b64encode(server_signature)


class ScriptedBroker:
    """Answers SaslHandshake as it is told, and each SaslAuthenticate with what `judge` makes of its bytes."""

    def __init__(self, judge, *, handshake_error=0, offers=("PLAIN",), lifetime_ms=0):
        self._judge = judge
        self._handshake_error = handshake_error
        self._offers = list(offers)
        self._lifetime_ms = lifetime_ms
        self.asked = []

    async def call(self, request, response_class):
        if isinstance(request, SaslHandshakeRequest):
            assert response_class is SaslHandshakeResponse
            self.asked.append(request.mechanism)
            return SaslHandshakeResponse(error_code=self._handshake_error, mechanisms=self._offers)
        assert response_class is SaslAuthenticateResponse
        self.asked.append(bytes(request.auth_bytes))
        answer = self._judge(bytes(request.auth_bytes))
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, tuple):
            code, message = answer
            return SaslAuthenticateResponse(error_code=code, error_message=message)
        return SaslAuthenticateResponse(auth_bytes=memoryview(answer), session_lifetime_ms=self._lifetime_ms)
