"""OAUTHBEARER by itself: where the token comes from, what is sent of it, and what is not."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sasl_peers import inline

from semel.peer.errors import AuthenticationFailed, BadSetting, TimedOut, TokenUnavailable
from semel.peer.security.oauthbearer import OAuthBearer, OAuthToken

PLAIN_TOKEN = b"n,,\x01auth=Bearer abc.DEF-1_2~3+4/5==\x01\x01"
TOKEN = "abc.DEF-1_2~3+4/5=="


def mechanism(provider, in_thread=inline):
    return OAuthBearer(provider, in_thread=in_thread)


async def given_later():
    return TOKEN


class Provider:
    """As kafka-python has them."""

    def token(self):
        return TOKEN

    def extensions(self):
        return {"traceId": "123", "logicalCluster": "lkc 1"}


class AsyncProvider:
    """As aiokafka has them."""

    async def token(self):
        return TOKEN

    def extensions(self):
        return {}


@pytest.mark.parametrize("provider", [lambda: TOKEN, given_later, lambda: given_later(), AsyncProvider()])
async def test_a_token_comes_from_any_kind_of_function(provider):
    assert await mechanism(provider).first() == PLAIN_TOKEN


@pytest.mark.parametrize(
    "provider", [Provider(), lambda: OAuthToken(TOKEN, {"traceId": "123", "logicalCluster": "lkc 1"})]
)
async def test_extensions_follow_the_token(provider):
    sent = await mechanism(provider).first()
    assert sent == f"n,,\x01auth=Bearer {TOKEN}\x01traceId=123\x01logicalCluster=lkc 1\x01\x01".encode()


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_on_the_loop():
    ran = []

    async def elsewhere(function, *arguments):
        ran.append(function)
        return function(*arguments)

    provider = lambda: TOKEN  # noqa: E731
    await mechanism(provider, elsewhere).first()
    assert ran == [provider]
    await mechanism(given_later, elsewhere).first()
    assert ran == [provider]


@pytest.mark.parametrize("token", ["", None, 5, b"bytes", "with blank", "inject\x01auth=Bearer other", "ümlaut", "a=b"])
async def test_what_cannot_be_a_token_is_not_sent(token):
    with pytest.raises(AuthenticationFailed, match="no token") as refused:
        await mechanism(lambda: token).first()
    assert "inject" not in str(refused.value)


@pytest.mark.parametrize(
    "extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "x\x01b=c"}, {"a": "ü"}, {"a\x01b": "x"}]
)
async def test_what_cannot_be_an_extension_is_not_sent(extensions):
    with pytest.raises(AuthenticationFailed, match="extension"):
        await mechanism(lambda: OAuthToken(TOKEN, extensions)).first()


async def test_a_provider_that_fails_is_named_and_one_whose_server_is_away_may_be_asked_again():
    def failing(error):
        def provider():
            raise error

        return provider

    for error, kind in (
        (KeyError("claims"), AuthenticationFailed),
        (ConnectionRefusedError("down"), TokenUnavailable),
        (TimeoutError("slow"), TokenUnavailable),
        (TimedOut("ours"), TimedOut),
    ):
        with pytest.raises(kind, match=r"token provider failed|ours"):
            await mechanism(failing(error)).first()
    with pytest.raises(asyncio.CancelledError):
        await mechanism(failing(asyncio.CancelledError())).first()


async def test_silence_is_consent():
    exchange = mechanism(lambda: TOKEN)
    await exchange.first()
    assert not exchange.finished
    assert await exchange.next(b"") is None
    assert exchange.finished
    assert exchange.refusal is None


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        (b'{"status":"invalid_token"}', "status 'invalid_token'"),
        (b'{"status":"insufficient_scope","scope":"x","openid-configuration":"https://idp"}', "https://idp"),
        (b"not json \x1b", r"not json \\x1b"),
        (b"[1, 2]", r"\[1, 2\]"),
        (b"[" * 100_000, r"\[\["),
        (b'{"status":"' + b"x" * 10_000 + b'"}', "x{500}'"),
    ],
)
async def test_a_refusal_is_answered_and_remembered(challenge, words):
    exchange = mechanism(lambda: TOKEN)
    await exchange.first()
    assert await exchange.next(challenge) == b"\x01"
    assert not exchange.finished
    assert len(exchange.refusal) < 2000
    with pytest.raises(AuthenticationFailed, match=words):
        await exchange.next(b"")
    assert not exchange.finished


def test_a_token_is_not_shown():
    assert TOKEN not in repr(OAuthToken(TOKEN))


@pytest.mark.parametrize("provider", [None, "token", 5, type("NoMethod", (), {"token": "text"})()])
def test_what_cannot_give_a_token_is_refused(provider):
    with pytest.raises(BadSetting, match="a function"):
        mechanism(provider)
