"""The broker's side of SCRAM against our own client's: who knows the password is let in, and nothing is replayed."""

from __future__ import annotations

import base64

import pytest

from semel.peer.security.scram import HASHES, Scram
from semel.security.errors import LoginRefused
from semel.security.logins import Login, LoginRules, State
from semel.security.scram_server import Credential, ScramServer, credential_of

MECHANISMS = pytest.mark.parametrize("mechanism", list(HASHES))
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


async def in_thread(function, *arguments):  # type: ignore[no-untyped-def]
    return function(*arguments)


def client(mechanism: str, name: str = "alice", password: str = "secret") -> Scram:
    return Scram(mechanism, name, password, nonce=NONCE, in_thread=in_thread)


def rules(mechanism: str, users: dict[str, str] | None = None) -> LoginRules:
    known = {
        name: credential_of(mechanism, password, b"salt" * 6, 4096)
        for name, password in (users or {"alice": "secret", "a,b=c": "secret"}).items()
    }
    return LoginRules((mechanism,), {}, lambda name, wanted: known.get(name) if wanted == mechanism else None)


async def exchange(login: Login, one: Scram) -> str | None:
    challenge = login.respond(await one.first()).answer
    proof = await one.next(challenge)
    assert proof is not None
    told = login.respond(proof)
    await one.next(told.answer)  # raises if the broker does not know the password either
    return told.principal


@MECHANISMS
@pytest.mark.parametrize("name", ["alice", "a,b=c"])
async def test_who_knows_the_password_is_let_in(mechanism: str, name: str) -> None:
    login = Login(rules(mechanism))
    assert login.choose(mechanism)
    assert await exchange(login, client(mechanism, name)) == f"User:{name}"
    assert login.state is State.DONE


@MECHANISMS
@pytest.mark.parametrize(("name", "password"), [("alice", "guessed"), ("nobody", "secret"), ("Alice", "secret")])
async def test_who_does_not_is_not(mechanism: str, name: str, password: str) -> None:
    login = Login(rules(mechanism))
    assert login.choose(mechanism)
    one = client(mechanism, name, password)
    proof = await one.next(login.respond(await one.first()).answer)
    assert proof is not None
    with pytest.raises(LoginRefused):
        login.respond(proof)
    assert login.state is State.FAILED
    with pytest.raises(LoginRefused):
        login.respond(proof)


@MECHANISMS
async def test_an_unknown_user_has_the_same_salt_every_time_and_another_than_others(mechanism: str) -> None:
    async def salt(name: str) -> str:
        login = Login(rules(mechanism))
        assert login.choose(mechanism)
        challenge = login.respond(await client(mechanism, name).first()).answer.decode()
        return challenge.split(",")[1]

    assert await salt("nobody") == await salt("nobody") != await salt("somebody")


async def test_an_exchange_cannot_be_played_again() -> None:
    """CVE-2024-56128: what a client has sent in one exchange lets nobody in, in another."""
    mechanism = "SCRAM-SHA-256"
    first = Login(rules(mechanism))
    assert first.choose(mechanism)
    one = client(mechanism)
    opening = await one.first()
    proof = await one.next(first.respond(opening).answer)
    assert proof is not None
    assert first.respond(proof).principal == "User:alice"
    second = Login(rules(mechanism))
    assert second.choose(mechanism)
    second.respond(opening)
    with pytest.raises(LoginRefused, match="nonce"):
        second.respond(proof)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=admin,n=alice,r=abc",
        b"n,,m=ext,n=alice,r=abc",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,,n=alice,r=abc,m=x",
        b"n,,n=\xff,r=abc",
        b"n,,n=alice,r=" + b"a" * 5000,
        b"\0" * 100,
    ],
)
def test_what_does_not_follow_scram_is_refused(message: bytes) -> None:
    login = Login(rules("SCRAM-SHA-256"))
    assert login.choose("SCRAM-SHA-256")
    with pytest.raises(LoginRefused):
        login.respond(message)
    assert login.state is State.FAILED


@pytest.mark.parametrize(
    "proof", ["", base64.b64encode(bytes(31)).decode(), base64.b64encode(bytes(32)).decode(), "!!"]
)
def test_a_proof_of_any_length_is_judged(proof: str) -> None:
    credential = Credential(b"salt", bytes(32), bytes(32), 4096)
    server = ScramServer("SCRAM-SHA-256", "server", lambda name: (credential, True))
    challenge = server.first(b"n,,n=alice,r=client")
    assert challenge.startswith(b"r=clientserver,s=")
    with pytest.raises(LoginRefused):
        server.last(f"c=biws,r=clientserver,p={proof}".encode())


# -- the states of a login


def plain(users: dict[str, str]) -> Login:
    return Login(LoginRules(("PLAIN",), users, lambda name, mechanism: None))


@pytest.mark.parametrize(
    ("message", "principal"),
    [
        (b"\0alice\0secret", "User:alice"),
        (b"alice\0alice\0secret", "User:alice"),
        (b"admin\0alice\0secret", None),
        (b"\0alice\0Secret", None),
        (b"\0nobody\0secret", None),
        (b"\0alice\0", None),
        (b"\0\0secret", None),
        (b"alice", None),
        (b"\0alice\0secret\0", None),
        (b"\0alice\0\xff", None),
        (b"", None),
    ],
)
def test_plain_takes_a_name_and_its_password(message: bytes, principal: str | None) -> None:
    login = plain({"alice": "secret"})
    assert login.choose("PLAIN")
    if principal is None:
        with pytest.raises(LoginRefused):
            login.respond(message)
    else:
        assert login.respond(message).principal == principal


def test_a_mechanism_that_is_not_offered_may_be_followed_by_one_that_is() -> None:
    login = plain({})
    assert not login.choose("SCRAM-SHA-256")
    assert login.choose("PLAIN")


def test_nothing_is_taken_out_of_its_order() -> None:
    with pytest.raises(LoginRefused, match="without a handshake"):
        plain({}).respond(b"\0a\0b")
    login = plain({})
    login.choose("PLAIN")
    with pytest.raises(LoginRefused, match="second handshake"):
        login.choose("PLAIN")


def test_a_later_login_is_that_of_the_same_principal() -> None:
    login = plain({"alice": "secret", "bob": "secret"})
    login.choose("PLAIN")
    login.respond(b"\0alice\0secret")
    login.choose("PLAIN")
    assert login.respond(b"\0alice\0secret").principal == "User:alice"
    login.choose("PLAIN")
    with pytest.raises(LoginRefused, match="has become"):
        login.respond(b"\0bob\0secret")


def test_nothing_that_is_shown_holds_a_password() -> None:
    held = LoginRules(("PLAIN",), {"alice": "hunter2"}, lambda name, mechanism: None)
    assert "hunter2" not in repr(held)
