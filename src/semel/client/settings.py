"""How the client's settings are declared, and how keyword arguments become them.

A setting is a field of a dataclass, made with `option`. Its keyword is the field's name; Kafka's name is the same with
dots, and is accepted too. Texts are read as in a properties file. What is unknown, not allowed or contradictory is
refused with a text that says what is allowed.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from semel.client.errors import BadSetting
from semel.config.errors import ConfigError, UnknownSetting
from semel.config.settings import INT_MAX, Kind, Setting

S = TypeVar("S", bound="ConnectionSettings")

_KINDS: dict[Any, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.INT,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    tuple[str, ...]: Kind.LIST,
}


@dataclass(frozen=True)
class Option:
    """What stands behind a field: one sentence, the bounds, and other spellings of its name and values."""

    sentence: str
    minimum: float | None = None
    maximum: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    kafka_default: str | None = None
    aliases: tuple[str, ...] = ()
    sensitive: bool = False
    normalise: Callable[[Any], Any] | None = None
    typed: str | None = None
    """Its type for programs, where the field's own does not say it."""


def option(default: Any, sentence: str, **rest: Any) -> Any:
    """A secret is never shown, by `repr` of the settings or of what holds them."""
    described = Option(sentence, **rest)
    return field(default=default, repr=not described.sensitive, metadata={"option": described})


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """What every client needs to reach a cluster."""

    bootstrap_servers: tuple[str, ...] = option(
        ("localhost:9092",), "Where to ask for the cluster first: one or more host:port."
    )
    client_id: str = option("semel", "The name under which the broker logs this client.")
    bootstrap_timeout_ms: int = option(
        10 * SECOND_MS, "How long to look for the first broker before giving up.", minimum=1
    )
    request_timeout_ms: int = option(
        30 * SECOND_MS, "How long to wait for one answer; the connection is closed then.", minimum=1
    )
    retry_backoff_ms: int = option(
        100, "The first pause before trying again; each next one is twice as long.", minimum=1
    )
    retry_backoff_max_ms: int = option(1 * SECOND_MS, "The longest pause before trying again.", minimum=1)
    reconnect_backoff_ms: int = option(50, "The first pause before connecting to the same node again.", minimum=1)
    reconnect_backoff_max_ms: int = option(
        1 * SECOND_MS, "The longest pause before connecting to the same node again.", minimum=1
    )
    connections_max_idle_ms: int = option(
        9 * MINUTE_MS, "A connection that was not used for so long is closed.", minimum=1
    )
    metadata_max_age_ms: int = option(5 * MINUTE_MS, "How old the knowledge of who leads what may get.", minimum=1)
    max_frame_bytes: int = option(
        128 << 20, "The largest answer that is accepted; a larger one ends the connection.", minimum=1024
    )
    security_protocol: str = option(
        "PLAINTEXT",
        "Whether to encrypt (SSL) and to log in (SASL).",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        normalise=_upper,
    )
    ssl_cafile: str | None = option(None, "PEM file of the authorities to trust; without it the system's.")
    ssl_certfile: str | None = option(None, "PEM file of the client's certificate, for mutual TLS.")
    ssl_keyfile: str | None = option(None, "PEM file of the client's key, if it is not in ssl_certfile.")
    ssl_password: str | None = option(
        None, "The password of the client's key.", sensitive=True, aliases=("ssl_key_password",)
    )
    ssl_check_hostname: bool = option(True, "Whether the broker's certificate must bear its host name.")
    ssl_context: Any = option(
        None, "A ready ssl.SSLContext, instead of the settings above.", typed="ssl.SSLContext | None"
    )
    ssl_truststore_location: str | None = option(None, "As ssl_cafile; stores other than PEM are refused.")
    ssl_truststore_type: str | None = option(None, "PEM; others are refused.")
    ssl_truststore_certificates: str | None = option(None, "The authorities to trust, as PEM text.")
    ssl_keystore_location: str | None = option(None, "As ssl_certfile; stores other than PEM are refused.")
    ssl_keystore_type: str | None = option(None, "PEM; others are refused.")
    ssl_keystore_certificate_chain: str | None = option(None, "The client's certificate, as PEM text.")
    ssl_keystore_key: str | None = option(None, "The client's key, as PEM text.", sensitive=True)
    ssl_endpoint_identification_algorithm: str | None = option(
        None, "Kafka's way to say ssl_check_hostname: https checks, an empty text does not."
    )
    sasl_mechanism: str = option(
        "PLAIN",
        "How to log in.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        kafka_default="GSSAPI",
        normalise=_upper,
    )
    sasl_plain_username: str | None = option(None, "The user, for PLAIN and SCRAM.", aliases=("sasl_username",))
    sasl_plain_password: str | None = option(
        None, "The password, for PLAIN and SCRAM.", sensitive=True, aliases=("sasl_password",)
    )
    sasl_oauth_token_provider: Any = option(
        None,
        "A function, or an object with a method `token`, that gives the token for OAUTHBEARER; may be async.",
        typed="Callable[[], object] | TokenProvider | None",
    )
    sasl_jaas_config: str | None = option(
        None, "Kafka's JAAS line, for PLAIN and SCRAM, instead of user and password.", sensitive=True
    )

    def check(self) -> None:
        """Refuses settings that contradict each other. Subclasses add theirs."""
        if self.ssl_endpoint_identification_algorithm not in (None, "", "https"):
            raise BadSetting("ssl_endpoint_identification_algorithm: allowed are https and an empty text")


