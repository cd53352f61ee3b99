"""Which replicas lead and where they are: elections, and moves to other nodes. Both are the controller's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from semel.client.admin.admin_requests import AdminPart, Places, by_topic, problem_of
from semel.client.admin.outcome import Sheet
from semel.client.admin.values import ElectionType, Reassignment
from semel.client.metadata import TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from semel.wire.spec.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopic
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from semel.wire.spec.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
)

_UNCLEAN_SINCE = 1
_LATEST = -1
_WHO_DEBUGS = -2
"""Stands where a follower would give its number: any replica answers, with the end of its own log."""


class ReplicasPart(AdminPart):
    async def elect_leaders(
        self, partitions: Places, kind: ElectionType = ElectionType.PREFERRED
    ) -> dict[TopicPartition, bool]:
        """Has leaders elected; tells for each partition whether one was, or none was needed. After an answer that was
        lost, "none was needed" may speak of the election that was asked for."""
        sheet: Sheet[TopicPartition, bool] = Sheet(
            await self._ask.partitions(partitions), lambda place: f"electing a leader of {place}"
        )

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = ElectLeadersRequest(
                election_type=kind,
                topic_partitions=[
                    ElectLeadersTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic(places).items()
                ],
                timeout_ms=self._ask.server_timeout_ms,
            )
            answer = await self._ask.cluster.call(
                node_id,
                request,
                ElectLeadersResponse,
                at_least=_UNCLEAN_SINCE if kind != ElectionType.PREFERRED else 0,
            )
            if answer.error_code != ErrorCode.NONE:
                for place in places:
                    sheet.accepts(place, answer.error_code)
                return
            for topic in answer.replica_election_results:
                for result in topic.partition_result:
                    place = TopicPartition(topic.topic, result.partition_id)
                    was_needed = result.error_code != ErrorCode.ELECTION_NOT_NEEDED
                    code = result.error_code if was_needed else ErrorCode.NONE
                    if sheet.accepts(place, code, result.error_message):
                        sheet.done(place, was_needed)

        return await self._ask.work_off(sheet, self._ask.to_controller, ask)

    async def replica_ends(self, node_id: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of one node end, whether it leads them or follows. It is asked once: raises a SemelError if it
        does not answer; partitions for which it has no answer are left out."""
        request = ListOffsetsRequest(
            replica_id=_WHO_DEBUGS,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
            timeout_ms=self._ask.server_timeout_ms,
        )
        answer = await self._ask.cluster.call(node_id, request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, found.partition_index): found.offset
            for topic in answer.topics
            for found in topic.partitions
            if found.error_code == ErrorCode.NONE and found.offset >= 0
        }

    async def alter_partition_reassignments(self, moves: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Moves partitions to these nodes, the preferred leader first; None calls a move off. The call returns when the
        moves have begun, `list_partition_reassignments` tells which are under way."""
        wanted = {TopicPartition(*place): nodes for place, nodes in moves.items()}
        sheet: Sheet[TopicPartition, None] = Sheet(
            wanted,
            lambda place: f"moving {place}",
            made_already=(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,),
        )

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._ask.server_timeout_ms,
                topics=[
                    ReassignableTopic(
                        name=topic,
                        partitions=[_move(index, wanted[TopicPartition(topic, index)]) for index in indexes],
                    )
                    for topic, indexes in by_topic(places).items()
                ],
            )
            answer = await self._ask.cluster.call(node_id, request, AlterPartitionReassignmentsResponse)
            if answer.error_code != ErrorCode.NONE:
                for place in places:
                    sheet.accepts(place, answer.error_code, answer.error_message)
                return
            for topic in answer.responses:
                for result in topic.partitions:
                    place = TopicPartition(topic.name, result.partition_index)
                    if sheet.accepts(place, result.error_code, result.error_message):
                        sheet.done(place, None)

        await self._ask.work_off(sheet, self._ask.to_controller, ask)

    async def list_partition_reassignments(
        self, partitions: Places | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way, of all partitions or of these."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(await self._ask.partitions(partitions)).items()
            ]
        answer = await self._ask.one(
            "listing the reassignments",
            ListPartitionReassignmentsRequest(timeout_ms=self._ask.server_timeout_ms, topics=topics),
            ListPartitionReassignmentsResponse,
            route=self._ask.to_controller,
            problem=problem_of,
        )
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in answer.topics
            for one in topic.partitions
        }


def _move(index: int, nodes: Iterable[int] | None) -> ReassignablePartition:
    return ReassignablePartition(partition_index=index, replicas=None if nodes is None else list(nodes))
