"""Listener addresses in Kafka's form, PLAINTEXT://host:port."""

from __future__ import annotations

from typing import NamedTuple

from semel.config.settings import Form

# Kafka's ids of security protocols.
PROTOCOLS = {"PLAINTEXT": 0}
_ALL_INTERFACES = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """Where a node listens, or what it tells clients to connect to. An empty host is every interface."""

    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


def parse_listener(text: str) -> Listener | None:
    """The listener that `text` names, or None; IPv6 addresses stand in brackets."""
    protocol, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not separator or not colon or protocol.upper() not in PROTOCOLS:
        return None
    if (":" in host) != bracketed or any(character in host for character in "/[]@ \t"):
        return None
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        return None
    return Listener(protocol.upper(), host, int(port))


def _can_be_advertised(text: str) -> bool:
    listener = parse_listener(text)
    return listener is not None and listener.host not in _ALL_INTERFACES


LISTENER_FORM = Form(
    lambda text: parse_listener(text) is not None,
    "PLAINTEXT://host:port, where no host means every interface and port 0 a free port",
)
ADVERTISED_FORM = Form(_can_be_advertised, "PLAINTEXT://host:port with a host that clients can reach")
