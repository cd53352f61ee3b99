"""What a consumer can be asked about the cluster, whatever it reads itself: ends of logs, offsets by time, topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from semel.client.cluster import Cluster
from semel.client.consumer.offsets import LeaderOffsets
from semel.client.consumer.reset_policy import EARLIEST, LATEST
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import IllegalState, RetriableError, error_for
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndTimestamp
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_NEVER_CREATES_SINCE = 4
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class OffsetLookups:
    def __init__(self, cluster: Cluster, settings: ConsumerSettings, leaders: LeaderOffsets) -> None:
        self._cluster = cluster
        self._settings = settings
        self._leaders = leaders

    async def ends(self, partitions: Iterable[TopicPartition], end: int) -> dict[TopicPartition, int]:
        targets = dict.fromkeys((TopicPartition(*partition) for partition in partitions), end)
        found = await self._leaders.list_all(targets, self._settings.api_timeout_s)
        return {partition: found[partition].offset for partition in targets}

    async def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self.ends(partitions, EARLIEST)

    async def endings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self.ends(partitions, LATEST)

    async def by_time(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        targets = {TopicPartition(*partition): time_ms for partition, time_ms in times_ms.items()}
        for partition, time_ms in targets.items():
            if time_ms < 0:
                raise IllegalState(f"{partition}: {time_ms} is no timestamp; milliseconds since 1970 are meant")
        found = await self._leaders.list_all(targets, self._settings.api_timeout_s)
        return {
            partition: OffsetAndTimestamp(listed.offset, listed.timestamp_ms, listed.leader_epoch)
            if listed.offset >= 0
            else None
            for partition, listed in ((partition, found[partition]) for partition in targets)
        }

    async def topics(self) -> set[str]:
        answer = await self._metadata(None)
        return {
            topic.name
            for topic in answer.topics
            if topic.name and not (topic.is_internal and self._settings.exclude_internal_topics)
        }

    async def partitions_of(self, name: str) -> set[int] | None:
        (topic,) = (await self._metadata(name)).topics
        if topic.error_code in _UNKNOWN:
            return None
        if topic.error_code != ErrorCode.NONE:
            raise error_for(topic.error_code, f"asking for topic {name!r}")
        return {partition.partition_index for partition in topic.partitions}

    async def _metadata(self, name: str | None) -> MetadataResponse:
        """Asks somebody, and if that fails somebody else, until the time is over. Creates nothing."""
        attempts = self._cluster.attempts(asyncio.get_running_loop().time() + self._settings.api_timeout_s)
        request = MetadataRequest(
            topics=None if name is None else [MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        while True:
            try:
                return await self._cluster.call_any(request, MetadataResponse, at_least=_NEVER_CREATES_SINCE)
            except RetriableError:
                pause_s = attempts.pause_s()
                if pause_s is None:
                    raise
                self._cluster.stale()
                await asyncio.sleep(pause_s)
