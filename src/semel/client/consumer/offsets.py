"""Offsets that leaders know: by time, the ends of a log (ListOffsets), and where an epoch ended (OffsetForLeaderEpoch).

A round asks every leader at the same time, once. What it does not answer may be asked again, by whoever asked: the
programs' calls until `default_api_timeout_ms`, positions for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from semel.client.cluster import Cluster
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import RetriableError, SemelError, TimedOut, error_for, is_retriable
from semel.client.metadata import NO_EPOCH, NO_NODE, TopicPartition
from semel.wire.errors import ErrorCode
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from semel.wire.spec.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

T = TypeVar("T")

NO_REPLICA = -1
"""What a consumer calls itself where replicas give their id."""
_EPOCHS_FOR_CONSUMERS_SINCE = 3


class Listed(NamedTuple):
    """The answer to one partition's question; `asked_epoch` is the leader's epoch for which it holds."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
    asked_epoch: int


class EpochEnd(NamedTuple):
    """The last epoch not above the one asked for, and the offset at which it ended."""

    leader_epoch: int
    end_offset: int
    asked_epoch: int


class Round(Generic[T]):
    """What one round has brought. A partition in neither may be asked for again; `reason` says why it must be."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, T] = {}
        self.failed: dict[TopicPartition, SemelError] = {}
        self.reason: SemelError | None = None


class LeaderOffsets:
    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    # -- for programs

    async def list_all(self, targets: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, Listed]:
        """Timestamps to offsets. Raises the first failure, and TimedOut with the last reason."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        attempts = self._cluster.attempts(deadline_s)
        found: dict[TopicPartition, Listed] = {}
        missing = dict(targets)
        reason: object = "no answer"
        while missing:
            try:
                async with asyncio.timeout_at(deadline_s):
                    for topic in {partition.topic for partition in missing}:
                        await self._cluster.topic(topic, timeout_s)
                    answered = await self.listed(missing)
            except TimeoutError:
                raise TimedOut(f"the offsets of {_names(missing)} were not found in time: {reason}") from None
            for error in answered.failed.values():
                raise error
            found |= answered.found
            missing = {partition: time for partition, time in missing.items() if partition not in found}
            reason = answered.reason or reason
            if missing:
                pause_s = attempts.pause_s()
                if pause_s is None:
                    raise TimedOut(f"the offsets of {_names(missing)} were not found in time: {reason}")
                await asyncio.sleep(pause_s)
        return found

    # -- one round

    async def listed(self, targets: Mapping[TopicPartition, int]) -> Round[Listed]:
        answered: Round[Listed] = Round()

        async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
            epochs = {partition: self._epoch_of(partition) for partition in partitions}
            request = ListOffsetsRequest(
                replica_id=NO_REPLICA,
                isolation_level=self._settings.isolation,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=entry.partition,
                                current_leader_epoch=epochs[entry],
                                timestamp=targets[entry],
                            )
                            for entry in entries
                        ],
                    )
                    for topic, entries in by_topic(partitions).items()
                ],
                timeout_ms=self._settings.request_timeout_ms,
            )
            response = await self._cluster.call(node_id, request, ListOffsetsResponse)
            for topic in response.topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.name, entry.partition_index)
                    if partition in epochs and self._is_good(answered, partition, entry.error_code, "its offsets"):
                        answered.found[partition] = Listed(
                            entry.offset, entry.timestamp, entry.leader_epoch, epochs[partition]
                        )

        await self._ask_leaders(answered, targets, ask)
        return answered

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Round[EpochEnd]:
        """Where the epochs given ended. Raises UnsupportedByBroker in the Round of an old broker."""
        answered: Round[EpochEnd] = Round()

        async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
            current = {partition: self._epoch_of(partition) for partition in partitions}
            request = OffsetForLeaderEpochRequest(
                replica_id=NO_REPLICA,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=entry.partition,
                                current_leader_epoch=current[entry],
                                leader_epoch=epochs[entry],
                            )
                            for entry in entries
                        ],
                    )
                    for topic, entries in by_topic(partitions).items()
                ],
            )
            response = await self._cluster.call(
                node_id, request, OffsetForLeaderEpochResponse, at_least=_EPOCHS_FOR_CONSUMERS_SINCE
            )
            for topic in response.topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.topic, entry.partition)
                    if partition in current and self._is_good(answered, partition, entry.error_code, "its epochs"):
                        answered.found[partition] = EpochEnd(entry.leader_epoch, entry.end_offset, current[partition])

        await self._ask_leaders(answered, epochs, ask)
        return answered

    async def _ask_leaders(
        self,
        answered: Round[Any],
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Coroutine[Any, Any, None]],
    ) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self._cluster.leader_of(*partition), []).append(partition)
        leaderless = by_leader.pop(NO_NODE, [])
        if leaderless:
            self._cluster.stale()
            answered.reason = RetriableError(f"no leader is known of {_names(leaderless)}")

        async def ask_one(node_id: int, its_partitions: list[TopicPartition]) -> None:
            try:
                await ask(node_id, its_partitions)
            except RetriableError as error:
                self._cluster.stale()
                answered.reason = error
            except SemelError as error:
                answered.failed.update(dict.fromkeys(its_partitions, error))

        async with asyncio.TaskGroup() as group:
            for node_id, its_partitions in by_leader.items():
                group.create_task(ask_one(node_id, its_partitions))

    def _is_good(self, answered: Round[Any], partition: TopicPartition, code: int, what: str) -> bool:
        if code == ErrorCode.NONE:
            return True
        error = error_for(code, f"asking for {what}: {partition}")
        if is_retriable(code):
            self._cluster.stale()
            answered.reason = error
        else:
            answered.failed[partition] = error
        return False

    def _epoch_of(self, partition: TopicPartition) -> int:
        known = self._cluster.partition(*partition)
        return NO_EPOCH if known is None else known.leader_epoch


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
