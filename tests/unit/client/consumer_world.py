"""Consumers in virtual time: on our whole broker (`on_broker`), and on scripted brokers that hold what a test gives
them (`Shelf`), for what ours never does: other leaders, followers, truncated logs, broken batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "broker"))

from broker_harness import BROKER, PORT, Node, batch_of, simulated

from scripted_broker import Asked, ScriptedCluster
from semel.client.consumer.consumer import Consumer
from semel.client.metadata import TopicPartition
from semel.client.values import Message
from semel.records.batch import read_header, set_base_offset, set_leader_epoch
from semel.wire.errors import ErrorCode
from semel.wire.schema import Response
from semel.wire.spec.fetch import (
    AbortedTransaction,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from semel.wire.spec.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from semel.wire.spec.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

__all__ = [
    "BROKER",
    "PORT",
    "Consumer",
    "Node",
    "Shelf",
    "at",
    "batch_of",
    "consumer_of",
    "on_broker",
    "produce",
    "values_of",
]

SETTINGS = {
    "advertised.listeners": f"PLAINTEXT://{BROKER}:{PORT}",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def at(text: str) -> TopicPartition:
    """`topic-0`"""
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def on_broker(**settings: str) -> Callable[..., Any]:
    """Runs `async def test(node)` with our broker."""
    return simulated(settings={**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}})


_clients = iter(range(1, 1 << 30))


def consumer_of(place: Node | ScriptedCluster, *topics: str, **settings: Any) -> Consumer:
    """A consumer on a machine of its own, which reads from the beginning unless it is told otherwise."""
    defaults: dict[str, Any] = {"auto_offset_reset": "earliest"}
    if isinstance(place, Node):
        defaults["bootstrap_servers"] = f"{BROKER}:{PORT}"
        host = place.world.host(f"consumer{next(_clients)}")
    else:
        defaults["bootstrap_servers"] = place.address
        host = place.host(f"consumer{next(_clients)}")
    return Consumer(*topics, host=host, **{**defaults, **settings})


async def produce(node: Node, place: str, *values: bytes, **options: Any) -> int:
    """One batch; its first offset."""
    client = await node.client()
    partition = at(place)
    answer = await client.produce(partition.topic, batch_of(*values, **options), partition=partition.partition)
    assert answer.error_code == 0
    client.close()
    return answer.base_offset


def values_of(found: dict[TopicPartition, list[Message]]) -> list[Any]:
    return [message.value for messages in found.values() for message in messages]


class Shelf:
    """The logs that scripted brokers serve. A fetch that finds nothing waits, as a broker's does."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.batches: dict[TopicPartition, list[bytearray]] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.nexts: dict[int, int] = {}
        self.aborted: dict[TopicPartition, list[tuple[int, int]]] = {}
        self.codes: dict[TopicPartition, int] = {}
        """Errors for fetches, by partition."""
        self.fields: dict[TopicPartition, dict[str, Any]] = {}
        """Fields of answers to fetches, by partition."""
        self.epoch_ends: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        """Epoch and end offset to answer with, by partition and epoch asked for."""
        self.parked: list[Asked] = []
        cluster.rules[FetchRequest] = self._fetch
        cluster.rules[ListOffsetsRequest] = self._list_offsets
        cluster.rules[OffsetForLeaderEpochRequest] = self._epoch_end

    def put(self, place: str, *values: bytes, epoch: int = 0, batch: bytearray | None = None, **options: Any) -> int:
        """Appends a batch; its first offset."""
        partition = at(place)
        batch = batch_of(*values, **options) if batch is None else batch
        offset = self.end(partition)
        set_base_offset(batch, offset)
        set_leader_epoch(batch, epoch)
        self.batches.setdefault(partition, []).append(batch)
        self.nexts[id(batch)] = read_header(batch).next_offset
        for asked in self.parked:
            if asked.is_open:
                asked.answer(self._answer(asked))
        self.parked.clear()
        return offset

    def end(self, partition: TopicPartition) -> int:
        held = self.batches.get(partition)
        return self._next(held[-1]) if held else self.starts.get(partition, 0)

    def _next(self, batch: bytearray) -> int:
        """The offset behind a batch; one that a test has spoiled since is known by what it was."""
        return self.nexts.get(id(batch)) or read_header(batch).next_offset

    def fetches(self) -> list[Asked]:
        return self.cluster.all(FetchRequest)

    def _name(self, topic: Any) -> str:
        return topic.topic or next(
            (known.name for known in self.cluster.topics.values() if known.topic_id == topic.topic_id), "?"
        )

    def _fetch(self, asked: Asked) -> Response | None:
        answer = self._answer(asked)
        has_news = any(
            part.error_code or part.records or part.preferred_read_replica >= 0
            for topic in answer.responses
            for part in topic.partitions
        )
        if has_news or asked.body.max_wait_ms == 0:
            return answer
        self.parked.append(asked)
        self.cluster.loop.call_later(
            asked.body.max_wait_ms / 1000, lambda: asked.is_open and asked.answer(self._answer(asked))
        )
        return None

    def _answer(self, asked: Asked) -> FetchResponse:
        asked.is_open = False
        topics = []
        for topic in asked.body.topics:
            parts = [
                self._part(asked, TopicPartition(self._name(topic), one.partition), one) for one in topic.partitions
            ]
            topics.append(FetchResponseTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=parts))
        asked.is_open = True
        return FetchResponse(responses=topics)

    def _part(self, asked: Asked, partition: TopicPartition, wanted: Any) -> FetchResponsePartition:
        end = self.end(partition)
        part = FetchResponsePartition(
            partition_index=partition.partition, high_watermark=end, last_stable_offset=end, records=b""
        )
        topic = self.cluster.topics[partition.topic]
        fields = self.fields.get(partition, {})
        if self.codes.get(partition):
            part.error_code = self.codes[partition]
        elif wanted.current_leader_epoch not in (-1, topic.epochs[partition.partition]):
            is_old = wanted.current_leader_epoch < topic.epochs[partition.partition]
            part.error_code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        elif asked.broker.node_id != topic.leaders[partition.partition] and not fields.get("followers_may_read"):
            part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.starts.get(partition, 0) <= wanted.fetch_offset <= end:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            part.records = self._records(partition, wanted)
            part.aborted_transactions = [
                AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in self.aborted.get(partition, [])
            ]
        for name, value in fields.items():
            if name != "followers_may_read":
                setattr(part, name, value)
        return part

    def _records(self, partition: TopicPartition, wanted: Any) -> bytes:
        data = b""
        for batch in self.batches.get(partition, []):
            if self._next(batch) > wanted.fetch_offset:
                if data and len(data) + len(batch) > wanted.partition_max_bytes:
                    break
                data += bytes(batch)
        return data

    def _list_offsets(self, asked: Asked) -> ListOffsetsResponse:
        def found(partition: TopicPartition, wanted: Any) -> ListOffsetsPartitionResponse:
            offset = self.end(partition) if wanted.timestamp == -1 else self.starts.get(partition, 0)
            epoch = self.cluster.topics[partition.topic].epochs[partition.partition]
            return ListOffsetsPartitionResponse(
                partition_index=partition.partition, offset=offset, leader_epoch=min(epoch, 0)
            )

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        found(TopicPartition(topic.name, one.partition_index), one) for one in topic.partitions
                    ],
                )
                for topic in asked.body.topics
            ]
        )

    def _epoch_end(self, asked: Asked) -> OffsetForLeaderEpochResponse:
        def found(partition: TopicPartition, wanted: Any) -> EpochEndOffset:
            default = (wanted.leader_epoch, self.end(partition))
            epoch, end = self.epoch_ends.get((partition, wanted.leader_epoch), default)
            return EpochEndOffset(partition=partition.partition, leader_epoch=epoch, end_offset=end)

        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[found(TopicPartition(topic.topic, one.partition), one) for one in topic.partitions],
                )
                for topic in asked.body.topics
            ]
        )
