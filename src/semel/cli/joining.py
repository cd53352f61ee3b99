"""`semel serve --cluster` and `--join`: what makes a node the first of a cluster, or one more of it.

Both come to settings, which are written beside the node's data: from then on `semel serve --data DIR` starts it. A node
that joins asks a running one, by Kafka's own requests: DescribeCluster for the cluster's id and the numbers that are
taken, DescribeConfigs for where the controllers are and what listeners are called.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from semel.broker.identity import WrongDirectory, format_directory, new_id
from semel.cli.failures import CommandFailed, WrongCall
from semel.cli.node_options import given_settings
from semel.client.admin.admin import Admin
from semel.client.admin.values import ConfigEntry, ConfigResource, ConfigSource
from semel.config import ConfigError, load_config
from semel.config.broker_settings import BROKER_SETTINGS
from semel.config.listeners import parse_listener, parse_voter, spelled
from semel.config.settings_file import NODE_FILE, settings_text
from semel.host.real import real_host
from semel.local.ports import HeldPorts

_CLIENTS, _BROKERS, _CONTROLLER = "PLAINTEXT", "BROKERS", "CONTROLLER"
_LOOPBACK = "127.0.0.1"
_PORT = 9092
_NAMES = "controller.listener.names"
_OF_A_NODE = frozenset(
    {
        "node.id",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "broker.rack",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)
"""What each node has of its own."""
_OF_THE_CLUSTER = (
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)
"""What all nodes have in common, also where it is a default."""


class Asked(NamedTuple):
    """What a running node has told."""

    cluster_id: str
    taken_ids: frozenset[int]
    settings: Mapping[str, ConfigEntry]


def make_first(options: argparse.Namespace) -> None:
    """Writes the settings of a node that others can join, unless that was done before. Raises CommandFailed."""
    path = _settings_path(options)
    if path.exists():
        return
    given = _given(options)
    host = options.host or _LOOPBACK
    port = _PORT if options.port is None else options.port
    ports = (port, port + 1, port + 2) if port else _free_ports(3)
    node_id = given.get("node.id", "1")
    names = (_CLIENTS, _BROKERS, _CONTROLLER)
    listeners = [f"{name}://{spelled(host, number)}" for name, number in zip(names, ports, strict=True)]
    settings = {
        "node.id": node_id,
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": _BROKERS,
        _NAMES: _CONTROLLER,
        "controller.quorum.voters": f"{node_id}@{spelled(host, ports[2])}",
    }
    _write(path, {**settings, **given}, None)


def _free_ports(count: int) -> list[int]:
    ports = HeldPorts()
    found = ports.take(count)
    ports.close()
    return found


async def join(options: argparse.Namespace) -> None:
    """Asks the running node, formats the directory and writes the settings, unless that was done before."""
    path = _settings_path(options)
    if path.exists():
        return
    given = _given(options)
    asked = await _ask(options.join)
    settings = joined_settings(
        asked,
        at=options.join,
        host=options.host or _own_address(options.join),
        port=_PORT if options.port is None else options.port,
        node_id=given.get("node.id"),
    )
    _write(path, {**settings, **given}, asked.cluster_id)


def _settings_path(options: argparse.Namespace) -> Path:
    if options.data is None:
        raise WrongCall("--data is needed: the node's settings are kept beside its data")
    if options.config is not None:
        raise WrongCall("--config and what the cluster tells do not go together: give single settings with --set")
    return Path(os.path.abspath(options.data)) / NODE_FILE


def _given(options: argparse.Namespace) -> dict[str, str]:
    try:
        return given_settings(options)
    except ConfigError as error:
        raise WrongCall(str(error)) from error


async def _ask(address: str) -> Asked:
    async with Admin(bootstrap_servers=address, client_id="semel-serve", bootstrap_timeout_ms=5000) as admin:
        cluster = await admin.describe_cluster(include_fenced=True)
        topics = await admin.list_topics(include_internal=True)
        asked_id = next(iter(sorted(cluster.nodes.keys() - cluster.fenced)), cluster.controller_id)
        resource = ConfigResource.broker(asked_id)
        settings = (await admin.describe_configs(resource))[resource]
    replicas = {
        node_id
        for topic in topics.values()
        for partition in topic.partitions.values()
        for node_id in partition.replicas
    }
    return Asked(cluster.cluster_id, frozenset(cluster.nodes) | replicas, settings)


def joined_settings(asked: Asked, *, at: str, host: str, port: int, node_id: str | None = None) -> dict[str, str]:
    """The settings of a broker beside the one that has told: what that one was given, and its own place and number."""
    common = dict(_common(asked.settings))
    if not common.get(_NAMES):
        raise CommandFailed(
            f"the node at {at} is a cluster of its own, which nobody can join: stop it, and start it again with "
            "semel serve --data DIR --cluster"
        )
    brokers = (common.get("inter.broker.listener.name") or _CLIENTS).upper()
    names = _listener_names(asked.settings)
    clients = next((name for name in names if name not in (brokers, *common[_NAMES].upper().split(","))), None)
    places = [(clients, port), (brokers, port + 1 if port else 0)] if clients is not None else [(brokers, port)]
    return {
        **common,
        "process.roles": "broker",
        "node.id": node_id or str(_free_id(asked)),
        "listeners": ",".join(f"{name}://{spelled(host, number)}" for name, number in places),
    }


def _common(settings: Mapping[str, ConfigEntry]) -> Iterable[tuple[str, str]]:
    for name, entry in settings.items():
        was_given = entry.source == ConfigSource.SERVER_PROPERTIES or name in _OF_THE_CLUSTER
        if name in BROKER_SETTINGS and name not in _OF_A_NODE and was_given and entry.value:
            yield name, entry.value


def _listener_names(settings: Mapping[str, ConfigEntry]) -> list[str]:
    text = settings["listeners"].value if "listeners" in settings else None
    parsed = [parse_listener(entry.strip()) for entry in (text or "").split(",")]
    return [listener.name for listener in parsed if listener is not None]


def _free_id(asked: Asked) -> int:
    """One after the largest: a number that a broker had once may still be in a record of some log."""
    entry = asked.settings.get("controller.quorum.voters")
    voters = {
        voter.node_id
        for text in ((entry.value or "") if entry is not None else "").split(",")
        if (voter := parse_voter(text.strip())) is not None
    }
    brokers = asked.taken_ids - voters or {0}
    number = max(brokers) + 1
    while number in voters:
        number += 1
    return number


def _own_address(address: str) -> str:
    """That of this machine's, by which the other one is reached. No packet is sent."""
    host, _, port = address.split(",")[0].strip().rpartition(":")
    try:
        family, *_, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return _LOOPBACK


def _write(path: Path, settings: Mapping[str, str], cluster_id: str | None) -> None:
    """Formats the directory for the cluster, a new one if it has no id yet, and puts the settings beside the data."""
    root = str(path.parent)
    try:
        config = load_config(None, {}, {**settings, "log.dir": root})
    except ConfigError as error:
        raise WrongCall(str(error)) from error
    node_id = config.layout.node_id
    host = real_host()
    try:
        identity, _ = format_directory(host.disk, root, cluster_id or new_id(host.random), node_id, host.random)
        if identity.node_id != node_id or cluster_id not in (None, identity.cluster_id):
            raise CommandFailed(
                f"{root} is that of node {identity.node_id} of cluster {identity.cluster_id}: choose a new directory"
            )
        comments = "What this node is started with: semel serve --data goes by it.", "Change it as you like."
        host.disk.replace_file_now(str(path), settings_text(settings, *comments).encode())
    except WrongDirectory as error:
        raise CommandFailed(str(error)) from error
    finally:
        host.close()
