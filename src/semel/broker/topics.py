"""The topics as this node serves them, kept equal to the committed metadata.

Each partition of which this node has a replica is led by it, or follows its leader, or is kept until somebody leads it.
What is over ends at once, when metadata are applied; what begins then may wait a little: logs are opened in slices, so
that thousands of partitions do not hold the loop. What is done next is always read from the newest image, so it does
not matter which records led there.

Order: deletions, then leaders, then followers. A replica that is not assigned to this node any more is deleted. A
partition whose log cannot be opened is offline; the others go on. If there was no descriptor for it, it is tried again
until there is one.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from semel.broker.cluster_view import NO_NODE, ClusterView
from semel.broker.leading import Leading
from semel.broker.node_info import NodeInfo
from semel.config import TopicConfig, topic_config
from semel.controller.image import TOPIC_RESOURCE, PartitionState
from semel.host.api import Clock
from semel.host.complaints import Complaints
from semel.host.descriptors import is_short
from semel.log.errors import BrokenLog, CorruptSegment, Refused
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.log.store import LogStore
from semel.metrics.counts_kernel import TopicCounts
from semel.replication.follower import Follower
from semel.replication.partition import Partition
from semel.replication.term_kernel import Generation
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

logger = logging.getLogger("semel.broker")

_RETRY_S = 1.0
# So long partitions are opened before the loop has its turn.
_SLICE_MS = 3
_OF_BROKERS = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    BrokerRegistrationChangeRecord,
)


class Followers(Protocol):
    """Who follows the leaders of partitions, for all of this node."""

    def begin(
        self, topic: str, topic_id: bytes, index: int, log: Log, state: PartitionState, group_commit: GroupCommit
    ) -> Follower: ...

    def end(self, term: Follower) -> None:
        """It is not fetched for any more. Called before it resigns or is abandoned."""


class Damaged(Protocol):
    """What is done about damaged replicas; see `DamagedReplicas`."""

    def found(self, topic_id: bytes, index: int) -> None: ...

    def opened(self, topic_id: bytes, index: int, state: PartitionState) -> None: ...

    def is_damaged(self, topic_id: bytes, index: int) -> bool: ...

    def look(self) -> None: ...


class OfflinePartition:
    """A partition whose log could not be opened, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Replica:
    """A partition that is open here. Its log and its flushes live through the terms; the last term stays, closed, until
    the next one begins."""

    __slots__ = ("group_commit", "log", "term")

    def __init__(self, log: Log, group_commit: GroupCommit) -> None:
        self.log = log
        self.group_commit = group_commit
        self.term: Partition | Follower | None = None


class LocalLog(NamedTuple):
    topic: str
    partition: int
    log: Log


