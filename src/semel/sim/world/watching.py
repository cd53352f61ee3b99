"""What is looked at while a run goes on: offsets that must not go back, producer ids that must not repeat, moves of the
state machines. Nothing in the node knows of it: functions are wrapped for the time of a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from semel.broker.broker import Broker
from semel.broker.producer_ids import ProducerIds
from semel.coordinator.group import classic_group
from semel.coordinator.group.classic_states import ClassicState, next_state
from semel.coordinator.group.consumer_group import ConsumerGroup
from semel.coordinator.txn import decisions
from semel.coordinator.txn.state import TransactionState, moved
from semel.coordinator.txn.transactions import Transaction
from semel.log.errors import BrokenLog, Refused
from semel.log.types import ProducerId
from semel.replication.partition import Partition
from semel.sim.power import PowerLost
from semel.sim.world.findings import Findings
from semel.sim.world.overdue import Overdue
from semel.sim.world.quorum_rules import QuorumRules
from semel.sim.world.replicas import Replicas

LOOK_S = 0.05
WAITING_MAX = 300
"""Who waits in one partition, of the few clients of a run."""
TASKS_MAX = 600


def is_of_the_disk(error: BaseException | None) -> bool:
    """Whether the disk has refused something, and so the node may end itself: once, or in a write that could not be
    undone either. A log that is broken for another reason is the node's own mistake."""
    return isinstance(error, OSError) or (isinstance(error, BrokenLog) and isinstance(error.__cause__, OSError))


class Watch:
    """High watermarks and last stable offsets of every partition, and what is open, over all starts of the node.

    One of several nodes may lead again with less than it once told, as long as nobody was told that it is committed:
    there each term is looked at by itself, and `replicas` holds the terms of all nodes against each other."""

    def __init__(
        self,
        findings: Findings,
        count_tasks: Callable[[], int] = lambda: 0,
        overdue: Overdue | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self._findings = findings
        self._overdue = overdue
        self._replicas = replicas
        self._count_tasks = count_tasks
        self._seen: dict[tuple[bytes, int], tuple[int, int]] = {}
        self._watched: dict[tuple[bytes, int], Partition] = {}
        self._broker: Broker | None = None

    def follow(self, broker: Broker) -> None:
        """A node has started: what it holds must not be behind what was seen before."""
        self._broker = broker
        self._watched.clear()
        if self._overdue is not None:
            self._overdue.restarted()
        self.look()

    def forget(self) -> None:
        """The node has lost its disk: it may be behind what was seen."""
        self._seen.clear()

    def stop(self) -> None:
        for partition in self._watched.values():
            partition.unwatch(self)
        self._watched.clear()
        self._broker = None

    async def run(self) -> None:
        """New partitions are found by looking, what happens in each is told by the partition itself."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        if self._broker is None:
            return
        if self._count_tasks() > TASKS_MAX:
            self._findings.wrong("too many tasks", f"{self._count_tasks()} at once")
        if self._overdue is not None:
            self._overdue.look(self._broker.transactions.transactions(), self._is_undecidable)
        if self._replicas is not None:
            self._replicas.look()
        for partition in self._broker.topics.online():
            key = (partition.topic_id, partition.index)
            if self._watched.get(key) is not partition:
                self._watched[key] = partition
                if self._replicas is not None:
                    self._seen.pop(key, None)
                    self._replicas.leads(self._broker, partition)
                partition.watch(self, lambda partition=partition: self._check(partition))  # type: ignore[misc]
            self._check(partition)

    def _is_undecidable(self, transaction: Transaction) -> bool:
        if self._broker is None:
            return True
        try:
            shard = self._broker.transactions.shards.for_key(transaction.transactional_id)
        except Refused:
            return True  # its term is over
        replicas = shard.partition.replicas
        return replicas is not None and not replicas.has_enough

    def _check(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        high, stable = partition.log.high_watermark, partition.log.last_stable_offset
        last_high, last_stable = self._seen.get(key, (0, 0))
        name = f"{partition.topic}-{partition.index}"
        waiting = len(partition.waiting) + len(partition.watchers)
        if waiting > WAITING_MAX:
            self._findings.wrong("queue without bound", f"{waiting} wait at {name}")
        if high < last_high:
            self._findings.wrong("high watermark back", f"of {name}: {last_high} became {high}")
        if stable < last_stable:
            self._findings.wrong("last stable offset back", f"of {name}: {last_stable} became {stable}")
        self._seen[key] = (max(high, last_high), max(stable, last_stable))
        if self._replicas is not None and self._broker is not None:
            self._replicas.committed(self._broker, partition)


class Complaints(logging.Handler):
    """A mistake that a node or a client met, logged and survived is a mistake all the same."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(logging.ERROR)
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, PowerLost) and not is_of_the_disk(error):
            self._findings.wrong("unexpected error", f"{record.getMessage()}: {type(error).__name__}: {error}")


@contextmanager
def observed(findings: Findings) -> Iterator[None]:
    with ExitStack() as stack:
        _observe_moves(stack, findings)
        _observe_producer_ids(stack, findings)
        QuorumRules(findings).observe(stack)
        complaints = Complaints(findings)
        logger = logging.getLogger("semel")
        was_loud, level = logger.propagate, logger.level
        logger.addHandler(complaints)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.removeHandler(complaints)
            logger.propagate = was_loud
            logger.setLevel(level)


def _observe_moves(stack: ExitStack, findings: Findings) -> None:
    set_current = ConsumerGroup.set_current

    def noted_move(state: TransactionState, event: Any) -> TransactionState:
        after = moved(state, event)
        findings.saw(f"transaction: {state.label} {event.name.lower()} {after.label}")
        return after

    def noted_state(state: ClassicState, event: Any) -> ClassicState:
        after = next_state(state, event)
        findings.saw(f"classic group: {state.value} {event.name.lower()} {after.value}")
        return after

    def noted_member(self: ConsumerGroup, member_id: str, value: Any) -> None:
        before = self.members.get(member_id)
        set_current(self, member_id, value)
        after = self.members.get(member_id)
        if after is not None:
            name = "new" if before is None or before.epoch == 0 else before.state.name.lower()
            findings.saw(f"member: {name} to {after.state.name.lower()}")

    stack.enter_context(patch.object(decisions, "moved", noted_move))
    stack.enter_context(patch.object(classic_group, "next_state", noted_state))
    stack.enter_context(patch.object(ConsumerGroup, "set_current", noted_member))


def _observe_producer_ids(stack: ExitStack, findings: Findings) -> None:
    given: set[int] = set()
    right = ProducerIds.next

    async def noted(self: ProducerIds) -> ProducerId:
        producer_id = await right(self)
        if producer_id in given:
            findings.wrong("producer id repeated", f"{producer_id} was given out twice")
        given.add(producer_id)
        return producer_id

    stack.enter_context(patch.object(ProducerIds, "next", noted))
