"""SCRAM from the client's side: the RFC's own example, a naive server, and servers that lie."""

import hashlib
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from sasl_peers import NaiveScramServer, inline

from semel.peer.errors import AuthenticationFailed, BadSetting
from semel.peer.security import scram
from semel.peer.security.scram import Scram
from semel.sim.loop import run

NONCE = "rOprNGfwEbeRWgbNEkqO"
HASHES = pytest.mark.parametrize(("name", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])


def client(username="user", password="pencil", name="SCRAM-SHA-256", in_thread=inline, **rest):
    return Scram(name, username, password, nonce=NONCE, in_thread=in_thread, **rest)


async def converse(mechanism, server):
    challenge = server.first(await mechanism.first())
    assert not mechanism.finished
    final = server.final(await mechanism.next(challenge))
    assert not mechanism.finished
    assert await mechanism.next(final) is None


async def test_the_example_of_rfc_7677_comes_out_byte_for_byte():
    mechanism = client()
    assert await mechanism.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = await mechanism.next(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert answer == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not mechanism.finished
    assert await mechanism.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert mechanism.finished


@HASHES
async def test_a_naive_server_is_convinced_and_convinces(name, digest):
    server = NaiveScramServer(digest, "user", "pencil")
    mechanism = client(name=name)
    await converse(mechanism, server)
    assert server.accepted
    assert mechanism.finished


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
SAFE = st.text(st.sampled_from("abc=,=2C=3D é"), min_size=1, max_size=12)


@hypothesis_settings(max_examples=25, deadline=None)
@given(username=st.one_of(TEXT, SAFE), password=st.one_of(TEXT, SAFE), salt=st.binary(min_size=1, max_size=40))
def test_any_name_and_any_password_arrive_as_they_are(username, password, salt):
    server = NaiveScramServer("sha256", username, password, salt=salt)
    mechanism = client(username, password)
    run(converse(mechanism, server))
    assert server.accepted
    assert mechanism.finished


async def test_no_preparation_changes_a_password():
    """As in Kafka's own tools: SASLprep would make VIII of the one sign, and leave the soft hyphen out."""
    server = NaiveScramServer("sha256", "\u2167", "\u2167\u00ad")
    await converse(client("\u2167", "\u2167\u00ad"), server)
    assert server.accepted


async def test_comma_and_equals_sign_in_a_name_are_escaped():
    assert await client("a=b,c").first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


async def test_a_wrong_password_is_told_in_the_servers_words():
    server = NaiveScramServer("sha256", "user", "pencil")
    mechanism = client(password="crayon")
    with pytest.raises(AuthenticationFailed, match="invalid-proof"):
        await converse(mechanism, server)
    assert not mechanism.finished


async def test_a_delegation_token_says_so():
    server = NaiveScramServer("sha256", "token-id", "token-hmac")
    await converse(client("token-id", "token-hmac", is_delegation_token=True), server)
    assert server.extensions == {"tokenauth": "true"}


def server_first(nonce=NONCE + "more", salt="c2FsdA==", iterations="4096", after=""):
    return f"r={nonce},s={salt},i={iterations}{after}".encode()


HOSTILE_FIRST = {
    "nothing": (b"", "does not follow SCRAM"),
    "a nonce that is not ours": (server_first(nonce="x" + NONCE), "nonce"),
    "our nonce and no more": (server_first(nonce=NONCE), "nonce"),
    "a nonce that cannot be printed": (server_first(nonce=NONCE + "\x7f"), "nonce"),
    "an empty nonce": (b"r=,s=c2FsdA==,i=4096", "does not follow SCRAM"),
    "no salt": (f"r={NONCE}more,i=4096".encode(), "does not carry"),
    "a salt that is not base64": (server_first(salt="!!!!"), "salt is not base64"),
    "a salt with blanks in it": (server_first(salt="c2 FsdA=="), "salt is not base64"),
    "too few iterations": (server_first(iterations="4095"), "iterations"),
    "no iterations": (server_first(iterations="0"), "iterations"),
    "negative iterations": (server_first(iterations="-5000"), "iterations"),
    "iterations in other digits": (server_first(iterations="\u0665\u0660\u0660\u0660"), "iterations"),
    "iterations with an underscore": (server_first(iterations="5_000"), "iterations"),
    "one iteration too many": (server_first(iterations=str(scram.MOST_ITERATIONS + 1)), "iterations"),
    "iterations for ever": (server_first(iterations="9" * 1000), "iterations"),
    "another order": (f"s=c2FsdA==,r={NONCE}more,i=4096".encode(), "does not carry"),
    "an extension that must be known": (b"m=must," + server_first(), "extension"),
    "an error at once": (b"e=unknown-user", "unknown-user"),
    "bytes that are no text": (b"\xff\xfe", "not UTF-8"),
    "a message without an end": (server_first(after=",x=" + "y" * 5000), "more than 4096"),
    "a NUL": (server_first(salt="c2FsdA==\0"), "does not follow SCRAM"),
}


@pytest.mark.parametrize("case", HOSTILE_FIRST)
async def test_a_hostile_first_message_is_refused_before_any_work(case):
    message, words = HOSTILE_FIRST[case]

    async def no_work(*_):
        raise AssertionError("the key was derived")

    mechanism = client(in_thread=no_work)
    await mechanism.first()
    with pytest.raises(AuthenticationFailed, match=words):
        await mechanism.next(message)
    assert not mechanism.finished
    with pytest.raises(AuthenticationFailed, match="no place for"):
        await mechanism.next(server_first())


async def test_the_work_goes_where_the_caller_says_and_is_bounded():
    asked = []

    async def elsewhere(function, *arguments):
        asked.append((function, *arguments))
        return b"\0" * 32

    mechanism = client(in_thread=elsewhere)
    await mechanism.first()
    await mechanism.next(server_first(iterations=str(scram.MOST_ITERATIONS)))
    assert asked == [(hashlib.pbkdf2_hmac, "sha256", b"pencil", b"salt", scram.MOST_ITERATIONS)]


async def test_an_exchange_whose_work_has_failed_is_over():
    async def failing(*_):
        raise RuntimeError("no thread left")

    mechanism = client(in_thread=failing)
    await mechanism.first()
    with pytest.raises(RuntimeError):
        await mechanism.next(server_first())
    with pytest.raises(AuthenticationFailed, match="no place for"):
        await mechanism.next(server_first())


async def test_extensions_that_need_not_be_known_are_signed_and_ignored():
    class Extended(NaiveScramServer):
        def first(self, message):
            super().first(message)
            self._first += ",x=whatever"
            return self._first.encode()

    server = Extended("sha256", "user", "pencil")
    await converse(client(), server)
    assert server.accepted


HOSTILE_FINAL = {
    "nothing": (b"", "does not follow SCRAM"),
    "an empty signature": (b"v=", "does not follow SCRAM"),
    "a wrong signature": (b"v=" + b64encode(bytes(32)), "signature is wrong"),
    "a short signature": (b"v=" + b64encode(b"x"), "signature is wrong"),
    "a signature that is not base64": (b"v=?", "not base64"),
    "its first message again": (server_first(), "does not carry a signature"),
    "an error": (b"e=other-error", "other-error"),
    "an error with control characters": (b"e=\x1b[31m", r"\\x1b"),
}


@pytest.mark.parametrize("case", HOSTILE_FINAL)
async def test_a_server_that_does_not_know_the_password_is_refused(case):
    message, words = HOSTILE_FINAL[case]
    mechanism = client()
    await mechanism.first()
    await mechanism.next(server_first())
    with pytest.raises(AuthenticationFailed, match=words):
        await mechanism.next(message)
    assert not mechanism.finished
    with pytest.raises(AuthenticationFailed):
        await mechanism.next(message)


async def test_every_flipped_bit_of_the_servers_signature_is_noticed():
    for bit in range(0, 256, 7):
        server = NaiveScramServer("sha256", "user", "pencil", iterations=4096)
        server._salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"some salt", 4096)
        mechanism = client()
        final = server.final(await mechanism.next(server.first(await mechanism.first())))
        signature = bytearray(scram.b64decode(final[2:]))
        signature[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AuthenticationFailed, match="signature is wrong"):
            await mechanism.next(b"v=" + b64encode(signature))


