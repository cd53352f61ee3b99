"""The nodes of a cluster on one machine, and what each of them is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.config import load_config
from semel.config.node_layout import ListenerKind, Role
from semel.config.settings_file import NODE_FILE
from semel.local.layout import (
    Layout,
    data_path,
    listening_on,
    new_layout,
    ports_for,
    read_layout,
    with_more,
    write_layout,
)

ROOT = Path("/somewhere")


def _layout(brokers: int = 3, **settings: str) -> Layout:
    return new_layout("a-cluster", brokers, settings, range(20_000, 20_000 + ports_for(brokers)))


@pytest.mark.parametrize(("brokers", "controllers"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_three_controllers_where_there_are_nodes_for_them(brokers: int, controllers: int) -> None:
    layout = _layout(brokers)
    assert [(node.node_id, node.is_controller) for node in layout.nodes] == [
        (number, number <= controllers) for number in range(1, brokers + 1)
    ]
    assert all(node.is_broker for node in layout.nodes)
    ports = [port for node in layout.nodes for port in node.ports.values()]
    assert len(set(ports)) == len(ports) == 2 * brokers + controllers


def test_what_each_node_is_told_makes_one_cluster() -> None:
    layout = _layout(4)
    configs = {node.node_id: load_config(None, {}, layout.settings_of(node, ROOT)).layout for node in layout.nodes}
    for node in layout.nodes:
        told = configs[node.node_id]
        assert told.roles == ({Role.BROKER, Role.CONTROLLER} if node.node_id <= 3 else {Role.BROKER})
        assert [(voter.node_id, voter.port) for voter in told.voters] == [
            (one.node_id, one.ports["CONTROLLER"]) for one in layout.nodes[:3]
        ]
        clients, brokers, *controllers = told.listeners
        assert clients.kind == ListenerKind.CLIENTS
        assert f"127.0.0.1:{clients.port}" == node.address
        assert brokers.kind == ListenerKind.BROKERS
        assert [one.kind for one in controllers] == [ListenerKind.CONTROLLERS] * node.is_controller


@pytest.mark.parametrize(("brokers", "replicas", "least"), [(2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_topics_have_as_many_replicas_as_there_can_be(brokers: int, replicas: str, least: str) -> None:
    layout = _layout(brokers)
    settings = layout.settings_of(layout.brokers[0], ROOT)
    for name in ("default.replication.factor", "offsets.topic.replication.factor"):
        assert settings[name] == replicas
    for name in ("min.insync.replicas", "transaction.state.log.min.isr"):
        assert settings[name] == least


def test_of_one_broker_no_replicas_are_asked_so_that_it_can_grow() -> None:
    layout = _layout(1)
    settings = layout.settings_of(layout.brokers[0], ROOT)
    assert not [name for name in settings if "replic" in name or "isr" in name]


def test_what_was_asked_for_wins_over_what_a_cluster_gets_by_itself() -> None:
    layout = _layout(**{"min.insync.replicas": "3", "log.segment.bytes": "10000"})
    settings = layout.settings_of(layout.brokers[0], ROOT)
    assert (settings["min.insync.replicas"], settings["log.segment.bytes"]) == ("3", "10000")


def test_it_is_found_again_on_disk(tmp_path: Path) -> None:
    layout = _layout(**{"log.segment.bytes": "10000"})
    assert read_layout(tmp_path) is None
    write_layout(tmp_path, layout)
    assert read_layout(tmp_path) == layout
    for node in layout.nodes:
        config = load_config(data_path(tmp_path, node) / NODE_FILE, {}, {})
        assert config.layout.node_id == node.node_id
        assert config.log_dir() == str(tmp_path / node.name)
        assert config.int("log.segment.bytes") == 10000


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"nodes": 3}')
    with pytest.raises(ValueError, match=r"cluster\.json is damaged"):
        read_layout(tmp_path)


def test_more_brokers_join_with_numbers_and_ports_of_their_own() -> None:
    more = with_more(_layout(), 5, range(30_000, 30_004))
    assert [node.node_id for node in more.brokers] == [1, 2, 3, 4, 5]
    assert sorted(port for node in more.brokers[3:] for port in node.ports.values()) == [*range(30_000, 30_004)]


def test_with_something_between_nodes_listen_elsewhere_than_they_are_found() -> None:
    layout = _layout()
    apart = listening_on(layout, range(30_000, 30_009))
    assert [node.address for node in apart.nodes] == [node.address for node in layout.nodes]
    told = apart.settings_of(apart.brokers[0], ROOT)
    assert set(told["listeners"].split(",")).isdisjoint(told["advertised.listeners"].split(","))
    assert listening_on(apart) == layout
