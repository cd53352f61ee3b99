"""AssignReplicasToDirs: a broker says in which of its directories its replicas are (KIP-858)."""

from __future__ import annotations

from semel.controller.cluster_rules import ClusterRules, is_online
from semel.controller.image import TopicState
from semel.controller.levels import DIRECTORIES
from semel.controller.partition_changes import Wanted
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.assign_replicas_to_dirs import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
)
from semel.wire.spec.metadata_records import MetadataRecord, PartitionChangeRecord


def assign_directories(
    rules: ClusterRules, request: AssignReplicasToDirsRequest
) -> tuple[list[MetadataRecord], list[AssignedDirectoryResult]]:
    if rules.image.metadata_version < DIRECTORIES:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION, f"directories come with metadata.version {DIRECTORIES}: this is an older one"
        )
    node_id = request.broker_id
    records: list[MetadataRecord] = []
    results: list[AssignedDirectoryResult] = []
    seen: set[tuple[bytes, int]] = set()
    for directory in request.directories:
        topics: list[AssignedTopicResult] = []
        for one in directory.topics:
            topic = rules.image.topic_by_id(one.topic_id)
            answers: list[AssignedPartitionResult] = []
            for partition in one.partitions:
                index = partition.partition_index
                code = _refusal(topic, index, node_id)
                if (one.topic_id, index) in seen:
                    code = ErrorCode.INVALID_REQUEST
                elif topic is not None and code == ErrorCode.NONE:
                    seen.add((one.topic_id, index))
                    record = _assigned(rules, topic, index, node_id, directory.id)
                    if record is not None:
                        records.append(record)
                answers.append(AssignedPartitionResult(partition_index=index, error_code=code))
            topics.append(AssignedTopicResult(topic_id=one.topic_id, partitions=answers))
        results.append(AssignedDirectoryResult(id=directory.id, topics=topics))
    return records, results


def _refusal(topic: TopicState | None, index: int, node_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    state = topic.partitions.get(index)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if node_id in state.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assigned(
    rules: ClusterRules, topic: TopicState, index: int, node_id: int, directory: bytes
) -> PartitionChangeRecord | None:
    """A replica that goes into a directory that is offline leaves the ISR in the same step, and the ELR: it may be
    emptied from then on."""
    state = topic.partitions[index]
    isr, unclean = None, set[int]()
    if not is_online(rules.image.brokers[node_id], directory):
        isr, unclean = tuple(one for one in state.isr if one != node_id), {node_id}
    wanted = Wanted(rules.election(topic.name), isr=isr, unclean=unclean, directories={node_id: directory})
    return rules.changed(topic, index, state, wanted)
