"""Reassignment: partitions move to other brokers. Begun, called off and listed here; it ends with the change to an ISR
that makes it complete (partition_changes.py).

While it lasts a partition has the replicas that it is to have and, behind them, those that it is to lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from semel.controller.cluster_rules import ClusterRules
from semel.controller.elections import Election
from semel.controller.image import MetadataImage, PartitionState, TopicState
from semel.controller.partition_changes import Wanted
from semel.controller.topics import check_assignment
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from semel.wire.spec.list_partition_reassignments import (
    ListPartitionReassignmentsTopic,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from semel.wire.spec.metadata_records import MetadataRecord, PartitionChangeRecord


def reassign(
    rules: ClusterRules, request: AlterPartitionReassignmentsRequest
) -> tuple[list[MetadataRecord], list[ReassignableTopicResponse]]:
    """Each partition on its own; one that is named twice is refused the second time."""
    records: list[MetadataRecord] = []
    responses: list[ReassignableTopicResponse] = []
    seen: set[tuple[str, int]] = set()
    for one in request.topics:
        answers: list[ReassignablePartitionResponse] = []
        for partition in one.partitions:
            index = partition.partition_index
            answer = ReassignablePartitionResponse(partition_index=index)
            try:
                if (one.name, index) in seen:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"{one.name}-{index} is named twice")
                seen.add((one.name, index))
                topic, state = _known(rules.image, one.name, index)
                if partition.replicas is None:
                    record = _call_off(rules, topic, index, state)
                else:
                    target = tuple(partition.replicas)
                    check_assignment(rules.image, f"{one.name}-{index}", target)
                    if not request.allow_replication_factor_change:
                        _check_factor(state, target)
                    record = _begin(rules, topic, index, state, target)
            except Refused as refusal:
                answer.error_code, answer.error_message = refusal.code, refusal.text
            else:
                if record is not None:
                    records.append(record)
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=one.name, partitions=answers))
    return records, responses


def _known(image: MetadataImage, name: str, index: int) -> tuple[TopicState, PartitionState]:
    topic = image.topics.get(name)
    state = None if topic is None else topic.partitions.get(index)
    if topic is None or state is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
    return topic, state


def _check_factor(state: PartitionState, target: Sequence[int]) -> None:
    present = len({*state.replicas, *state.adding} - {*state.removing})
    if present != len(target):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {present} replicas, and {len(target)} are named: their number is not to change",
        )


def _begin(
    rules: ClusterRules, topic: TopicState, index: int, state: PartitionState, target: tuple[int, ...]
) -> PartitionChangeRecord | None:
    """What is under way already is replaced. A mere change of the order is done at once."""
    removing = tuple(sorted(set(state.replicas) - set(target)))
    wanted = Wanted(
        replicas=target + removing, removing=removing, adding=tuple(sorted(set(target) - set(state.replicas)))
    )
    return rules.changed(topic, index, state, wanted)


def _call_off(
    rules: ClusterRules, topic: TopicState, index: int, state: PartitionState
) -> PartitionChangeRecord | None:
    """The replicas that were being added go, those that were to go stay. Refused when only what was added is in sync,
    unless the topic allows the loss."""
    if not state.is_reassigning:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.name}-{index} is not being moved")
    replicas = tuple(one for one in state.replicas if one not in state.adding)
    isr = tuple(one for one in state.isr if one not in state.adding)
    election = rules.election(topic.name)
    if state.isr and not isr and not any(one in replicas for one in state.elr):
        if election is not Election.UNCLEAN:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{topic.name}-{index} cannot go back: only replicas that were added are in sync, and others would "
                "lead with records missing",
            )
        return rules.changed(
            topic,
            index,
            state,
            Wanted(election, isr=replicas[:1], replicas=replicas, removing=(), adding=(), is_recovering=True),
        )
    return rules.changed(topic, index, state, Wanted(election, isr=isr, replicas=replicas, removing=(), adding=()))


def ongoing(
    image: MetadataImage, topics: Iterable[ListPartitionReassignmentsTopic] | None
) -> list[OngoingTopicReassignment]:
    """What moves, of these topics or of all."""
    if topics is None:
        named: Iterable[tuple[str, Iterable[int]]] = [(name, topic.partitions) for name, topic in image.topics.items()]
    else:
        named = [(one.name, one.partition_indexes) for one in topics]
    found: list[OngoingTopicReassignment] = []
    for name, indexes in named:
        topic = image.topics.get(name)
        states = {} if topic is None else {one: topic.partitions[one] for one in indexes if one in topic.partitions}
        moving = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
            for index, state in states.items()
            if state.is_reassigning
        ]
        if moving:
            found.append(OngoingTopicReassignment(name=name, partitions=moving))
    return found
