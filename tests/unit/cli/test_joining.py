"""What makes a node the first of a cluster, or one more: settings beside its data."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from semel.cli.failures import CommandFailed, WrongCall
from semel.cli.joining import Asked, joined_settings, make_first
from semel.cli.main import main
from semel.client.admin.values import ConfigEntry, ConfigSource
from semel.config import load_config
from semel.config.node_layout import ListenerKind, Role
from semel.config.settings_file import NODE_FILE, settings_text

GIVEN, DEFAULT = ConfigSource.SERVER_PROPERTIES, ConfigSource.DEFAULT


def _asked(**changes: ConfigEntry) -> Asked:
    entries = [
        ConfigEntry("listeners", "PLAINTEXT://10.0.0.1:9092,BROKERS://10.0.0.1:9093,CONTROLLER://10.0.0.1:9094", GIVEN),
        ConfigEntry("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"),
        ConfigEntry("inter.broker.listener.name", "BROKERS", GIVEN),
        ConfigEntry("controller.listener.names", "CONTROLLER", GIVEN),
        ConfigEntry("controller.quorum.voters", "1@10.0.0.1:9094", GIVEN),
        ConfigEntry("node.id", "1", GIVEN),
        ConfigEntry("broker.rack", "a", GIVEN),
        ConfigEntry("log.dir", "/elsewhere", GIVEN),
        ConfigEntry("num.partitions", "6", GIVEN),
        ConfigEntry("log.segment.bytes", "1000000", DEFAULT),
        ConfigEntry("zookeeper.connect", "h:1", GIVEN),
    ]
    settings = {entry.name: entry for entry in entries} | {entry.name: entry for entry in changes.values()}
    return Asked("a-cluster", frozenset({1}), settings)


def _joined(asked: Asked, port: int = 9092, node_id: str | None = None) -> dict[str, str]:
    return joined_settings(asked, at="10.0.0.1:9092", host="10.0.0.2", port=port, node_id=node_id)


def test_a_node_that_joins_is_a_broker_with_listeners_of_the_same_names() -> None:
    layout = load_config(None, {}, _joined(_asked())).layout
    assert layout.roles == {Role.BROKER}
    assert layout.node_id == 2
    assert [(one.name, one.host, one.port, one.kind) for one in layout.listeners] == [
        ("PLAINTEXT", "10.0.0.2", 9092, ListenerKind.CLIENTS),
        ("BROKERS", "10.0.0.2", 9093, ListenerKind.BROKERS),
    ]
    assert [(voter.node_id, voter.host, voter.port) for voter in layout.voters] == [(1, "10.0.0.1", 9094)]


def test_it_takes_what_the_other_was_given_but_not_what_is_the_others_own() -> None:
    settings = _joined(_asked())
    assert settings["num.partitions"] == "6"
    assert {"log.dir", "broker.rack", "log.segment.bytes", "zookeeper.connect"}.isdisjoint(settings)


def test_where_brokers_and_clients_share_a_listener_there_is_one() -> None:
    listeners = ConfigEntry("listeners", "PLAINTEXT://10.0.0.1:9092,CONTROLLER://10.0.0.1:9094", GIVEN)
    inter = ConfigEntry("inter.broker.listener.name", None)
    assert _joined(_asked(one=listeners, two=inter))["listeners"] == "PLAINTEXT://10.0.0.2:9092"


def test_its_number_is_one_that_nobody_has_or_had() -> None:
    asked = _asked()._replace(taken_ids=frozenset({1, 2, 7}))
    assert _joined(asked)["node.id"] == "8"
    assert _joined(asked, node_id="5")["node.id"] == "5"
    voters = ConfigEntry("controller.quorum.voters", "2@h:1,3@h:2", GIVEN)
    assert _joined(_asked(one=voters))["node.id"] == "4"
    far = ConfigEntry("controller.quorum.voters", "3000@h:1", GIVEN)
    assert _joined(_asked(one=far))["node.id"] == "2", "brokers are counted, not controllers"


def test_a_node_alone_cannot_be_joined_and_the_way_out_is_told() -> None:
    alone = ConfigEntry("controller.listener.names", None)
    with pytest.raises(CommandFailed, match="--data DIR --cluster"):
        _joined(_asked(one=alone))


def _options(data: Path | None, **changes: object) -> argparse.Namespace:
    given = {"data": None if data is None else str(data), "config": None, "set": [], "host": None, "port": 19092}
    return argparse.Namespace(**{**given, **changes})


def test_the_first_node_has_listeners_for_the_others_and_keeps_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make_first(_options(data, set=["num.partitions=4"]))
    config = load_config(data / NODE_FILE, {}, {})
    assert [(one.name, one.port) for one in config.layout.listeners] == [
        ("PLAINTEXT", 19092),
        ("BROKERS", 19093),
        ("CONTROLLER", 19094),
    ]
    assert config.layout.roles == {Role.BROKER, Role.CONTROLLER}
    assert config.int("num.partitions") == 4
    before = (data / NODE_FILE).read_text()
    make_first(_options(data, port=1))
    assert (data / NODE_FILE).read_text() == before
    assert main(["storage", "info", "--data", str(data)]) == 0, "commands go by the file beside the data"


def test_the_file_beside_the_data_is_for_a_named_directory_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(WrongCall, match="--data is needed"):
        make_first(_options(None))
    with pytest.raises(WrongCall, match="--config"):
        make_first(_options(tmp_path, config="x.toml"))


def test_settings_of_any_text_come_back_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / NODE_FILE
    rack = 'ünlikely "rack" \\ \u2028 x'
    path.write_text(settings_text({"broker.rack": rack, "log.dir": "/a b"}, "a comment"))
    assert load_config(path, {}, {}).text("broker.rack") == rack
