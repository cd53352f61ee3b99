"""Fetch (1) on listeners of controllers, versions 4-18: the metadata log, for brokers and controllers that follow it.

The position that a request names is judged first (KIP-595): one that is not part of this log is told where the logs
part, or which snapshot to load. What is given need not be committed; the high watermark in each answer says how far it
is. A request with nothing to give is parked until something is appended, until the high watermark is above the one that
it names, or until its time is up. There are no sessions here, and topics are named by id from version 13 on. A node
that does not lead says who does; so does one whose term ends while a request is parked.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.node_info import NodeInfo
from semel.broker.parked_fetch import ParkedFetch
from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.log.log import Cold
from semel.quorum.fetch_validation import Judgement, Verdict
from semel.quorum.metadata_topic import PARTITION, TOPIC, TOPIC_ID
from semel.quorum.owner import LogReplica
from semel.quorum.raft_messages import NO_HIGH_WATERMARK
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    SnapshotId,
)

_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_MOST_WAIT_MS = 60_000
_NO_ONE = -1


def handle(
    request: FetchRequest,
    context: RequestContext,
    *,
    node: NodeInfo,
    replica: LogReplica,
) -> FetchResponse | ParkedFetch:
    try:
        context.authorise_cluster(Operation.CLUSTER_ACTION)
        wanted = _checked(request, context.version, node.cluster_id)
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code)
    fetch = _Fetch(request, wanted, context, replica)
    fetch.read()
    if fetch.is_complete and not fetch.cold:
        return fetch.response()
    return ParkedFetch(fetch, min(request.max_wait_ms, _MOST_WAIT_MS))


def _checked(request: FetchRequest, version: int, cluster_id: str) -> FetchRequestPartition:
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}")
    is_one = len(request.topics) == 1 and len(request.topics[0].partitions) == 1
    if is_one and request.topics[0].partitions[0].partition == PARTITION:
        topic = request.topics[0]
        if topic.topic_id == TOPIC_ID if version >= _TOPIC_IDS_SINCE else topic.topic == TOPIC:
            return topic.partitions[0]
    raise Refused(ErrorCode.INVALID_REQUEST, f"partition 0 of {TOPIC} is served here, and nothing else")


class _Fetch:
    """One request, from its first try to its answer."""

    def __init__(
        self,
        request: FetchRequest,
        wanted: FetchRequestPartition,
        context: RequestContext,
        replica: LogReplica,
    ) -> None:
        self._request = request
        self._wanted = wanted
        self._context = context
        self._replica = replica
        self._term: Term | None = None
        self._code = ErrorCode.NONE
        self._judgement: Judgement | None = None
        self._records: FileRange | None = None
        self.cold: list[Cold] = []

    @property
    def is_complete(self) -> bool:
        return (
            self._code != ErrorCode.NONE
            or self._term is None
            or self._judgement is None
            or self._judgement.verdict is not Verdict.VALID
            or self._records is not None
            or self._request.max_wait_ms <= 0
            or self._term.high_watermark > self._wanted.high_watermark
        )

    def read(self, *, warmed: bool = False) -> None:
        self.release()
        wanted = self._wanted
        try:
            self._check()
            self._term = term = self._replica.leading(wanted.current_leader_epoch)
            self._judgement = term.judge(wanted.fetch_offset, max(wanted.last_fetched_epoch, 0))
            if self._judgement.verdict is not Verdict.VALID:
                return
            self._note(term)
            most = max(min(self._request.max_bytes, wanted.partition_max_bytes), 1)
            found = term.read(wanted.fetch_offset, most, warmed=warmed)
            if isinstance(found, Cold):
                self.cold = [found]
            else:
                self._records = found
        except Refused as refusal:
            self._code = refusal.code

    def _check(self) -> None:
        wanted = self._wanted
        if self._request.max_wait_ms < 0 or wanted.fetch_offset < 0 or wanted.last_fetched_epoch < _NO_ONE:
            raise Refused(ErrorCode.INVALID_REQUEST, "a time, an offset or an epoch below zero")
        if wanted.last_fetched_epoch > wanted.current_leader_epoch:
            raise Refused(ErrorCode.INVALID_REQUEST, "records of a later epoch than that which it knows of")

    def _note(self, term: Term) -> None:
        request, state = self._request, self._request.replica_state
        replica_id = request.replica_id
        if self._context.version >= _REPLICA_STATE_SINCE:
            replica_id = _NO_ONE if state is None else state.replica_id
        if replica_id >= 0:
            key = ReplicaKey(replica_id, self._wanted.replica_directory_id)
            term.fetched(key, self._wanted.fetch_offset)

    def wait(self, waiter: object, wake: Callable[[], None]) -> None:
        if self._term is not None:
            self._term.watch(waiter, wake)

    def leave(self, waiter: object) -> None:
        if self._term is not None:
            self._term.unwatch(waiter)

    def release(self) -> None:
        records, self._records = self._records, None
        if records is not None:
            records.release()
        self.cold = []
        self._code = ErrorCode.NONE

    def response(self) -> FetchResponse:
        leader_id, epoch = self._replica.told_leader()
        partition = FetchResponsePartition(
            partition_index=PARTITION,
            error_code=self._code,
            high_watermark=NO_HIGH_WATERMARK,
            current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
            aborted_transactions=None,
            records=b"" if self._records is None else self._records,
        )
        if self._code == ErrorCode.NONE and self._term is not None:
            partition.high_watermark, partition.log_start_offset = self._term.high_watermark, self._term.log_start
            if self._judgement is not None:
                _add_judgement(partition, self._judgement, self._term)
        topic = FetchResponseTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
        return FetchResponse(responses=[topic], node_endpoints=_endpoints(self._replica, self._context.listener))


def _add_judgement(partition: FetchResponsePartition, judgement: Judgement, term: Term) -> None:
    if judgement.verdict is Verdict.DIVERGING:
        partition.diverging_epoch = EpochEndOffset(epoch=judgement.epoch, end_offset=judgement.end_offset)
    elif judgement.verdict is Verdict.NEEDS_SNAPSHOT:
        newest = term.snapshots()[-1]
        partition.snapshot_id = SnapshotId(end_offset=newest.end_offset, epoch=newest.epoch)


def _endpoints(replica: LogReplica, listener: str) -> list[NodeEndpoint]:
    """Where the leader is, by a listener such as the request came in on."""
    found = replica.leader_endpoint(listener)
    return [] if found is None else [NodeEndpoint(node_id=found[0], host=found[1].host, port=found[1].port)]