def load(cls: type[S], given: Mapping[str, object]) -> S:
    """The settings for these keyword arguments; a name may be spelled Kafka's way. Raises BadSetting."""
    table = declared(cls)
    values: dict[str, Any] = {}
    for name, value in given.items():
        keyword = _keyword(table, name)
        if keyword in values:
            raise BadSetting(f"{keyword} is given twice, by two of its names")
        values[keyword] = _read(table[keyword], value)
    settings = cls(**values)
    settings.check()
    return settings


class Declared(typing.NamedTuple):
    keyword: str
    setting: Setting
    option: Option
    has_text: bool
    may_be_none: bool


_declared: dict[type[ConnectionSettings], dict[str, Declared]] = {}


def declared(cls: type[ConnectionSettings]) -> dict[str, Declared]:
    """Every setting of a class by its keyword, in order of declaration."""
    if cls not in _declared:
        _declared[cls] = _read_declarations(cls)
    return _declared[cls]


def _read_declarations(cls: type[ConnectionSettings]) -> dict[str, Declared]:
    hints = typing.get_type_hints(cls)
    table = {}
    for entry in fields(cls):
        described: Option = entry.metadata["option"]
        hint, may_be_none = hints[entry.name], False
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            members = [member for member in typing.get_args(hint) if member is not types.NoneType]
            hint, may_be_none = members[0], True
        setting = Setting(
            entry.name.replace("_", "."),
            Kind.LONG if (described.maximum or 0) > INT_MAX else _KINDS.get(hint, Kind.CLASS),
            entry.default,  # type: ignore[arg-type]
            described.sentence,
            minimum=described.minimum,
            maximum=described.maximum,
            also=described.also,
            choices=described.choices,
            sensitive=described.sensitive,
            kafka_default=described.kafka_default,
        )
        table[entry.name] = Declared(entry.name, setting, described, hint in _KINDS, may_be_none)
    return table


def _keyword(table: dict[str, Declared], name: str) -> str:
    keyword = name.replace(".", "_")
    if keyword in table:
        return keyword
    for entry in table.values():
        if keyword in entry.option.aliases:
            return entry.keyword
    known = [entry.setting.name for entry in table.values()] if "." in name else list(table)
    raise BadSetting(str(UnknownSetting(name, known)))


def _read(entry: Declared, value: Any) -> Any:
    if entry.option.normalise is not None:
        value = entry.option.normalise(value)
    if value is None:
        if entry.may_be_none or not entry.has_text:
            return None
        raise BadSetting(f"{entry.keyword}: None is not allowed; allowed: {entry.setting.allowed}")
    if not entry.has_text:
        return value
    try:
        return entry.setting.parse(_text(entry, value))
    except ConfigError as error:
        error.name = entry.keyword
        raise BadSetting(str(error)) from None


def _text(entry: Declared, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | set | frozenset) and entry.setting.kind is Kind.LIST:
        return ",".join(str(part) for part in value)
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise BadSetting(f"{entry.keyword}: {type(value).__name__} is not allowed; allowed: {entry.setting.allowed}")
