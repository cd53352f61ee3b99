"""Where replicas go when topics are given more or fewer of them: pure functions over what a cluster tells of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from semel.client.metadata import NO_NODE, Node, Partition, Topic, TopicPartition


def plan_replicas(
    topics: Iterable[Topic], all_topics: Iterable[Topic], nodes: Mapping[int, Node], factor: int
) -> dict[TopicPartition, list[int]]:
    """New replicas for each partition of `topics` that does not have `factor` of them. `nodes` can take replicas.

    Replicas stay where they are, in their order, so that the preferred leaders do not change. A new one goes to a rack
    that the partition is not in yet, if there is one, and there to the node that has the fewest replicas; `all_topics`
    are counted. Of too many, those go that are not in sync, then the last ones; the leader stays.
    """
    if factor > len(nodes):
        raise ValueError(f"{factor} replicas need {factor} nodes, and {len(nodes)} are up")
    load = Counter(
        node_id for topic in all_topics for partition in topic.partitions.values() for node_id in partition.replicas
    )
    plan: dict[TopicPartition, list[int]] = {}
    for topic in sorted(topics, key=lambda one: one.name):
        for number, partition in sorted(topic.partitions.items()):
            if len(partition.replicas) > factor:
                wanted = _fewer(partition, factor)
            else:
                wanted = _more(partition, nodes, factor, load)
            if wanted != list(partition.replicas):
                load.subtract(set(partition.replicas) - set(wanted))
                plan[TopicPartition(topic.name, number)] = wanted
    return plan


def _more(partition: Partition, nodes: Mapping[int, Node], factor: int, load: Counter[int]) -> list[int]:
    """Counts what it adds."""
    wanted = list(partition.replicas)
    while len(wanted) < factor:
        racks = {nodes[node_id].rack for node_id in wanted if node_id in nodes}
        free = [node for node_id, node in nodes.items() if node_id not in wanted]
        best = min(free, key=lambda node: (node.rack in racks, load[node.node_id], node.node_id))
        wanted.append(best.node_id)
        load[best.node_id] += 1
    return wanted


def _fewer(partition: Partition, factor: int) -> list[int]:
    keep = partition.leader_id if partition.leader_id != NO_NODE else partition.replicas[0]
    order = sorted(
        partition.replicas,
        key=lambda node_id: (
            node_id != keep,
            node_id not in partition.in_sync,
            partition.replicas.index(node_id),
        ),
    )
    stay = set(order[:factor])
    return [node_id for node_id in partition.replicas if node_id in stay]
