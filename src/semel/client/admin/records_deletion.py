"""Deleting records: everything below an offset, by raising the start of the log. Asked of the leaders."""

from __future__ import annotations

from collections.abc import Mapping

from semel.client.admin.admin_requests import by_topic
from semel.client.admin.offsets import OffsetsPart
from semel.client.admin.outcome import Sheet
from semel.client.admin.values import OffsetSpec
from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.wire.spec.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


class RecordsPart(OffsetsPart):
    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the records below these offsets; returns where each log begins now.

        `OffsetSpec.LATEST` stands for all records that are there when the call is made. It is turned into an offset
        first, so that a request that is repeated does not delete what was written meanwhile.
        """
        wanted = {TopicPartition(*place): int(offset) for place, offset in before.items()}
        whole = [place for place, offset in wanted.items() if offset == OffsetSpec.LATEST]
        if any(offset < 0 for offset in wanted.values() if offset != OffsetSpec.LATEST):
            raise BadSetting("delete_records: allowed are offsets from 0 and OffsetSpec.LATEST")
        if whole:
            ends = await self.list_offsets(whole)
            wanted |= {place: end.offset for place, end in ends.items()}
        sheet: Sheet[TopicPartition, int] = Sheet(wanted, lambda place: f"deleting records of {place}", final=())

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(partition_index=index, offset=wanted[TopicPartition(topic, index)])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(places).items()
                ],
                timeout_ms=self._ask.server_timeout_ms,
            )
            answer = await self._ask.cluster.call(node_id, request, DeleteRecordsResponse)
            for topic in answer.topics:
                for result in topic.partitions:
                    place = TopicPartition(topic.name, result.partition_index)
                    if sheet.accepts(place, result.error_code):
                        sheet.done(place, result.low_watermark)

        return await self._ask.work_off(sheet, self._ask.to_leaders(sheet), ask)
