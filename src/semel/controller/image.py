"""What the metadata log says: topics, partitions, settings, features, brokers, producer ids.

`replay` is the only thing that changes an image, so a restart, a snapshot and a node that follows all come to the same
one. `records` gives the shortest list of records that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from semel.wire.spec.metadata_records import (
    NO_LEADER_CHANGE,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

# Kafka's codes for what a setting belongs to.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LOGGER_RESOURCE = 8
METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


@dataclass(frozen=True)
class PartitionState:
    """Where a partition lives and who leads it. The leader epoch grows whenever the leader is named anew."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


@dataclass
class TopicState:
    name: str
    topic_id: bytes
    partitions: dict[int, PartitionState] = field(default_factory=dict)


@dataclass
class MetadataImage:
    """The state of the cluster at one offset of the metadata log."""

    topics: dict[str, TopicState] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    brokers: dict[int, RegisterBrokerRecord] = field(default_factory=dict)
    producer_ids: ProducerIdsRecord = field(default_factory=ProducerIdsRecord)

    def replay(self, record: MetadataRecord) -> None:
        change = _REPLAY.get(type(record))
        if change is None:
            raise ValueError(f"the image does not know what {type(record).__name__} changes")
        change(self, record)

    def topic_by_id(self, topic_id: bytes) -> TopicState | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        return self.configs.get((resource_type, name), {})

    def group_settings(self, group_id: str) -> dict[str, str]:
        """What was set for this group alone."""
        return self.config(GROUP_RESOURCE, group_id)

    def records(self) -> Iterator[MetadataRecord]:
        """What a snapshot holds."""
        for name, level in self.features.items():
            yield FeatureLevelRecord(name=name, feature_level=level)
        yield from self.brokers.values()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, state in topic.partitions.items():
                yield PartitionRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    replicas=state.replicas,
                    isr=state.isr,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    partition_epoch=state.partition_epoch,
                )
        for (resource_type, resource_name), settings in self.configs.items():
            for name, value in settings.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        yield self.producer_ids

    # -- what each record changes

    def _topic(self, record: TopicRecord) -> None:
        self.topics[record.name] = TopicState(record.name, record.topic_id)
        self.names[record.topic_id] = record.name

    def _partition(self, record: PartitionRecord) -> None:
        self.topics[self.names[record.topic_id]].partitions[record.partition_id] = PartitionState(
            tuple(record.replicas), tuple(record.isr), record.leader, record.leader_epoch, record.partition_epoch
        )

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self.topics[self.names[record.topic_id]].partitions
        state = partitions[record.partition_id]
        if record.leader != NO_LEADER_CHANGE:
            state = replace(state, leader=record.leader, leader_epoch=state.leader_epoch + 1)
        if record.isr is not None:
            state = replace(state, isr=tuple(record.isr))
        if record.replicas is not None:
            state = replace(state, replicas=tuple(record.replicas))
        partitions[record.partition_id] = replace(state, partition_epoch=state.partition_epoch + 1)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self.names.pop(record.topic_id)
        del self.topics[name]
        self.configs.pop((TOPIC_RESOURCE, name), None)

    def _config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        settings = self.configs.setdefault(key, {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if not settings:
            del self.configs[key]

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = record

    def _registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        if record.fenced:
            broker.fenced = record.fenced > 0

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.producer_ids = record

    def _nothing(self, record: NoOpRecord) -> None:
        """It only moves the log on."""


_REPLAY: dict[type[MetadataRecord], Callable[[MetadataImage, MetadataRecord], None]] = {
    TopicRecord: MetadataImage._topic,  # type: ignore[dict-item]
    PartitionRecord: MetadataImage._partition,  # type: ignore[dict-item]
    PartitionChangeRecord: MetadataImage._partition_change,  # type: ignore[dict-item]
    RemoveTopicRecord: MetadataImage._remove_topic,  # type: ignore[dict-item]
    ConfigRecord: MetadataImage._config,  # type: ignore[dict-item]
    FeatureLevelRecord: MetadataImage._feature,  # type: ignore[dict-item]
    RegisterBrokerRecord: MetadataImage._register,  # type: ignore[dict-item]
    BrokerRegistrationChangeRecord: MetadataImage._registration_change,  # type: ignore[dict-item]
    UnregisterBrokerRecord: MetadataImage._unregister,  # type: ignore[dict-item]
    ProducerIdsRecord: MetadataImage._producer_ids,  # type: ignore[dict-item]
    NoOpRecord: MetadataImage._nothing,  # type: ignore[dict-item]
}
