"""A shorter way for fetch requests that are like the one before: of one partition, without a session, only further on.

The long way (`router`, `handlers/fetch`) serves the first requests of a kind, and every one that finds anything else
than enough records: nothing is refused, parked or warmed here. Authorisation, epoch and limits are asked for each
request as there; a lane ends with its partition.
"""

from __future__ import annotations

from struct import Struct
from typing import cast

from semel.broker.authoriser import Authoriser, Operation, ResourceType
from semel.broker.cluster_view import ClusterView
from semel.broker.context import authorise
from semel.broker.fetch_sessions import NO_REPLICA, NO_SESSION
from semel.broker.node_info import NodeInfo
from semel.broker.replica_fetching import replica_of
from semel.broker.topics import Topics
from semel.host.api import FileRange
from semel.log.errors import CorruptSegment, Refused
from semel.replication.partition import Partition
from semel.rpc.served import Answer, Parts, ServedConnection
from semel.wire.frame import RequestHeader, request_bytes, response_parts
from semel.wire.primitives import encode_uvarint
from semel.wire.spec.fetch import (
    FetchRequest,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)

_START_BYTES = 4  # key and version, before the correlation id
_FINAL_EPOCH = -1
_READ_COMMITTED = 1
_TOPIC_IDS_SINCE = 13
_TELLS_START_SINCE = 5
# A number that occurs nowhere else in a message: where it stands, the true one is put.
_MARK = 0x3D4E5F6071829304
_MARK_BYTES = _MARK.to_bytes(8)


class _OneByte:
    """Stands for records in an answer that is only made to see what is around them."""

    def __len__(self) -> int:
        return 1


class _Reply:
    """The answers to one kind of request: encoded once, with gaps."""

    __slots__ = ("_after", "_around_bytes", "_before", "_between", "_is_flexible", "_pack", "_tells_start")

    def __init__(self, topic: FetchRequestTopic, version: int, *, read_committed: bool) -> None:
        told = FetchResponsePartition(
            partition_index=topic.partitions[0].partition,
            high_watermark=_MARK,
            last_stable_offset=_MARK,
            log_start_offset=_MARK,
            aborted_transactions=[] if read_committed else None,
            records=_OneByte(),
        )
        named = FetchResponseTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=[told])
        before, _, *after = response_parts(0, FetchResponse(responses=[named]), version)
        head = cast(bytes, before)
        self._is_flexible = version >= FetchResponse.flexible_from
        self._tells_start = version >= _TELLS_START_SINCE
        marks_at = head.index(_MARK_BYTES)
        marks = 3 if self._tells_start else 2
        self._before = head[8:marks_at]
        self._between = head[marks_at + 8 * marks : -1 if self._is_flexible else -4]
        self._after = cast(bytes, after[0]) if after else b""
        self._pack = Struct(f">ii{len(self._before)}s{marks}q{len(self._between)}s").pack
        self._around_bytes = 4 + len(self._before) + 8 * marks + len(self._between) + len(self._after)

    def with_records(
        self, correlation_id: int, records: FileRange, high_watermark: int, stable: int, start: int
    ) -> Parts:
        size = len(records)
        length = encode_uvarint(size + 1) if self._is_flexible else size.to_bytes(4)
        offsets = (high_watermark, stable, start) if self._tells_start else (high_watermark, stable)
        frame_bytes = self._around_bytes + len(length) + size
        head = self._pack(frame_bytes, correlation_id, self._before, *offsets, self._between) + length
        return [head, records, self._after] if self._after else [head, records]


