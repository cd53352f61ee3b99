"""Raw pieces of partitions: batches as they are in the log, with markers and aborted records, for those who inspect it.

Programs read with `semel.Consumer`. Here nothing is remembered: every call names its offsets and is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from semel.client.admin.admin_requests import by_topic
from semel.client.admin.offsets import OffsetsPart
from semel.client.admin.outcome import Sheet
from semel.client.metadata import TopicPartition
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse

_LAST_WITH_NAMES = 12
"""Later versions name topics by id."""
_NO_SESSION, _NO_SESSION_EPOCH = 0, -1
_ISOLATION = {False: 0, True: 1}


class LogPiece(NamedTuple):
    """What a fetch found. The last batch may be cut, and the first may begin before the offset that was asked for.
    `aborted`: producer id and first offset of the aborted transactions among the batches; only told with
    `read_committed`."""

    batches: bytes
    start_offset: int
    last_stable_offset: int
    high_watermark: int
    aborted: tuple[tuple[int, int], ...] = ()


class LogReadingPart(OffsetsPart):
    async def read_log(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> dict[TopicPartition, LogPiece]:
        """What partitions hold from these offsets on, at most about `max_bytes` of each. With `read_committed` it ends
        at the last stable offset. `wait_ms`: how long a broker may wait for something to come; it holds up the other
        requests of this admin."""
        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        sheet: Sheet[TopicPartition, LogPiece] = Sheet(wanted, lambda place: f"reading {place} at {wanted[place]}")

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1 if wait_ms else 0,
                max_bytes=max_bytes * len(places),
                isolation_level=_ISOLATION[read_committed],
                session_id=_NO_SESSION,
                session_epoch=_NO_SESSION_EPOCH,
                topics=[
                    FetchRequestTopic(
                        topic=topic,
                        partitions=[
                            FetchRequestPartition(
                                partition=index,
                                fetch_offset=wanted[TopicPartition(topic, index)],
                                partition_max_bytes=max_bytes,
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(places).items()
                ],
            )
            answer = await self._ask.cluster.call(node_id, request, FetchResponse, at_most=_LAST_WITH_NAMES)
            for topic in answer.responses:
                for found in topic.partitions:
                    place = TopicPartition(topic.topic, found.partition_index)
                    if sheet.accepts(place, found.error_code):
                        aborted = tuple((one.producer_id, one.first_offset) for one in found.aborted_transactions or ())
                        sheet.done(
                            place,
                            LogPiece(
                                bytes(found.records or b""),
                                found.log_start_offset,
                                found.last_stable_offset,
                                found.high_watermark,
                                aborted,
                            ),
                        )

        return await self._ask.work_off(sheet, self._ask.to_leaders(sheet), ask)
