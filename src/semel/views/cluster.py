"""A cluster as a document: its nodes, who leads how much, and what is wrong with its partitions.

It is looked at while nodes may be down: whoever does not answer soon is shown as that, and no other waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from semel.client.admin.admin import Admin
from semel.client.admin.values import ClusterDescription, ConfigResource, QuorumDescription, Reassignment
from semel.client.errors import SemelError, UnsupportedByBroker
from semel.client.metadata import NO_NODE, Topic, TopicPartition

PATIENCE_S = 2.0
"""So long for what one node, or the controller, is asked about itself."""
UP, FENCED, DOWN, ACTIVE = "up", "fenced", "down", "active"
BROKER, CONTROLLER = "broker", "controller"
_MIN_IN_SYNC = "min.insync.replicas"


@dataclass(frozen=True)
class NodeView:
    """`state`: a broker is up, fenced (it runs, or did, and leads nothing) or down (nobody tells of it, and replicas
    are on it); the controller that decides is active. `lacks` counts the records that leaders have and it does not, and
    `metadata_lacks` those of the metadata: None where nobody knows."""

    node_id: int
    roles: tuple[str, ...]
    state: str
    address: str | None = None
    rack: str | None = None
    leads: int = 0
    follows: int = 0
    out_of_sync: int = 0
    lacks: int | None = None
    metadata_lacks: int | None = None


@dataclass(frozen=True)
class PartitionView:
    """One that is not as it should be. `lacks`: what each replica lacks, by its node; None where nobody knows."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    min_in_sync: int | None
    """As it counts: no more than there are replicas."""
    lacks: Mapping[int, int | None]

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_below_min(self) -> bool:
        """Whether it refuses writes with acks=all."""
        return self.min_in_sync is not None and len(self.in_sync) < self.min_in_sync


@dataclass(frozen=True)
class ClusterView:
    """`controller_epoch` is that of the quorum's leader; -1 with `controller` None where the broker does not tell, or
    where it could not be asked (`has_controller`): nothing can be changed then, and no leader elected."""

    cluster_id: str
    controller: int | None
    controller_epoch: int
    nodes: tuple[NodeView, ...]
    topics: int
    partitions: int
    replicas: int
    has_controller: bool = True
    under_replicated: tuple[PartitionView, ...] = ()
    moving: Mapping[TopicPartition, Reassignment] = field(default_factory=dict)

    @property
    def offline(self) -> tuple[PartitionView, ...]:
        return tuple(one for one in self.under_replicated if one.is_offline)

    @property
    def below_min(self) -> tuple[PartitionView, ...]:
        return tuple(one for one in self.under_replicated if one.is_below_min)

    @property
    def is_healthy(self) -> bool:
        return (
            self.has_controller and not self.under_replicated and all(node.state in (UP, ACTIVE) for node in self.nodes)
        )

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "cluster_id": self.cluster_id,
            "is_healthy": self.is_healthy,
            "controller": self.controller,
            "controller_epoch": self.controller_epoch,
            "has_controller": self.has_controller,
            "nodes": [
                {
                    "id": node.node_id,
                    "roles": list(node.roles),
                    "state": node.state,
                    "address": node.address,
                    "rack": node.rack,
                    "leads": node.leads,
                    "follows": node.follows,
                    "out_of_sync": node.out_of_sync,
                    "lacks": node.lacks,
                    "metadata_lacks": node.metadata_lacks,
                }
                for node in self.nodes
            ],
            "topics": self.topics,
            "partitions": self.partitions,
            "replicas": self.replicas,
            "offline": len(self.offline),
            "below_min_in_sync": len(self.below_min),
            "under_replicated": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "leader": one.leader,
                    "leader_epoch": one.leader_epoch,
                    "replicas": list(one.replicas),
                    "in_sync": list(one.in_sync),
                    "min_in_sync": one.min_in_sync,
                    "lacks": {str(node_id): count for node_id, count in one.lacks.items()},
                }
                for one in self.under_replicated
            ],
            "moving": [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "replicas": list(move.replicas),
                    "adding": list(move.adding),
                    "removing": list(move.removing),
                }
                for place, move in sorted(self.moving.items())
            ],
        }


async def look_at(admin: Admin) -> ClusterView:
    """Raises a SemelError if no broker answers at all."""
    cluster = await _described(admin)
    topics = await admin.list_topics(include_internal=True)
    (quorum, has_controller), moving, ends = await asyncio.gather(
        _quorum(admin), _moving(admin), _ends_of_nodes(admin, cluster, topics.values())
    )
    lacking = _Lacking(topics, ends)
    troubled = [
        (topic, number)
        for topic in topics.values()
        for number, partition in sorted(topic.partitions.items())
        if len(partition.in_sync) < len(partition.replicas) or partition.leader_id == NO_NODE
    ]
    least = await _min_in_sync(admin, {topic.name for topic, _ in troubled})
    all_partitions = [partition for topic in topics.values() for partition in topic.partitions.values()]
    return ClusterView(
        cluster_id=cluster.cluster_id,
        controller=None if quorum is None or quorum.leader_id == NO_NODE else quorum.leader_id,
        controller_epoch=-1 if quorum is None else quorum.leader_epoch,
        nodes=tuple(_nodes(cluster, quorum, topics.values(), lacking)),
        topics=len(topics),
        partitions=len(all_partitions),
        replicas=sum(len(partition.replicas) for partition in all_partitions),
        has_controller=has_controller,
        under_replicated=tuple(_partition(topic, number, least, lacking) for topic, number in troubled),
        moving=moving,
    )


