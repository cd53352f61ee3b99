"""One produce request on its way, and which batch each part of its answer is about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from semel.client.cluster import Cluster
from semel.client.producer.batch import ProducerBatch
from semel.client.producer.lane import Lane
from semel.client.producer.settings import ProducerSettings
from semel.wire.schema import NO_UUID
from semel.wire.spec.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_FIRST_WITH_TOPIC_IDS = 13


class Shipment:
    """`landed` is done when the answer, or the news that none will come, has been dealt with."""

    __slots__ = ("_timer", "landed", "loaded", "node_id", "topic_names")

    def __init__(self, node_id: int, loaded: list[tuple[Lane, ProducerBatch]]) -> None:
        self.node_id = node_id
        self.loaded = loaded
        self.topic_names: dict[bytes, str] = {}
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, delivery_timeout_s: float, request_timeout_s: float, overdue: Callable[[Shipment], None]) -> None:
        """Calls `overdue` when the time of the oldest unfinished batch is over, if that is before the request's own."""
        loop = asyncio.get_running_loop()
        unfinished_s = [batch.created_s for _, batch in self.loaded if not batch.done]
        deadline_s = min(unfinished_s, default=inf) + delivery_timeout_s
        if deadline_s < loop.time() + request_timeout_s:
            self._timer = loop.call_at(deadline_s, overdue, self)

    def unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.landed.done():
            self.landed.set_result(None)

    def paired(self, answer: ProduceResponse) -> dict[tuple[str, int], PartitionProduceResponse]:
        return {
            (topic.name or self.topic_names.get(topic.topic_id, ""), partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }


def produce_request(
    shipment: Shipment, cluster: Cluster, settings: ProducerSettings, version: int
) -> tuple[ProduceRequest, int]:
    """The request, and the version to send it in: topics go by id where both sides know ids."""
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for lane, batch in shipment.loaded:
        by_topic.setdefault(lane.topic, []).append(PartitionProduceData(index=lane.partition, records=batch.payload))
    topics = []
    for name, partitions in by_topic.items():
        known = cluster.topics.get(name)
        topic_id = NO_UUID if known is None else known.topic_id
        shipment.topic_names[topic_id] = name
        topics.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=partitions))
    if NO_UUID in shipment.topic_names:
        version = min(version, _FIRST_WITH_TOPIC_IDS - 1)
    request = ProduceRequest(
        transactional_id=settings.transactional_id,
        acks=settings.acks,
        timeout_ms=settings.request_timeout_ms,
        topic_data=topics,
    )
    return request, version
