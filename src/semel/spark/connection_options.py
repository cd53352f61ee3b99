"""Options `kafka.*` of a read or a write become settings of the client: same names, without the prefix.

What only Java's client has is let through if the result is the same without it, and refused with a sentence if it is
not: stores of Java, Kerberos, Java classes. A name that nobody knows is refused with the nearest one that exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import BadSetting
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import ConnectionSettings, declared, load
from semel.config.errors import UnknownSetting

S = TypeVar("S", bound=ConnectionSettings)

PREFIX = "kafka."
DEFAULT_CLIENT_ID = "semel-spark"

_JAVA_CLASS = "it names a Java class, and this client is written in Python: leave it out"
_NO_STORES = (
    "stores of Java (JKS, PKCS12) cannot be read: give PEM files by kafka.ssl.truststore.location and "
    "kafka.ssl.keystore.location with kafka.ssl.*store.type=PEM, which have no store password, or PEM texts by "
    "kafka.ssl.truststore.certificates, kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key"
)
_NO_KERBEROS = "Kerberos (GSSAPI) is not supported: log in by SCRAM, PLAIN, OAUTHBEARER or a TLS certificate"
_BYTES = "keys and values are bytes on both sides: cast or encode them in the query"
_ONE_GROUP = "readers join no group, Spark gives them their partitions: leave it out"
_OFFSETS = "the offsets are those of Spark's checkpoint: set startingOffsets for where to begin"

_REFUSED = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "auto.offset.reset": _OFFSETS,
    "enable.auto.commit": f"{_OFFSETS}; they are committed for the group too, for whoever looks at its lag",
    "group.instance.id": _ONE_GROUP,
    "group.protocol": _ONE_GROUP,
    "group.remote.assignor": _ONE_GROUP,
    "interceptor.classes": _JAVA_CLASS,
    "partitioner": "set the sink's own option partitioner",
    "partitioner.class": "it names a Java class: set the sink's own option partitioner",
    "sasl.client.callback.handler.class": _JAVA_CLASS,
    "sasl.login.callback.handler.class": _JAVA_CLASS,
    "sasl.login.class": _JAVA_CLASS,
    "security.providers": _JAVA_CLASS,
    "ssl.engine.factory.class": _JAVA_CLASS,
    "ssl.cipher.suites": "OpenSSL chooses among its ciphers for TLS 1.2 and 1.3: leave it out",
    "ssl.context": "an object cannot be an option: give PEM files or texts",
    "ssl.keystore.password": _NO_STORES,
    "ssl.truststore.password": _NO_STORES,
    "transactional.id": "the sink names its transactions itself: set transactionalIdPrefix",
    "enable.idempotence": "the sink is always idempotent: leave it out",
}
_REFUSED_BEGINNINGS = {
    "sasl.kerberos.": _NO_KERBEROS,
    "sasl.oauthbearer.": "give a Python function that returns the token by kafka.sasl.oauth.token.provider="
    "package.module:function",
}
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")

WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "config.providers",
        "enable.metrics.push",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
        "receive.buffer.bytes",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "send.buffer.bytes",
        "share.acknowledgement.mode",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.two.phase.commit.enable",
    }
)
"""Settings of Java's client that change nothing of what is read and written here."""

_ROLES: tuple[type[ConnectionSettings], ...] = (ConnectionSettings, ConsumerSettings, ProducerSettings)


def client_settings(options: Mapping[str, str], kind: type[ConnectionSettings] = ConnectionSettings) -> dict[str, Any]:
    """Keyword arguments for a client: the `kafka.*` options that `kind` knows, all of them checked by name.

    By default those that producers, consumers and admins share. Settings of the other side are let through, as programs
    often give the same options to the read and to the write.
    """
    given = {name.lower().removeprefix(PREFIX): value for name, value in options.items() if _is_kafka(name)}
    for name, value in given.items():
        _check(name, value)
    if "bootstrap.servers" not in given:
        raise BadSetting("kafka.bootstrap.servers is missing: give one or more host:port")
    known = _keywords(kind)
    settings: dict[str, Any] = {"client_id": DEFAULT_CLIENT_ID}
    for name, value in given.items():
        keyword = known.get(name)
        if keyword is not None and name not in WITHOUT_EFFECT:
            settings[keyword] = _token_provider(value) if keyword == "sasl_oauth_token_provider" else value
    loaded(kind, settings, options)
    return settings


def loaded(kind: type[S], settings: Mapping[str, Any], options: Mapping[str, str]) -> S:
    """The client's settings. What is wrong with them is told by the names of the options, as they were written."""
    try:
        return load(kind, settings)
    except BadSetting as error:
        text = str(error)
    written = {name.lower().removeprefix(PREFIX): name for name in options if _is_kafka(name)}
    keywords = _keywords(kind)
    for keyword in sorted(set(keywords.values()), key=len, reverse=True):
        names = [written[name] for name, known in keywords.items() if known == keyword and name in written]
        option = names[0] if names else PREFIX + keyword.replace("_", ".")
        text = re.sub(rf"(?<![\w.]){keyword}(?![\w.])", option, text)
    raise BadSetting(text)


def _is_kafka(name: str) -> bool:
    return name.lower().startswith(PREFIX)


def _check(name: str, value: str) -> None:
    sentence = _REFUSED.get(name) or next(
        (sentence for beginning, sentence in _REFUSED_BEGINNINGS.items() if name.startswith(beginning)), None
    )
    if sentence is None and name in _STORE_TYPES and value.upper() != "PEM":
        sentence = _NO_STORES
    if sentence is None and name == "sasl.mechanism" and value.upper() == "GSSAPI":
        sentence = _NO_KERBEROS
    if sentence is None and name == "sasl.jaas.config" and "Krb5LoginModule" in value:
        sentence = _NO_KERBEROS
    if sentence is not None:
        raise BadSetting(f"{PREFIX}{name}: {sentence}")
    known = {known for kind in _ROLES for known in _keywords(kind)} | WITHOUT_EFFECT
    if name not in known:
        raise unknown_option(PREFIX + name, [PREFIX + one for one in known])


def unknown_option(name: str, known: Iterable[str]) -> BadSetting:
    """Spark hands names over in small letters: the nearest one is found among such, and told as it is documented."""
    by_lower_name = {one.lower(): one for one in known}
    error = UnknownSetting(name, list(by_lower_name), kind_of_name="option")
    text = str(error)
    return BadSetting(text if error.nearest is None else text.replace(error.nearest, by_lower_name[error.nearest]))


def _keywords(kind: type[ConnectionSettings]) -> dict[str, str]:
    """Kafka's name, and others that are known, of each setting of a client; and its keyword."""
    return {
        name.replace("_", "."): entry.keyword
        for entry in declared(kind).values()
        for name in (entry.keyword, *entry.option.aliases)
    }


def _token_provider(value: str) -> Any:
    """`package.module:function`, which must be importable wherever tasks run."""
    module, _, function = value.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSetting(f"kafka.sasl.oauth.token.provider: {value!r} cannot be imported: {error}") from error
