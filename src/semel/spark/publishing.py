"""Staged batches go to the broker, in the order in which tasks and rows were numbered, in bounded memory.

Files are read ahead in a thread, a block at a time, while the block before is sent. If a topic has got more partitions
since its batches were staged, records that were placed by their keys are placed anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing

from semel.client.producer.producer import Producer
from semel.records.batch import read_header
from semel.records.columns import read_columns, rows_by_partition, write_columns
from semel.spark.sink_errors import BatchTooSlow, StagedDataLost
from semel.spark.staging import Frame, Placement, Staged, StagingArea

_BLOCK_BYTES = 4 << 20
_LARGEST_OFFSET = (1 << 63) - 1


class Publishing:
    """One attempt to send a batch, within the transaction's time."""

    def __init__(self, producer: Producer, area: StagingArea, staged: Sequence[Staged], timeout_s: float) -> None:
        self._producer = producer
        self._area = area
        self._staged = staged
        self._timeout_s = timeout_s
        self._begun_s = _now_s()
        self._sent_bytes = 0
        self._counts: dict[str, int] = {}

    @property
    def is_late(self) -> bool:
        """Whether the broker has ended the transaction by now, or is about to."""
        return _now_s() - self._begun_s >= self._timeout_s

    async def send_all(self, after_block: Callable[[], Awaitable[None]]) -> None:
        """Returns when everything is written. `after_block` is called now and then on the way."""
        for staged in self._staged:
            async with aclosing(self._blocks(staged)) as blocks:
                async for block in blocks:
                    for frame in block:
                        await self._send(frame)
                    if self.is_late:
                        raise self.too_slow()
                    await after_block()
        await self._producer.flush()

    async def _send(self, frame: Frame) -> None:
        topic = frame.topic
        if topic.name not in self._counts:
            self._counts[topic.name] = len(await self._producer.partitions_for(topic.name))
        for partition, batch in placed(frame, self._counts[topic.name]):
            # What becomes of it need not be watched: a batch that fails fails the transaction.
            await self._producer.send_batch(topic.name, partition, batch)
            self._sent_bytes += len(batch)

    async def _blocks(self, staged: Staged) -> AsyncGenerator[list[Frame], None]:
        frames = self._area.read(staged)
        if staged.file is None:
            while block := _next_block(frames):
                yield block
            return
        loop = asyncio.get_running_loop()
        ahead = loop.run_in_executor(None, _next_block, frames)
        try:
            while block := await ahead:
                ahead = loop.run_in_executor(None, _next_block, frames)
                yield block
        finally:
            await asyncio.gather(ahead, return_exceptions=True)

    def too_slow(self) -> BatchTooSlow:
        size = sum(staged.size_bytes for staged in self._staged)
        records = sum(staged.record_count for staged in self._staged)
        elapsed_s = max(_now_s() - self._begun_s, 0.001)
        return BatchTooSlow(
            f"the batch has {records} records of {size / 1e6:.1f} MB in all; {self._sent_bytes / 1e6:.1f} MB were sent "
            f"in {elapsed_s:.1f} s, at {self._sent_bytes / 1e6 / elapsed_s:.1f} MB/s, when the transaction's time of "
            f"{self._timeout_s:g} s was over. Make batches smaller (maxOffsetsPerTrigger of the source), or allow more "
            "time by kafka.transaction.timeout.ms, which the brokers bound by their transaction.max.timeout.ms"
        )


def placed(frame: Frame, partition_count: int) -> Iterator[tuple[int, bytearray]]:
    """Where a staged batch goes in a topic that has so many partitions now."""
    topic = frame.topic
    if topic.partition_count == partition_count:
        yield frame.partition, frame.batch
    elif frame.placement is Placement.HASHED:
        yield from _placed_anew(frame, partition_count)
    elif frame.placement is Placement.FREE or (
        frame.placement is Placement.PINNED and frame.partition < partition_count
    ):
        yield frame.partition % partition_count, frame.batch
    else:
        raise StagedDataLost(
            f"topic {topic.name!r} had {topic.partition_count} partitions when rows were staged for its partition "
            f"{frame.partition}, and has {partition_count} now"
        )


def _placed_anew(frame: Frame, partition_count: int) -> Iterator[tuple[int, bytearray]]:
    header = read_header(frame.batch)
    read = read_columns([(frame.batch, header)], first_offset=0, with_headers=True, end_offset=_LARGEST_OFFSET)
    columns = read.batch.select(["key", "value", "timestamp", "headers"])
    for partition, rows in rows_by_partition(columns, partition_count, fallback=frame.partition % partition_count):
        for batch in write_columns(
            columns,
            rows,
            batch_bytes=max(frame.topic.max_batch_bytes, 1),
            default_timestamp_ms=header.max_timestamp,
            codec=frame.topic.codec,
        ):
            yield partition, batch


def _next_block(frames: Iterator[Frame]) -> list[Frame]:
    """Some frames; none at the end."""
    block: list[Frame] = []
    size = 0
    for frame in frames:
        block.append(frame)
        size += len(frame.batch)
        if size >= _BLOCK_BYTES:
            break
    return block


def _now_s() -> float:
    return asyncio.get_running_loop().time()