class Topic:
    def __init__(self, name: str, topic_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        # Those that are open here, or should be.
        self.partitions: dict[int, Replica | OfflinePartition] = {}
        self.counts = TopicCounts()


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
        *,
        leading: Leading | None = None,
        followers: Followers | None = None,
        damaged: Damaged | None = None,
        on_led: Callable[[Partition], None] = lambda partition: None,
        on_flushed_later: Callable[[], None] = lambda: None,
    ) -> None:
        """`leading`, `followers` and `damaged` are for a node among others. `on_led` is called when a leadership has
        begun, `on_flushed_later` before anything is written to a partition that is not flushed at each append."""
        self._node = node
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._on_broken = on_broken
        self._generation = generation
        self._leading = leading
        self._followers = followers
        self._damaged = damaged
        self._on_led = on_led
        self._on_flushed_later = on_flushed_later
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._online: dict[tuple[str, int], Partition] = {}
        self._complaints = Complaints(logger)
        # Partitions that may have to begin a term: the first are to be led.
        self._due_leaders: dict[tuple[bytes, int], None] = {}
        self._due_followers: dict[tuple[bytes, int], None] = {}
        self._slice: asyncio.Handle | None = None
        self._opened: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._to_retry: dict[tuple[bytes, int], None] = {}

    # -- what the metadata say

    def apply(self, records: Sequence[MetadataRecord]) -> None:
        """Committed records have been replayed into the image: follow them."""
        names = self._cluster.image.names
        topics: dict[bytes, None] = {}
        partitions: dict[tuple[bytes, int], None] = {}
        for record in records:
            if isinstance(record, TopicRecord | RemoveTopicRecord):
                topics[record.topic_id] = None
            elif isinstance(record, PartitionRecord | PartitionChangeRecord):
                partitions[record.topic_id, record.partition_id] = None
        for topic_id in topics:
            topic = self.by_id.get(topic_id)
            if topic is not None and topic_id not in names:
                logger.info("topic %r is deleted", topic.name)
                self._delete(topic)
        self._follow(partitions)
        for record in records:
            if isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
                self._follow_topic_config(record.resource_name)
        for topic_id in topics:
            if topic_id in names:
                name = names[topic_id]
                self._topic(topic_id)
                logger.info("topic %r is made, partition count %d", name, self._cluster.partition_count(name))
        if self._leading is not None and any(isinstance(record, _OF_BROKERS) for record in records):
            self._leading.look_soon()
        if self._damaged is not None and partitions:
            self._damaged.look()

    def follow_image(self) -> None:
        """The image is another as a whole, as after a snapshot."""
        image = self._cluster.image
        for topic in list(self.by_name.values()):
            if topic.topic_id not in image.names:
                self._delete(topic)
        self._follow((topic.topic_id, index) for topic in image.topics.values() for index in topic.partitions)
        self.follow_config()
        if self._leading is not None:
            self._leading.look_soon()
        if self._damaged is not None:
            self._damaged.look()

    def _topic(self, topic_id: bytes) -> Topic:
        """One of the image. Another of its name is gone there: the name had to be free."""
        topic = self.by_id.get(topic_id)
        if topic is None:
            name = self._cluster.image.names[topic_id]
            if name in self.by_name:
                self._delete(self.by_name[name])
            config = topic_config(self._cluster.image.config(TOPIC_RESOURCE, name), self._node.config)
            topic = self.by_name[name] = self.by_id[topic_id] = Topic(name, topic_id, config)
        return topic

    def _follow(self, partitions: Iterable[tuple[bytes, int]]) -> None:
        """Ends what is over, at once, and begins what is new, or some of it."""
        names = self._cluster.image.names
        for topic_id, index in partitions:
            if topic_id not in names:
                continue
            topic = self._topic(topic_id)
            state = self._cluster.image.topics[topic.name].partitions[index]
            key = (topic_id, index)
            if self._goes_on(topic, index, state):
                self._due_leaders.pop(key, None)
                self._due_followers.pop(key, None)
            elif state.leader == self._node.node_id:
                self._due_followers.pop(key, None)
                self._due_leaders[key] = None
            else:
                self._due_leaders.pop(key, None)
                self._due_followers[key] = None
        if self._slice is None:
            self._begin_terms()

    def _is_ours(self, state: PartitionState) -> bool:
        return self._node.node_id in state.replicas or state.leader == self._node.node_id

    def _goes_on(self, topic: Topic, index: int, state: PartitionState) -> bool:
        """Ends the term that is over. False: there may be one to begin."""
        replica = topic.partitions.get(index)
        if not self._is_ours(state):
            if replica is not None:
                logger.info("%s-%d: this node has no replica of it any more, and deletes its log", topic.name, index)
                self._delete_replica(topic, index)
            return True
        if not isinstance(replica, Replica) or replica.term is None or replica.term.is_closed:
            return isinstance(replica, OfflinePartition)
        term = replica.term
        if state.leader_epoch < term.leader_epoch:
            return True
        if isinstance(term, Partition):
            if state.leader == self._node.node_id and state.leader_epoch == term.leader_epoch:
                term.follow_state(state)
                return True
            del self._online[topic.name, index]
            if state.leader != self._node.node_id:
                logger.debug("%s-%d: node %d leads it now, this one does not", topic.name, index, state.leader)
        elif (state.leader, state.leader_epoch) == (term.leader_id, term.leader_epoch):
            return True
        self._end_term(term)
        term.resign()
        return state.leader == NO_NODE

    def _end_term(self, term: Partition | Follower | None) -> None:
        if self._followers is not None and term is not None and not isinstance(term, Partition) and not term.is_closed:
            self._followers.end(term)

    # -- beginning terms

    def _begin_terms(self) -> None:
        """As many as there is time for; the others when the loop has had its turn."""
        self._slice = None
        until_ms = self._clock.monotonic_ms() + _SLICE_MS
        while self._due_leaders or self._due_followers:
            due = self._due_leaders or self._due_followers
            topic_id, index = key = next(iter(due))
            del due[key]
            if topic_id in self.by_id:
                self._begin(self.by_id[topic_id], index)
            if self._clock.monotonic_ms() >= until_ms and (self._due_leaders or self._due_followers):
                self._slice = asyncio.get_running_loop().call_soon(self._begin_terms)
                return
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    async def when_open(self) -> None:
        """Waits until every partition that is to be served has begun, or is offline."""
        if self._slice is not None:
            self._opened = asyncio.get_running_loop().create_future()
            await self._opened

    def _begin(self, topic: Topic, index: int) -> None:
        """The term that the image wants by now."""
        state = self._cluster.partition(topic.name, index)
        if self._goes_on(topic, index, state):
            return
        leads = state.leader == self._node.node_id
        if not leads and (self._followers is None or state.leader == NO_NODE or self._is_damaged(topic, index)):
            return
        replica = topic.partitions.get(index)
        if replica is None:
            replica = self._open(topic, index, state)
        if not isinstance(replica, Replica):
            return
        if leads:
            self._lead(topic, index, replica, state)
        elif self._followers is not None:
            replica.term = self._followers.begin(
                topic.name, topic.topic_id, index, replica.log, state, replica.group_commit
            )
            told = "%s-%d: this node follows node %d, leader epoch %d"
            logger.debug(told, topic.name, index, state.leader, state.leader_epoch)

    def _open(self, topic: Topic, index: int, state: PartitionState) -> Replica | None:
        topic_id = base64.urlsafe_b64encode(topic.topic_id).rstrip(b"=").decode()
        is_replicated = self._leading is not None and len(state.replicas) > 1
        try:
            self._check_flushes(topic.config)
            log = self._store.load(topic.name, index, topic_id, topic.config, is_replicated=is_replicated)
        except (BrokenLog, CorruptSegment, OSError) as error:
            topic.partitions[index] = OfflinePartition(str(error))
            if is_short(error):
                text = "%s-%d is offline until this process may open its files, see ulimit -n: %s"
                self._complaints.say("short", logging.ERROR, text, topic.name, index, error)
                self._try_again(topic, index)
            else:
                logger.error("%s-%d is offline: %s", topic.name, index, error)
                if is_replicated and not isinstance(error, OSError):
                    self.found_damage(topic.topic_id, index)
            return None
        log.counts = topic.counts
        replica = topic.partitions[index] = Replica(log, GroupCommit(log, self._on_broken))
        if self._damaged is not None:
            self._damaged.opened(topic.topic_id, index, state)
        return replica

    # -- damage

    def found_damage(self, topic_id: bytes, index: int) -> None:
        """Something of this node's replica cannot be read."""
        if self._damaged is not None:
            self._damaged.found(topic_id, index)

    def _is_damaged(self, topic: Topic, index: int) -> bool:
        return self._damaged is not None and self._damaged.is_damaged(topic.topic_id, index)

    def begin_anew(self, topic_id: bytes, index: int) -> None:
        """Keeps what is here of a damaged replica aside. An empty one follows the leader."""
        topic = self.by_id.get(topic_id)
        if topic is not None:
            logger.error("%s-%d is damaged, and is copied anew from its leader", topic.name, index)
            self._end_replica(topic, index)
            self._store.set_aside(topic.name, index)
            self._follow([(topic_id, index)])

    def _lead(self, topic: Topic, index: int, replica: Replica, state: PartitionState) -> None:
        term = replica.term
        if isinstance(term, Partition):
            partition = term.next_term(state.leader_epoch, state)
        else:
            partition = Partition(
                topic.name,
                topic.topic_id,
                index,
                replica.log,
                state.leader_epoch,
                self._clock,
                self._on_broken,
                generation=self._generation,
                group_commit=replica.group_commit,
                context=self._leading,
                assignment=state,
            )
        replica.term = self._online[topic.name, index] = partition
        logger.debug("%s-%d: this node leads it, leader epoch %d", topic.name, index, state.leader_epoch)
        self._on_led(partition)

    # -- settings

    def _follow_topic_config(self, name: str) -> None:
        topic = self.by_name.get(name)
        if topic is not None:
            self._set_config(topic, topic_config(self._cluster.image.config(TOPIC_RESOURCE, name), self._node.config))

    def _set_config(self, topic: Topic, config: TopicConfig) -> None:
        if topic.config != config:
            self._check_flushes(config)
            topic.config = config
            for replica in topic.partitions.values():
                if not isinstance(replica, Replica):
                    continue
                if replica.term is not None and not replica.term.is_closed:
                    replica.term.config = config
                else:
                    replica.log.config = config  # its next term goes by it

    def _check_flushes(self, config: TopicConfig) -> None:
        if config.flush_messages != 1:
            self._on_flushed_later()

    def follow_config(self) -> None:
        """The node's settings have changed, and with them the defaults of every topic."""
        for name in self.by_name:
            self._follow_topic_config(name)

    # -- want of descriptors

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
                self._begin(topic, index)
        self._to_retry.update(waiting)

    # -- the end

    def stop_opening(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if self._slice is not None:
            self._slice.cancel()

    async def close(self) -> None:
        """A clean stop: waits for flushes that are under way."""
        for _, _, replica in self._replicas():
            self._end_term(replica.term)
            if replica.term is not None:
                await replica.term.close()
            replica.group_commit.stop()
            await replica.group_commit.when_over()

    def _delete(self, topic: Topic) -> None:
        del self.by_name[topic.name]
        del self.by_id[topic.topic_id]
        for index in list(topic.partitions):
            self._delete_replica(topic, index)

    def _delete_replica(self, topic: Topic, index: int) -> None:
        self._end_replica(topic, index)
        self._store.remove(topic.name, index)

    def _end_replica(self, topic: Topic, index: int) -> None:
        replica = topic.partitions.pop(index, None)
        self._online.pop((topic.name, index), None)
        if isinstance(replica, Replica):
            self._end_term(replica.term)
            if replica.term is None:
                replica.group_commit.stop()
            else:
                replica.term.abandon()

    # -- what is here

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
        if topic is not None and self._due_leaders.pop((topic.topic_id, index), True) is None:
            self._begin(topic, index)  # it was to wait for others that nobody asks for
            return self.partition(name, index)
        offline = None if topic is None else topic.partitions.get(index)
        if isinstance(offline, OfflinePartition):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}-{index} is offline: {offline.reason}")
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is not led yet: this node is about to")

    def offline_node(self, name: str, index: int) -> int | None:
        """This node, if it has the partition and cannot open it."""
        topic = self.by_name.get(name)
        is_offline = topic is not None and isinstance(topic.partitions.get(index), OfflinePartition)
        return self._node.node_id if is_offline else None

    def online(self) -> list[Partition]:
        """Those that this node leads."""
        return list(self._online.values())

    def _replicas(self) -> Iterator[tuple[Topic, int, Replica]]:
        for topic in self.by_name.values():
            for index, replica in topic.partitions.items():
                if isinstance(replica, Replica):
                    yield topic, index, replica

    def logs(self) -> list[LocalLog]:
        """All that are open here, whoever leads them."""
        return [LocalLog(topic.name, index, replica.log) for topic, index, replica in self._replicas()]

    def log(self, name: str, index: int) -> Log:
        """The log of a partition of which a replica is open here, or Refused."""
        topic = self.by_name.get(name)
        replica = None if topic is None else topic.partitions.get(index)
        if isinstance(replica, Replica):
            return replica.log
        self._cluster.partition(name, index)  # one that does not exist is refused as that
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index}: no replica of it is open here")

    @property
    def lacks_partitions(self) -> bool:
        """Whether some are offline."""
        return any(
            isinstance(one, OfflinePartition) for topic in self.by_name.values() for one in topic.partitions.values()
        )
