"""AlterPartition: a leader asks for another ISR, partition by partition (CLUSTER.md 3.5).

A leader's proposal counts only if it knows the newest state of the partition: its epochs say so. Who joins the ISR must
be active and be the same incarnation that has fetched: with an earlier one's data it would be in the ISR without them
(KAFKA-15221, KAFKA-14617).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.controller.cluster_rules import ClusterRules
from semel.controller.image import MetadataImage, PartitionState, TopicState, merged
from semel.controller.partition_changes import Wanted
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
    IsrMember,
)
from semel.wire.spec.metadata_records import NO_LEADER_CHANGE, PartitionChangeRecord

_ANY_EPOCH = -1


class IsrDecision(NamedTuple):
    record: PartitionChangeRecord | None
    answer: AlterPartitionResponsePartition


def alter_isr(
    rules: ClusterRules,
    node_id: int,
    topic: TopicState | None,
    state: PartitionState | None,
    proposed: AlterPartitionRequestPartition,
) -> IsrDecision:
    """What comes of one leader's proposal."""
    index = proposed.partition_index
    if topic is None or state is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return IsrDecision(None, AlterPartitionResponsePartition(partition_index=index, error_code=code))
    members = proposed.new_isr_with_epochs or [IsrMember(broker_id=one) for one in proposed.new_isr]
    code = _refusal(rules.image, node_id, state, proposed, members)
    if code != ErrorCode.NONE:
        return IsrDecision(None, AlterPartitionResponsePartition(partition_index=index, error_code=code))
    wanted = Wanted(
        rules.election(topic.name),
        isr=tuple(one.broker_id for one in members),
        is_recovering=proposed.leader_recovery_state > 0,
    )
    record = rules.changed(topic, index, state, wanted)
    if record is not None:
        state = merged(state, record)
        if record.leader not in (node_id, NO_LEADER_CHANGE):
            # The end of a reassignment has moved the leader: written, and told as an error, as Kafka does.
            answer = AlterPartitionResponsePartition(partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED)
            return IsrDecision(record, answer)
    return IsrDecision(
        record,
        AlterPartitionResponsePartition(
            partition_index=index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            leader_recovery_state=int(state.is_recovering),
            partition_epoch=state.partition_epoch,
        ),
    )


def _refusal(
    image: MetadataImage,
    node_id: int,
    state: PartitionState,
    proposed: AlterPartitionRequestPartition,
    members: Sequence[IsrMember],
) -> ErrorCode:
    """In Kafka's order: the first that applies is told. An epoch above ours: we are the ones who are behind, and must
    not say that the leader is (KAFKA-14154)."""
    isr = [one.broker_id for one in members]
    is_recovering = proposed.leader_recovery_state > 0
    if proposed.leader_epoch > state.leader_epoch or proposed.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposed.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if node_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if proposed.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if len(set(isr)) < len(isr) or not set(isr) <= set(state.replicas) or state.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if is_recovering and (len(isr) > 1 or not state.is_recovering):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if all(_may_join(image, one) for one in members) else ErrorCode.INELIGIBLE_REPLICA


def _may_join(image: MetadataImage, member: IsrMember) -> bool:
    is_known = image.is_active(member.broker_id)
    return is_known and member.broker_epoch in (_ANY_EPOCH, image.brokers[member.broker_id].broker_epoch)


def alter_partitions(
    rules: ClusterRules, request: AlterPartitionRequest
) -> tuple[list[PartitionChangeRecord], list[AlterPartitionResponseTopic]]:
    """All proposals of a request; each partition is named once, a second time it is refused."""
    records: list[PartitionChangeRecord] = []
    topics: list[AlterPartitionResponseTopic] = []
    seen: set[tuple[bytes, int]] = set()
    for one in request.topics:
        topic = rules.image.topic_by_id(one.topic_id)
        answers: list[AlterPartitionResponsePartition] = []
        for proposed in one.partitions:
            key = one.topic_id, proposed.partition_index
            if key in seen:
                code = ErrorCode.INVALID_REQUEST
                answers.append(AlterPartitionResponsePartition(partition_index=key[1], error_code=code))
                continue
            seen.add(key)
            state = None if topic is None else topic.partitions.get(proposed.partition_index)
            decision = alter_isr(rules, request.broker_id, topic, state, proposed)
            answers.append(decision.answer)
            if decision.record is not None:
                records.append(decision.record)
        topics.append(AlterPartitionResponseTopic(topic_id=one.topic_id, partitions=answers))
    return records, topics