# -- what is asked


async def _described(admin: Admin) -> ClusterDescription:
    try:
        return await admin.describe_cluster(include_fenced=True)
    except UnsupportedByBroker:
        return await admin.describe_cluster()


async def _quorum(admin: Admin) -> tuple[QuorumDescription | None, bool]:
    """What is told of the controllers, and whether one of them decides, as far as is known."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await admin.describe_quorum()
    except UnsupportedByBroker:
        return None, True
    except (SemelError, TimeoutError):
        return None, False
    return found, found.leader_id != NO_NODE


async def _moving(admin: Admin) -> dict[TopicPartition, Reassignment]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await admin.list_partition_reassignments()
    except (SemelError, TimeoutError):
        return {}


Ends = Mapping[int, Mapping[TopicPartition, int]]


async def _ends_of_nodes(admin: Admin, cluster: ClusterDescription, topics: Iterable[Topic]) -> Ends:
    """Where the logs of each node end, of those that answer."""
    places: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for partition in topic.partitions.values():
            for node_id in partition.replicas:
                places.setdefault(node_id, []).append(TopicPartition(topic.name, partition.number))

    async def ask(node_id: int) -> Mapping[TopicPartition, int]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await admin.replica_ends(node_id, places[node_id])
        except (SemelError, TimeoutError):
            return {}

    asked = [node_id for node_id in places if node_id in cluster.nodes]
    return dict(zip(asked, await asyncio.gather(*(ask(node_id) for node_id in asked)), strict=True))


async def _min_in_sync(admin: Admin, names: Iterable[str]) -> dict[str, int]:
    resources = [ConfigResource.topic(name) for name in names]
    if not resources:
        return {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await admin.describe_configs(resources)
    except (SemelError, TimeoutError):
        return {}
    values = {resource.name: settings[_MIN_IN_SYNC].value for resource, settings in found.items()}
    return {name: int(value) for name, value in values.items() if value is not None}


# -- what it comes to


class _Lacking:
    """What replicas lack of what their leaders have."""

    def __init__(self, topics: Mapping[str, Topic], ends: Ends) -> None:
        self._topics = topics
        self._ends = ends

    def of(self, place: TopicPartition, node_id: int) -> int | None:
        """Records; None if nobody knows, as when the leader is away, or this node."""
        leader_id = self._topics[place.topic].partitions[place.partition].leader_id
        here, there = (self._ends.get(one, {}).get(place) for one in (node_id, leader_id))
        return None if here is None or there is None else max(0, there - here)


def _nodes(
    cluster: ClusterDescription, quorum: QuorumDescription | None, topics: Iterable[Topic], lacking: _Lacking
) -> Iterable[NodeView]:
    leads: dict[int, int] = {}
    follows: dict[int, list[TopicPartition]] = {}
    out: dict[int, int] = {}
    for topic in topics:
        for partition in topic.partitions.values():
            for node_id in partition.replicas:
                if node_id == partition.leader_id:
                    leads[node_id] = leads.get(node_id, 0) + 1
                else:
                    follows.setdefault(node_id, []).append(TopicPartition(topic.name, partition.number))
                if node_id not in partition.in_sync:
                    out[node_id] = out.get(node_id, 0) + 1
    voters = {} if quorum is None else quorum.voters
    observers = {} if quorum is None else quorum.observers
    for node_id in sorted({*cluster.nodes, *leads, *follows, *voters}):
        is_broker = node_id in cluster.nodes or node_id in leads or node_id in follows
        roles = (*((BROKER,) if is_broker else ()), *((CONTROLLER,) if node_id in voters else ()))
        if is_broker:
            state = FENCED if node_id in cluster.fenced else UP if node_id in cluster.nodes else DOWN
        else:
            state = ACTIVE if quorum is not None and node_id == quorum.leader_id else UP
        node = cluster.nodes.get(node_id) or (None if quorum is None else quorum.nodes.get(node_id))
        known = voters.get(node_id) or observers.get(node_id)
        yield NodeView(
            node_id,
            roles,
            state,
            address=None if node is None else f"{node.host}:{node.port}",
            rack=None if node is None else node.rack,
            leads=leads.get(node_id, 0),
            follows=len(follows.get(node_id, ())),
            out_of_sync=out.get(node_id, 0),
            lacks=_total(lacking.of(place, node_id) for place in follows.get(node_id, ())) if is_broker else None,
            metadata_lacks=None
            if quorum is None or known is None
            else max(0, quorum.high_watermark - known.end_offset),
        )


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def _partition(topic: Topic, number: int, least: Mapping[str, int], lacking: _Lacking) -> PartitionView:
    partition = topic.partitions[number]
    place = TopicPartition(topic.name, number)
    return PartitionView(
        topic.name,
        number,
        None if partition.leader_id == NO_NODE else partition.leader_id,
        partition.leader_epoch,
        partition.replicas,
        partition.in_sync,
        min(least[topic.name], len(partition.replicas)) if topic.name in least else None,
        {node_id: lacking.of(place, node_id) for node_id in partition.replicas if node_id not in partition.in_sync},
    )
