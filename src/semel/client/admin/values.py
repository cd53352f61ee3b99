"""What the admin takes and gives for topics, settings, records, nodes and replicas. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from semel.client.metadata import Node, TopicPartition
from semel.wire.schema import NO_UUID


class Numbered(IntEnum):
    """Kafka's numbers for things. One that we do not know is UNKNOWN: a newer broker may have more of them."""

    @classmethod
    def _missing_(cls, value: object) -> Numbered | None:
        return cls.__members__.get("UNKNOWN")


# -- topics


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Without numbers the broker's defaults count; `assignment` maps each partition to the nodes of
    its replicas, the first of which leads, and takes the place of both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, object] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or would be. Numbers are -1 and `configs` is None where the broker does not tell.

    `answer_was_lost`: the answer to an earlier attempt never came; the topic is there now with the partitions and
    replicas that were asked for, made by that attempt or by somebody else.
    """

    name: str
    topic_id: bytes = NO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigEntry] | None = None
    answer_was_lost: bool = False


# -- settings


class ConfigResourceType(Numbered):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """What has settings."""

    kind: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        return cls(ConfigResourceType.BROKER, str(node_id))

    @classmethod
    def all_brokers(cls) -> ConfigResource:
        """The settings that hold for every broker without one of its own."""
        return cls(ConfigResourceType.BROKER, "")

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ConfigResourceType.GROUP, group_id)

    @property
    def node_id(self) -> int | None:
        """The only node that can answer for it, if there is one."""
        is_bound = self.kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and self.name.isdecimal()
        return int(self.name) if is_bound else None

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name!r}" if self.name else "all brokers"


class ConfigSource(Numbered):
    """Where a value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    SERVER_PROPERTIES = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(Numbered):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSynonym(NamedTuple):
    """A value that would count, or does, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. The value of a sensitive one is never told: None."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_read_only: bool = False
    is_sensitive: bool = False
    kind: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT


# -- offsets


class OffsetSpec(IntEnum):
    """Which offset of a partition: one of these, or a time in milliseconds, which asks for the first record since."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


# -- the cluster


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller_id` is a node to send changes to; in KRaft it passes them on. Fenced nodes are up but not ready."""

    cluster_id: str
    controller_id: int
    nodes: Mapping[int, Node]
    fenced: frozenset[int] = frozenset()


class QuorumReplica(NamedTuple):
    """How far a node has the metadata. The times are wall clock milliseconds of the quorum's leader, or -1."""

    node_id: int
    end_offset: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The controllers: the leader is the one that decides, voters elect it, observers (brokers) read along. `nodes` has
    the addresses of controllers, where the broker tells them."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: Mapping[int, QuorumReplica]
    observers: Mapping[int, QuorumReplica]
    nodes: Mapping[int, Node] = field(default_factory=dict)


class VersionRange(NamedTuple):
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class NodeVersions:
    """What one node serves: APIs by key, the features it could have, and those the cluster has switched on."""

    apis: Mapping[int, VersionRange]
    supported_features: Mapping[str, VersionRange]
    finalized_features: Mapping[str, int]
    finalized_epoch: int = -1


class ReplicaSize(NamedTuple):
    """`offset_lag` is how far it is behind; `is_future`: a copy that moves to another directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A data directory of a node, and what its replicas take. `error_code` tells of a directory that failed."""

    path: str
    error_code: int
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False


class ElectionType(IntEnum):
    """PREFERRED gives a partition back to the first of its replicas; UNCLEAN takes any, and may lose records."""

    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """A move that is under way: all replicas, and those that come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
