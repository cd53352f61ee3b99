"""What the settings make of a node: its roles, its listeners, and where its controllers are. Checks that they fit.

The rules are those of Kafka's KRaft mode. One more shape exists here: a node with both roles and no
controller.listener.names is a cluster of its own, whose controller is reached within the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag
from typing import NamedTuple, TypeVar, cast

from semel.config.errors import ConfigError
from semel.config.listeners import (
    ALL_INTERFACES,
    Listener,
    Voter,
    parse_address,
    parse_listener,
    parse_protocol,
    parse_voter,
)
from semel.config.settings import Value

ROLES, LISTENERS, ADVERTISED = "process.roles", "listeners", "advertised.listeners"
PROTOCOLS = "listener.security.protocol.map"
CONTROLLER_NAMES, INTER_BROKER = "controller.listener.names", "inter.broker.listener.name"
VOTERS, BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
_DEFAULT_NAME = "PLAINTEXT"
_THIS_MACHINE = "127.0.0.1"

Parsed = TypeVar("Parsed")


class Role(Enum):
    BROKER = "broker"
    CONTROLLER = "controller"


class ListenerKind(Flag):
    """Who may come to a listener. What only brokers may ask is served on those that are for brokers. These are for
    clients as well where clients are told of no other."""

    CLIENTS = 1
    BROKERS = 2
    CONTROLLERS = 4


class NodeListener(NamedTuple):
    """One address to listen on, and what others are told: no advertised host if they are not told of it."""

    name: str
    protocol: str
    host: str
    port: int
    kind: ListenerKind
    advertised_host: str | None
    advertised_port: int

    def bound_to(self, port: int) -> NodeListener:
        """This listener with the port that the system has chosen where 0 was asked for."""
        return self._replace(port=port, advertised_port=self.advertised_port or port)


class NodeLayout(NamedTuple):
    """`inter_broker` and the first of `controller_names` are how other nodes' listeners are called, too."""

    node_id: int
    roles: frozenset[Role]
    listeners: tuple[NodeListener, ...]
    inter_broker: str
    controller_names: tuple[str, ...]
    voters: tuple[Voter, ...]
    bootstrap_servers: tuple[tuple[str, int], ...]
    protocols: Mapping[str, str] = {}

    def protocol_of(self, name: str) -> str:
        """Of a listener of this node, or of another by the same name."""
        return self.protocols.get(name, _DEFAULT_NAME)

    @property
    def shares_with_clients(self) -> bool:
        """Whether clients use the listener on which brokers reach this node."""
        return any(ListenerKind.CLIENTS in one.kind and ListenerKind.BROKERS in one.kind for one in self.listeners)

    @property
    def is_alone(self) -> bool:
        """Whether no other node can be of this cluster: the controller listens nowhere."""
        return not self.controller_names


def layout_of(
    values: Mapping[str, Value], text: Callable[[str], str | None], is_set: Callable[[str], bool]
) -> NodeLayout:
    """The layout that the settings describe; raises ConfigError. `is_set`: whether somebody has given that setting."""
    return _Checks(values, text, is_set).layout()


