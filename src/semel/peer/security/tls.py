"""TLS for the side that calls, by settings as Python's clients have them (`ssl_cafile`) or Kafka's (PEM stores).

TLS 1.2 is the oldest that is spoken. The broker's certificate is always checked; `ssl_check_hostname` says whether it
must bear the host's name too. Java's own stores (JKS, PKCS12) cannot be read: the refusal says how to convert them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from semel.peer.errors import BadSetting

if TYPE_CHECKING:
    import ssl

_PEM = b"-----BEGIN "
_MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_LOOKED_AT_BYTES = 1 << 20
_CONVERT = {
    "ssl_truststore_location": "keytool -list -rfc -keystore {store} > trusted.pem",
    "ssl_keystore_location": "keytool -importkeystore -srckeystore {store} -destkeystore client.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in client.p12 -nodes -out client.pem",
}
# A whole PEM block, as it ends up in an environment variable: without line breaks, or with "\n" spelled out.
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----(.+?)-----END \1-----")
_LINE_CHARACTERS = 64


class _Source(NamedTuple):
    """Where PEM comes from: a file, or a text that is in a setting."""

    setting: str
    path: str | None
    text: str | None


def tls_context(
    *,
    ssl_cafile: str | None = None,
    ssl_certfile: str | None = None,
    ssl_keyfile: str | None = None,
    ssl_password: str | None = None,
    ssl_check_hostname: bool = True,
    ssl_truststore_location: str | None = None,
    ssl_truststore_type: str | None = None,
    ssl_truststore_certificates: str | None = None,
    ssl_keystore_location: str | None = None,
    ssl_keystore_type: str | None = None,
    ssl_keystore_certificate_chain: str | None = None,
    ssl_keystore_key: str | None = None,
) -> ssl.SSLContext:
    """A context for the side that calls. Without authorities of its own it trusts those of the system."""
    import ssl

    _check_store("ssl_truststore_location", ssl_truststore_location, "ssl_truststore_type", ssl_truststore_type)
    _check_store("ssl_keystore_location", ssl_keystore_location, "ssl_keystore_type", ssl_keystore_type)
    authorities = _only_one(
        _Source("ssl_cafile", ssl_cafile, None),
        _Source("ssl_truststore_location", ssl_truststore_location, None),
        _Source("ssl_truststore_certificates", None, ssl_truststore_certificates),
    )
    chain = _only_one(
        _Source("ssl_certfile", ssl_certfile, None),
        _Source("ssl_keystore_location", ssl_keystore_location, None),
        _Source("ssl_keystore_certificate_chain", None, ssl_keystore_certificate_chain),
    )
    key = _only_one(
        _Source("ssl_keyfile", ssl_keyfile, None),
        _Source("ssl_keystore_key", None, ssl_keystore_key),
    )
    if key is not None and chain is None:
        raise BadSetting(
            f"{key.setting} is of no use without a certificate: give ssl_certfile, or Kafka's ssl_keystore_*"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.check_hostname = ssl_check_hostname
    if authorities is None:
        context.load_default_certs()
    else:
        _trust(context, authorities)
    if chain is not None:
        _load_chain(context, chain, key, ssl_password)
    return context


CLIENT_CERTIFICATES = ("none", "requested", "required")


def server_tls_context(
    *,
    client_certificates: str = "none",
    ssl_keystore_location: str | None = None,
    ssl_keystore_type: str | None = None,
    ssl_keystore_certificate_chain: str | None = None,
    ssl_keystore_key: str | None = None,
    ssl_key_password: str | None = None,
    ssl_truststore_location: str | None = None,
    ssl_truststore_type: str | None = None,
    ssl_truststore_certificates: str | None = None,
) -> ssl.SSLContext:
    """A context for the side that is called. Without authorities of its own it trusts no client's certificate."""
    import ssl

    _check_store("ssl_truststore_location", ssl_truststore_location, "ssl_truststore_type", ssl_truststore_type)
    _check_store("ssl_keystore_location", ssl_keystore_location, "ssl_keystore_type", ssl_keystore_type)
    chain = _only_one(
        _Source("ssl_keystore_location", ssl_keystore_location, None),
        _Source("ssl_keystore_certificate_chain", None, ssl_keystore_certificate_chain),
    )
    if chain is None:
        raise BadSetting("ssl_keystore_location: a listener with TLS needs a certificate and its key, in PEM form")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    key = None if ssl_keystore_key is None else _Source("ssl_keystore_key", None, ssl_keystore_key)
    _load_chain(context, chain, key, ssl_key_password)
    authorities = _only_one(
        _Source("ssl_truststore_location", ssl_truststore_location, None),
        _Source("ssl_truststore_certificates", None, ssl_truststore_certificates),
    )
    if client_certificates != "none":
        if authorities is None:
            raise BadSetting("ssl_truststore_location: to check certificates of clients takes authorities, in PEM form")
        context.verify_mode = ssl.CERT_REQUIRED if client_certificates == "required" else ssl.CERT_OPTIONAL
    if authorities is not None:
        _trust(context, authorities)
    return context


