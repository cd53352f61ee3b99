"""What the metadata log says: topics, partitions, settings, features, brokers, controllers, producer ids.

`replay` is the only thing that changes an image, so a restart, a snapshot and a node that follows all come to the same
one. `records` gives the shortest list of records that makes it, in the order of Kafka's snapshots. Records that this
program does not act on (credentials, access rules, quotas, tokens) are kept, so that a snapshot has them.

States of partitions and registrations of brokers are never changed in place: whoever holds one keeps what it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from semel.wire.schema import NO_UUID
from semel.wire.spec.metadata_records import (
    NO_LEADER_CHANGE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

# Kafka's codes for what a setting belongs to.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LOGGER_RESOURCE = 8
METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"
# The level of Kafka 3.3, at which a log without a level is read.
LEAST_METADATA_VERSION = 7

# Directories of replicas (KIP-858): not known yet, none chosen yet, gone.
MIGRATING_DIRECTORY = NO_UUID
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
LOST_DIRECTORY = bytes(15) + b"\x02"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Where a partition lives and who leads it.

    The leader epoch grows whenever the leader is named anew, the partition epoch with every change. `elr` are replicas
    out of the ISR that hold all that is committed, `last_known_elr` those that were among them (KIP-966). `directories`
    are those of the replicas, in their order; empty when they were never told.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    is_recovering: bool = False

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory_of(self, node_id: int) -> bytes:
        """The directory of one of the replicas."""
        return self.directories[self.replicas.index(node_id)] if self.directories else MIGRATING_DIRECTORY


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
    controllers: dict[int, RegisterControllerRecord] = field(default_factory=dict)
    producer_ids: ProducerIdsRecord = field(default_factory=ProducerIdsRecord)
    # Kept for snapshots.
    quotas: dict[tuple[frozenset[tuple[str, str | None]], str], ClientQuotaRecord] = field(default_factory=dict)
    acls: dict[bytes, AccessControlEntryRecord] = field(default_factory=dict)
    credentials: dict[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict)

    def replay(self, record: MetadataRecord) -> None:
        """Metadata transactions are held back by who reads the log: see metadata_transactions.py."""
        change = _REPLAY.get(type(record))
        if change is None:
            raise ValueError(f"the image does not know what {type(record).__name__} changes")
        change(self, record)

    def fill_from(self, other: MetadataImage) -> Iterator[None]:
        """Makes an empty image the same as another one while it is walked through; that must not change meanwhile."""
        for topic in other.topics.values():
            self.topics[topic.name] = TopicState(topic.name, topic.topic_id, dict(topic.partitions))
            yield
        for resource, settings in other.configs.items():
            self.configs[resource] = dict(settings)
            yield
        self.names, self.features = dict(other.names), dict(other.features)
        self.brokers, self.controllers = dict(other.brokers), dict(other.controllers)
        self.producer_ids = other.producer_ids
        self.quotas, self.acls = dict(other.quotas), dict(other.acls)
        self.credentials, self.tokens = dict(other.credentials), dict(other.tokens)

    def topic_by_id(self, topic_id: bytes) -> TopicState | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_id: bytes, index: int) -> PartitionState | None:
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partitions(self) -> Iterator[tuple[TopicState, int, PartitionState]]:
        """All partitions of all topics. The image must not change meanwhile."""
        for topic in self.topics.values():
            for index, state in topic.partitions.items():
                yield topic, index, state

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        return self.configs.get((resource_type, name), {})

    def group_settings(self, group_id: str) -> dict[str, str]:
        """What was set for this group alone."""
        return self.config(GROUP_RESOURCE, group_id)

    @property
    def metadata_version(self) -> int:
        """The finalized level, by which records are written and brokers speak to each other."""
        return self.features.get(METADATA_VERSION, LEAST_METADATA_VERSION)

    @property
    def has_elr(self) -> bool:
        """Whether eligible leader replicas are kept."""
        return self.features.get(ELR_VERSION, 0) > 0

    def is_active(self, node_id: int) -> bool:
        """Whether this broker may lead, join an ISR and get new replicas."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def records(self) -> Iterator[MetadataRecord]:
        """What a snapshot holds. The level comes first: it says in which versions the others are written."""
        for name in sorted(self.features, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, state in topic.partitions.items():
                yield partition_record(topic.topic_id, index, state)
        for (resource_type, resource_name), settings in self.configs.items():
            for name, value in settings.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        yield from self.quotas.values()
        if self.producer_ids.next_producer_id > 0:  # Kafka's controllers die of a record that gives no block
            yield self.producer_ids
        yield from self.acls.values()
        yield from self.credentials.values()
        yield from self.tokens.values()

    # -- what each record changes

    def _topic(self, record: TopicRecord) -> None:
        self.topics[record.name] = TopicState(record.name, record.topic_id)
        self.names[record.topic_id] = record.name

    def _partition(self, record: PartitionRecord) -> None:
        self.topics[self.names[record.topic_id]].partitions[record.partition_id] = PartitionState(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing=tuple(record.removing_replicas),
            adding=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            directories=_known(record.directories),
            is_recovering=record.leader_recovery_state > 0,
        )

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self.topics[self.names[record.topic_id]].partitions
        partitions[record.partition_id] = merged(partitions[record.partition_id], record)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self.names.pop(record.topic_id)
        del self.topics[name]
        self.configs.pop((TOPIC_RESOURCE, name), None)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        """Partitions that have none stay as they are, their epochs as well."""
        if record.topic_name and record.topic_name not in self.topics:
            return
        for topic in [self.topics[record.topic_name]] if record.topic_name else self.topics.values():
            for index, state in topic.partitions.items():
                if state.elr or state.last_known_elr:
                    epoch = state.partition_epoch + 1
                    topic.partitions[index] = replace(state, elr=(), last_known_elr=(), partition_epoch=epoch)

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
        def change(broker: RegisterBrokerRecord) -> None:
            if record.fenced:
                broker.fenced = record.fenced > 0
            if record.in_controlled_shutdown:
                broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
            if record.log_dirs:
                broker.log_dirs = record.log_dirs
            if record.cordoned_log_dirs is not None:
                broker.cordoned_log_dirs = record.cordoned_log_dirs

        self._change_broker(record.broker_id, record.broker_epoch, change)

    def _fence(self, record: FenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, lambda broker: setattr(broker, "fenced", True))

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, lambda broker: setattr(broker, "fenced", False))

    def _change_broker(self, node_id: int, epoch: int, change: Callable[[RegisterBrokerRecord], None]) -> None:
        """What belongs to a registration that is over changes nothing."""
        broker = self.brokers.get(node_id)
        if broker is not None and broker.broker_epoch == epoch:
            changed = copy.copy(broker)
            change(changed)
            self.brokers[node_id] = changed

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self.controllers.pop(record.controller_id, None)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.producer_ids = record

    def _quota(self, record: ClientQuotaRecord) -> None:
        key = frozenset((one.entity_type, one.entity_name) for one in record.entity), record.key
        if record.remove:
            self.quotas.pop(key, None)
        else:
            self.quotas[key] = record

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self.acls[record.id] = record

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)

    def _credential(self, record: UserScramCredentialRecord) -> None:
        self.credentials[record.name, record.mechanism] = record

    def _remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self.credentials.pop((record.name, record.mechanism), None)

    def _token(self, record: DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)

    def _nothing(self, record: MetadataRecord) -> None:
        """It only moves the log on."""


