"""What the cluster and its settings say about one partition: the rules by which `partition_changes` decides.

Made for one decision and thrown away with it: settings of topics are looked at once for each topic. While a decision
changes the state of brokers itself, it says so by `without` and `with_broker`, as the image shows them only afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from semel.config import BrokerConfig, topic_config
from semel.controller.elections import Election
from semel.controller.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    TOPIC_RESOURCE,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionState,
    TopicState,
)
from semel.controller.partition_changes import PartitionRules, Wanted, changed
from semel.wire.spec.metadata_records import MetadataRecord, PartitionChangeRecord, RegisterBrokerRecord

_MIN_INSYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


class TopicRules(NamedTuple):
    min_insync_replicas: int
    is_unclean_allowed: bool


def is_online(broker: RegisterBrokerRecord, directory: bytes) -> bool:
    """Whether a broker can serve a replica in this directory. One that registered before there were directories is
    believed to have them all: it would have ended otherwise (KAFKA-16162)."""
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY) or not broker.log_dirs:
        return directory != LOST_DIRECTORY
    return directory in broker.log_dirs


class ClusterRules:
    """`without` are brokers that count as not active, `with_broker` one that counts as unfenced."""

    def __init__(
        self,
        image: MetadataImage,
        config: BrokerConfig,
        *,
        without: Collection[int] = (),
        with_broker: int | None = None,
    ) -> None:
        self.image = image
        self._config = config
        self._without = without
        self._with_broker = with_broker
        self._topics: dict[str, TopicRules] = {}
        self._partition_rules: dict[int, PartitionRules] = {}

    def is_active(self, node_id: int) -> bool:
        if node_id in self._without:
            return False
        if node_id == self._with_broker:
            return not self.image.brokers[node_id].in_controlled_shutdown
        return self.image.is_active(node_id)

    def _is_acceptable(self, node_id: int, directory: bytes) -> bool:
        return self.is_active(node_id) and is_online(self.image.brokers[node_id], directory)

    def directory(self, node_id: int) -> bytes:
        """Where a new replica of this broker is: its only directory, or one that it has yet to choose."""
        broker = self.image.brokers.get(node_id)
        if broker is None or not broker.log_dirs:
            return MIGRATING_DIRECTORY
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY

    def topic(self, name: str) -> TopicRules:
        known = self._topics.get(name)
        if known is None:
            overrides = self.image.config(TOPIC_RESOURCE, name)
            own = {setting: overrides[setting] for setting in (_MIN_INSYNC, UNCLEAN) if setting in overrides}
            if own:
                values = topic_config(own, self._config)
                known = TopicRules(values.min_insync_replicas, values.unclean_leader_election_enable)
            else:
                known = TopicRules(self._config.int(_MIN_INSYNC), self._config.bool(UNCLEAN))
            self._topics[name] = known
        return known

    def election(self, topic: str) -> Election:
        """By which a leader is found when nobody asks for another."""
        return Election.UNCLEAN if self.topic(topic).is_unclean_allowed else Election.CLEAN

    def partition(self, topic: str) -> PartitionRules:
        least = self.topic(topic).min_insync_replicas
        known = self._partition_rules.get(least)
        if known is None:
            known = self._partition_rules[least] = PartitionRules(
                self._is_acceptable, self.directory, self.image.metadata_version, self.image.has_elr, least
            )
        return known

    def changed(
        self, topic: TopicState, index: int, state: PartitionState, wanted: Wanted
    ) -> PartitionChangeRecord | None:
        return changed(topic.topic_id, index, state, wanted, self.partition(topic.name))

    def without_brokers(
        self, gone: Collection[int], *, unclean: Collection[int] = (), elr: bool = False
    ) -> Iterator[MetadataRecord]:
        """What changes when brokers leave the ISRs that they are in, and with `elr` the ELRs, too."""
        leaving = {*gone, *unclean}
        for topic, index, state in self.image.partitions():
            if not leaving.isdisjoint(state.isr) or (elr and not leaving.isdisjoint(state.elr)):
                wanted = Wanted(
                    self.election(topic.name),
                    isr=tuple(one for one in state.isr if one not in leaving),
                    unclean=unclean,
                )
                record = self.changed(topic, index, state, wanted)
                if record is not None:
                    yield record

    def leaderless(self) -> Iterator[MetadataRecord]:
        """What changes for partitions without a leader that can have one now."""
        for topic, index, state in self.image.partitions():
            if state.leader < 0:
                record = self.changed(topic, index, state, Wanted(self.election(topic.name)))
                if record is not None:
                    yield record
