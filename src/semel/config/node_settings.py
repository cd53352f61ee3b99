"""The settings that make a node one of several: its number, its roles, where it listens, whom it belongs to.

Which of them fit together is checked in node_layout.py.
"""

from __future__ import annotations

from semel.config.listeners import (
    ADVERTISED_FORM,
    LISTENER_FORM,
    NAME_FORM,
    PROTOCOL_FORM,
    SERVER_FORM,
    VOTER_FORM,
)
from semel.config.settings import INT_MAX, Form, Kind, Setting

BOOLEAN, STRING, INT, LONG, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.LIST

PATH = Form(lambda text: text != "" and "\0" not in text, "a path")
ROLES = ("broker", "controller")


def no_effect_yet(what: str) -> str:
    return f"Accepted and without effect until there is replication: {what}."


# fmt: off
NODE = [
    Setting("process.roles", LIST, ROLES,
            "What this process is: a broker, which serves clients, a controller, which decides about the cluster, or "
            "both.", choices=ROLES, entries=(1, 2), kafka_default="none"),
    Setting("node.id", INT, 1, "The number of this node, unique in its cluster; Kafka has no default for it.",
            minimum=0, kafka_default="none"),
    Setting("broker.rack", STRING, None, "The rack of this node, as Metadata reports it."),
    Setting("listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",),
            "The addresses this node listens on, each with a name; as it asks nobody for a password, only this machine "
            "reaches it unless you say otherwise.",
            form=LISTENER_FORM, entries=(1, INT_MAX), kafka_default="PLAINTEXT://:9092"),
    Setting("advertised.listeners", LIST, None,
            "The addresses that others are told to connect to, those in listeners if not set; port 0 stands for the "
            "port in use, and a listener for clients that is left out is told to nobody.",
            form=ADVERTISED_FORM, entries=(1, INT_MAX)),
    Setting("listener.security.protocol.map", LIST,
            ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
            "The security protocol of each listener, by its name; unless this is set, listeners of controllers are "
            "PLAINTEXT.",
            form=PROTOCOL_FORM, entries=(1, INT_MAX)),
    Setting("controller.listener.names", LIST, None,
            "The listeners on which controllers are reached; if not set, a node with both roles is a cluster of its "
            "own that no other node can join.",
            form=NAME_FORM, entries=(1, INT_MAX), kafka_default="none"),
    Setting("inter.broker.listener.name", STRING, None,
            "The listener on which brokers reach each other, PLAINTEXT if not set; all brokers of a cluster use the "
            "same name, and where clients are told of no other it has to be set, because anyone who reaches it can "
            "pose as a broker as long as nobody logs in.", form=NAME_FORM),
    Setting("controller.quorum.bootstrap.servers", LIST, (),
            "Addresses of controllers, at least one of which tells a new node who the others are.", form=SERVER_FORM),
    Setting("controller.quorum.voters", LIST, (),
            "All controllers with their numbers, where the set of them is fixed by this setting.", form=VOTER_FORM),
    Setting("controller.quorum.election.timeout.ms", INT, 1000,
            "How long a controller that wants to lead waits for votes, and up to as long again: each draws its own "
            "time.", minimum=1),
    Setting("controller.quorum.fetch.timeout.ms", INT, 2000,
            "How long a controller that hears nothing of the active one waits before it wants to lead; an active one "
            "that hears of no majority for one and a half times as long gives up.", minimum=1),
    Setting("controller.quorum.election.backoff.max.ms", INT, 1000,
            "How long controllers wait at most, after the active one has resigned, for those that were further.",
            minimum=0),
    Setting("controller.quorum.retry.backoff.ms", INT, 20,
            "The pause before a controller asks another one again that has not answered.", minimum=0),
    Setting("broker.heartbeat.interval.ms", INT, 2000,
            "How often a broker tells the controller that it is alive.", minimum=1),
    Setting("broker.session.timeout.ms", INT, 9000,
            "How long a broker of which the controller hears nothing still counts as alive; after that others lead in "
            "its place.", minimum=1),
    Setting("initial.broker.registration.timeout.ms", INT, 60_000,
            "How long a broker tries to register with the controller when it starts.", minimum=1),
    Setting("controlled.shutdown.enable", BOOLEAN, True,
            "Whether a broker hands its partitions to others before it stops."),
    Setting("auto.leader.rebalance.enable", BOOLEAN, True,
            "Whether partitions go back to the first of their replicas by themselves, when it is in sync again."),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300,
            "How often the controller looks for partitions that the first of their replicas does not lead.", minimum=1),
    Setting("log.dir", STRING, "semel-data",
            "The directory that holds the logs, relative to the working directory, unless log.dirs is set.",
            form=PATH, kafka_default="/tmp/kafka-logs"),
    Setting("log.dirs", LIST, None, "The directory that holds the logs; a node keeps all its logs in one directory.",
            form=PATH, entries=(1, 1)),
]
# fmt: on
