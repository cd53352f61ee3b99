"""Arrow columns to batches of each partition, and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from semel.client.errors import BadRecord, RecordTooLarge, SemelError
from semel.client.producer.batch import ProducerBatch
from semel.client.producer.partitioner import TopicLanes
from semel.client.producer.settings import ProducerSettings
from semel.records.batch import read_header

if TYPE_CHECKING:
    import pyarrow

    Columns: TypeAlias = pyarrow.RecordBatch | pyarrow.Table
else:
    Columns = Any


class Written(NamedTuple):
    """A run of rows in one partition: so many records from `offset` on."""

    topic: str
    partition: int
    offset: int
    records: int


class ColumnsDelivery:
    """The fate of all rows: `await` gives where they were written, or raises the first error."""

    def __init__(self, batches: list[ProducerBatch]) -> None:
        self._batches = batches

    def __await__(self) -> Generator[Any, None, list[Written]]:
        return self._wait().__await__()

    async def _wait(self) -> list[Written]:
        for batch in self._batches:
            batch.watch_all()
        try:
            for batch in self._batches:
                await batch.wait()
        except BaseException:
            for batch in self._batches:
                batch.unwatch_all()
            raise
        return self.result()

    def done(self) -> bool:
        return all(batch.done for batch in self._batches)

    def exception(self) -> SemelError | None:
        if not self.done():
            raise asyncio.InvalidStateError("the rows are not delivered yet")
        errors = [batch.look_at_all() for batch in self._batches]
        return next((error for error in errors if error is not None), None)

    def result(self) -> list[Written]:
        error = self.exception()
        if error is not None:
            raise error
        return [Written(batch.topic, batch.partition, batch.base_offset, batch.count) for batch in self._batches]


def batches_of(
    lanes: TopicLanes, columns: Columns, settings: ProducerSettings, most_bytes: int, now_ms: int
) -> Iterator[tuple[int, bytearray, int]]:
    """Partition, bytes and record count of each batch, in row order within a partition. Refuses bad columns by name,
    and a row that needs more than `most_bytes`, before it gives any."""
    from semel.records.columns import largest_record, rows_by_partition, write_columns

    try:
        largest = largest_record(columns)
        if largest is not None and largest.batch_bytes > most_bytes:
            raise RecordTooLarge(f"row {largest.row}: {largest.batch_bytes} bytes, a request may have {most_bytes}")
        sticky = lanes.without_key(columns.get_total_buffer_size(), settings.batch_size).partition
        for partition, rows in rows_by_partition(columns, lanes.count, fallback=sticky):
            for payload in write_columns(
                columns,
                rows,
                batch_bytes=min(settings.batch_size, most_bytes),
                default_timestamp_ms=now_ms,
                codec=settings.codec,
                level=settings.compression_level,
            ):
                yield partition, payload, read_header(payload).record_count
    except BadRecord:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRecord(str(error)) from error
