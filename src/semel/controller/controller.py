"""Decides changes to the cluster: topics, partitions, settings, features, producer ids, the start of a broker.

Each decision reads the image, refuses or makes records, and writes them; the image changes by replay alone. Nothing
here awaits between reading the image and writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from semel.config import BrokerConfig, ConfigError, Operation, Scope, altered, checked_overrides
from semel.controller.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, TopicState
from semel.controller.metadata_log import TOPIC as METADATA_TOPIC
from semel.controller.metadata_log import MetadataLog
from semel.controller.topic_names import wrong_with_name
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

PRODUCER_ID_BLOCK = 1000
_LAST_PRODUCER_ID = (1 << 63) - 1
_MOST_PARTITIONS = 100_000
DEFAULT_COUNT = -1


@dataclass(frozen=True)
class NewTopic:
    """A topic as somebody asks for it. -1 stands for the node's default."""

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class CreatedTopic:
    name: str
    topic_id: bytes | None  # none, if it was only validated
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    committed: asyncio.Future[None] | None


class Controller:
    """The one controller of a cluster of one."""

    def __init__(self, metadata: MetadataLog, config: BrokerConfig, random: Random) -> None:
        self.metadata = metadata
        self.config = config
        self._random = random
        self._node_id = config.int("node.id")

    # -- the broker itself

    def start_broker(
        self, end_points: Sequence[BrokerEndpoint], rack: str | None, features: Mapping[str, int]
    ) -> asyncio.Future[None]:
        """A start of the node: a new registration, and with it a new leader epoch for everything it leads, so that
        nobody takes an answer from before the start for one after it."""
        image = self.metadata.decided
        records: list[MetadataRecord] = [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in features.items()
            if image.features.get(name, 0) != level
        ]
        records.append(
            RegisterBrokerRecord(
                broker_id=self._node_id,
                incarnation_id=self._random.randbytes(16),
                broker_epoch=self.metadata.next_offset,
                end_points=list(end_points),
                rack=rack,
                fenced=False,
            )
        )
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                if state.leader == self._node_id:
                    records.append(
                        PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=self._node_id)
                    )
        return self.metadata.write(records)

    def allocate_producer_ids(self) -> tuple[range, asyncio.Future[None]]:
        """A block of producer ids that nobody has had or will have. It may be used once the future is done."""
        first = self.metadata.decided.producer_ids.next_producer_id
        if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK:
            raise Refused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"all producer ids up to {first - 1} are used up: this cluster cannot give out any more, ever",
            )
        block = range(first, first + PRODUCER_ID_BLOCK)
        record = ProducerIdsRecord(broker_id=self._node_id, next_producer_id=block.stop)
        return block, self.metadata.write([record])

    # -- topics

    def create_topic(self, wanted: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        image = self.metadata.decided
        if wanted.name == METADATA_TOPIC:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} belongs to the cluster itself")
        if wanted.name in image.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {wanted.name!r} exists already")
        wrong = wrong_with_name(wanted.name, image.topics)
        if wrong is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
        partitions, replication_factor = self._counts(wanted)
        configs = self._checked(wanted.configs)
        topic_id = None
        committed = None
        if not validate_only:
            topic_id = self._new_topic_id()
            records: list[MetadataRecord] = [TopicRecord(name=wanted.name, topic_id=topic_id)]
            records += self._partition_records(topic_id, range(partitions))
            records += [
                ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=wanted.name, name=name, value=value)
                for name, value in configs.items()
            ]
            committed = self.metadata.write(records)
        return CreatedTopic(wanted.name, topic_id, partitions, replication_factor, configs, committed)

    def _counts(self, wanted: NewTopic) -> tuple[int, int]:
        if wanted.assignments:
            if wanted.partitions != DEFAULT_COUNT or wanted.replication_factor != DEFAULT_COUNT:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "with an assignment, partition count and replication factor must be -1"
                )
            return self._check_assignments(list(range(len(wanted.assignments))), wanted.assignments)
        partitions = wanted.partitions
        if partitions == DEFAULT_COUNT:
            partitions = self.config.int("num.partitions")
        replication_factor = wanted.replication_factor
        if replication_factor == DEFAULT_COUNT:
            replication_factor = self.config.int("default.replication.factor")
        if not 1 <= partitions <= _MOST_PARTITIONS:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS, f"a topic has 1 to {_MOST_PARTITIONS} partitions, not {partitions}"
            )
        if replication_factor < 1 or replication_factor > len(self.metadata.decided.brokers):
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor}: this cluster has {len(self.metadata.decided.brokers)} node",
            )
        return partitions, replication_factor

    def _check_assignments(self, expected: list[int], assignments: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        if sorted(assignments) != expected:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(assignments)} partitions are assigned, {len(expected)} are to be: "
                f"{expected[0]} to {expected[-1]}, each once",
            )
        for index, replicas in assignments.items():
            if list(replicas) != [self._node_id]:
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"partition {index} is assigned to nodes {list(replicas)}, this cluster has only {self._node_id}",
                )
        return len(expected), 1

    def _partition_records(self, topic_id: bytes, indexes: range) -> list[MetadataRecord]:
        return [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[self._node_id],
                isr=[self._node_id],
                leader=self._node_id,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in indexes
        ]

    def _new_topic_id(self) -> bytes:
        while True:
            topic_id = self._random.randbytes(16)
            # Ids that begin with zeros are kept for the cluster itself.
            if topic_id not in self.metadata.decided.names and any(topic_id[:8]):
                return topic_id

    def delete_topic(self, topic: TopicState) -> asyncio.Future[None]:
        if not self.config.bool("delete.topic.enable"):
            raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        return self.metadata.write([RemoveTopicRecord(topic_id=topic.topic_id)])

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> asyncio.Future[None] | None:
        topic = self.metadata.decided.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        present = len(topic.partitions)
        if not present < count <= _MOST_PARTITIONS:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {present} partitions: more can be added, up to {_MOST_PARTITIONS}, not {count}",
            )
        added = range(present, count)
        if assignments is not None:
            self._check_assignments(list(added), dict(zip(added, assignments, strict=False)))
            if len(assignments) != len(added):
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(added)} partitions are added, but {len(assignments)} are assigned",
                )
        if validate_only:
            return None
        return self.metadata.write(self._partition_records(topic.topic_id, added))

    # -- settings

    def _checked(self, texts: Mapping[str, str | None]) -> dict[str, str]:
        try:
            return checked_overrides(texts, Scope.TOPIC, broker=self.config)
        except ConfigError as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error

    def alter_config(
        self,
        resource_type: int,
        resource_name: str,
        operations: Sequence[tuple[int, str, str | None]],
        *,
        replaces: bool = False,
        validate_only: bool = False,
        check: Callable[[Mapping[str, str]], None] | None = None,
    ) -> asyncio.Future[None] | None:
        """Changes settings one by one; with `replaces`, those that are not named go back to their defaults. None when
        there is nothing to write. `check` may refuse what the resource would be set to."""
        scope = self._scope(resource_type, resource_name)
        _check_operations(operations)
        before = self.metadata.decided.config(resource_type, resource_name)
        after = {} if replaces else dict(before)
        try:
            for code, name, value in operations:
                after = altered(after, Operation(code), name, value, scope, broker=self.config)
            checked = checked_overrides(after, scope, broker=self.config)
            if scope is Scope.BROKER:
                self._check_layers(resource_name, checked)
        except ConfigError as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
        if check is not None:
            check(checked)
        records: list[MetadataRecord] = [
            ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=checked.get(name))
            for name in sorted({*before, *checked})
            if before.get(name) != checked.get(name)
        ]
        return None if validate_only or not records else self.metadata.write(records)

    def _check_layers(self, resource_name: str, checked: Mapping[str, str]) -> None:
        """The settings of the cluster and of the node, laid over each other, must be right as well: a change that is
        taken back can uncover a value of the other layer that does not fit any more."""
        image = self.metadata.decided
        layers = {name: image.config(BROKER_RESOURCE, name) for name in ("", str(self._node_id))}
        layers[resource_name] = dict(checked)
        self.config.with_overrides(cluster=layers[""], node=layers[str(self._node_id)])

    def _scope(self, resource_type: int, resource_name: str) -> Scope:
        if resource_type == TOPIC_RESOURCE:
            if resource_name not in self.metadata.decided.topics:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource_name!r}")
            return Scope.TOPIC
        if resource_type == BROKER_RESOURCE:
            if resource_name not in ("", str(self._node_id)):
                raise Refused(
                    ErrorCode.INVALID_REQUEST, f"settings of node {self._node_id} are kept here, not of {resource_name}"
                )
            return Scope.BROKER
        if resource_type == GROUP_RESOURCE:
            if not resource_name:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, "a group has a name: there are no settings for all groups here"
                )
            return Scope.GROUP
        raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")


def _check_operations(operations: Sequence[tuple[int, str, str | None]]) -> None:
    """What is wrong with a request before any setting is looked at."""
    names = [name for _, name, _ in operations]
    if len(set(names)) < len(names):
        raise Refused(ErrorCode.INVALID_REQUEST, "a setting is named more than once")
    for code, name, value in operations:
        if code not in list(Operation):
            raise Refused(ErrorCode.INVALID_REQUEST, f"operation {code} on {name} is none of 0 to 3")
        if value is None and code != Operation.DELETE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"there is no value for {name}")
