"""What the replicas of a partition owe each other, held against them in every run of several nodes.

Rule 1: one node at most leads a partition in an epoch. Rule 2: a batch is the same on every node, if offset and epoch
are the same. Rule 3: what a leader has once called committed is in the log of every later leader. Rule 4: whoever may
be elected cleanly (ISR and ELR, as the controller has them) holds on its disk all that was ever called committed, and
at least `min.insync.replicas` of them do. Rule 5: fenced nodes neither lead nor are in sync. Rule 6: when everything is
healed, all replicas are in sync, hold the same batches, and know the same of producers.

Disks are read behind the back of the node: a look is no call that could fail, and takes no time. Logs that are
compacted may lack batches: what they owe is judged by their readers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, cast

from semel.broker.broker import Broker
from semel.controller.image import MetadataImage, PartitionState
from semel.log.log import Log
from semel.log.producers import Producers
from semel.log.types import Offset
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


class Node(Protocol):
    """A node of the world, and what it runs at present."""

    is_up: bool

    @property
    def broker(self) -> Broker: ...


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

    def __init__(self, findings: Findings, nodes: Callable[[], Sequence[Node]]) -> None:
        self._findings = findings
        self._nodes = nodes
        self._ends: dict[Key, Offset] = {}
        """How far each partition was ever called committed."""
        self._told: set[tuple[str, object]] = set()
        self.has_clones = False
        """What a node of the world holds need not be what the cluster takes it to hold: rules 4 and 5 rest."""
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
            if one.leader_epoch > partition.leader_epoch:
                continue  # of a term that is newer than this one, which begins late and gets nothing committed
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
        if log.high_watermark > self._ends.get(key, 0):
            self._ends[key] = log.high_watermark
            self._check_copies(partition)
        self._check_eligible(partition)
        if log.config.compacts:
            return
        committed = self._committed.setdefault(key, [])
        first = committed[-1].last_offset + 1 if committed else 0
        if first < log.high_watermark:
            new = [one for one in batches_of(log, first, log.high_watermark) if one.base_offset >= first]
            self._compare(key, f"{_name(partition)} of node {broker.node.node_id}", new)
            committed += new

    # -- who may lead

    def _image(self) -> MetadataImage | None:
        """What the controller has committed; None while there is no controller."""
        if self.has_clones:
            return None
        for node in self._nodes():
            part = node.broker.controller_part if node.is_up else None
            if part is not None and part.is_active:
                return part.metadata.committed
        return None

    def _state(self, partition: Partition) -> PartitionState | None:
        """As the controller has it; None if it has another leader by now."""
        image = self._image()
        topic = None if image is None else image.topic_by_id(partition.topic_id)
        state = None if topic is None else topic.partitions.get(partition.index)
        return None if state is None or state.leader_epoch != partition.leader_epoch else state

    def _log(self, node_id: int, partition: Partition) -> Log | None:
        """That of a node that is up: what is on another's disk is not known."""
        node = self._nodes()[node_id - 1]
        return node.broker.store.logs.get((partition.topic, partition.index)) if node.is_up else None

    def _check_copies(self, partition: Partition) -> None:
        """The high watermark has moved: who may lack what is committed now?"""
        state = self._state(partition)
        if state is None:
            return
        config, high_watermark = partition.log.config, partition.log.high_watermark
        least = min(config.min_insync_replicas, len(state.replicas))
        logs = [self._log(node_id, partition) for node_id in state.replicas]
        copies = sum(log is None or _held(log) >= high_watermark for log in logs)
        if copies < least:
            text = f"{_name(partition)} is committed up to {high_watermark}, which {copies} of {least} nodes have"
            self._wrong_once("too few copies", partition, text)

    def _check_eligible(self, partition: Partition) -> None:
        """Of the ISR and the ELR, whoever is up."""
        state = self._state(partition)
        end = self._ends.get((partition.topic_id, partition.index), 0)
        for node_id in () if state is None else (*state.isr, *state.elr):
            log = self._log(node_id, partition)
            if log is not None and _held(log) < end:
                text = f"{_name(partition)} was committed up to {end}, node {node_id} may lead it with {_held(log)}"
                self._wrong_once("eligible without what is committed", (partition, node_id), text)

    def _wrong_once(self, kind: str, where: object, text: str) -> None:
        if (kind, where) not in self._told:
            self._told.add((kind, where))
            self._findings.wrong(kind, text)

    def look(self) -> None:
        """Now and then: what the controller has committed keeps to rule 5."""
        image = self._image()
        if image is None:
            return
        gone = {node_id for node_id, broker in image.brokers.items() if broker.fenced}
        for topic, index, state in image.partitions():
            fenced = sorted(gone.intersection(state.isr)) if len(state.isr) > 1 else []
            if state.leader in gone or fenced:
                text = f"{topic.name}-{index}: node {state.leader} leads, {state.isr} are in sync, {gone} are fenced"
                self._wrong_once("fenced node in charge", (topic.name, index), text)

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
            self._compare_producers(f"{topic}-{index}", logs)
            for node_id, batches in found[1:]:
                if batches != found[0][1]:
                    differ = next(
                        (two for two in zip(found[0][1], batches, strict=False) if two[0] != two[1]), "in length"
                    )
                    text = f"{topic}-{index} from {first} to {end}: nodes {found[0][0]} and {node_id} differ: {differ}"
                    self._findings.wrong("replicas differ", text)

    def _compare_producers(self, name: str, logs: Sequence[tuple[Broker, Log]]) -> None:
        """Of who is known to both: one that is silent may be forgotten sooner on one node than on another."""
        (first, reference), *others = logs
        for broker, log in others:
            for producer_id in reference.producers.live_rows.keys() & log.producers.live_rows.keys():
                here, there = (_known_of(one.producers, producer_id) for one in (reference, log))
                if here != there:
                    nodes = f"node {first.node.node_id} knows {here} of it, node {broker.node.node_id} {there}"
                    self._findings.wrong("producers differ", f"producer {producer_id} of {name}: {nodes}")


def _held(log: Log) -> Offset:
    """What a power cut leaves, where that is promised."""
    return log.flushed_offset if log.config.flush_messages == 1 else log.end_offset


def _known_of(producers: Producers, producer_id: int) -> tuple[object, ...]:
    entry = producers.entry(producer_id)
    assert entry is not None
    return (
        entry.epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
        producers.window(producer_id),
    )


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.index}"
