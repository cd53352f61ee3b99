"""What the replicas of the metadata log owe each other, held against them in every run of several nodes.

Rule 1: one node at most leads in an epoch. Rule 2: a batch is the same on every node, if offset and epoch are the same.
Rule 3: what a node was once told to be committed is in the log of every later leader, and is the same wherever it is
called committed. Rule 4: when everything is healed, one controller is active in bounded time, and all nodes have the
same image, whether they have read the whole log or have begun with a snapshot.

Nothing in the node knows of it: functions are wrapped for the time of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import cast
from unittest.mock import patch

from semel.broker.broker import Broker
from semel.log.log import Log
from semel.log.types import Offset
from semel.quorum import election
from semel.quorum.election import Election
from semel.quorum.quorum_replica import QuorumReplica
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.states import Event, State, next_state
from semel.records.batch import check_crc, whole_batches
from semel.sim.disk import SimDisk
from semel.sim.world.findings import Findings
from semel.sim.world.replicas import Stood, batches_of


def _is_damaged(log: Log) -> bool:
    """A bit has flipped on the disk of this node, which will find out when it reads the batch."""
    contents = [cast(SimDisk, log.disk).content_of(segment.path) or b"" for segment in log.segments]
    return any(not check_crc(data, position, header) for data in contents for position, header in whole_batches(data))


class QuorumRules:
    """Knows what all nodes of a run have said of the metadata log."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._leaders: dict[int, int] = {}
        self._known: dict[tuple[int, int], Stood] = {}
        self._committed: dict[int, Stood] = {}
        self._committed_end: Offset = 0

    def observe(self, stack: ExitStack) -> None:
        rules, lead, commit = self, QuorumReplica._lead, ReplicatedLog.commit

        def noted_lead(self: QuorumReplica, elected: Election) -> None:
            lead(self, elected)
            rules.leads(self._key.node_id, elected.epoch, self._log)

        def noted_commit(self: ReplicatedLog, high_watermark: Offset) -> bool:
            before = self.committed_end
            moved = commit(self, high_watermark)
            if moved:
                rules.committed(self, max(before, self.log.start_offset, 0))
            return moved

        def noted_move(state: State, event: Event) -> State:
            after = next_state(state, event)
            self._findings.saw(move_name(state, event, after))
            return after

        stack.enter_context(patch.object(QuorumReplica, "_lead", noted_lead))
        stack.enter_context(patch.object(ReplicatedLog, "commit", noted_commit))
        stack.enter_context(patch.object(election, "next_state", noted_move))

    def leads(self, node_id: int, epoch: int, log: ReplicatedLog) -> None:
        leader = self._leaders.setdefault(epoch, node_id)
        if leader != node_id:
            self._findings.wrong("two controllers", f"nodes {leader} and {node_id} lead the metadata log in {epoch}")
        if _is_damaged(log.log):
            return
        here = {one.base_offset: one for one in batches_of(log.log, log.log.start_offset, log.end_offset)}
        self._compare(f"node {node_id}", list(here.values()))
        for offset, one in self._committed.items():
            if offset >= log.log.start_offset and here.get(offset) != one:
                text = f"{one}: node {node_id}, which leads in epoch {epoch}, has {here.get(offset)} there"
                self._findings.wrong("committed metadata lost", text)
                return
        if log.end_offset < self._committed_end:
            text = f"node {node_id} leads in {epoch}, ends at {log.end_offset}, {self._committed_end} were committed"
            self._findings.wrong("committed metadata lost", text)

    def committed(self, log: ReplicatedLog, first: Offset) -> None:
        if _is_damaged(log.log):
            return
        new = [one for one in batches_of(log.log, first, log.committed_end) if one.base_offset >= first]
        self._compare(log.log.directory, new)
        for one in new:
            before = self._committed.setdefault(one.base_offset, one)
            if before != one:
                self._findings.wrong("committed metadata differ", f"{before} was committed, and now {one}")
        self._committed_end = max(self._committed_end, log.committed_end)

    def _compare(self, where: str, batches: Sequence[Stood]) -> None:
        for one in batches:
            before = self._known.setdefault((one.base_offset, one.leader_epoch), one)
            if before != one:
                self._findings.wrong("metadata logs differ", f"{before} is {one} in {where}")


def move_name(state: State, event: Event, after: State) -> str:
    return f"quorum: {state.name.lower()} {event.name.lower()} {after.name.lower()}"


def is_led(brokers: Sequence[Broker]) -> bool:
    return any(one.controller_part is not None and one.controller_part.is_active for one in brokers)


def compare_images(brokers: Sequence[Broker], findings: Findings) -> bool:
    """Whether all have read the same; then their images must be the same, too."""
    if len({broker.metadata.next_offset for broker in brokers}) > 1:
        return False
    for broker in brokers[1:]:
        if broker.metadata.committed != brokers[0].metadata.committed:
            ids = f"nodes {brokers[0].node.node_id} and {broker.node.node_id}"
            findings.wrong("images differ", f"{ids} have read the metadata log up to {broker.metadata.next_offset}")
    return True
