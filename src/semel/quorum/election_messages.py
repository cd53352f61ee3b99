"""Vote, BeginQuorumEpoch and EndQuorumEpoch as requests to another voter, and what is in their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from semel.log.types import Epoch
from semel.peer.caller import PeerCaller
from semel.peer.calls import HostPort
from semel.quorum.election import Kind, Message
from semel.quorum.metadata_topic import NO_LEADER, PARTITION, TOPIC
from semel.quorum.voters import ReplicaKey
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request
from semel.wire.spec import begin_quorum_epoch as begin
from semel.wire.spec import end_quorum_epoch as end
from semel.wire.spec import vote

REQUEST_TIMEOUT_S = 2.0
_PRE_VOTES_SINCE = 2


class Answer(NamedTuple):
    code: int
    epoch: Epoch
    leader_id: int
    is_granted: bool
    endpoints: Mapping[int, HostPort]


class _Partition(Protocol):
    error_code: int
    leader_id: int
    leader_epoch: int


class _Topic(Protocol):
    @property
    def partitions(self) -> Sequence[_Partition]: ...


class _Node(Protocol):
    node_id: int
    host: str
    port: int


async def ask(
    calls: PeerCaller, cluster_id: str, own: ReplicaKey, message: Message, endpoints: Mapping[str, HostPort]
) -> Answer:
    """Sends it. Raises PeerError, Unsupported above all when a pre-vote is not known there."""
    if message.kind in (Kind.VOTE, Kind.PRE_VOTE):
        is_pre_vote = message.kind is Kind.PRE_VOTE
        asked = await calls.call(
            message.to.node_id,
            _vote(cluster_id, own, message),
            vote.VoteResponse,
            timeout_s=REQUEST_TIMEOUT_S,
            at_least=_PRE_VOTES_SINCE if is_pre_vote else 0,
            at_most=2,
        )
        granted = any(partition.vote_granted for topic in asked.topics for partition in topic.partitions)
        return _answer(asked.error_code, asked.topics, asked.node_endpoints)._replace(is_granted=granted)
    request: Request
    response: type[begin.BeginQuorumEpochResponse | end.EndQuorumEpochResponse]
    if message.kind is Kind.BEGIN_EPOCH:
        request, response = _begin(cluster_id, own, message, endpoints), begin.BeginQuorumEpochResponse
    else:
        request, response = _end(cluster_id, own, message, endpoints), end.EndQuorumEpochResponse
    told = await calls.call(message.to.node_id, request, response, timeout_s=REQUEST_TIMEOUT_S, at_most=1)
    return _answer(told.error_code, told.topics, told.node_endpoints)


def _vote(cluster_id: str, own: ReplicaKey, message: Message) -> vote.VoteRequest:
    partition = vote.VoteRequestPartition(
        partition_index=PARTITION,
        replica_epoch=message.epoch,
        replica_id=own.node_id,
        replica_directory_id=own.directory_id,
        voter_directory_id=message.to.directory_id,
        last_offset_epoch=message.last_epoch,
        last_offset=message.last_offset,
        pre_vote=message.kind is Kind.PRE_VOTE,
    )
    topic = vote.VoteRequestTopic(topic_name=TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=message.to.node_id, topics=[topic])


def _begin(
    cluster_id: str, own: ReplicaKey, message: Message, endpoints: Mapping[str, HostPort]
) -> begin.BeginQuorumEpochRequest:
    partition = begin.BeginQuorumEpochRequestPartition(
        partition_index=PARTITION,
        voter_directory_id=message.to.directory_id,
        leader_id=own.node_id,
        leader_epoch=message.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=message.to.node_id,
        topics=[begin.BeginQuorumEpochRequestTopic(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[
            begin.LeaderEndpoint(name=name, host=one.host, port=one.port) for name, one in endpoints.items()
        ],
    )


def _end(
    cluster_id: str, own: ReplicaKey, message: Message, endpoints: Mapping[str, HostPort]
) -> end.EndQuorumEpochRequest:
    partition = end.EndQuorumEpochRequestPartition(
        partition_index=PARTITION,
        leader_id=own.node_id,
        leader_epoch=message.epoch,
        preferred_successors=[one.node_id for one in message.preferred],
        preferred_candidates=[
            end.PreferredCandidate(candidate_id=one.node_id, candidate_directory_id=one.directory_id)
            for one in message.preferred
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end.EndQuorumEpochRequestTopic(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[
            end.LeaderEndpoint(name=name, host=one.host, port=one.port) for name, one in endpoints.items()
        ],
    )


def _answer(code: int, topics: Sequence[_Topic], nodes: Sequence[_Node]) -> Answer:
    """Errors of the quorum stand at the one partition, all others at the top."""
    endpoints = {one.node_id: HostPort(one.host, one.port) for one in nodes if one.host and one.port > 0}
    partitions = [partition for topic in topics for partition in topic.partitions]
    if code or len(partitions) != 1:
        return Answer(code or ErrorCode.INVALID_REQUEST, -1, NO_LEADER, False, endpoints)
    found = partitions[0]
    return Answer(found.error_code, found.leader_epoch, found.leader_id, False, endpoints)
