"""Makes the lanes of the fast path for produce requests, after the ordinary path has served a request of their kind.

What a client did wrong, and what it may do, is never judged here: a lane is made only from a request that was served
without a refusal, for the principal that sent it, and holds until its generation is over (`lane_kernel`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from semel.broker.cluster_view import ClusterView
from semel.broker.lane_kernel import AppendRound, ProduceLane, ReplyForm, RequestForm
from semel.broker.leader_hints import LeaderHints
from semel.broker.produce_refusals import endpoints_of, refused_after_append
from semel.broker.response_errors import count_errors
from semel.broker.topics import Topics
from semel.broker.transactional_produce import TransactionVerifier
from semel.coordinator.topic_names import INTERNAL_TOPICS
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.metrics.node_counts import RequestCounts
from semel.replication.partition import ACKS_ALL, Partition
from semel.replication.term_kernel import Generation
from semel.rpc.served import ServedConnection
from semel.wire.frame import response_parts
from semel.wire.primitives import encode_uvarint
from semel.wire.spec.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_MOST_LANES = 10_000
_CORRELATION_END = 8
_ACKS_ALL, _ACKS_LEADER = ACKS_ALL, 1
_TOPIC_IDS_SINCE = 13
# Numbers that occur nowhere else in a response: where they stand, the true ones are put.
_BASE_OFFSET, _START_OFFSET = 0x1B2C3D4E5F607182, 0x2C3D4E5F60718293


class ProduceLanes:
    """All lanes of a node: for each principal and address, by the bytes of a request after its correlation id and
    before its records."""

    def __init__(
        self,
        cluster: ClusterView,
        topics: Topics,
        verifier: TransactionVerifier,
        generation: Generation,
        requests: RequestCounts,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._verifier = verifier
        self._generation = generation
        self._of_askers: dict[tuple[str, str], dict[bytes, ProduceLane]] = {}
        self._count = 0
        self._requests = requests
        self._round = AppendRound(requests.now_ns, requests.of(ProduceRequest.api_key))

    def learn(
        self,
        connection: ServedConnection,
        frame: memoryview,
        request: ProduceRequest,
        response: ProduceResponse,
        version: int,
    ) -> None:
        """After the ordinary path: the next request may be like this one."""
        if (
            len(request.topic_data) != 1
            or len(request.topic_data[0].partition_data) != 1
            or request.acks not in (_ACKS_ALL, _ACKS_LEADER)
            or response.responses[0].partition_responses[0].error_code
        ):
            return
        prefix = _prefix(frame, request, version)
        if prefix is None:
            return
        siblings = self._of_askers.setdefault((connection.principal, connection.host), {})
        lane = siblings.get(prefix[_CORRELATION_END:])
        if lane is None or lane.is_over():
            lane = self._made(prefix, request, version, siblings)
            if lane is None:
                return
        connection.lane = lane.take

    def _made(
        self, prefix: bytes, request: ProduceRequest, version: int, siblings: dict[bytes, ProduceLane]
    ) -> ProduceLane | None:
        partition = self._partition(request, version)
        rules = None if partition is None else partition.rules_for(request.acks)
        if partition is None or rules is None or partition.topic in INTERNAL_TOPICS:
            return None
        if self._count >= _MOST_LANES:
            self._count = 0
            for lanes in self._of_askers.values():
                lanes.clear()
        transactional_id = request.transactional_id
        may_join = None if transactional_id is None else self._may_join(transactional_id, partition, version)
        is_flexible = version >= ProduceRequest.flexible_from
        lane = ProduceLane(
            self._round,
            RequestForm(prefix, is_flexible, _suffix_bytes(version)),
            _reply_form(request, version),
            partition,
            rules,
            may_join,
            partition.needs_commit(request.acks),
            request.timeout_ms,
            self._refuse_for(request, version),
            self._generation,
            siblings,
        )
        siblings[prefix[_CORRELATION_END:]] = lane
        self._count += 1
        return lane

    def _partition(self, request: ProduceRequest, version: int) -> Partition | None:
        topic = request.topic_data[0]
        try:
            by_id = version >= _TOPIC_IDS_SINCE
            name = self._cluster.topic_of_id(topic.topic_id).name if by_id else topic.name
            return self._topics.partition(name, topic.partition_data[0].index)
        except Refused:
            return None

    def _refuse_for(
        self, request: ProduceRequest, version: int
    ) -> Callable[[int, ServedConnection, BaseException], bytes]:
        """Makes the answer to a batch that is written and was not committed."""
        (topic,) = request.topic_data
        index = topic.partition_data[0].index
        name, topic_id, cluster = topic.name, topic.topic_id, self._cluster

        def refuse(correlation_id: int, connection: ServedConnection, error: BaseException) -> bytes:
            if not isinstance(error, Refused):
                raise error
            hints = LeaderHints(cluster, connection.listener)
            place = topic_id if version >= _TOPIC_IDS_SINCE else name
            result = refused_after_append(PartitionProduceResponse(index=index), error, place, hints)
            told = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[result])
            response = ProduceResponse(responses=[told], node_endpoints=endpoints_of(hints))
            count_errors(self._requests, ProduceRequest.api_key, response)
            return b"".join(cast(list[bytes], response_parts(correlation_id, response, version)))

        return refuse

    def _may_join(self, transactional_id: str, partition: Partition, version: int) -> Callable[[int, int], bool]:
        may_write_at_once = self._verifier.may_write_at_once

        def may_join(producer_id: int, producer_epoch: int) -> bool:
            return may_write_at_once(transactional_id, Identity(producer_id, producer_epoch), partition, version)

        return may_join


def _suffix_bytes(version: int) -> int:
    """No tags: of the partition, of the topic, of the request."""
    return 3 if version >= ProduceRequest.flexible_from else 0


def _prefix(frame: memoryview, request: ProduceRequest, version: int) -> bytes | None:
    """The frame up to the length of its records; None if it holds anything that a lane would not expect."""
    records = request.topic_data[0].partition_data[0].records
    if frame.readonly or not isinstance(records, memoryview):  # judged elsewhere already
        return None
    suffix_bytes = _suffix_bytes(version)
    length = encode_uvarint(len(records) + 1) if suffix_bytes else len(records).to_bytes(4)
    records_at = len(frame) - suffix_bytes - len(records)
    prefix_bytes = records_at - len(length)
    if any(frame[len(frame) - suffix_bytes :]) or frame[prefix_bytes:records_at] != length:
        return None
    return bytes(frame[:prefix_bytes])


def _reply_form(request: ProduceRequest, version: int) -> ReplyForm:
    topic = request.topic_data[0]
    result = PartitionProduceResponse(
        index=topic.partition_data[0].index, base_offset=_BASE_OFFSET, log_start_offset=_START_OFFSET
    )
    told = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[result])
    form = b"".join(cast(list[bytes], response_parts(0, ProduceResponse(responses=[told]), version)))
    # Before version 5 the start of the log is not told.
    return ReplyForm(form, form.index(_BASE_OFFSET.to_bytes(8)), form.find(_START_OFFSET.to_bytes(8)))
