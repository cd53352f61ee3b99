"""Polled records as an Arrow table: from the batches straight into columns, without an object per record."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semel.client.consumer.fetched import corrupt
from semel.client.consumer.positions import Reading, Rest
from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.records.errors import RecordError

if TYPE_CHECKING:
    import pyarrow as pa

_TIMESTAMP_UNITS = ("ms", "us")


class ColumnReader:
    """Takes records of partitions, one after the other, and makes a table of all."""

    def __init__(self, *, with_headers: bool, timestamp_unit: str, max_decompressed_bytes: int) -> None:
        if timestamp_unit not in _TIMESTAMP_UNITS:
            raise BadSetting(f"timestamp_unit: {timestamp_unit!r} is not allowed; allowed: ms, us")
        # Only here: a consumer that is never asked for columns does not need Arrow. If it is missing, this says so.
        from semel.records.columns import read_columns

        self._read_columns: Any = read_columns
        self._options = {
            "with_headers": with_headers,
            "timestamp_unit": timestamp_unit,
            "max_decompressed_bytes": max_decompressed_bytes,
        }
        self._parts: list[pa.RecordBatch] = []

    @property
    def has_rows(self) -> bool:
        return bool(self._parts)

    def take(self, reading: Reading, most: int) -> int:
        """Up to `most` records of a partition; how many. Its position is then behind them."""
        reading.undecode()
        total = 0
        while total < most:
            opened = _open_batches(reading, most - total)
            if not opened:
                break
            total += self._read(reading, opened, most - total)
        return total

    def _read(self, reading: Reading, opened: list[Rest], most: int) -> int:
        """All batches at once. If one of them is broken, one by one: those before it are handed out, behind it none."""
        total = 0
        at_once = len(opened)
        while opened and total < most:
            try:
                rows, next_offset = self._read_rows(opened[:at_once], reading.offset, most - total)
            except RecordError as error:
                if at_once == 1:
                    reading.problem = corrupt(reading.partition, reading.offset, error, opened[0].batch.header)
                    break
                at_once = 1
                continue
            total += rows.num_rows
            if rows.num_rows:
                self._parts.append(_with_place(rows, reading.partition))
            reading.advance(next_offset, opened[0].batch.header.partition_leader_epoch)
            while opened and opened[0].batch.header.last_offset < next_offset:
                passed = opened.pop(0)
                reading.advance(passed.end_offset, passed.end_epoch)
        reading.rest = opened[0] if opened else None
        return total

    def _read_rows(self, opened: Sequence[Rest], first_offset: int, most: int) -> tuple[pa.RecordBatch, int]:
        batches = [rest.batch for rest in opened]
        limit = most if most < sys.maxsize else None
        found = self._read_columns(batches, first_offset=first_offset, max_records=limit, **self._options)
        return found.batch, found.next_offset

    def table(self) -> pa.Table:
        import pyarrow as pa

        if not self._parts:
            nothing, _ = self._read_rows((), 0, 1)
            return pa.Table.from_batches([_with_place(nothing, TopicPartition("", 0))])
        return pa.Table.from_batches(self._parts)


def _with_place(rows: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
    """The rows with two more columns in front: topic and partition."""
    import pyarrow as pa

    topics = pa.repeat(pa.scalar(partition.topic, pa.string()), rows.num_rows)
    numbers = pa.repeat(pa.scalar(partition.partition, pa.int32()), rows.num_rows)
    return pa.RecordBatch.from_arrays(
        [topics, numbers, *rows.columns], names=["topic", "partition", *rows.schema.names]
    )


def _open_batches(reading: Reading, most: int) -> list[Rest]:
    """Batches of one answer that together hold so many records, if there are as many. They are the caller's now.

    Not of the next answer: to begin with that would move the position behind these, which are not handed out yet.
    """
    opened: list[Rest] = []
    count = 0
    while count < most and (not opened or (reading.fetched and reading.fetched[0].current is not None)):
        rest = reading.open_batch()
        if rest is None:
            break
        opened.append(rest)
        count += rest.batch.header.record_count
        reading.rest = None
    return opened
