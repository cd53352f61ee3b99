"""Decides changes to the cluster, and writes them: topics, partitions, settings, features, producer ids, brokers.

Each decision is a pure function over the image, in a file of its subject: it refuses or makes records. Here they are
given the image as decided so far, and what they make is written; the image changes by replay alone. Nothing here awaits
between reading the image and writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from semel.config import BrokerConfig
from semel.controller.acls import create_acls, delete_acls
from semel.controller.broker_control import BrokerControl, write_in_batches
from semel.controller.cluster_rules import UNCLEAN, ClusterRules
from semel.controller.credentials import alter_credentials
from semel.controller.features import Update, update_features
from semel.controller.image import ELR_VERSION, METADATA_VERSION, TopicState
from semel.controller.leaders import elect_leaderless_uncleanly, elect_preferred
from semel.controller.levels import CONTROLLER_REGISTRATION, SCRAM_CREDENTIALS, SUPPORTED_FEATURES
from semel.controller.metadata_term import MetadataTerm
from semel.controller.settings import Alteration, alter, elr_safety
from semel.controller.topics import DEFAULT_COUNT, NewTopic, create_partitions, create_topic
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.security.access_rules import AccessRule
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from semel.wire.spec.controller_registration import ControllerRegistrationRequest
from semel.wire.spec.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
)

__all__ = ["DEFAULT_COUNT", "PRODUCER_ID_BLOCK", "Controller", "CreatedTopic", "NewTopic"]

PRODUCER_ID_BLOCK = 1000
_LAST_PRODUCER_ID = (1 << 63) - 1


@dataclass(frozen=True)
class CreatedTopic:
    name: str
    topic_id: bytes | None  # none, if it was only validated
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    committed: asyncio.Future[None] | None


class Controller:
    """The active controller in one term. `config` is replaced whenever a setting changes."""

    def __init__(
        self,
        metadata: MetadataTerm,
        config: BrokerConfig,
        random: Random,
        clock: Clock,
        cluster_id: Callable[[], str] = str,
    ) -> None:
        self.metadata = metadata
        self.config = config
        self._random = random
        self._node_id = config.layout.node_id
        self.brokers = BrokerControl(metadata, lambda: self.config, clock, cluster_id)

    # -- the beginning

    def activate(self, features: Mapping[str, int], own_epoch: int = -1, more: Sequence[MetadataRecord] = ()) -> None:
        """This node is the controller of a cluster from now on. An empty log begins with these features, and with what
        there is `more`. `own_epoch`: that of the broker of this process, if it has registered."""
        if METADATA_VERSION not in self.metadata.decided.features:
            records = [*self._first_records(features), *more]
            if features.get(ELR_VERSION):
                records += elr_safety(self.metadata.decided, self.config)
            self.metadata.write(records)
        known = self.metadata.decided.brokers.get(self._node_id)
        is_earlier = known is not None and known.broker_epoch != own_epoch
        self.brokers.activate(self._node_id if is_earlier else None)

    def _first_records(self, features: Mapping[str, int]) -> list[MetadataRecord]:
        names = sorted(features, key=lambda name: (name != METADATA_VERSION, name))
        return [FeatureLevelRecord(name=name, feature_level=features[name]) for name in names]

    def start_broker(
        self,
        end_points: Sequence[BrokerEndpoint],
        rack: str | None,
        features: Mapping[str, int],
        log_dirs: Sequence[bytes] = (),
    ) -> asyncio.Future[None]:
        """A start of a node alone: a new registration, and with it a new leader epoch for everything it leads, so that
        nobody takes an answer from before the start for one after it. Nobody has to see that it lives, so it is not
        fenced. An empty log begins with these features."""
        image = self.metadata.decided
        records = [] if METADATA_VERSION in image.features else self._first_records(features)
        records.append(
            RegisterBrokerRecord(
                broker_id=self._node_id,
                incarnation_id=self._random.randbytes(16),
                broker_epoch=self.metadata.next_offset,
                end_points=list(end_points),
                features=[
                    BrokerFeature(name=name, min_supported_version=known.least, max_supported_version=known.most)
                    for name, known in SUPPORTED_FEATURES.items()
                ],
                rack=rack,
                fenced=False,
                log_dirs=list(log_dirs),
            )
        )
        for topic, index, state in image.partitions():
            if state.leader == self._node_id:
                records.append(PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=self._node_id))
        # What was one node of a cluster may have left partitions that nobody leads.
        records += ClusterRules(image, self.config, with_broker=self._node_id).leaderless()
        return self.metadata.write(records)

    # -- producer ids

    def allocate_producer_ids(
        self, node_id: int | None = None, broker_epoch: int = -1
    ) -> tuple[range, asyncio.Future[None]]:
        """A block of producer ids that nobody has had or will have, for a broker or for this node itself. It may be
        used once the future is done."""
        first = self.metadata.decided.producer_ids.next_producer_id
        if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK:
            raise Refused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"all producer ids up to {first - 1} are used up: this cluster cannot give out any more, ever",
            )
        block = range(first, first + PRODUCER_ID_BLOCK)
        record = ProducerIdsRecord(
            broker_id=self._node_id if node_id is None else node_id,
            broker_epoch=broker_epoch,
            next_producer_id=block.stop,
        )
        return block, self.metadata.write([record])

    # -- topics

    def create_topic(self, wanted: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        made = create_topic(self.metadata.decided, self.config, self._random, wanted, validate_only=validate_only)
        committed = None if validate_only else self.metadata.write(made.records)
        topic_id = None if validate_only else made.topic_id
        return CreatedTopic(wanted.name, topic_id, made.partitions, made.replication_factor, made.configs, committed)

    def delete_topic(self, topic: TopicState) -> asyncio.Future[None]:
        if not self.config.bool("delete.topic.enable"):
            raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        return self.metadata.write([RemoveTopicRecord(topic_id=topic.topic_id)])

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> asyncio.Future[None] | None:
        records = create_partitions(self.metadata.decided, self.config, self._random, name, count, assignments)
        return None if validate_only else self.metadata.write(records)

    # -- settings and features

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
        alteration = Alteration(resource_type, resource_name, operations, replaces, check)
        records = alter(self.metadata.decided, self.config, alteration)
        if validate_only or not records:
            return None
        committed = self.metadata.write(records)
        if any(isinstance(one, ConfigRecord) and one.name == UNCLEAN for one in records):
            self.elect_uncleanly()
        return committed

    def update_features(self, updates: Sequence[Update], *, validate_only: bool) -> None:
        records = update_features(self.metadata.decided, self.config, updates, self._node_id)
        if records and not validate_only:
            self.metadata.write(records)

    # -- access rules

    def create_acls(self, wanted: Sequence[AccessRule]) -> list[Refused | None]:
        records, results = create_acls(self.metadata.decided, wanted, lambda: self._random.randbytes(16))
        self.write(records)
        return results

    def delete_acls(self, filters: Sequence[AccessRule]) -> list[list[AccessRule] | Refused]:
        records, results = delete_acls(self.metadata.decided, filters)
        self.write(records)
        return results

    # -- credentials

    def alter_credentials(self, request: AlterUserScramCredentialsRequest) -> dict[str, Refused | None]:
        """For each user why nothing was changed, if so."""
        level = self.metadata.decided.metadata_version
        if level < SCRAM_CREDENTIALS and not self.config.layout.is_alone:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"credentials are kept from metadata.version {SCRAM_CREDENTIALS} on, and this is {level}",
            )
        records, results = alter_credentials(self.metadata.decided, request)
        self.write(records)
        return results

    # -- other controllers

    def register_controller(self, request: ControllerRegistrationRequest) -> None:
        level = self.metadata.decided.metadata_version
        if level < CONTROLLER_REGISTRATION:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"controllers register from metadata.version {CONTROLLER_REGISTRATION} on, and this is {level}",
            )
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            end_points=[
                BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=one.name,
                    min_supported_version=one.min_supported_version,
                    max_supported_version=one.max_supported_version,
                )
                for one in request.features
            ],
        )
        self.metadata.write([record])

    # -- leaders

    def rules(self) -> ClusterRules:
        """For decisions on the image as it is now."""
        return ClusterRules(self.metadata.decided, self.config)

    def balance_leaders(self) -> bool:
        """Gives partitions back to the first of their replicas, many at a time. Returns whether there may be more."""
        return self._elect(elect_preferred)

    def elect_uncleanly(self) -> bool:
        """Finds leaders for partitions without one where their topics allow loss. Returns whether there may be more."""
        return self._elect(elect_leaderless_uncleanly)

    def _elect(self, decide: Callable[[ClusterRules], tuple[list[MetadataRecord], bool]]) -> bool:
        records, is_cut = decide(self.rules())
        self.write(records)
        return is_cut

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Records that need not count together."""
        write_in_batches(self.metadata, records)
