"""Offsets of partitions: where they begin, where they end, and what was written when. Asked of the leaders."""

from __future__ import annotations

from collections.abc import Mapping

from semel.client.admin.admin_requests import AdminPart, Places, by_topic
from semel.client.admin.outcome import Sheet
from semel.client.admin.values import OffsetSpec
from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.client.values import OffsetAndTimestamp
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
_ISOLATION_SINCE = 2
_SINCE = {
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}
_A_CLIENT = -1
"""Where a follower would give its number."""


class OffsetsPart(AdminPart):
    async def list_offsets(
        self,
        partitions: Places | Mapping[TopicPartition, int],
        at: int = OffsetSpec.LATEST,
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """An offset of each partition: that of an `OffsetSpec`, or of the first record at or after a time (in
        milliseconds). Both are given once, as `at`, or for each partition in a mapping.

        With read_committed, the end is the last stable offset: where the oldest open transaction begins. No such
        record: offset -1. The ends of a partition have no timestamp: -1.
        """
        if isinstance(partitions, Mapping):
            wanted = {TopicPartition(*place): int(when) for place, when in partitions.items()}
        else:
            wanted = dict.fromkeys(await self._ask.partitions(partitions), int(at))
        if isolation_level not in _ISOLATION:
            raise BadSetting(f"isolation_level: {isolation_level!r} is not allowed; allowed: {', '.join(_ISOLATION)}")
        isolation = _ISOLATION[isolation_level]
        at_least = max([_since(when) for when in wanted.values()], default=0)
        if isolation:
            at_least = max(at_least, _ISOLATION_SINCE)
        sheet: Sheet[TopicPartition, OffsetAndTimestamp] = Sheet(
            wanted, lambda place: f"listing offsets of {place}", final=()
        )

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = ListOffsetsRequest(
                replica_id=_A_CLIENT,
                isolation_level=isolation,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(partition_index=index, timestamp=wanted[TopicPartition(topic, index)])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(places).items()
                ],
                timeout_ms=self._ask.server_timeout_ms,
            )
            answer = await self._ask.cluster.call(node_id, request, ListOffsetsResponse, at_least=at_least)
            for topic in answer.topics:
                for found in topic.partitions:
                    place = TopicPartition(topic.name, found.partition_index)
                    if sheet.accepts(place, found.error_code):
                        sheet.done(place, OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch))

        return await self._ask.work_off(sheet, self._ask.to_leaders(sheet), ask)


def _since(when: int) -> int:
    """The version of the request that has this kind of offset."""
    if when >= 0:
        return 0
    try:
        return _SINCE.get(OffsetSpec(when), 0)
    except ValueError:
        raise BadSetting(f"list_offsets: {when} is neither a time nor an OffsetSpec") from None
