"""Markers for partitions anywhere in the cluster: those that are led here are written at once, the others are sent to
their leaders by WriteTxnMarkers.

To each node one request is under way; what comes meanwhile goes into the next one, and a node that is away holds up
nobody who has to do with others. A marker waits in the queue of its leader until one of these:
- the leader says that it is written, and on enough replicas: its future is done;
- the leader refuses it, somebody else leads the partition, or its topic is gone: the future is refused, and
  `coordinator/txn/markers.py` decides what that means;
- its coordinator gives it up: the future is cancelled.
A node that cannot be reached, or does not answer, is asked again. A marker that may have been written then is written
twice, which ends nothing that the first one has not ended: the producer's next transaction begins after the answer.

The queues are bounded by the transactions that are being ended, times their partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from semel.broker.cluster_view import ClusterView
from semel.broker.markers import LocalMarkers
from semel.broker.node_info import NodeInfo
from semel.coordinator.txn.transactions import TopicPartition
from semel.host.complaints import Complaints
from semel.log.errors import Refused
from semel.log.types import Epoch, ProducerId
from semel.peer.caller import PeerCaller
from semel.peer.errors import PeerError
from semel.records.control import ControlType
from semel.wire.errors import ErrorCode
from semel.wire.spec.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger("semel.broker")

_FIRST_VERSION, _LAST_VERSION = 1, 2
_SECOND_GENERATION = 2
# Longer than the other side waits for the commit of a marker.
_TIMEOUT_S = 10.0
_RETRY_S, _LONGEST_RETRY_S = 0.1, 1.0
_MARKERS_AT_ONCE = 1000


class _Ended(NamedTuple):
    """What a marker says, apart from the partition that it is for."""

    producer_id: ProducerId
    epoch: Epoch
    kind: ControlType
    coordinator_epoch: Epoch
    bumps_epoch: bool


class _Marker(NamedTuple):
    ended: _Ended
    partition: TopicPartition
    topic_id: bytes | None
    written: asyncio.Future[None]

    def refuse(self, code: ErrorCode, text: str) -> None:
        if not self.written.done():
            self.written.set_exception(Refused(code, text))
            self.written.exception()  # who waited may have gone


class ClusterMarkers:
    def __init__(self, local: LocalMarkers, cluster: ClusterView, node: NodeInfo, caller: PeerCaller) -> None:
        self._local = local
        self._cluster = cluster
        self._node = node
        self._caller = caller
        self._queues: dict[int, _Queue] = {}

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        return self._local.topic_id(partition)

    def leader(self, partition: TopicPartition) -> int | None:
        leader = self._cluster.leader(*partition)
        return None if leader is None else leader.node_id

    def is_elsewhere(self, partition: TopicPartition) -> bool:
        return self.leader(partition) != self._node.node_id

    def write_marker(
        self,
        partition: TopicPartition,
        kind: ControlType,
        producer_id: ProducerId,
        epoch: Epoch,
        coordinator_epoch: Epoch,
        bumps_epoch: bool,
    ) -> asyncio.Future[None] | None:
        """Raises Refused when nobody leads the partition, or when this node does and refuses the marker."""
        leader = self.leader(partition)
        if leader == self._node.node_id:
            return self._local.write_marker(partition, kind, producer_id, epoch, coordinator_epoch, bumps_epoch)
        if leader is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "nobody leads the partition now")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended = _Ended(producer_id, epoch, kind, coordinator_epoch, bumps_epoch)
        queue = self._queues.get(leader)
        if queue is None:
            queue = self._queues[leader] = _Queue(self, leader, self._caller)
        queue.add(_Marker(ended, partition, self.topic_id(partition), written))
        return written

    def follow(self) -> None:
        """The committed metadata has changed, and with it perhaps who leads what."""
        for queue in self._queues.values():
            queue.look_again()

    async def close(self) -> None:
        await asyncio.gather(*(queue.close() for queue in self._queues.values()))


class _Queue:
    """The markers for one node, and the task that sends them."""

    def __init__(self, markers: ClusterMarkers, node_id: int, caller: PeerCaller) -> None:
        self._markers = markers
        self._node_id = node_id
        self._caller = caller
        self._waiting: deque[_Marker] = deque()
        self._task: asyncio.Task[None] | None = None
        self._looks_again: asyncio.Future[None] | None = None
        self._complaints = Complaints(logger)

    def add(self, marker: _Marker) -> None:
        self._waiting.append(marker)
        if self._task is None:
            self._task = asyncio.ensure_future(self._send())

    def look_again(self) -> None:
        """Leaders may have changed: markers that are not for this node any more need not wait for it."""
        if self._looks_again is not None and not self._looks_again.done():
            self._looks_again.set_result(None)

    async def _send(self) -> None:
        retry_s = _RETRY_S
        under_way: list[_Marker] = []
        try:
            while self._waiting:
                under_way = self._taken()
                if not under_way:
                    await asyncio.sleep(0)
                    continue
                response = await self._answered(under_way)
                if response is not None:
                    _tell(under_way, response)
                    under_way, retry_s = [], _RETRY_S
                    continue
                self._waiting.extendleft(reversed([one for one in under_way if not one.written.done()]))
                under_way = []
                await self._pause(retry_s)
                retry_s = min(2 * retry_s, _LONGEST_RETRY_S)
        finally:
            self._task = None
            self._waiting.extendleft(under_way)
            self._refuse_all()

    def _refuse_all(self) -> None:
        while self._waiting:
            self._waiting.popleft().refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node stops")

    def _taken(self) -> list[_Marker]:
        """The next ones to send. A producer is named once in a request: its answer is by producer."""
        taken: list[_Marker] = []
        by_producer: dict[ProducerId, _Ended] = {}
        later: list[_Marker] = []
        for _ in range(min(len(self._waiting), _MARKERS_AT_ONCE)):
            marker = self._waiting.popleft()
            if not self._is_for_this_node(marker):
                continue
            if by_producer.setdefault(marker.ended.producer_id, marker.ended) == marker.ended:
                taken.append(marker)
            else:
                later.append(marker)
        self._waiting.extendleft(reversed(later))
        return taken

    def _is_for_this_node(self, marker: _Marker) -> bool:
        """A topic that was made anew under its name is another one: nothing of the transaction is in there."""
        if marker.written.done():
            return False
        if self._markers.topic_id(marker.partition) != marker.topic_id:
            marker.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its topic has been deleted")
            return False
        if self._markers.leader(marker.partition) != self._node_id:
            marker.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self._node_id} leads it no longer")
            return False
        return True

    async def _answered(self, markers: list[_Marker]) -> WriteTxnMarkersResponse | None:
        """None when it is not known what came of them."""
        call = asyncio.ensure_future(
            self._caller.call(
                self._node_id,
                _request(markers),
                WriteTxnMarkersResponse,
                timeout_s=_TIMEOUT_S,
                at_least=_FIRST_VERSION,
                at_most=_LAST_VERSION,
            )
        )
        try:
            while not call.done():
                self._looks_again = asyncio.get_running_loop().create_future()
                either: list[asyncio.Future[Any]] = [call, self._looks_again]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not call.done():
                    await self._drop_others(markers)
            return call.result()
        except PeerError as error:
            text = "node %d, which leads %d partitions with transactions to be ended, is tried again: %s"
            self._complaints.say("unreachable", logging.WARNING, text, self._node_id, len(markers), error)
            return None
        finally:
            self._looks_again = None
            if not call.done():
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

    async def _drop_others(self, under_way: Iterable[_Marker]) -> None:
        """Refuses what this node does not lead any more, a part in each turn of the loop."""
        for number, marker in enumerate([*under_way, *self._waiting], 1):
            self._is_for_this_node(marker)
            if number % _MARKERS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _pause(self, pause_s: float) -> None:
        self._looks_again = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._looks_again], timeout=pause_s)
        self._looks_again = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._refuse_all()  # a task that had not begun has told nobody


def _request(markers: Iterable[_Marker]) -> WriteTxnMarkersRequest:
    places: dict[_Ended, dict[str, list[int]]] = {}
    for marker in markers:
        topic, index = marker.partition
        places.setdefault(marker.ended, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=ended.producer_id,
                producer_epoch=ended.epoch,
                transaction_result=ended.kind == ControlType.COMMIT,
                coordinator_epoch=ended.coordinator_epoch,
                transaction_version=_SECOND_GENERATION if ended.bumps_epoch else 0,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()
                ],
            )
            for ended, topics in places.items()
        ]
    )


def _tell(markers: Iterable[_Marker], response: WriteTxnMarkersResponse) -> None:
    codes = {
        (result.producer_id, topic.name, one.partition_index): one.error_code
        for result in response.markers
        for topic in result.topics
        for one in topic.partitions
    }
    for marker in markers:
        code = codes.get((marker.ended.producer_id, *marker.partition))
        # A log without transactions has none to be ended. Only brokers before Kafka 4 have such logs.
        if code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
            if not marker.written.done():
                marker.written.set_result(None)
        elif code is None:
            marker.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader did not say anything of it")
        else:
            marker.refuse(_known(code), "its leader says so")


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