class _Checks:
    def __init__(
        self, values: Mapping[str, Value], text: Callable[[str], str | None], is_set: Callable[[str], bool]
    ) -> None:
        self._values = values
        self._text = text
        self._is_set = is_set
        self.node_id = cast(int, values["node.id"])
        self.roles = frozenset(Role(role) for role in self._list(ROLES))
        self.listeners = self._parsed(LISTENERS, parse_listener)
        self.controller_names = tuple(name.upper() for name in self._list(CONTROLLER_NAMES))
        self.inter_broker = (cast(str | None, values[INTER_BROKER]) or _DEFAULT_NAME).upper()
        self.voters = self._parsed(VOTERS, parse_voter)
        self.bootstrap_servers = self._parsed(BOOTSTRAP, parse_address)
        self.advertised = self._parsed(ADVERTISED, parse_listener) if self._list(ADVERTISED) else self.listeners

    def _list(self, name: str) -> tuple[str, ...]:
        return cast(tuple[str, ...] | None, self._values[name]) or ()

    def _parsed(self, name: str, parse: Callable[[str], Parsed | None]) -> tuple[Parsed, ...]:
        return tuple(parsed for entry in self._list(name) if (parsed := parse(entry)) is not None)

    def _refuse(self, name: str, allowed: str) -> ConfigError:
        return ConfigError(name, self._text(name) or None, allowed)

    @property
    def _roles_text(self) -> str:
        return f"{ROLES}={self._text(ROLES)}"

    @property
    def _is_broker(self) -> bool:
        return Role.BROKER in self.roles

    def layout(self) -> NodeLayout:
        self._check_listeners(LISTENERS, self.listeners)
        self._check_listeners(ADVERTISED, self.advertised)
        self._check_controllers()
        self._check_voters()
        self._check_advertised()
        if self._is_broker:
            self._check_inter_broker()
        protocols = self._protocols()
        told = {listener.name: listener for listener in self.advertised}
        return NodeLayout(
            self.node_id,
            self.roles,
            tuple(self._listener(listener, protocols, told.get(listener.name)) for listener in self.listeners),
            self.inter_broker,
            self.controller_names,
            self.voters,
            self.bootstrap_servers,
            protocols,
        )

    def _listener(self, listener: Listener, protocols: Mapping[str, str], told: Listener | None) -> NodeListener:
        if listener.name in self.controller_names:
            kind = ListenerKind.CONTROLLERS
            # Controllers are told of each other by this name, whether advertised.listeners has it or not.
            told = told or listener
        elif listener.name == self.inter_broker:
            is_shared = set(self._for_brokers()) <= {self.inter_broker}
            kind = ListenerKind.CLIENTS | ListenerKind.BROKERS if is_shared else ListenerKind.BROKERS
        else:
            kind = ListenerKind.CLIENTS
        host = None if told is None else told.host or listener.host or _THIS_MACHINE
        port = 0 if told is None else told.port or listener.port
        return NodeListener(listener.name, protocols[listener.name], listener.host, listener.port, kind, host, port)

    def _check_listeners(self, setting: str, listeners: Iterable[Listener]) -> None:
        names, ports = set[str](), dict[int, str]()
        for listener in listeners:
            if listener.name in names:
                raise self._refuse(setting, f"listeners with different names, and {listener.name} is there twice")
            names.add(listener.name)
            other = ports.get(listener.port) if setting == LISTENERS else None
            if listener.port and other is not None and not _is_ipv6(listener.host) ^ _is_ipv6(other):
                raise self._refuse(setting, f"listeners with different ports, and {listener.port} is there twice")
            ports[listener.port] = listener.host

    def _check_controllers(self) -> None:
        names = {listener.name for listener in self.listeners}
        missing = [name for name in self.controller_names if name not in names]
        if not self.controller_names:
            self._check_alone()
        elif Role.CONTROLLER not in self.roles:
            if len(missing) < len(self.controller_names):
                allowed = f"names that are not in {LISTENERS}: with {self._roles_text} they are those of other nodes"
                raise self._refuse(CONTROLLER_NAMES, allowed)
        elif missing:
            raise self._refuse(CONTROLLER_NAMES, f"names in {LISTENERS} ({_joined(names)}), with {self._roles_text}")
        elif not self._is_broker and names != set(self.controller_names):
            raise self._refuse(
                LISTENERS,
                f"listeners in {CONTROLLER_NAMES} ({_joined(self.controller_names)}) only, with {self._roles_text}",
            )

    def _check_alone(self) -> None:
        """Without a listener for controllers: a cluster of its own."""
        if len(self.roles) < 2:
            where = "where the controllers listen" if self._is_broker else f"one of {LISTENERS}"
            raise self._refuse(CONTROLLER_NAMES, f"at least one name with {self._roles_text}: {where}")
        for name in (VOTERS, BOOTSTRAP):
            if self._list(name):
                raise self._refuse(CONTROLLER_NAMES, f"at least one of {LISTENERS}, as {name} is set")

    def _check_voters(self) -> None:
        if self.controller_names and not self.voters and not self.bootstrap_servers:
            raise self._refuse(BOOTSTRAP, f"at least one controller, or {VOTERS} with all of them")
        ids = [voter.node_id for voter in self.voters]
        if len(set(ids)) < len(ids):
            raise self._refuse(VOTERS, "each node once")
        if not ids:
            return
        if Role.CONTROLLER in self.roles and self.node_id not in ids:
            raise self._refuse(VOTERS, f"controllers with this one among them: node.id is {self.node_id}")
        if Role.CONTROLLER not in self.roles and self.node_id in ids:
            raise self._refuse(VOTERS, f"other nodes only with {self._roles_text}, and node.id is {self.node_id}")

    def _check_advertised(self) -> None:
        names = {listener.name for listener in self.listeners}
        unknown = [listener.name for listener in self.advertised if listener.name not in names]
        if unknown:
            raise self._refuse(ADVERTISED, f"names in {LISTENERS} ({_joined(names)}), and {unknown[0]} is not there")
        if self._is_broker and not self._for_brokers():
            raise self._refuse(
                ADVERTISED if self._list(ADVERTISED) else LISTENERS,
                f"at least one listener that is not in {CONTROLLER_NAMES}, with {self._roles_text}",
            )
        for listener in self.advertised if self.controller_names else ():
            if listener.host in ALL_INTERFACES:
                raise self._refuse(
                    ADVERTISED, f"a host that other nodes can reach for each listener, and {listener} has none"
                )

    def _for_brokers(self) -> list[str]:
        return [listener.name for listener in self.advertised if listener.name not in self.controller_names]

    def _check_inter_broker(self) -> None:
        names = self._for_brokers()
        if self.inter_broker not in names:
            allowed = f"a listener that is advertised, and none for controllers: {_joined(names)}"
            if not self._is_set(INTER_BROKER):
                allowed += f" (not set, it is {_DEFAULT_NAME})"
            raise self._refuse(INTER_BROKER, allowed)

    def _protocols(self) -> dict[str, str]:
        """The protocol of each listener, and of those of other controllers."""
        protocols = dict(self._parsed(PROTOCOLS, parse_protocol))
        names = [listener.name for listener in self.listeners]
        names += [name for name in self.controller_names if name not in names]
        if not self._is_set(PROTOCOLS) and not any(
            protocols.get(name, _DEFAULT_NAME) != _DEFAULT_NAME for name in names
        ):
            protocols = {**dict.fromkeys(self.controller_names, _DEFAULT_NAME), **protocols}
        for name in names:
            if name not in protocols:
                raise self._refuse(PROTOCOLS, f"an entry for each listener, and {name} has none")
        return protocols


def _is_ipv6(host: str) -> bool:
    return ":" in host


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