def partition_record(topic_id: bytes, index: int, state: PartitionState) -> PartitionRecord:
    """A partition with all of its state. Where directories were never told, they are said to be unknown: Kafka wants
    one for each replica."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=state.replicas,
        isr=state.isr,
        removing_replicas=state.removing,
        adding_replicas=state.adding,
        leader=state.leader,
        leader_recovery_state=int(state.is_recovering),
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=state.directories or [MIGRATING_DIRECTORY] * len(state.replicas),
        eligible_leader_replicas=state.elr or None,
        last_known_elr=state.last_known_elr or None,
    )


def merged(state: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """The state after a change. What is null in it stays; a leader that is named, even the same, begins an epoch."""
    is_named = record.leader != NO_LEADER_CHANGE
    return PartitionState(
        replicas=state.replicas if record.replicas is None else tuple(record.replicas),
        isr=state.isr if record.isr is None else tuple(record.isr),
        leader=record.leader if is_named else state.leader,
        leader_epoch=state.leader_epoch + is_named,
        partition_epoch=state.partition_epoch + 1,
        removing=state.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        adding=state.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        elr=state.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
        last_known_elr=state.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
        directories=state.directories if record.directories is None else _known(record.directories),
        is_recovering=state.is_recovering if record.leader_recovery_state < 0 else record.leader_recovery_state > 0,
    )


def _known(directories: list[bytes] | tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Directories as a state has them: none at all, if not one of them is known."""
    return tuple(directories) if any(one != MIGRATING_DIRECTORY for one in directories) else ()


_REPLAY: dict[type[MetadataRecord], Callable[[MetadataImage, MetadataRecord], None]] = {
    TopicRecord: MetadataImage._topic,  # type: ignore[dict-item]
    PartitionRecord: MetadataImage._partition,  # type: ignore[dict-item]
    PartitionChangeRecord: MetadataImage._partition_change,  # type: ignore[dict-item]
    RemoveTopicRecord: MetadataImage._remove_topic,  # type: ignore[dict-item]
    ClearElrRecord: MetadataImage._clear_elr,  # type: ignore[dict-item]
    ConfigRecord: MetadataImage._config,  # type: ignore[dict-item]
    FeatureLevelRecord: MetadataImage._feature,  # type: ignore[dict-item]
    RegisterBrokerRecord: MetadataImage._register,  # type: ignore[dict-item]
    BrokerRegistrationChangeRecord: MetadataImage._registration_change,  # type: ignore[dict-item]
    FenceBrokerRecord: MetadataImage._fence,  # type: ignore[dict-item]
    UnfenceBrokerRecord: MetadataImage._unfence,  # type: ignore[dict-item]
    UnregisterBrokerRecord: MetadataImage._unregister,  # type: ignore[dict-item]
    RegisterControllerRecord: MetadataImage._register_controller,  # type: ignore[dict-item]
    UnregisterControllerRecord: MetadataImage._unregister_controller,  # type: ignore[dict-item]
    ProducerIdsRecord: MetadataImage._producer_ids,  # type: ignore[dict-item]
    ClientQuotaRecord: MetadataImage._quota,  # type: ignore[dict-item]
    AccessControlEntryRecord: MetadataImage._acl,  # type: ignore[dict-item]
    RemoveAccessControlEntryRecord: MetadataImage._remove_acl,  # type: ignore[dict-item]
    UserScramCredentialRecord: MetadataImage._credential,  # type: ignore[dict-item]
    RemoveUserScramCredentialRecord: MetadataImage._remove_credential,  # type: ignore[dict-item]
    DelegationTokenRecord: MetadataImage._token,  # type: ignore[dict-item]
    RemoveDelegationTokenRecord: MetadataImage._remove_token,  # type: ignore[dict-item]
    NoOpRecord: MetadataImage._nothing,
    ZkMigrationStateRecord: MetadataImage._nothing,
    BeginTransactionRecord: MetadataImage._nothing,
    EndTransactionRecord: MetadataImage._nothing,
    AbortTransactionRecord: MetadataImage._nothing,
}
