"""The topics that this node serves, kept equal to the committed metadata.

`reconcile` compares one topic of the image with what is open here and opens, closes or changes the difference, so it
does not matter which records led there. A partition whose log cannot be opened is offline; the others go on. If there
was no descriptor for it, it is tried again until there is one.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence

from semel.config import BrokerConfig, TopicConfig, topic_config
from semel.controller.image import TOPIC_RESOURCE, MetadataImage, TopicState
from semel.coordinator.topic_names import INTERNAL_TOPICS
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
        self.partitions: dict[int, Partition | OfflinePartition] = {}

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class Topics:
    """By name, by id, and partition by partition for the hot paths."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        store: LogStore,
        config: BrokerConfig,
        clock: Clock,
        on_broken: Callable[[BaseException], None],
        generation: Generation,
    ) -> None:
        self._image = image
        self._store = store
        self.config = config
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
        image = self._image()
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
                count = len(self.by_id[record.topic_id].partitions)
                logger.info("topic %r is made, partition count %d", record.name, count)

    def reconcile(self, name: str) -> None:
        state = self._image().topics.get(name)
        topic = self.by_name.get(name)
        if topic is not None and (state is None or state.topic_id != topic.topic_id):
            self._close(topic)
            topic = None
        if state is None:
            return
        config = topic_config(self._image().config(TOPIC_RESOURCE, name), self.config)
        if topic is None:
            topic = Topic(name, state.topic_id, config)
            self.by_name[name] = self.by_id[state.topic_id] = topic
        self._set_config(topic, config)
        for index, partition_state in state.partitions.items():
            partition = topic.partitions.get(index)
            if partition is None:
                self._open(topic, index, state)
            elif isinstance(partition, Partition) and partition.leader_epoch != partition_state.leader_epoch:
                self._put(topic, partition.next_term(partition_state.leader_epoch))

    def _set_config(self, topic: Topic, config: TopicConfig) -> None:
        if topic.config != config:
            topic.config = config
            for partition in topic.partitions.values():
                if isinstance(partition, Partition):
                    partition.config = config

    def set_broker_config(self, config: BrokerConfig) -> None:
        """The node's settings have changed, and with them the defaults of every topic."""
        self.config = config
        for topic in self.by_name.values():
            overrides = self._image().config(TOPIC_RESOURCE, topic.name)
            self._set_config(topic, topic_config(overrides, config))

    def _open(self, topic: Topic, index: int, state: TopicState) -> None:
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
        epoch = state.partitions[index].leader_epoch
        self._put(
            topic,
            Partition(
                topic.name,
                topic.topic_id,
                index,
                log,
                epoch,
                self._clock,
                self._on_broken,
                generation=self._generation,
            ),
        )

    def _put(self, topic: Topic, partition: Partition) -> None:
        topic.partitions[partition.index] = self._online[topic.name, partition.index] = partition
        _tell_leader(partition)

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
            state = None if topic is None else self._image().topics.get(topic.name)
            if topic is not None and state is not None and state.topic_id == topic_id:
                self._open(topic, index, state)
        self._to_retry.update(waiting)

    def close(self) -> None:
        """Nothing is opened any more."""
        if self._retry is not None:
            self._retry.cancel()

    def _close(self, topic: Topic) -> None:
        del self.by_name[topic.name]
        del self.by_id[topic.topic_id]
        for index, partition in topic.partitions.items():
            self._online.pop((topic.name, index), None)
            if isinstance(partition, Partition):
                partition.abandon()
            self._store.remove(topic.name, index)

    def partition(self, name: str, index: int) -> Partition:
        """The partition, or Refused with what is wrong."""
        partition = self._online.get((name, index))
        if partition is not None:
            return partition
        topic = self.by_name.get(name)
        offline = None if topic is None else topic.partitions.get(index)
        if isinstance(offline, OfflinePartition):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}-{index} is offline: {offline.reason}")
        what = f"topic {name!r}" if topic is None else f"partition {index} of topic {name!r}"
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}")

    def topic_of_id(self, topic_id: bytes) -> Topic:
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}")
        return topic

    def online(self) -> list[Partition]:
        return list(self._online.values())


def _tell_leader(partition: Partition) -> None:
    logger.debug("%s-%d: this node leads it, leader epoch %d", partition.topic, partition.index, partition.leader_epoch)
