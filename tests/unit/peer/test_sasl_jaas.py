"""Kafka's JAAS line, as people paste it."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from semel.peer.errors import BadSetting
from semel.peer.security.jaas import read_jaas, user_and_password

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        ('username="alice" password="secret"', "alice", "secret"),
        ("username='alice' password='sec\"ret'", "alice", 'sec"ret'),
        ("username=alice password=secret-1_2$3.4", "alice", "secret-1_2$3.4"),
        ('username = "alice"   password\n=\n"secret"', "alice", "secret"),
        ('username="a\\"b\\\\c" password="\\101\\n;=//"', 'a"b\\c', "A\n;=//"),
        ('username="\\u" password="\\8\\400"', "u", "8 0"),
        ('/* who */ username="alice" // and\n password="secret" serviceName="kafka"', "alice", "secret"),
        ('username="Jürgen" password="日本"', "Jürgen", "日本"),
    ],
)
def test_user_and_password_are_found(options, user, password):
    assert user_and_password(f"{PLAIN} required {options};", "PLAIN") == (user, password, False)
    assert user_and_password(f"  {SCRAM} REQUIRED {options} ; ", "SCRAM-SHA-512") == (user, password, False)


def test_a_delegation_token_is_recognised():
    line = f'{SCRAM} required username="id" password="hmac" tokenauth="true";'
    assert user_and_password(line, "SCRAM-SHA-256") == ("id", "hmac", True)


QUOTED = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n"), min_size=1, max_size=20)


@hypothesis_settings(max_examples=100, deadline=None)
@given(user=QUOTED, password=QUOTED)
def test_anything_quoted_comes_back(user, password):
    def quoted(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    line = f"{PLAIN} required username={quoted(user)} password={quoted(password)};"
    assert user_and_password(line, "PLAIN") == (user, password, False)


@hypothesis_settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from("a='\"\\;/* \nrequired"), max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        read_jaas(text)
    except BadSetting:
        pass


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "ends with ;"),
        (f'{PLAIN} required username="alice" password="secret"', "ends with ;"),
        (f"{PLAIN};", "ends with ;"),
        (f'{PLAIN} username="alice" password="secret";', "one of required"),
        (f'{PLAIN} required username="alice" password="secret;', "not closed"),
        (f'{PLAIN} required username="alice" password;', "name=value"),
        (f'{PLAIN} required username="alice" password="x" = =;', "name=value"),
        (f'{PLAIN} required = "alice" password;', "option 1"),
        (f"{PLAIN} required = = x;", "option 1"),
        (f"{PLAIN} required username=a password = =;", "option 2"),
        (f'{PLAIN} required username="alice" username="bob" password="x";', "twice"),
        (f'{PLAIN} required username="alice" password="x"; {PLAIN} required;', "more than one"),
        (f'{PLAIN} required username="alice";', "password missing"),
        (f'{PLAIN} required username="" password="";', "username and password missing"),
        (f'{SCRAM} required username="a" password="b";', "ScramLoginModule is for SCRAM-SHA-256 and SCRAM-SHA-512"),
        ('com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/x";', "Kerberos"),
        ("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;", "sasl_oauth_token_provider"),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "IAMLoginModule is not known"),
    ],
)
def test_what_is_wrong_is_said(line, words):
    with pytest.raises(BadSetting, match=words) as refused:
        user_and_password(line, "PLAIN")
    assert "secret" not in str(refused.value)
