"""TxnOffsetCommit (28), versions 0-6: a group's offsets in a transaction, fenced by generation and member (KIP-447).

From version 5 on the group's partition joins the transaction by itself; before, AddOffsetsToTxn has to have come first.
From version 6 on topics are named by id, and two more codes say why a group does not take them (KIP-1319).
"""

from __future__ import annotations

from semel.broker.authoriser import Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.handlers.named_once import in_parts
from semel.broker.handlers.transaction_errors import note_fenced
from semel.broker.internal_topics import InternalTopics
from semel.broker.transaction_membership import COME_AGAIN, Joined, TransactionMembership
from semel.broker.transactional_produce import TransactionVerifier
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.offsets import OffsetToCommit
from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.coordinator.txn.decisions import Identity, TimedOut
from semel.log.errors import Refused
from semel.rpc.slices import Slices
from semel.wire.errors import ErrorCode
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_SECOND_GENERATION_SINCE = 5
_ABORTABLE_SINCE = 4
_TOPIC_IDS_SINCE = 6
# Before, clients do not know these two and are told that their generation is over.
_NEW_CODES = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH})


async def handle(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    *,
    cluster: ClusterView,
    groups: GroupCoordinator,
    verifier: TransactionVerifier,
    internal_topics: InternalTopics,
    slices: Slices,
) -> TxnOffsetCommitResponse:
    topics = [_unanswered(topic) for topic in request.topics]
    results = [result for topic in topics for result in topic.partitions]
    try:
        context.authorise(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.authorise(Operation.READ, ResourceType.GROUP, request.group_id)
        accepted: list[tuple[OffsetToCommit, TxnOffsetCommitResponsePartition]] = []
        for topic, answer in zip(request.topics, topics, strict=True):
            accepted += _readable(cluster, context, topic, answer)
            if slices.step():
                await slices.next()
        await internal_topics.ensure(OFFSETS_TOPIC)
        joined = verifier.membership.joined()
        try:
            await _join_transaction(verifier.membership, groups, request, context, joined)
            for number, some in enumerate(in_parts(accepted)):
                if number:
                    _check(verifier.membership, groups, request, context, joined)
                codes = await groups.commit_in_transaction(
                    request.group_id,
                    request.member_id,
                    request.generation_id,
                    request.group_instance_id,
                    request.producer_id,
                    request.producer_epoch,
                    [offset for offset, _ in some],
                )
                for offset, result in some:
                    result.error_code = codes[offset.topic, offset.partition]
        finally:
            joined.close()
    except Refused as refusal:
        code = _code_for(refusal, context.version)
        for result in results:
            result.error_code = code
    return TxnOffsetCommitResponse(topics=topics)


def _unanswered(topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
            for partition in topic.partitions
        ],
    )


def _readable(
    cluster: ClusterView,
    context: RequestContext,
    topic: TxnOffsetCommitRequestTopic,
    answer: TxnOffsetCommitResponseTopic,
) -> list[tuple[OffsetToCommit, TxnOffsetCommitResponsePartition]]:
    """What of one topic may be committed, with the place for its result; the others have their code."""
    accepted = []
    for one, result in zip(topic.partitions, answer.partitions, strict=True):
        try:
            name = topic.name
            if context.version >= _TOPIC_IDS_SINCE:
                name = cluster.topic_of_id(topic.topic_id).name
            context.authorise_topic(Operation.READ, name)
            cluster.partition(name, one.partition_index)
        except Refused as refusal:
            result.error_code = refusal.code
            continue
        offset = OffsetToCommit(
            name, one.partition_index, one.committed_offset, one.committed_leader_epoch, one.committed_metadata
        )
        accepted.append((offset, result))
    return accepted


async def _join_transaction(
    membership: TransactionMembership,
    groups: GroupCoordinator,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    joined: Joined,
) -> None:
    """When it returns, the offsets may be written, before anything else runs."""
    transactional_id, group_id = request.transactional_id, request.group_id
    claimed = Identity(request.producer_id, request.producer_epoch)
    partition = groups.shard_of(group_id).partition
    second_generation = context.version >= _SECOND_GENERATION_SINCE
    try:
        await membership.join(transactional_id, claimed, [partition], joined, second_generation=second_generation)
    except Refused as refusal:
        raise _explained(refusal, group_id) from refusal
    _check(membership, groups, request, context, joined)


def _check(
    membership: TransactionMembership,
    groups: GroupCoordinator,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    joined: Joined,
) -> None:
    """After every wait: the transaction may have been ended meanwhile."""
    claimed = Identity(request.producer_id, request.producer_epoch)
    second_generation = context.version >= _SECOND_GENERATION_SINCE
    try:
        # The shard may be another one now: this one's partition is closed then.
        shard = groups.shard_of(request.group_id)
        if second_generation or membership.verifies or not membership.is_elsewhere(request.transactional_id):
            membership.check(request.transactional_id, claimed, shard.partition, joined)
    except Refused as refusal:
        raise _explained(refusal, request.group_id) from refusal
    if not second_generation:
        shard.connections.check(claimed.producer_id, claimed, context.connection.number)


def _explained(refusal: Refused, group_id: str) -> Refused:
    if refusal.code in COME_AGAIN:
        # The coordinator of the group is the right one, and that of the transaction is not for its client to find.
        return Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, refusal.text)
    if refusal.code == ErrorCode.TRANSACTION_ABORTABLE and not isinstance(refusal, TimedOut):
        return Refused(
            ErrorCode.TRANSACTION_ABORTABLE, f"the offsets of {group_id!r} are not part of an open transaction"
        )
    return refusal


def _code_for(refusal: Refused, version: int) -> ErrorCode:
    """Fencing is INVALID_PRODUCER_EPOCH for this API in every version."""
    note_fenced(refusal)
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if refusal.code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH if isinstance(refusal, TimedOut) else ErrorCode.INVALID_TXN_STATE
    if refusal.code in _NEW_CODES and version < _TOPIC_IDS_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return refusal.code
