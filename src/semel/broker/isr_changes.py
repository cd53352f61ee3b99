"""Asks the controller for other in-sync replicas (AlterPartition), for all partitions that this node leads.

One request is under way at a time; what is proposed meanwhile goes with the next one, and each partition has one
proposal at most. What is not known to have failed may have been done: then the same is asked for again, or the metadata
log tells. Only two refusals say that nothing was changed and that it is to be given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from semel.broker.node_info import NodeInfo
from semel.host.complaints import Complaints
from semel.log.errors import Refused
from semel.metrics.node_counts import IsrCounts
from semel.peer.errors import PeerError
from semel.replication.in_sync import Proposal
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    IsrMember,
)

logger = logging.getLogger("semel.broker")

_GIVEN_UP = {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED}
# The controller knows newer things, which are on their way to this node.
_TOLD_BY_METADATA = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_ANSWER_S = 30.0

AlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class IsrChanges:
    """`alter_partition` is the controller's; what it raises as Refused or PeerError may have been done or not."""

    def __init__(
        self,
        node: NodeInfo,
        alter_partition: AlterPartition,
        on_broken: Callable[[BaseException], None],
        counts: IsrCounts,
    ) -> None:
        self._node = node
        self._on_broken = on_broken
        self._counts = counts
        self._alter_partition = alter_partition
        self._due: dict[tuple[bytes, int], tuple[Partition, Proposal]] = {}
        self._task: asyncio.Task[None] | None = None
        self._complaints = Complaints(logger)
        self._is_closed = False

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self._due[partition.topic_id, partition.index] = (partition, proposal)
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while True:
                asked = {key: one for key, one in self._due.items() if _is_wanted(*one)}
                self._due = {}
                if not asked:
                    return
                again = await self._send(asked)
                for key, one in again.items():
                    self._due.setdefault(key, one)
                if again:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                else:
                    pause_s = _FIRST_PAUSE_S
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_broken(error)
        finally:
            self._task = None

    async def _send(
        self, asked: dict[tuple[bytes, int], tuple[Partition, Proposal]]
    ) -> dict[tuple[bytes, int], tuple[Partition, Proposal]]:
        """Returns what is to be asked again."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                response = await self._alter_partition(self._request(asked))
        except (Refused, PeerError, OSError, TimeoutError) as error:
            self._complaints.say("unsent", logging.WARNING, "in-sync replicas cannot be changed now: %s", error)
            return asked
        if response.error_code:
            code = ErrorCode(response.error_code).name
            self._complaints.say("refused", logging.WARNING, "in-sync replicas cannot be changed now: %s", code)
            return asked
        answers = {(topic.topic_id, one.partition_index): one for topic in response.topics for one in topic.partitions}
        return {key: one for key, one in asked.items() if not self._is_over(*one, answers.get(key))}

    def _request(self, asked: dict[tuple[bytes, int], tuple[Partition, Proposal]]) -> AlterPartitionRequest:
        topics: dict[bytes, list[AlterPartitionRequestPartition]] = {}
        for (topic_id, index), (partition, proposal) in asked.items():
            members = zip(proposal.isr, proposal.broker_epochs, strict=True)
            topics.setdefault(topic_id, []).append(
                AlterPartitionRequestPartition(
                    partition_index=index,
                    leader_epoch=partition.leader_epoch,
                    new_isr=proposal.isr,
                    new_isr_with_epochs=[IsrMember(broker_id=one, broker_epoch=epoch) for one, epoch in members],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node.node_id,
            broker_epoch=self._node.broker_epoch,
            topics=[AlterPartitionRequestTopic(topic_id=one, partitions=found) for one, found in topics.items()],
        )

    def _is_over(
        self, partition: Partition, proposal: Proposal, answer: AlterPartitionResponsePartition | None
    ) -> bool:
        """Whether it need not be asked again."""
        replicas = partition.replicas
        if answer is None or replicas is None or not _is_wanted(partition, proposal):
            return answer is not None
        name, code = f"{partition.topic}-{partition.index}", answer.error_code
        if code == ErrorCode.NONE:
            if answer.leader_epoch == partition.leader_epoch:
                logger.info("%s: in-sync replicas are %s", name, ", ".join(map(str, answer.isr)))
                self._counts.changed(len(replicas.in_sync.isr), len(answer.isr))
                replicas.adopt(proposal, tuple(answer.isr), answer.partition_epoch)
            return True
        told = "%s: in-sync replicas %s are refused: %s"
        logger.info(told, name, ", ".join(map(str, proposal.isr)), ErrorCode(code).name)
        if code in _GIVEN_UP:
            replicas.withdraw(proposal)
        return code in _GIVEN_UP or code in _TOLD_BY_METADATA

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _is_wanted(partition: Partition, proposal: Proposal) -> bool:
    replicas = partition.replicas
    return not partition.is_closed and replicas is not None and replicas.in_sync.proposal is proposal
