"""Decisions on topics: what is made, of how many partitions and replicas, on which brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from semel.config import BrokerConfig, ConfigError, Scope, checked_overrides
from semel.controller import defaults
from semel.controller.brokers import can_take_replicas
from semel.controller.cluster_rules import ClusterRules
from semel.controller.image import TOPIC_RESOURCE, MetadataImage, PartitionState, partition_record
from semel.controller.placement import Place, place
from semel.controller.topic_names import wrong_with_name
from semel.log.errors import Refused
from semel.quorum.metadata_topic import TOPIC as METADATA_TOPIC
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.metadata_records import ConfigRecord, MetadataRecord, TopicRecord

DEFAULT_COUNT = -1
_MOST_PARTITIONS = 100_000


@dataclass(frozen=True)
class NewTopic:
    """A topic as somebody asks for it. -1 stands for the cluster's default."""

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class Creation(NamedTuple):
    """A topic that may be made, and the records that make it."""

    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    records: list[MetadataRecord]


def create_topic(
    image: MetadataImage, config: BrokerConfig, random: Random, wanted: NewTopic, *, validate_only: bool = False
) -> Creation:
    if wanted.name == METADATA_TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} belongs to the cluster itself")
    if wanted.name in image.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {wanted.name!r} exists already")
    wrong = wrong_with_name(wanted.name, image.topics)
    if wrong is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    replicas = _replicas(image, config, random, wanted)
    factor = len(replicas[0])
    configs = _checked(wanted.configs, config)
    least_in_sync = defaults.min_insync_replicas(image, config, factor)
    if least_in_sync is not None:
        configs.setdefault(defaults.MIN_INSYNC, str(least_in_sync))
    topic_id = NO_UUID if validate_only else _new_topic_id(image, random)
    records: list[MetadataRecord] = [TopicRecord(name=wanted.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=wanted.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += _new_partitions(image, config, topic_id, enumerate(replicas))
    return Creation(topic_id, len(replicas), factor, configs, records)


def create_partitions(
    image: MetadataImage,
    config: BrokerConfig,
    random: Random,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
) -> list[MetadataRecord]:
    topic = image.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    present = len(topic.partitions)
    if not present < count <= _MOST_PARTITIONS:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r} has {present} partitions: more can be added, up to {_MOST_PARTITIONS}, not {count}",
        )
    added = range(present, count)
    # As many replicas as the first partition is to have when it stops moving.
    first = topic.partitions[0]
    factor = len(set(first.replicas) - set(first.removing)) or len(first.replicas)
    if assignments is None:
        replicas = place(_places(image, config), len(added), factor, random)
    else:
        if len(assignments) != len(added):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(added)} partitions are added, but {len(assignments)} are assigned",
            )
        replicas = [tuple(one) for one in assignments]
        for index, one in zip(added, replicas, strict=True):
            check_assignment(image, f"partition {index}", one, factor)
    return _new_partitions(image, config, topic.topic_id, zip(added, replicas, strict=True))


def check_assignment(image: MetadataImage, what: str, replicas: Sequence[int], factor: int | None = None) -> None:
    """Raises Refused for replicas that a partition cannot have."""
    wrong = None
    if not replicas:
        wrong = "no node"
    elif len(set(replicas)) < len(replicas):
        wrong = f"nodes {list(replicas)}, one of them twice"
    elif factor is not None and len(replicas) != factor:
        wrong = f"nodes {list(replicas)}, others to {factor}"
    else:
        unknown = [one for one in replicas if one not in image.brokers]
        cordoned = [one for one in replicas if one in image.brokers and _is_cordoned(image, one)]
        if unknown:
            wrong = f"nodes {list(replicas)}, but there is no node {unknown[0]} in this cluster"
        elif cordoned:
            wrong = f"nodes {list(replicas)}, but all directories of node {cordoned[0]} are cordoned"
    if wrong is not None:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{what} is assigned to {wrong}")


def _is_cordoned(image: MetadataImage, node_id: int) -> bool:
    broker = image.brokers[node_id]
    return not broker.in_controlled_shutdown and not can_take_replicas(broker)


def _replicas(image: MetadataImage, config: BrokerConfig, random: Random, wanted: NewTopic) -> list[tuple[int, ...]]:
    if wanted.assignments:
        if wanted.partitions != DEFAULT_COUNT or wanted.replication_factor != DEFAULT_COUNT:
            raise Refused(
                ErrorCode.INVALID_REQUEST, "with an assignment, partition count and replication factor must be -1"
            )
        return _assigned(image, wanted.assignments)
    partitions = wanted.partitions
    if partitions == DEFAULT_COUNT:
        partitions = config.int("num.partitions")
    if not 1 <= partitions <= _MOST_PARTITIONS:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {_MOST_PARTITIONS} partitions, not {partitions}")
    factor = wanted.replication_factor
    if factor == DEFAULT_COUNT:
        factor = defaults.replication_factor(image, config)
    if factor < 1:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: it is at least 1")
    return place(_places(image, config), partitions, factor, random)


def _assigned(image: MetadataImage, assignments: Mapping[int, Sequence[int]]) -> list[tuple[int, ...]]:
    expected = list(range(len(assignments)))
    if sorted(assignments) != expected:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(assignments)} partitions are assigned, {len(expected)} are to be: "
            f"{expected[0]} to {expected[-1]}, each once",
        )
    replicas = [tuple(assignments[index]) for index in expected]
    for index, one in enumerate(replicas):
        check_assignment(image, f"partition {index}", one, len(replicas[0]) if index else None)
    return replicas


def _places(image: MetadataImage, config: BrokerConfig) -> list[Place]:
    return [
        Place(node_id, broker.rack, broker.fenced)
        for node_id, broker in sorted(image.brokers.items())
        if can_take_replicas(broker) and (node_id == config.layout.node_id or not config.layout.is_alone)
    ]


def _new_partitions(
    image: MetadataImage, config: BrokerConfig, topic_id: bytes, placed: Iterable[tuple[int, tuple[int, ...]]]
) -> list[MetadataRecord]:
    """All replicas whose brokers are active are in sync: there is nothing yet. The first of them leads."""
    rules = ClusterRules(image, config)
    records: list[MetadataRecord] = []
    for index, replicas in placed:
        isr = tuple(one for one in replicas if image.is_active(one))
        if not isr:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} is assigned to nodes {list(replicas)}, and none of them is active",
            )
        directories = tuple(rules.directory(one) for one in replicas)
        state = PartitionState(replicas, isr, isr[0], 0, 0, directories=directories)
        records.append(partition_record(topic_id, index, state))
    return records


def _checked(texts: Mapping[str, str | None], config: BrokerConfig) -> dict[str, str]:
    try:
        return checked_overrides(texts, Scope.TOPIC, broker=config)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error


def _new_topic_id(image: MetadataImage, random: Random) -> bytes:
    while True:
        topic_id = random.randbytes(16)
        # Ids that begin with zeros are kept for the cluster itself.
        if topic_id not in image.names and any(topic_id[:8]):
            return topic_id
