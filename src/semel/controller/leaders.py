"""Elections that are asked for: ElectLeaders, and the controller's own from time to time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from semel.controller.cluster_rules import ClusterRules
from semel.controller.elections import Election
from semel.controller.image import PartitionState, TopicState
from semel.controller.partition_changes import Wanted
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersTopicResult,
)
from semel.wire.spec.metadata_records import MetadataRecord, PartitionChangeRecord

_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}
# In one turn of the loop.
_MOST_ELECTIONS = 100


def elect_leaders(
    rules: ClusterRules, request: ElectLeadersRequest
) -> tuple[list[MetadataRecord], list[ElectLeadersTopicResult]]:
    """What an administrator asks for. When all partitions are asked for, those that need no election are not told."""
    election = _TYPES.get(request.election_type)
    if election is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is none of 0 and 1")
    topics = rules.image.topics
    if request.topic_partitions is None:
        named: Iterable[tuple[str, Iterable[int]]] = [(name, topic.partitions) for name, topic in topics.items()]
    else:
        named = [(one.topic, dict.fromkeys(one.partitions)) for one in request.topic_partitions]
    records: dict[tuple[str, int], MetadataRecord] = {}
    results: list[ElectLeadersTopicResult] = []
    for name, indexes in named:
        result: list[ElectLeadersPartitionResult] = []
        for index in indexes:
            topic = topics.get(name)
            code, record = _elected(rules, topic, index, election)
            if record is not None:
                records[name, index] = record  # named twice, it is elected once
            if request.topic_partitions is not None or code != ErrorCode.ELECTION_NOT_NEEDED:
                text = None if code == ErrorCode.NONE else code.text
                result.append(ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=text))
        results.append(ElectLeadersTopicResult(topic=name, partition_result=result))
    return list(records.values()), results


def _elected(
    rules: ClusterRules, topic: TopicState | None, index: int, election: Election
) -> tuple[ErrorCode, PartitionChangeRecord | None]:
    state = None if topic is None else topic.partitions.get(index)
    if topic is None or state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if _is_preferred(state) if election is Election.PREFERRED else state.leader >= 0:
        return ErrorCode.ELECTION_NOT_NEEDED, None
    record = rules.changed(topic, index, state, Wanted(election))
    if record is None and election is Election.PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None
    return (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if record is None else ErrorCode.NONE), record


def _is_preferred(state: PartitionState) -> bool:
    return state.leader == state.replicas[0]


def elect_preferred(rules: ClusterRules) -> tuple[list[MetadataRecord], bool]:
    """Partitions that the first of their replicas could lead and does not; and whether there may be more of them."""

    def found() -> Iterator[MetadataRecord]:
        for topic, index, state in rules.image.partitions():
            first = state.replicas[0]
            if not _is_preferred(state) and rules.is_active(first) and first in (state.isr or state.elr):
                record = rules.changed(topic, index, state, Wanted(Election.PREFERRED))
                if record is not None:
                    yield record

    return _some(found())


def elect_leaderless_uncleanly(rules: ClusterRules) -> tuple[list[MetadataRecord], bool]:
    """Partitions without a leader whose topics allow one that lacks records."""

    def found() -> Iterator[MetadataRecord]:
        for topic, index, state in rules.image.partitions():
            if state.leader < 0 and rules.election(topic.name) is Election.UNCLEAN:
                record = rules.changed(topic, index, state, Wanted(Election.UNCLEAN))
                if record is not None:
                    yield record

    return _some(found())


def _some(found: Iterator[MetadataRecord]) -> tuple[list[MetadataRecord], bool]:
    records: list[MetadataRecord] = []
    for record in found:
        records.append(record)
        if len(records) == _MOST_ELECTIONS:
            return records, True
    return records, False
