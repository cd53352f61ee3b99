"""A task's part: exactly the records of one offset range, as Arrow batches of moderate size.

The end is an offset, so the consumer's position decides: records that were aborted, compacted away or are markers are
passed over, and a range may hold no record at all. What does not come although it should is waited for, and told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from semel.client.errors import OffsetOutOfRange, RetriableError, TimedOut
from semel.spark.consumer_cache import CACHE, ConsumerCache, KeptConsumer
from semel.spark.data_loss import report_loss
from semel.spark.planning import OffsetRange
from semel.spark.schema import TIMESTAMP_UNIT, as_source_columns
from semel.spark.source_options import SourceOptions
from semel.spark.worker_memory import settle

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("semel.spark")

MOST_ROWS = 1 << 16
MOST_BYTES = 8 << 20
_POLL_MS = 50
"""Short: a range that ends with offsets without records is known to be read only after a poll that brought nothing."""
_LOOK_AGAIN_MS = 1000
_GRACE_MS = 10_000
"""So long a node that has just become leader may believe the log to be shorter than it is."""
_CONNECT_PAUSE_S = 0.5


def read_range(
    wanted: OffsetRange,
    options: SourceOptions,
    *,
    cache: ConsumerCache = CACHE,
    clock_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
) -> Iterator[pa.RecordBatch]:
    reading = _Reading(wanted, options, cache, clock_ms)
    yield from reading.batches()


class _Reading:
    def __init__(
        self, wanted: OffsetRange, options: SourceOptions, cache: ConsumerCache, clock_ms: Callable[[], float]
    ) -> None:
        self._wanted = wanted
        self._options = options
        self._cache = cache
        self._clock_ms = clock_ms
        self._position = wanted.start
        self._progress_ms = clock_ms()
        self._looked_ms = self._progress_ms

    def batches(self) -> Iterator[pa.RecordBatch]:
        kept = self._connected()
        try:
            kept.go_to(self._wanted.place, self._position)
            while self._position < self._wanted.end:
                try:
                    table = kept.consumer.poll_columns(
                        _POLL_MS, with_headers=self._options.include_headers, timestamp_unit=TIMESTAMP_UNIT
                    )
                except OffsetOutOfRange as error:
                    self._out_of_range(kept, error)
                    continue
                yield from self._rows(table)
                self._move(kept, table.num_rows)
        except BaseException:
            # Also when Spark has had enough rows: where the consumer stands is not known then.
            self._cache.discard(kept)
            raise
        self._cache.give_back(kept)
        settle("read")

    def _connected(self) -> KeptConsumer:
        while True:
            try:
                return self._cache.take(self._options.consumer)
            except RetriableError as error:
                if self._clock_ms() - self._progress_ms >= self._options.poll_timeout_ms:
                    raise
                logger.warning("connecting again after: %s", error)
                time.sleep(_CONNECT_PAUSE_S)

    # -- rows

    def _rows(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        for part in table.to_batches():
            columns = as_source_columns(part, self._options.include_headers)
            count = columns.num_rows
            if count == 0:
                continue
            offsets = columns.column("offset")
            self._position = offsets[count - 1].as_py() + 1
            if self._position > self._wanted.end:
                self._position = self._wanted.end
                count = _count_below(offsets, self._wanted.end)
            step = _rows_at_once(columns)
            for first in range(0, count, step):
                yield columns.slice(first, min(step, count - first))

    def _move(self, kept: KeptConsumer, row_count: int) -> None:
        """The position may be behind offsets that hold no record for us."""
        before = self._position
        if self._position < self._wanted.end:
            self._position = max(before, kept.consumer.position(self._wanted.place))
        if row_count or self._position > before:
            self._progress_ms = self._looked_ms = self._clock_ms()
        elif self._clock_ms() - self._looked_ms >= _LOOK_AGAIN_MS:
            self._look(kept)
            self._looked_ms = self._clock_ms()

    # -- what does not come

    def _look(self, kept: KeptConsumer) -> None:
        """Nothing has come for a while. If the records are gone it is told soon, else when the time is over."""
        waited_ms = self._clock_ms() - self._progress_ms
        reason = "the broker sends nothing"
        try:
            shortage = self._shortage(kept)
        except RetriableError as error:
            shortage, reason = None, str(error)
        if shortage is not None and waited_ms >= min(_GRACE_MS, self._options.poll_timeout_ms):
            self._end(f"{self._wanted}: {shortage}")
        elif waited_ms >= self._options.poll_timeout_ms:
            held_back = self._held_back(kept)
            raise TimedOut(
                f"{self._wanted}: no record came at offset {self._position} for {waited_ms / 1000:.0f} s "
                f"(kafkaConsumer.pollTimeoutMs): {held_back or shortage or reason}"
            )

    def _shortage(self, kept: KeptConsumer) -> str | None:
        """Why the rest of the range cannot come, as far as the cluster says so."""
        place = self._wanted.place
        numbers = kept.consumer.partitions_for_topic(place.topic)
        if numbers is None or place.partition not in numbers:
            return "the partition does not exist any more"
        end = kept.consumer.end_offsets([place])[place]
        if end >= self._wanted.end or self._held_back(kept):
            return None
        return f"the log ends at offset {end} now"

    def _held_back(self, kept: KeptConsumer) -> str | None:
        """The records may be there, but not decided: a range given by a program can reach into an open transaction."""
        place = self._wanted.place
        high_watermark, stable = kept.consumer.highwater(place), kept.consumer.last_stable_offset(place)
        if high_watermark is None or stable is None or not stable < self._wanted.end <= high_watermark:
            return None
        return f"a transaction that is open since offset {stable} holds back what follows"

    def _out_of_range(self, kept: KeptConsumer, error: OffsetOutOfRange) -> None:
        place = self._wanted.place
        start = kept.consumer.beginning_offsets([place])[place]
        if start <= self._position:
            self._end(f"{self._wanted}: the log does not hold offset {self._position} any more: {error.text}")
            return
        gone_to = min(start, self._wanted.end)
        report_loss(
            f"{place}: offsets {self._position} to {gone_to - 1} were deleted before they were read; "
            f"the log begins at {start} now",
            fails=self._options.fail_on_data_loss,
        )
        self._position = gone_to
        kept.consumer.seek(place, gone_to)
        self._progress_ms = self._looked_ms = self._clock_ms()

    def _end(self, text: str) -> None:
        """Nothing more of the range can be read."""
        report_loss(f"{text}; offsets from {self._position} on are missing", fails=self._options.fail_on_data_loss)
        self._position = self._wanted.end


def _count_below(offsets: pa.Array, end: int) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.less(offsets, end)).as_py())


def _rows_at_once(columns: pa.RecordBatch) -> int:
    row_bytes = max(1, int(columns.nbytes) // columns.num_rows)
    return int(max(1, min(MOST_ROWS, MOST_BYTES // row_bytes)))
