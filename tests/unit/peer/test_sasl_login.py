"""The conversation with the broker, and which exchange it is."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sasl_peers import NaiveScramServer, ScriptedBroker, inline

from semel.peer.errors import AuthenticationFailed, BadSetting, Unreachable
from semel.peer.security.oauthbearer import OAuthBearer
from semel.peer.security.sasl import MOST_ROUNDS, Plain, authenticate, new_mechanism, new_nonce
from semel.peer.security.scram import Scram
from semel.wire.errors import ErrorCode

REFUSED = ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_plain_sends_user_and_password_and_returns_the_lifetime():
    broker = ScriptedBroker(lambda token: b"", lifetime_ms=3_600_000)
    assert await authenticate(broker.call, Plain("alice", "secret")) == 3_600_000
    assert broker.asked == ["PLAIN", b"\0alice\0secret"]


async def test_a_lifetime_that_makes_no_sense_is_none():
    assert await authenticate(ScriptedBroker(lambda token: b"", lifetime_ms=-1).call, Plain("a", "b")) == 0


async def test_scram_goes_through_both_rounds():
    server = NaiveScramServer("sha512", "alice", "secret")
    rounds = [server.first, server.final]
    broker = ScriptedBroker(lambda token: rounds.pop(0)(token), offers=["SCRAM-SHA-512"])
    mechanism = Scram("SCRAM-SHA-512", "alice", "secret", nonce=new_nonce(), in_thread=inline)
    assert await authenticate(broker.call, mechanism) == 0
    assert server.accepted
    assert broker.asked[0] == "SCRAM-SHA-512"
    assert len(broker.asked) == 3


async def test_a_broker_that_says_yes_without_proof_is_not_believed():
    server = NaiveScramServer("sha256", "alice", "secret")
    answers = [server.first, lambda token: b""]
    broker = ScriptedBroker(lambda token: answers.pop(0)(token))
    mechanism = Scram("SCRAM-SHA-256", "alice", "secret", nonce=new_nonce(), in_thread=inline)
    with pytest.raises(AuthenticationFailed):
        await authenticate(broker.call, mechanism)


async def test_a_mechanism_that_the_broker_does_not_offer_is_answered_with_what_it_offers():
    broker = ScriptedBroker(
        None, handshake_error=ErrorCode.UNSUPPORTED_SASL_MECHANISM, offers=["SCRAM-SHA-512", "GSSAPI"]
    )
    with pytest.raises(AuthenticationFailed, match="does not offer PLAIN; it offers: SCRAM-SHA-512, GSSAPI") as refused:
        await authenticate(broker.call, Plain("a", "b"))
    assert refused.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert broker.asked == ["PLAIN"]  # the password did not leave


async def test_a_listener_without_sasl_is_named_as_such():
    broker = ScriptedBroker(None, handshake_error=ErrorCode.ILLEGAL_SASL_STATE)
    with pytest.raises(AuthenticationFailed, match="security_protocol should be PLAINTEXT"):
        await authenticate(broker.call, Plain("a", "b"))


async def test_any_other_error_of_the_handshake_keeps_its_name():
    with pytest.raises(AuthenticationFailed, match="UNKNOWN_SERVER_ERROR"):
        await authenticate(ScriptedBroker(None, handshake_error=-1).call, Plain("a", "b"))


async def test_a_refused_login_carries_the_brokers_words():
    broker = ScriptedBroker(lambda token: (REFUSED, "Invalid \x1b[31musername or password"))
    with pytest.raises(AuthenticationFailed, match=r"PLAIN failed: Invalid \?\[31musername or password") as refused:
        await authenticate(broker.call, Plain("alice", "secret"))
    assert refused.value.code == REFUSED
    assert "secret" not in str(refused.value)


async def test_a_refused_login_without_words_has_its_code():
    with pytest.raises(AuthenticationFailed, match="SASL_AUTHENTICATION_FAILED"):
        await authenticate(ScriptedBroker(lambda token: (REFUSED, None)).call, Plain("a", "b"))


async def test_a_lost_connection_stays_one():
    for lost in (ConnectionResetError("gone"), Unreachable("gone")):
        with pytest.raises(type(lost)):
            await authenticate(ScriptedBroker(lambda token, lost=lost: lost).call, Plain("a", "b"))


async def test_a_broker_that_never_comes_to_an_end_is_left():
    class Endless:
        name = "ENDLESS"
        refusal = None
        finished = False

        async def first(self):
            return b"?"

        async def next(self, challenge):
            return challenge

    broker = ScriptedBroker(lambda token: b"and then?")
    with pytest.raises(AuthenticationFailed, match="does not come to an end"):
        await authenticate(broker.call, Endless())
    assert len(broker.asked) == 1 + MOST_ROUNDS


async def test_a_mechanism_that_has_nothing_to_say_but_is_not_satisfied_is_a_failure():
    mechanism = Plain("a", "b")
    mechanism.next = lambda challenge: nothing()

    async def nothing():
        return None

    with pytest.raises(AuthenticationFailed, match="before its end"):
        await authenticate(ScriptedBroker(lambda token: b"").call, mechanism)


# OAUTHBEARER on the wire


async def test_a_token_that_is_refused_is_given_up_and_both_reasons_are_told():
    answers = [b'{"status":"invalid_token","scope":"kafka"}', (REFUSED, "expired")]
    broker = ScriptedBroker(lambda token: answers.pop(0))
    with pytest.raises(AuthenticationFailed, match="status 'invalid_token', scope 'kafka'; expired"):
        await authenticate(broker.call, OAuthBearer(lambda: "token", in_thread=inline))
    assert broker.asked[1:] == [b"n,,\x01auth=Bearer token\x01\x01", b"\x01"]


async def test_a_token_is_refused_also_when_the_broker_hangs_up_or_changes_its_mind():
    for answer in (ConnectionResetError("gone"), Unreachable("gone"), b"", b"once more"):
        answers = [b'{"status":"invalid_token"}', answer]
        broker = ScriptedBroker(lambda token, answers=answers: answers.pop(0))
        with pytest.raises(AuthenticationFailed, match="invalid_token"):
            await authenticate(broker.call, OAuthBearer(lambda: "token", in_thread=inline))


# From arguments to mechanisms


def made_by(sasl_mechanism, **given):
    return new_mechanism(sasl_mechanism, in_thread=inline, **given)


def test_the_arguments_name_the_mechanism():
    login = {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
    assert isinstance(made_by("PLAIN", **login), Plain)
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        made = made_by(name, **login)
        assert isinstance(made, Scram)
        assert made.name == name
    assert isinstance(made_by("OAUTHBEARER", sasl_oauth_token_provider=lambda: "token"), OAuthBearer)


async def test_every_login_has_a_nonce_of_its_own():
    login = {"sasl_plain_username": "a", "sasl_plain_password": "b"}
    messages = {await made_by("SCRAM-SHA-256", **login).first() for _ in range(50)}
    assert len(messages) == 50
    assert all(len(message.rpartition(b"r=")[2]) >= 32 for message in messages)
    told = made_by("SCRAM-SHA-256", **login, nonce=lambda: "n" * 20)
    assert await told.first() == b"n,,n=a,r=" + b"n" * 20


async def test_a_jaas_line_takes_the_place_of_user_and_password():
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password="se;cret";'
    assert await made_by("PLAIN", sasl_jaas_config=line).first() == b'\0al"ice\0se;cret'
    line = "ScramLoginModule required username=alice password=secret tokenauth=true;"
    made = made_by("SCRAM-SHA-256", sasl_jaas_config=line)
    assert (await made.first()).startswith(b"n,,n=alice,r=")
    assert (await made_by("SCRAM-SHA-256", sasl_jaas_config=line).first())[-15:] == b",tokenauth=true"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "PLAIN needs sasl_plain_username and sasl_plain_password"),
        ({"sasl_plain_username": "alice"}, "PLAIN needs sasl_plain_username and sasl_plain_password"),
        ({"sasl_plain_username": "alice", "sasl_plain_password": ""}, "needs"),
        ({"sasl_plain_username": "a\0b", "sasl_plain_password": "x"}, "NUL"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512 needs"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": "a token?"}, "a function, or an object"),
        ({"sasl_jaas_config": "x required;", "sasl_plain_username": "alice"}, "one is enough"),
        ({"sasl_jaas_config": "x.ScramLoginModule required username=a password=b;"}, "not for PLAIN"),
    ],
)
def test_settings_that_cannot_log_in_are_refused_with_what_is_missing(given, words):
    with pytest.raises(BadSetting, match=words):
        made_by(**{"sasl_mechanism": "PLAIN", **given})


@pytest.mark.parametrize("name", ["GSSAPI", "gssapi", "DIGEST-MD5"])
def test_mechanisms_that_are_not_there_are_refused_by_name(name):
    with pytest.raises(BadSetting, match="Kerberos" if "gss" in name.lower() else "not known"):
        made_by(name, sasl_plain_username="a", sasl_plain_password="b")


async def test_plain_refuses_what_cannot_be_sent_and_hides_the_password():
    with pytest.raises(BadSetting, match="UTF-8"):
        await Plain("alice", "\ud800").first()
    with pytest.raises(BadSetting, match="needs"):
        Plain("alice", "")
    assert "secret" not in repr(Plain("alice", "secret"))
    assert await Plain("Jürgen", "pässword").first() == "\0Jürgen\0pässword".encode()
