"""What the replicas of a partition owe each other, held against them in every run of several nodes.

Rule 1: one node at most leads a partition in an epoch. Rule 2: a batch is the same on every node, if offset and epoch
are the same. Rule 3: what a leader has once called committed is in the log of every later leader. Rule 4: when
everything is healed, all replicas are in sync and hold the same batches.

Disks are read behind the back of the node: a look is no call that could fail, and takes no time. Logs that are
compacted may lack batches: what they owe is judged by their readers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from semel.broker.broker import Broker
from semel.log.log import Log
from semel.records.batch import whole_batches
from semel.replication.partition import Partition
from semel.sim.disk import SimDisk
from semel.sim.world.findings import Findings

Key = tuple[bytes, int]
"""Id of a topic, and partition."""


class Stood(NamedTuple):
    """A batch, and where it stands."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


def batches_of(log: Log, first: int, end: int) -> Iterator[Stood]:
    """The batches of a log from one offset up to another."""
    disk = cast(SimDisk, log.disk)
    for segment in list(log.segments):
        if segment.next_offset <= first or segment.base_offset >= end:
            continue
        for _, header in whole_batches(disk.content_of(segment.path) or b""):
            if first <= header.last_offset and header.base_offset < end:
                yield Stood(header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc)


class Replicas:
    """Knows what all nodes of a world have said of their logs."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._leaders: dict[tuple[Key, int], int] = {}
        self._committed: dict[Key, list[Stood]] = {}
        self._known: dict[Key, dict[tuple[int, int], Stood]] = {}

    def leads(self, broker: Broker, partition: Partition) -> None:
        """A term has begun on a node, perhaps a moment ago."""
        key, node_id = (partition.topic_id, partition.index), broker.node.node_id
        leader = self._leaders.setdefault((key, partition.leader_epoch), node_id)
        if leader != node_id:
            text = f"nodes {leader} and {node_id} lead {_name(partition)} in epoch {partition.leader_epoch}"
            self._findings.wrong("two leaders", text)
        log = partition.log
        if log.config.compacts:
            return
        there = {one.base_offset: one for one in batches_of(log, log.start_offset, log.end_offset)}
        for one in self._committed.get(key, []):
            if one.last_offset >= log.start_offset and there.get(one.base_offset) != one:
                text = (
                    f"{one} of {_name(partition)}: node {node_id}, which leads in epoch {partition.leader_epoch}, has "
                    f"{there.get(one.base_offset)} there, and ends at {log.end_offset}"
                )
                self._findings.wrong("committed batch lost", text)
                return

    def committed(self, broker: Broker, partition: Partition) -> None:
        """The high watermark of a leader may have moved."""
        log, key = partition.log, (partition.topic_id, partition.index)
        if log.config.compacts:
            return
        committed = self._committed.setdefault(key, [])
        first = committed[-1].last_offset + 1 if committed else 0
        if first < log.high_watermark:
            new = [one for one in batches_of(log, first, log.high_watermark) if one.base_offset >= first]
            self._compare(key, f"{_name(partition)} of node {broker.node.node_id}", new)
            committed += new

    def _compare(self, key: Key, where: str, batches: Sequence[Stood]) -> None:
        known = self._known.setdefault(key, {})
        for one in batches:
            before = known.setdefault((one.base_offset, one.leader_epoch), one)
            if before != one:
                self._findings.wrong("replicas differ", f"{before} is {one} in {where}")

    def logs_of_leaders(self, brokers: Sequence[Broker]) -> dict[tuple[str, int], Log]:
        """What readers read, of every partition that has a leader."""
        return {
            (one.topic, one.index): one.log for broker in brokers for one in broker.topics.online() if not one.is_closed
        }

    # -- when everything is healed

    def lacking(self, brokers: Sequence[Broker]) -> list[str]:
        """What is not as it will be when nobody writes any more, and all nodes are up."""
        found = []
        by_id = {broker.node.node_id: broker for broker in brokers}
        for broker in brokers:
            node_id = broker.node.node_id
            for topic in broker.cluster.image.topics.values():
                for index, state in topic.partitions.items():
                    name = f"{topic.name}-{index} by node {node_id}"
                    leader = by_id.get(state.leader)
                    if leader is None or set(state.isr) != set(state.replicas):
                        found.append(f"{name}: node {state.leader} leads, {state.isr} of {state.replicas} in sync")
                        continue
                    if node_id not in state.replicas:
                        continue
                    here, there = (one.store.logs.get((topic.name, index)) for one in (broker, leader))
                    if here is None or there is None or here.end_offset != there.end_offset:
                        found.append(
                            f"{name}: ends at {here and here.end_offset}, leader at {there and there.end_offset}"
                        )
                    elif here.high_watermark != here.end_offset:
                        found.append(f"{name}: committed up to {here.high_watermark} of {here.end_offset}")
        return found

    def compare_all(self, brokers: Sequence[Broker]) -> None:
        """Batch by batch, from the latest start on. Nobody writes any more."""
        copies: dict[tuple[str, int], list[tuple[Broker, Log]]] = {}
        for broker in brokers:
            for key, log in broker.store.logs.items():
                copies.setdefault(key, []).append((broker, log))
        for (topic, index), logs in copies.items():
            if any(log.config.compacts for _, log in logs):
                continue
            first, end = max(log.start_offset for _, log in logs), min(log.high_watermark for _, log in logs)
            found = [(broker.node.node_id, list(batches_of(log, first, end))) for broker, log in logs]
            for node_id, batches in found[1:]:
                if batches != found[0][1]:
                    differ = next(
                        (two for two in zip(found[0][1], batches, strict=False) if two[0] != two[1]), "in length"
                    )
                    text = f"{topic}-{index} from {first} to {end}: nodes {found[0][0]} and {node_id} differ: {differ}"
                    self._findings.wrong("replicas differ", text)


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.index}"
