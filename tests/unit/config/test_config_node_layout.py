"""What the settings make of a node, and which combinations are refused: the rules of Kafka's KRaft mode."""

from __future__ import annotations

import pytest

from semel.config import BrokerConfig, ConfigError, ListenerKind, Role, load_config
from semel.config.listeners import Voter

BOTH, BROKER, CONTROLLER = ({"process.roles": roles} for roles in ("broker,controller", "broker", "controller"))
CLIENTS_AND_BROKERS = ListenerKind.CLIENTS | ListenerKind.BROKERS


def of(*parts: dict[str, str], **more: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in parts:
        settings |= part
    return settings | {name.replace("_", "."): value for name, value in more.items()}


def listening(text: str) -> dict[str, str]:
    return {"listeners": text}


NAMED = {"controller.listener.names": "CONTROLLER"}
VOTERS = {"controller.quorum.voters": "1@n1:9093,2@n2:9093,3@n3:9093"}
BOOTSTRAP = {"controller.quorum.bootstrap.servers": "n1:9093,n2:9093"}
COMBINED = of(BOTH, NAMED, VOTERS, listening("PLAINTEXT://n1:9092,CONTROLLER://n1:9093"))
BROKER_ONLY = of(BROKER, NAMED, BOOTSTRAP, listening("PLAINTEXT://n4:9092"), node_id="4")
CONTROLLER_ONLY = of(CONTROLLER, NAMED, VOTERS, listening("CONTROLLER://n1:9093"))


def test_a_node_that_is_told_nothing_is_a_cluster_of_its_own_on_this_machine() -> None:
    layout = BrokerConfig().layout
    assert layout.is_alone
    assert layout.roles == {Role.BROKER, Role.CONTROLLER}
    (listener,) = layout.listeners
    assert listener == ("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, CLIENTS_AND_BROKERS, "127.0.0.1", 9092)


def test_clients_are_told_the_listener_unless_another_is_advertised() -> None:
    (listener,) = BrokerConfig(listening("PLAINTEXT://:9093")).layout.listeners
    assert (listener.advertised_host, listener.advertised_port) == ("127.0.0.1", 9093)
    (listener,) = BrokerConfig(
        {"listeners": "PLAINTEXT://:9093", "advertised.listeners": "PLAINTEXT://a.example:1"}
    ).layout.listeners
    assert (listener.host, listener.port) == ("", 9093)
    assert (listener.advertised_host, listener.advertised_port) == ("a.example", 1)


def test_a_free_port_is_told_once_it_is_known() -> None:
    (listener,) = BrokerConfig(listening("PLAINTEXT://:0")).layout.listeners
    assert listener.bound_to(1234)[3:] == (1234, CLIENTS_AND_BROKERS, "127.0.0.1", 1234)
    (listener,) = BrokerConfig(
        {"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://a.example:80"}
    ).layout.listeners
    assert listener.bound_to(1234).advertised_port == 80


def test_each_listener_has_a_name_and_a_kind() -> None:
    settings = of(
        BOTH,
        NAMED,
        BOOTSTRAP,
        {
            "listeners": "outside://:9092,inside://n1:9094,controller://n1:9093",
            "advertised.listeners": "OUTSIDE://n1.example:19092,INSIDE://n1:9094",
            "inter.broker.listener.name": "inside",
            "listener.security.protocol.map": "outside:plaintext,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
    )
    layout = BrokerConfig(settings).layout
    assert [(one.name, one.kind, one.advertised_host, one.advertised_port) for one in layout.listeners] == [
        ("OUTSIDE", ListenerKind.CLIENTS, "n1.example", 19092),
        ("INSIDE", ListenerKind.BROKERS, "n1", 9094),
        ("CONTROLLER", ListenerKind.CONTROLLERS, "n1", 9093),
    ]
    assert (layout.inter_broker, layout.controller_names, layout.is_alone) == ("INSIDE", ("CONTROLLER",), False)
    assert layout.bootstrap_servers == (("n1", 9093), ("n2", 9093))


def test_a_listener_that_is_not_advertised_is_told_to_nobody() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,SECRET://:9095",
        "advertised.listeners": "PLAINTEXT://n1:9092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECRET:PLAINTEXT",
    }
    assert [one.advertised_host for one in BrokerConfig(settings).layout.listeners] == ["n1", None]


def test_the_roles_can_be_apart() -> None:
    assert BrokerConfig(COMBINED).layout.voters == (Voter(1, "n1", 9093), Voter(2, "n2", 9093), Voter(3, "n3", 9093))
    broker = BrokerConfig(BROKER_ONLY).layout
    assert (broker.roles, [one.kind for one in broker.listeners]) == ({Role.BROKER}, [CLIENTS_AND_BROKERS])
    controller = BrokerConfig(CONTROLLER_ONLY).layout
    assert (controller.roles, [one.kind for one in controller.listeners]) == (
        {Role.CONTROLLER},
        [ListenerKind.CONTROLLERS],
    )


TWO = "PLAINTEXT://n1:9092,CONTROLLER://n1:9093"
MAP = "listener.security.protocol.map"

WRONG = {
    "a name twice": (listening("PLAINTEXT://a:1,plaintext://b:2"), "listeners", "PLAINTEXT is there twice"),
    "a port twice": (
        {"listeners": "A://a:1,B://b:1", MAP: "A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name": "A"},
        "listeners",
        "1 is there twice",
    ),
    "a broker that knows no listener of controllers": (
        of(BROKER, BOOTSTRAP),
        "controller.listener.names",
        "process.roles=broker",
    ),
    "a controller that listens nowhere": (of(CONTROLLER, VOTERS), "controller.listener.names", "one of listeners"),
    "voters, and no listener for them": (VOTERS, "controller.listener.names", "controller.quorum.voters is set"),
    "a broker with the listener of a controller": (
        of(BROKER_ONLY, listening(TWO)),
        "controller.listener.names",
        "not in listeners",
    ),
    "a controller's listener that is none": (
        of(COMBINED, listening("PLAINTEXT://n1:9092")),
        "controller.listener.names",
        "names in listeners (PLAINTEXT)",
    ),
    "a controller with the listener of a broker": (of(CONTROLLER_ONLY, listening(TWO)), "listeners", "CONTROLLER"),
    "nobody says where the controllers are": (
        of(BOTH, NAMED, listening(TWO)),
        "controller.quorum.bootstrap.servers",
        "at least one controller",
    ),
    "a voter twice": (of(COMBINED, {"controller.quorum.voters": "1@a:1,1@b:1"}), "controller.quorum.voters", "once"),
    "a controller that is no voter": (of(COMBINED, node_id="9"), "controller.quorum.voters", "node.id is 9"),
    "a broker that is a voter": (of(BROKER_ONLY, VOTERS, node_id="2"), "controller.quorum.voters", "node.id is 2"),
    "an advertised name that does not listen": (
        {"advertised.listeners": "OTHER://n1:1"},
        "advertised.listeners",
        "OTHER is not there",
    ),
    "no listener for clients": (
        of(COMBINED, listening("CONTROLLER://n1:9093")),
        "listeners",
        "not in controller.listener.names",
    ),
    "nothing advertised to clients": (
        of(COMBINED, {"advertised.listeners": "CONTROLLER://n1:9093"}),
        "advertised.listeners",
        "not in controller.listener.names",
    ),
    "a node of several that nobody can reach": (
        of(COMBINED, listening("PLAINTEXT://:9092,CONTROLLER://n1:9093")),
        "advertised.listeners",
        "a host that other nodes can reach",
    ),
    "brokers meet where controllers do": (
        of(COMBINED, {"inter.broker.listener.name": "CONTROLLER"}),
        "inter.broker.listener.name",
        "none for controllers: PLAINTEXT",
    ),
    "brokers meet nowhere": (
        {"listeners": "A://a:1", MAP: "A:PLAINTEXT"},
        "inter.broker.listener.name",
        "A (not set, it is PLAINTEXT)",
    ),
    "a listener without a protocol": (listening("PLAINTEXT://a:1,B://b:2"), MAP, "B has none"),
    "the listener of other controllers without a protocol": (
        of(BROKER_ONLY, {MAP: "PLAINTEXT:PLAINTEXT"}),
        MAP,
        "CONTROLLER has none",
    ),
    "heartbeats that come after the session": (
        {"broker.heartbeat.interval.ms": "9001"},
        "broker.heartbeat.interval.ms",
        "at most broker.session.timeout.ms, which is 9000",
    ),
    "fetches that wait until a follower is out of sync": (
        {"replica.fetch.wait.max.ms": "30000", "replica.lag.time.max.ms": "29999"},
        "replica.fetch.wait.max.ms",
        "at most replica.lag.time.max.ms, which is 29999",
    ),
    "fetches that wait longer than their socket": (
        {"replica.socket.timeout.ms": "400"},
        "replica.socket.timeout.ms",
        "at least replica.fetch.wait.max.ms, which is 500",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_combination_is_refused_in_one_line_that_says_what_is_allowed(what: str) -> None:
    settings, name, told = WRONG[what]
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(settings)
    text = str(refused.value)
    assert refused.value.name == name, text
    assert told in text
    assert "\n" not in text


@pytest.mark.parametrize("what", WRONG)
def test_a_refusal_says_where_the_value_came_from_if_there_is_one(what: str) -> None:
    settings, name, _ = WRONG[what]
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, settings)
    assert refused.value.origin == ("a flag" if name in settings else None)


def test_one_port_may_serve_both_versions_of_ip() -> None:
    settings = {"listeners": "A://127.0.0.1:1,B://[::1]:1", MAP: "A:PLAINTEXT,B:PLAINTEXT"}
    assert len(BrokerConfig({**settings, "inter.broker.listener.name": "A"}).layout.listeners) == 2
    assert len(BrokerConfig({"listeners": "PLAINTEXT://a:0,B://b:0", MAP: "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"})) > 0


@pytest.mark.parametrize("name", ["controller.quorum.voters", "controller.quorum.bootstrap.servers"])
@pytest.mark.parametrize("text", ["n1", "n1:0", ":9093", "0.0.0.0:9093", "x@n1:9093", "-1@n1:9093", "1@:9093"])
def test_a_controller_has_an_address_that_nodes_can_reach(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        BrokerConfig(of(COMBINED, {name: text}))


def test_the_layout_stays_when_settings_change_while_the_node_runs() -> None:
    before = BrokerConfig(COMBINED)
    assert before.with_changes({"max.connections": "7"}).layout is before.layout
