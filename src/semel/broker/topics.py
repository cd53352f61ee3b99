"""The topics as this node serves them, kept equal to the committed metadata.

`reconcile` compares one topic of the image with what is open here and opens, closes or changes the difference, so it
does not matter which records led there. Partitions that another node leads are not served: `partition` says so. A
partition whose log cannot be opened is offline; the others go on. If there was no descriptor for it, it is tried again
until there is one.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence

from semel.broker.cluster_view import NO_NODE, ClusterView
from semel.broker.node_info import NodeInfo
from semel.config import TopicConfig, topic_config
from semel.controller.image import TOPIC_RESOURCE, PartitionState
from semel.host.api import Clock
from semel.host.complaints import Complaints
from semel.host.descriptors import is_short
from semel.log.errors import BrokenLog, CorruptSegment, Refused
from semel.log.store import LogStore
from semel.replication.partition import Partition
from semel.replication.term_kernel import Generation
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

logger = logging.getLogger("semel.broker")

_RETRY_S = 1.0


class OfflinePartition:
    """A partition whose log could not be opened, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Topic:
    def __init__(self, name: str, topic_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        # Those that this node leads, should lead (offline), or led (closed).
        self.partitions: dict[int, Partition | OfflinePartition] = {}


class Topics:
    """By name, by id, and partition by partition for the hot paths."""

    def __init__(
        self,
        node: NodeInfo,
        cluster: ClusterView,
        store: LogStore,
        clock: Clock,
        on_broken: Callable[[BaseException], None],
        generation: Generation,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._on_broken = on_broken
        self._generation = generation
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._online: dict[tuple[str, int], Partition] = {}
        self._complaints = Complaints(logger)
        self._retry: asyncio.TimerHandle | None = None
        self._to_retry: dict[tuple[bytes, int], None] = {}

    def apply(self, records: Sequence[MetadataRecord]) -> None:
        """Committed records have been replayed into the image: follow them."""
        image = self._cluster.image
        changed: dict[str, None] = {}
        for record in records:
            if isinstance(record, TopicRecord):
                changed[record.name] = None
            elif isinstance(record, PartitionRecord | PartitionChangeRecord):
                changed[image.names.get(record.topic_id, "")] = None
            elif isinstance(record, RemoveTopicRecord) and record.topic_id in self.by_id:
                name = self.by_id[record.topic_id].name
                logger.info("topic %r is deleted", name)
                changed[name] = None
            elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
                changed[record.resource_name] = None
        for name in changed:
            self.reconcile(name)
        for record in records:
            if isinstance(record, TopicRecord) and record.topic_id in self.by_id:
                count = self._cluster.partition_count(record.name)
                logger.info("topic %r is made, partition count %d", record.name, count)

    def reconcile(self, name: str) -> None:
        state = self._cluster.image.topics.get(name)
        topic = self.by_name.get(name)
        if topic is not None and (state is None or state.topic_id != topic.topic_id):
            self._close(topic)
            topic = None
        if state is None:
            return
        config = topic_config(self._cluster.image.config(TOPIC_RESOURCE, name), self._node.config)
        if topic is None:
            topic = Topic(name, state.topic_id, config)
            self.by_name[name] = self.by_id[state.topic_id] = topic
        self._set_config(topic, config)
        for index, partition_state in state.partitions.items():
            self._follow(topic, index, partition_state)

    def _follow(self, topic: Topic, index: int, state: PartitionState) -> None:
        """Leads the partition, or does so no longer, as the image says."""
        partition = topic.partitions.get(index)
        if state.leader != self._node.node_id:
            if isinstance(partition, Partition) and not partition.is_closed:
                partition.resign()
                del self._online[topic.name, index]
                logger.debug("%s-%d: node %d leads it now, this one does not", topic.name, index, state.leader)
        elif partition is None:
            self._open(topic, index, state)
        elif isinstance(partition, Partition) and (partition.is_closed or partition.leader_epoch != state.leader_epoch):
            self._put(topic, partition.next_term(state.leader_epoch))

    def _set_config(self, topic: Topic, config: TopicConfig) -> None:
        if topic.config != config:
            topic.config = config
            for partition in topic.partitions.values():
                if isinstance(partition, Partition):
                    if partition.is_closed:
                        partition.log.config = config  # its next term goes by it
                    else:
                        partition.config = config

    def follow_config(self) -> None:
        """The node's settings have changed, and with them the defaults of every topic."""
        for topic in self.by_name.values():
            overrides = self._cluster.image.config(TOPIC_RESOURCE, topic.name)
            self._set_config(topic, topic_config(overrides, self._node.config))

    def _open(self, topic: Topic, index: int, state: PartitionState) -> None:
        topic_id = base64.urlsafe_b64encode(topic.topic_id).rstrip(b"=").decode()
        try:
            log = self._store.load(topic.name, index, topic_id, topic.config)
        except (BrokenLog, CorruptSegment, OSError) as error:
            topic.partitions[index] = OfflinePartition(str(error))
            if is_short(error):
                text = "%s-%d is offline until this process may open its files, see ulimit -n: %s"
                self._complaints.say("short", logging.ERROR, text, topic.name, index, error)
                self._try_again(topic, index)
            else:
                logger.error("%s-%d is offline: %s", topic.name, index, error)
            return
        self._put(
            topic,
            Partition(
                topic.name,
                topic.topic_id,
                index,
                log,
                state.leader_epoch,
                self._clock,
                self._on_broken,
                generation=self._generation,
            ),
        )

    def _put(self, topic: Topic, partition: Partition) -> None:
        topic.partitions[partition.index] = self._online[topic.name, partition.index] = partition
        epoch = partition.leader_epoch
        logger.debug("%s-%d: this node leads it, leader epoch %d", topic.name, partition.index, epoch)

    def _try_again(self, topic: Topic, index: int) -> None:
        self._to_retry[topic.topic_id, index] = None
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_RETRY_S, self._open_those_that_waited)

    def _open_those_that_waited(self) -> None:
        """Until the first that still cannot be opened: the others would not find a descriptor either."""
        self._retry = None
        waiting, self._to_retry = self._to_retry, {}
        while waiting and not self._to_retry:
            topic_id, index = next(iter(waiting))
            del waiting[topic_id, index]
            topic = self.by_id.get(topic_id)
            if topic is not None:
                topic.partitions.pop(index, None)
                self._follow(topic, index, self._cluster.partition(topic.name, index))
        self._to_retry.update(waiting)

    def stop_opening(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    async def close(self) -> None:
        """A clean stop: waits for flushes that are under way."""
        for topic in self.by_name.values():
            for partition in topic.partitions.values():
                if isinstance(partition, Partition):
                    await partition.close()

    def _close(self, topic: Topic) -> None:
        del self.by_name[topic.name]
        del self.by_id[topic.topic_id]
        for index, partition in topic.partitions.items():
            self._online.pop((topic.name, index), None)
            if isinstance(partition, Partition):
                partition.abandon()
            self._store.remove(topic.name, index)

    def partition(self, name: str, index: int) -> Partition:
        """The partition, which this node leads, or Refused with what is wrong."""
        partition = self._online.get((name, index))
        if partition is not None:
            return partition
        state = self._cluster.partition(name, index)
        if state.leader != self._node.node_id:
            who = "nobody" if state.leader == NO_NODE else f"node {state.leader}"
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is not led here: {who} leads it")
        topic = self.by_name.get(name)
        offline = None if topic is None else topic.partitions.get(index)
        reason = offline.reason if isinstance(offline, OfflinePartition) else "it is not open"
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}-{index} is offline: {reason}")

    def offline_node(self, name: str, index: int) -> int | None:
        """This node, if it should lead the partition and cannot open it."""
        topic = self.by_name.get(name)
        is_offline = topic is not None and isinstance(topic.partitions.get(index), OfflinePartition)
        return self._node.node_id if is_offline else None

    def online(self) -> list[Partition]:
        return list(self._online.values())
