"""A cluster as an image alone, for decisions that are pure functions over it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from semel.config import BrokerConfig
from semel.controller.cluster_rules import ClusterRules
from semel.controller.image import TOPIC_RESOURCE, MetadataImage, PartitionState, TopicState, partition_record
from semel.controller.levels import SUPPORTED_FEATURES, versioned
from semel.wire.spec.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

CLUSTER_SETTINGS = {
    "node.id": "9",
    "process.roles": "controller",
    "listeners": "CONTROLLER://n9:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "9@n9:9093",
}
ELR_LEVEL, OLD_LEVEL = 27, 7
TOPIC_ID = b"\x05" * 16
FEATURES = [
    BrokerFeature(name=name, min_supported_version=known.least, max_supported_version=known.most)
    for name, known in SUPPORTED_FEATURES.items()
]


def cluster_config(**settings: str) -> BrokerConfig:
    return BrokerConfig(CLUSTER_SETTINGS | {name.replace("_", "."): value for name, value in settings.items()})


def directory(node_id: int) -> bytes:
    return bytes([node_id]) * 16


class Cluster:
    """Brokers with epochs of 100 times their ids, unfenced; one topic `t` for its partitions."""

    def __init__(
        self, *, level: int = ELR_LEVEL, elr: bool = True, brokers: Iterable[int] = (1, 2, 3), **settings: str
    ) -> None:
        self.image = MetadataImage()
        self.config = cluster_config(**settings)
        self.apply(FeatureLevelRecord(name="metadata.version", feature_level=level))
        if elr:
            self.apply(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        for node_id in brokers:
            self.register(node_id)
        self.apply(TopicRecord(name="t", topic_id=TOPIC_ID))

    def apply(self, *records: MetadataRecord) -> None:
        """As the log gives them back."""
        for record, version in list(versioned(records, self.image.metadata_version)):
            self.image.replay(decode_metadata_record(encode_metadata_record(record, version)))

    def register(
        self, node_id: int, *, epoch: int | None = None, rack: str | None = None, fenced: bool = False
    ) -> None:
        self.apply(
            RegisterBrokerRecord(
                broker_id=node_id,
                broker_epoch=node_id * 100 if epoch is None else epoch,
                incarnation_id=directory(node_id),
                end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"n{node_id}", port=9092)],
                features=FEATURES,
                rack=rack,
                fenced=fenced,
                log_dirs=[directory(node_id)],
            )
        )

    def change(self, node_id: int, **changes: Any) -> None:
        epoch = self.image.brokers[node_id].broker_epoch
        self.apply(BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=epoch, **changes))

    def fence(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.change(node_id, fenced=1)

    def partition(
        self,
        replicas: Sequence[int] = (1, 2, 3),
        isr: Sequence[int] | None = None,
        leader: int | None = None,
        index: int = 0,
        **more: Any,
    ) -> PartitionState:
        """A partition of `t`, at leader epoch 5 and partition epoch 7."""
        isr = replicas if isr is None else isr
        if leader is None:
            leader = isr[0] if isr else -1
        directories = tuple(directory(one) for one in replicas) if self.image.metadata_version >= 17 else ()
        state = PartitionState(tuple(replicas), tuple(isr), leader, 5, 7, **({"directories": directories} | more))
        self.apply(partition_record(TOPIC_ID, index, state))
        return self.state(index)

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            self.apply(
                ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name=name.replace("_", "."), value=value)
            )

    @property
    def topic(self) -> TopicState:
        return self.image.topics["t"]

    def state(self, index: int = 0) -> PartitionState:
        return self.topic.partitions[index]

    def rules(self, **more: Any) -> ClusterRules:
        return ClusterRules(self.image, self.config, **more)

    def after(self, records: Iterable[MetadataRecord], index: int = 0) -> PartitionState:
        """The partition once these records are applied."""
        self.apply(*records)
        return self.state(index)


def changes(records: Iterable[MetadataRecord]) -> list[str]:
    """What kinds of records these are, in order."""
    return [type(record).__name__.removesuffix("Record") for record in records]


def partition_changes(records: Iterable[MetadataRecord]) -> list[PartitionChangeRecord]:
    return [record for record in records if isinstance(record, PartitionChangeRecord)]