def _only_one(*sources: _Source) -> _Source | None:
    given = [source for source in sources if source.path is not None or source.text is not None]
    if len(given) > 1:
        raise BadSetting(f"{' and '.join(source.setting for source in given)} say the same thing: give one of them")
    return given[0] if given else None


def _check_store(setting: str, path: str | None, type_setting: str, kind: str | None) -> None:
    """Only PEM can be read. Kafka's default kind is JKS, so a store without a kind is looked at."""
    if kind is not None and kind.upper() != "PEM":
        raise _unreadable(setting, path, f"{type_setting}={kind}")
    if path is None:
        return
    content = _read(setting, path)
    if _PEM not in content:
        kind = _MAGIC.get(content[:4], "PKCS12" if content[:1] == b"\x30" else "no known kind")
        raise _unreadable(setting, path, f"{path} is a store of {kind}")


def _unreadable(setting: str, path: str | None, what: str) -> BadSetting:
    command = _CONVERT[setting].format(store=shlex.quote(path or "store.jks"))
    return BadSetting(f"{setting}: only PEM can be read, and {what}; convert it: {command}")


def _read(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LOOKED_AT_BYTES)
    except OSError as error:
        raise BadSetting(f"{setting}: {path} cannot be read: {error.strerror or error}") from error


def _trust(context: ssl.SSLContext, authorities: _Source) -> None:
    import ssl

    if authorities.path is not None:
        _read(authorities.setting, authorities.path)
    try:
        if authorities.path is not None:
            context.load_verify_locations(cafile=authorities.path)
        else:
            context.load_verify_locations(cadata=_in_lines(authorities.text or ""))
    except (ssl.SSLError, ValueError) as error:
        raise BadSetting(f"{authorities.setting}: no certificate in PEM form can be read there: {error}") from error


def _load_chain(context: ssl.SSLContext, chain: _Source, key: _Source | None, password: str | None) -> None:
    import ssl

    asked: list[str] = []

    def tell_password() -> str:
        """Without this, OpenSSL would ask at the terminal."""
        asked.append(chain.setting)
        return password or ""

    for source in (chain, key):
        if source is not None and source.path is not None:
            _read(source.setting, source.path)
    try:
        with _as_file(chain) as certificate_file, _as_file(key) as key_file:
            context.load_cert_chain(certificate_file or "", key_file, tell_password)
    except (ssl.SSLError, ValueError) as error:
        named = " and ".join(source.setting for source in (chain, key) if source is not None)
        raise BadSetting(f"{named}: {_why(error, bool(asked), password)}") from error


def _why(error: Exception, was_asked: bool, password: str | None) -> str:
    if was_asked:
        return "the key is encrypted, and ssl_password is " + ("missing" if password is None else "not its password")
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    return f"certificate and key in PEM form cannot be read there: {error}"


@contextmanager
def _as_file(source: _Source | None) -> Iterator[str | None]:
    """A path for OpenSSL, which reads keys from files only; a text gets a file that exists in memory alone."""
    if source is None or source.path is not None:
        yield None if source is None else source.path
        return
    descriptor = os.memfd_create(source.setting)
    try:
        os.write(descriptor, _in_lines(source.text or "").encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _in_lines(text: str) -> str:
    """PEM has lines. Kafka takes a text without them, and so do we."""
    return text if "\n" in text.strip() else "".join(map(_folded, _BLOCK.finditer(text)))


def _folded(block: re.Match[str]) -> str:
    body = re.sub(r"\\n|\s", "", block[2])
    lines = [body[start : start + _LINE_CHARACTERS] for start in range(0, len(body), _LINE_CHARACTERS)]
    return "\n".join((f"-----BEGIN {block[1]}-----", *lines, f"-----END {block[1]}-----", ""))
