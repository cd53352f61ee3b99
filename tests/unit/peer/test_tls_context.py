"""The settings of TLS become a context that trusts what it should, shows what it should, and nothing else."""

import ssl
from pathlib import Path

import pytest

from open_descriptors import open_descriptors
from semel.peer.errors import BadSetting
from semel.peer.security.tls import tls_context
from tls_handshake import handshake

CERTIFICATES = Path(__file__).parents[2] / "certificates"
CA, CLIENT, KEY = (str(CERTIFICATES / name) for name in ("ca.pem", "client.pem", "client.key"))
ENCRYPTED = str(CERTIFICATES / "client.encrypted.key")


def text(path):
    return Path(path).read_text()


@pytest.mark.parametrize(
    "trust",
    [{"ssl_cafile": CA}, {"ssl_truststore_location": CA}, {"ssl_truststore_certificates": text(CA)}],
)
@pytest.mark.parametrize("kind", [None, "PEM", "pem"])
def test_the_authority_can_be_given_in_every_way(trust, kind):
    assert handshake(tls_context(**trust, ssl_truststore_type=kind)) is None


def test_only_the_given_authority_is_trusted(monkeypatch):
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls_context(ssl_cafile=str(CERTIFICATES / "stranger.pem")))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls_context())  # the system does not know our authority
    monkeypatch.setenv("SSL_CERT_FILE", CA)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls_context(ssl_cafile=str(CERTIFICATES / "stranger.pem")))


def test_without_an_authority_the_systems_are_trusted(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", CA)
    assert handshake(tls_context()) is None


def test_the_name_is_checked_unless_told_otherwise_and_the_certificate_always():
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tls_context(ssl_cafile=CA), "somebody.else")
    handshake(tls_context(ssl_cafile=CA), "127.0.0.1")
    handshake(tls_context(ssl_cafile=CA, ssl_check_hostname=False), "somebody.else")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls_context(ssl_check_hostname=False), "broker")


STORE = text(KEY) + text(CLIENT)
ONE_LINE = STORE.replace("\n", " ")
SPELLED_OUT = STORE.replace("\n", "\\n")


@pytest.mark.parametrize(
    "own",
    [
        {"ssl_certfile": CLIENT, "ssl_keyfile": KEY},
        {"ssl_certfile": CLIENT, "ssl_keyfile": ENCRYPTED, "ssl_password": "secret"},
        {"ssl_keystore_certificate_chain": text(CLIENT), "ssl_keystore_key": text(KEY)},
        {"ssl_keystore_certificate_chain": text(CLIENT), "ssl_keystore_key": text(ENCRYPTED), "ssl_password": "secret"},
        {"ssl_keystore_certificate_chain": STORE},
        {"ssl_keystore_certificate_chain": ONE_LINE},
        {"ssl_keystore_certificate_chain": SPELLED_OUT},
        {"ssl_certfile": CLIENT, "ssl_keystore_key": text(KEY)},
    ],
)
def test_the_clients_certificate_can_be_given_in_every_way(own):
    before = open_descriptors()
    context = tls_context(ssl_cafile=CA, **own)
    assert handshake(context, wants_certificate=True) == "client"
    assert open_descriptors() <= before


def test_a_pem_store_holds_key_and_certificate(tmp_path):
    store = tmp_path / "store.pem"
    store.write_text(STORE)
    context = tls_context(ssl_cafile=CA, ssl_keystore_location=str(store), ssl_keystore_type="PEM")
    assert handshake(context, wants_certificate=True) == "client"


def test_an_authority_without_line_breaks_is_read():
    assert handshake(tls_context(ssl_truststore_certificates=text(CA).replace("\n", " "))) is None
    assert handshake(tls_context(ssl_truststore_certificates=text(CA).replace("\n", "\\n"))) is None


def test_nothing_older_than_tls_1_2_is_spoken():
    context = tls_context(ssl_cafile=CA)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    handshake(context, newest=ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLError):
        handshake(context, newest=ssl.TLSVersion.TLSv1_1)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "JKS"),
        (b"\xce\xce\xce\xce", "JCEKS"),
        (b"\x30\x82\x04\x00", "PKCS12"),
        (b"", "no"),
    ],
)
@pytest.mark.parametrize("setting", ["ssl_truststore_location", "ssl_keystore_location"])
def test_javas_own_stores_are_refused_with_the_command_that_converts_them(tmp_path, setting, content, kind):
    store = tmp_path / "my store"
    store.write_bytes(content)
    with pytest.raises(BadSetting, match=f"is a store of {kind}.*convert it: keytool .*'{store}'"):
        tls_context(**{setting: str(store)})


@pytest.mark.parametrize("setting", ["ssl_truststore", "ssl_keystore"])
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_type_other_than_pem_is_refused_before_anything_is_read(setting, kind):
    with pytest.raises(BadSetting, match=f"only PEM can be read, and {setting}_type={kind}; convert it: keytool"):
        tls_context(**{f"{setting}_location": "/nowhere/x.jks", f"{setting}_type": kind})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile: /nowhere/ca.pem cannot be read: No such file"),
        ({"ssl_cafile": KEY}, "ssl_cafile: no certificate in PEM form"),
        ({"ssl_truststore_certificates": "nonsense"}, "ssl_truststore_certificates: no certificate"),
        ({"ssl_truststore_location": "/nowhere/ca.pem"}, "ssl_truststore_location: /nowhere/ca.pem cannot be read"),
        ({"ssl_cafile": CA, "ssl_truststore_location": CA}, "ssl_cafile and ssl_truststore_location say the same"),
        ({"ssl_certfile": CLIENT, "ssl_keystore_certificate_chain": "x"}, "say the same"),
        ({"ssl_keyfile": KEY}, "ssl_keyfile is of no use without a certificate"),
        ({"ssl_certfile": "/nowhere/client.pem"}, "ssl_certfile: /nowhere/client.pem cannot be read"),
        ({"ssl_certfile": CLIENT, "ssl_keyfile": "/nowhere/key"}, "ssl_keyfile: /nowhere/key cannot be read"),
        ({"ssl_certfile": CLIENT}, "ssl_certfile: certificate and key in PEM form cannot be read"),
        ({"ssl_certfile": CLIENT, "ssl_keyfile": str(CERTIFICATES / "broker.key")}, "not that of the certificate"),
        ({"ssl_certfile": CLIENT, "ssl_keyfile": ENCRYPTED}, "encrypted, and ssl_password is missing"),
        (
            {"ssl_certfile": CLIENT, "ssl_keyfile": ENCRYPTED, "ssl_password": "hush"},
            "ssl_password is not its password",
        ),
        ({"ssl_certfile": CLIENT, "ssl_keyfile": ENCRYPTED, "ssl_password": ""}, "ssl_password is not its password"),
        ({"ssl_certfile": CLIENT, "ssl_keyfile": ENCRYPTED, "ssl_password": "x" * 5000}, "encrypted"),
    ],
)
def test_what_is_wrong_is_said_by_the_name_of_its_setting(given, words):
    with pytest.raises(BadSetting, match=words) as refused:
        tls_context(**given)
    assert "hush" not in str(refused.value)
