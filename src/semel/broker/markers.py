"""Writes markers into partitions that this node leads, or into the shard of groups that owns the partition.

It is also what a leader does with markers that come over the wire. A coordinator epoch is a leader epoch of a partition
of `__transaction_state`, so one that the committed metadata does not know is either made up or of a coordinator that
has learned of its election before this node did. It is sent away to come again, and leaves no trace: taken, it would
fence the coordinator that this node knows.
"""

from __future__ import annotations

import asyncio

from semel.broker.cluster_view import ClusterView
from semel.broker.topics import Topics
from semel.broker.verification_guards import VerificationGuards
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.state import GroupState
from semel.coordinator.shard import Shard
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.log.errors import Refused
from semel.log.types import Epoch, ProducerId
from semel.records.control import ControlType
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode

MARKERS_PURPOSE = "markers"
"""What connections for markers are called among those of a node."""
_OF_A_NODE, _FOR_MARKERS = "broker-", f"-{MARKERS_PURPOSE}"


class LocalMarkers:
    def __init__(
        self,
        cluster: ClusterView,
        topics: Topics,
        groups: GroupCoordinator,
        guards: VerificationGuards | None = None,
    ) -> None:
        """`guards` are told of every marker that is written here."""
        self._guards = VerificationGuards() if guards is None else guards
        self._senders: dict[str, int] = {}
        self._cluster = cluster
        self._topics = topics
        self._groups = groups

    def topic_id(self, partition: tuple[str, int]) -> bytes | None:
        """The id of the partition's topic in the committed metadata; None when there is no such partition."""
        topic = self._cluster.image.topics.get(partition[0])
        return topic.topic_id if topic is not None and partition[1] in topic.partitions else None

    def is_elsewhere(self, partition: tuple[str, int]) -> bool:
        """Never: what is not led here is refused."""
        return False

    def write_marker(
        self,
        partition: tuple[str, int],
        kind: ControlType,
        producer_id: ProducerId,
        epoch: Epoch,
        coordinator_epoch: Epoch,
        bumps_epoch: bool,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[None] | None:
        """Writes it; raises Refused. None when it is durable, otherwise a future of it, which is refused when other
        replicas do not have it in time."""
        topic, index = partition
        target = self._topics.partition(topic, index)
        if not self._is_known(coordinator_epoch, target, producer_id):
            raise Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"coordinator epoch {coordinator_epoch} is higher than any leader epoch of {TRANSACTIONS_TOPIC} "
                "that this node knows",
            )
        if topic == OFFSETS_TOPIC:
            # The group coordinator applies or drops the offsets of the transaction with the marker.
            offset = self._offsets_shard(index).append_marker(
                kind, producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch
            )
        else:
            offset = target.append_marker(
                kind, producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch
            ).last_offset
        self._guards.marked(topic, index, producer_id)
        return target.when_committed(offset, timeout_ms)

    def check_sender(self, client_id: str | None, connection: int) -> None:
        """Refuses markers that another node has sent again since, over a newer connection: it never goes back to one
        that it has given up. What was sent over that one may be read late, when the producer (of the first generation,
        whose epoch stays) has its next transaction open already, and would end it.

        Only a node of this cluster is remembered: an administrator's tool may have many connections."""
        if client_id is None or not client_id.startswith(_OF_A_NODE) or not client_id.endswith(_FOR_MARKERS):
            return
        node_id = client_id.removeprefix(_OF_A_NODE).removesuffix(_FOR_MARKERS)
        if not node_id.isdecimal() or int(node_id) not in self._cluster.image.brokers:
            return
        newest = self._senders.setdefault(client_id, connection)
        if connection < newest:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{client_id} has opened a newer connection")
        self._senders[client_id] = connection

    def _is_known(self, coordinator_epoch: Epoch, target: Partition, producer_id: ProducerId) -> bool:
        """Epoch 0 is the first of every partition. What the producer's state has here already is no news: with it an
        administrator ends what was left by a coordinator of another cluster."""
        if coordinator_epoch <= 0:
            return True
        topic = self._cluster.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is not None and any(coordinator_epoch <= one.leader_epoch for one in topic.partitions.values()):
            return True
        entry = target.log.producers.entry(producer_id)
        return entry is not None and coordinator_epoch <= entry.coordinator_epoch

    def _offsets_shard(self, index: int) -> Shard[GroupState]:
        """A shard that is being loaded is for a coordinator of transactions a leader that is not there yet."""
        try:
            return self._groups.shards.at(index)
        except Refused as refusal:
            if refusal.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, refusal.text) from refusal