class _Lane:
    """Requests of one kind on one connection: how they are told, where they read, how they are answered."""

    def __init__(
        self, node: NodeInfo, authoriser: Authoriser, partition: Partition, request: FetchRequest, version: int
    ) -> None:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        self._node = node
        self._authoriser = authoriser
        self._partition = partition
        self._request = request
        self._wanted = wanted
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._reply = _Reply(topic, version, read_committed=self._read_committed)

    def recognise(self, frame: bytes, offset_at: int) -> None:
        """From this request on: those that differ from it in correlation id and offset alone."""
        before = offset_at - _START_BYTES - 4
        self._unpack = Struct(f">{_START_BYTES}si{before}sq{len(frame) - offset_at - 8}s").unpack
        self._start, _, self._before, _, self._after = self._unpack(frame)
        self._frame_bytes = len(frame)

    def serve(self, connection: ServedConnection, frame: memoryview) -> Answer:
        """The answer to a request that finds enough; None is for the long way."""
        if len(frame) != self._frame_bytes:
            return None
        start, correlation_id, before, offset, after = self._unpack(frame)
        if before != self._before or after != self._after or start != self._start:
            return None
        partition = self._partition
        if partition.is_closed:
            connection.short_way = None
            return None
        request, wanted = self._request, self._wanted
        most = min(wanted.partition_max_bytes, request.max_bytes, self._node.config.int("fetch.max.bytes"))
        try:
            authorise(self._authoriser, connection, Operation.READ, ResourceType.TOPIC, partition.topic)
            partition.check_epoch(wanted.current_leader_epoch)
            fetched = partition.fetch(
                offset,
                max(most, 0),
                read_committed=self._read_committed,
                at_least_one=True,
                last_fetched_epoch=wanted.last_fetched_epoch,
            )
        except (Refused, CorruptSegment, OSError):
            return None
        records = fetched.records
        if type(records) is not FileRange:
            return None
        if fetched.aborted or (len(records) < request.min_bytes and request.max_wait_ms > 0):
            records.release()
            return None
        partition.log.counts.bytes_out += len(records)
        return self._reply.with_records(
            correlation_id, records, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset
        )


class FetchLanes:
    def __init__(self, node: NodeInfo, cluster: ClusterView, topics: Topics, authoriser: Authoriser) -> None:
        self._node = node
        self._cluster = cluster
        self._topics = topics
        self._authoriser = authoriser

    def learn(
        self, connection: ServedConnection, frame: memoryview, header: RequestHeader, request: FetchRequest
    ) -> None:
        """After the long way, which had an answer at once: when two requests in a row were of one kind, a third may
        follow."""
        if (
            len(request.topics) != 1
            or len(request.topics[0].partitions) != 1
            or request.forgotten_topics_data
            or (request.session_id, request.session_epoch) != (NO_SESSION, _FINAL_EPOCH)
            or replica_of(request).replica_id > NO_REPLICA
        ):
            return
        topic, version = request.topics[0], header.api_version
        kind = _kind(request, version, len(frame))
        if connection.last_kind != kind:
            connection.last_kind = kind
            return
        offset_at = _offset_at(frame, header, request)
        if offset_at is None:
            return
        try:
            by_id = version >= _TOPIC_IDS_SINCE
            name = self._cluster.topic_of_id(topic.topic_id).name if by_id else topic.topic
            partition = self._topics.partition(name, topic.partitions[0].partition)
        except Refused:
            return
        lane = _Lane(self._node, self._authoriser, partition, request, version)
        lane.recognise(bytes(frame), offset_at)
        connection.short_way = lane.serve


def _kind(request: FetchRequest, version: int, frame_bytes: int) -> tuple[object, ...]:
    """Equal for two requests that are likely to differ in their offset alone."""
    topic = request.topics[0]
    wanted = topic.partitions[0]
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, wanted.partition_max_bytes)
    epochs = (wanted.current_leader_epoch, wanted.last_fetched_epoch)
    where = (topic.topic, topic.topic_id, wanted.partition)
    return version, frame_bytes, where, limits, epochs, request.isolation_level


def _offset_at(frame: memoryview, header: RequestHeader, request: FetchRequest) -> int | None:
    """Where the offset stands in a request of one partition; None if it holds anything that we would not write so."""
    wanted = request.topics[0].partitions[0]
    if frame != _encoded(header, request):
        return None
    offset, wanted.fetch_offset = wanted.fetch_offset, _MARK
    try:
        return _encoded(header, request).index(_MARK_BYTES)
    finally:
        wanted.fetch_offset = offset


def _encoded(header: RequestHeader, request: FetchRequest) -> bytes:
    return request_bytes(request, header.api_version, header.correlation_id, header.client_id)[4:]
