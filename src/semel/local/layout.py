"""What a cluster on one machine consists of: its nodes, their addresses and settings, kept in its directory.

DIR/cluster.json       cluster id, nodes, ports, settings: a later start finds the same addresses
DIR/node-1/            the data of node 1
DIR/node-1/node.toml   what `semel serve --data DIR/node-1` starts it with
DIR/node-1.log         what it has printed, in all of its starts
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from semel.config.settings_file import NODE_FILE, settings_text
from semel.local.ports import HOST

VOTERS = 3
"""So many nodes of a cluster that has them are controllers, too, of which one may be down. A smaller one has one."""
CLIENTS, BROKERS, CONTROLLER = "CLIENTS", "BROKERS", "CONTROLLER"
"""Names of listeners."""
OWN_SETTINGS = frozenset(
    {
        "node.id",
        "process.roles",
        "log.dir",
        "log.dirs",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
    }
)
"""What makes a node one of the cluster: the cluster's own business."""
_FILE = "cluster.json"
_MOST_REPLICAS = 3


@dataclass(frozen=True)
class LocalNode:
    """`ports` are those it listens on, by the listener's name; `advertised` those that others are told."""

    node_id: int
    roles: tuple[str, ...]
    ports: Mapping[str, int]
    advertised: Mapping[str, int]

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def address(self) -> str:
        """Where clients, or for a controller alone the other nodes, find it."""
        return f"{HOST}:{self.advertised[CLIENTS if self.is_broker else CONTROLLER]}"

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def controller_address(self) -> str:
        """Where a controller is found by the other nodes."""
        return f"{HOST}:{self.advertised[CONTROLLER]}"


@dataclass(frozen=True)
class Layout:
    cluster_id: str
    nodes: tuple[LocalNode, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def brokers(self) -> list[LocalNode]:
        return [node for node in self.nodes if node.is_broker]

    @property
    def controllers(self) -> list[LocalNode]:
        return [node for node in self.nodes if node.is_controller]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.brokers)

    def node(self, node_id: int) -> LocalNode:
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        known = ", ".join(str(node.node_id) for node in self.nodes)
        raise KeyError(f"node {node_id} is not in the cluster, its nodes are {known}")

    def with_settings(self, more: Mapping[str, str]) -> Layout:
        return replace(self, settings={**self.settings, **more})

    def settings_of(self, node: LocalNode, root: Path) -> dict[str, str]:
        """All that `semel serve` is told. What was asked for wins over what a small cluster gets by itself; what makes
        the node one of the cluster wins over both."""
        voters = [f"{one.node_id}@{one.controller_address}" for one in self.controllers]
        listeners = list(node.ports)
        own = {
            "node.id": str(node.node_id),
            "process.roles": ",".join(node.roles),
            "log.dir": str(data_path(root, node)),
            "listeners": ",".join(f"{name}://{HOST}:{node.ports[name]}" for name in listeners),
            "advertised.listeners": ",".join(f"{name}://{HOST}:{node.advertised[name]}" for name in listeners),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (CLIENTS, BROKERS, CONTROLLER)),
            "inter.broker.listener.name": BROKERS,
            "controller.listener.names": CONTROLLER,
            "controller.quorum.voters": ",".join(voters),
        }
        return {**_replicated(len(self.brokers)), **self.settings, **own}


def _replicated(brokers: int) -> dict[str, str]:
    """Three copies where there are three brokers, of which one may be down; and what suits a laptop. Of one broker
    nothing is asked: others may join it, and then a topic gets more by itself."""
    replicas = min(brokers, _MOST_REPLICAS)
    least = str(replicas - 1)
    replication = {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": least,
    }
    return {
        **(replication if brokers > 1 else {}),
        # Each is a log on every node: fifty of them are for clusters with many groups.
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
    }


def new_layout(cluster_id: str, brokers: int, settings: Mapping[str, str], ports: Sequence[int]) -> Layout:
    """The first are controllers as well. Takes two ports for each broker, and one for each controller."""
    left, voters = list(ports), _voters_of(brokers)
    nodes = [_broker(node_id, left, is_controller=node_id <= voters) for node_id in range(1, brokers + 1)]
    return Layout(cluster_id, tuple(nodes), dict(settings))


def _voters_of(brokers: int) -> int:
    return VOTERS if brokers >= VOTERS else 1


def with_more(layout: Layout, brokers: int, ports: Sequence[int]) -> Layout:
    """The layout with so many brokers in all; each new one takes two ports."""
    left, first = list(ports), max(node.node_id for node in layout.brokers) + 1
    added = [_broker(first + count, left) for count in range(brokers - len(layout.brokers))]
    return replace(layout, nodes=(*layout.nodes, *added))


def listening_on(layout: Layout, ports: Sequence[int] | None = None) -> Layout:
    """The same nodes, listening where they are found; or elsewhere, one port for each listener, with something between
    that passes connections on."""
    left = None if ports is None else list(ports)
    nodes = (
        replace(node, ports={name: left.pop() if left is not None else port for name, port in node.advertised.items()})
        for node in layout.nodes
    )
    return replace(layout, nodes=tuple(nodes))


def _broker(node_id: int, ports: list[int], *, is_controller: bool = False) -> LocalNode:
    own = {CLIENTS: ports.pop(), BROKERS: ports.pop()}
    if is_controller:
        return _node(node_id, ("broker", "controller"), {**own, CONTROLLER: ports.pop()})
    return _node(node_id, ("broker",), own)


def _node(node_id: int, roles: tuple[str, ...], ports: Mapping[str, int]) -> LocalNode:
    return LocalNode(node_id, roles, dict(ports), dict(ports))


def ports_for(brokers: int, *, has_controllers: bool = False) -> int:
    return 2 * brokers + (0 if has_controllers else _voters_of(brokers))


# -- on disk


def read_layout(root: Path) -> Layout | None:
    """None if there is no cluster in the directory. Raises ValueError for a file that is not ours."""
    path = root / _FILE
    try:
        document = json.loads(path.read_text())
        nodes = tuple(_read_node(node) for node in document["nodes"])
        return Layout(str(document["cluster_id"]), nodes, {str(k): str(v) for k, v in document["settings"].items()})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}): put it back, or choose another directory") from error


def _read_node(document: Mapping[str, Any]) -> LocalNode:
    ports, advertised = ({str(k): int(v) for k, v in document[name].items()} for name in ("ports", "advertised"))
    return LocalNode(int(document["node_id"]), tuple(document["roles"]), ports, advertised)


def write_layout(root: Path, layout: Layout) -> None:
    """The settings of each node, and then the list of them, whole or not at all."""
    for node in layout.nodes:
        path = data_path(root, node)
        path.mkdir(exist_ok=True)
        _replace(path / NODE_FILE, settings_text(layout.settings_of(node, root)))
    _replace(root / _FILE, json.dumps(asdict(layout), indent=2) + "\n")


def data_path(root: Path, node: LocalNode) -> Path:
    return root / node.name


def log_path(root: Path, node: LocalNode) -> Path:
    return root / f"{node.name}.log"


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)
