"""Addresses in Kafka's forms: NAME://host:port of a listener, id@host:port of a voter, host:port of a controller."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.config.settings import Form

# Kafka's ids of security protocols.
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
PLAINTEXT = "PLAINTEXT"
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
ALL_INTERFACES = ("", "0.0.0.0", "::")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_ID_DIGITS = 9


class Listener(NamedTuple):
    """Where a node listens, or what it tells others to connect to. An empty host is every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{spelled(self.host, self.port)}"


class Voter(NamedTuple):
    """A controller of a quorum that is fixed by controller.quorum.voters."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{spelled(self.host, self.port)}"


def spelled(host: str, port: int) -> str:
    """`host:port`; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port, or None; an empty host stays empty, IPv6 addresses stand in brackets."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or (":" in host) != bracketed or any(character in host for character in "/[]@ \t"):
        return None
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        return None
    return host, int(port)


def parse_listener(text: str) -> Listener | None:
    """The listener that `text` describes, or None. As in Kafka, the name counts in upper case."""
    name, separator, rest = text.partition("://")
    address = parse_address(rest)
    if not separator or address is None or not _NAME.fullmatch(name):
        return None
    return Listener(name.upper(), *address)


def parse_voter(text: str) -> Voter | None:
    """The voter that `text` describes, or None."""
    node_id, at, rest = text.partition("@")
    address = parse_address(rest)
    if not at or address is None or not _can_be_reached(*address):
        return None
    if not (node_id.isascii() and node_id.isdigit()) or len(node_id) > _MOST_ID_DIGITS:
        return None
    return Voter(int(node_id), *address)


def parse_protocol(text: str) -> tuple[str, str] | None:
    """Name and security protocol of an entry of listener.security.protocol.map, or None."""
    name, _, protocol = text.partition(":")
    if not _NAME.fullmatch(name) or protocol.upper() not in PROTOCOLS:
        return None
    return name.upper(), protocol.upper()


def _can_be_reached(host: str, port: int) -> bool:
    return host not in ALL_INTERFACES and port > 0


def _is_advertised(text: str) -> bool:
    listener = parse_listener(text)
    return listener is not None and listener.host not in ALL_INTERFACES


def _is_server(text: str) -> bool:
    address = parse_address(text)
    return address is not None and _can_be_reached(*address)


LISTENER_FORM = Form(
    lambda text: parse_listener(text) is not None,
    "NAME://host:port, such as PLAINTEXT://127.0.0.1:9092, where no host means every interface and port 0 a free port",
)
ADVERTISED_FORM = Form(_is_advertised, "NAME://host:port with a host that clients can reach")
NAME_FORM = Form(lambda text: _NAME.fullmatch(text) is not None, "the name of a listener")
PROTOCOL_FORM = Form(
    lambda text: parse_protocol(text) is not None, f"NAME:PROTOCOL, where PROTOCOL is one of {', '.join(PROTOCOLS)}"
)
VOTER_FORM = Form(
    lambda text: parse_voter(text) is not None, "id@host:port of a controller, with a host that nodes can reach"
)
ADDRESS_FORM = Form(
    lambda text: parse_address(text) is not None,
    "host:port, such as 127.0.0.1:9644, where no host means every interface and port 0 a free port",
)
SERVER_FORM = Form(_is_server, "host:port of a controller, with a host that nodes can reach")
