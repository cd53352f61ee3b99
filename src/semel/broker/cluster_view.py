"""What the committed metadata says of the cluster: which nodes, topics and partitions exist, who leads, where they are.

Whether a partition exists is asked here; whether this node serves it is asked of `Topics`. Addresses belong to a
listener: a client is told those of the listener that its request came in on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from semel.controller.image import MetadataImage, PartitionState, TopicState
from semel.log.errors import Refused
from semel.log.types import Epoch
from semel.wire.errors import ErrorCode

NO_NODE = -1


class Endpoint(NamedTuple):
    """Where a node is reached through one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class Leader(NamedTuple):
    node_id: int
    epoch: Epoch


class PartitionView(NamedTuple):
    """A partition as clients of one listener are told of it."""

    error: ErrorCode
    leader_id: int
    state: PartitionState
    offline_replicas: list[int]


class ClusterView:
    """Reads the newest committed image at every call: nothing here is remembered."""

    def __init__(self, image: Callable[[], MetadataImage], next_offset: Callable[[], int]) -> None:
        self._image = image
        self._next_offset = next_offset

    @property
    def image(self) -> MetadataImage:
        return self._image()

    @property
    def features_epoch(self) -> int:
        return self._next_offset()

    # -- nodes

    def endpoints(self, listener: str, *, include_fenced: bool = False) -> dict[int, Endpoint]:
        """The nodes that have this listener, by id; without those that are fenced, unless they are asked for."""
        found: dict[int, Endpoint] = {}
        for node_id, broker in self.image.brokers.items():
            if broker.fenced and not include_fenced:
                continue
            for end_point in broker.end_points:
                if end_point.name == listener:
                    found[node_id] = Endpoint(node_id, end_point.host, end_point.port, broker.rack, broker.fenced)
        return found

    # -- topics

    def topic_of_id(self, topic_id: bytes) -> TopicState:
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}")
        return topic

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; 0 when there is no such topic."""
        known = self.image.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def partition(self, topic: str, index: int) -> PartitionState:
        """The state of a partition, or Refused when it does not exist."""
        known = self.image.topics.get(topic)
        state = None if known is None else known.partitions.get(index)
        if state is None:
            what = f"topic {topic!r}" if known is None else f"partition {index} of topic {topic!r}"
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}")
        return state

    def leader(self, topic: str | bytes, index: int) -> Leader | None:
        """The leader of a partition of a topic, given by name or id; None when there is none."""
        image = self.image
        known = image.topic_by_id(topic) if isinstance(topic, bytes) else image.topics.get(topic)
        state = None if known is None else known.partitions.get(index)
        return None if state is None or state.leader == NO_NODE else Leader(state.leader, state.leader_epoch)

    def view(
        self, state: PartitionState, reachable: Mapping[int, Endpoint], offline_here: int | None = None
    ) -> PartitionView:
        """A partition as it is told to clients that reach these nodes. `offline_here`: the node on which its replica
        cannot be opened."""
        offline = [node for node in state.replicas if node not in reachable or node == offline_here]
        if state.leader in reachable and state.leader != offline_here:
            return PartitionView(ErrorCode.NONE, state.leader, state, offline)
        registered = self.image.brokers.get(state.leader)
        is_unreachable = registered is not None and not registered.fenced and state.leader != offline_here
        error = ErrorCode.LISTENER_NOT_FOUND if is_unreachable else ErrorCode.LEADER_NOT_AVAILABLE
        return PartitionView(error, NO_NODE, state, offline)