async def test_an_exchange_serves_once():
    server = NaiveScramServer("sha256", "user", "pencil")
    mechanism = client()
    with pytest.raises(AuthenticationFailed, match="no place for"):
        await client().next(b"early")
    await converse(mechanism, server)
    with pytest.raises(ValueError, match="cannot begin"):
        await mechanism.first()
    with pytest.raises(AuthenticationFailed):
        await mechanism.next(b"v=again")
    assert not mechanism.finished


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"username": ""}, BadSetting),
        ({"username": "a\0b"}, BadSetting),
        ({"username": "\ud800"}, BadSetting),
        ({"password": ""}, BadSetting),
        ({"password": "\ud800"}, BadSetting),
        ({"name": "SCRAM-SHA-1"}, BadSetting),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(arguments, error):
    with pytest.raises(error):
        client(**arguments)


@pytest.mark.parametrize("nonce", ["", "short", "with,comma" * 3, "with blank " * 3, "n\u00f6n-ascii" * 3])
def test_a_nonce_that_is_weak_or_cannot_be_sent_is_refused(nonce):
    with pytest.raises(ValueError, match="nonce"):
        Scram("SCRAM-SHA-256", "user", "pencil", nonce=nonce, in_thread=inline)


async def test_no_password_is_ever_shown():
    mechanism = client(password="s3cret")
    assert "s3cret" not in repr(mechanism)
    await mechanism.first()
    with pytest.raises(AuthenticationFailed) as refused:
        await mechanism.next(b"e=wrong")
    assert "s3cret" not in repr(refused.value)
