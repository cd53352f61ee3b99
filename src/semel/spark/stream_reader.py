"""A streaming read, the driver's side: where it starts, how far each batch goes, which ranges its tasks read.

It lives in one process as long as the query. Nothing that counts is kept in it: the checkpoint's offsets decide, and a
batch that is run again gets the same range. The start of the first batch is not in the checkpoint, so `initialOffset`
is empty: a start that could move (latest, by time) is pinned by a first batch without records, which ends there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from semel.client.errors import UnknownTopic
from semel.spark.data_loss import report_loss
from semel.spark.group_progress import GroupProgress
from semel.spark.offsets import EARLIEST, Offsets, from_checkpoint, to_checkpoint
from semel.spark.planning import OffsetRange, Patience, available, limited, ranges_between, split
from semel.spark.schema import check_schema
from semel.spark.source_options import ByOffset, SourceOptions, stream_options
from semel.spark.topic_offsets import TopicOffsets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NOT_BEGUN: dict[str, Any] = {}
BEGUN_WITHOUT_PARTITIONS: dict[str, Any] = {"*": {}}
"""No topic can have this name; so this offset is not the one before the first batch, and holds no partition."""


def _monotonic_ms() -> float:
    return time.monotonic() * 1000


class SemelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, schema: StructType, options: Mapping[str, str], *, clock_ms: Callable[[], float] = _monotonic_ms
    ) -> None:
        self._options: SourceOptions = stream_options(options)
        check_schema(schema, self._options.include_headers)
        self._clock_ms = clock_ms
        self._cluster = TopicOffsets(self._options)
        self._progress = GroupProgress(self._options.group_id, self._cluster.commit)
        self._patience = Patience(self._options.min_offsets_per_trigger or 0, self._options.max_trigger_delay_ms)
        self._is_bounded = False
        self._target: Offsets | None = None
        """Where a run of what is available now ends."""
        self._ends: Offsets | None = None
        self._restarted: Offsets = {}
        """Where the last batch ended in topics that were created again since: the next one begins with their start."""
        self._planned: tuple[Mapping[str, Any], Mapping[str, Any], list[OffsetRange]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark also sends the reader to tasks: these read, and need the options only."""
        return {"_options": self._options}

    # -- how far

    def initialOffset(self) -> dict[str, Any]:
        return dict(NOT_BEGUN)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark can hand back one limit only; both are looked up in the options when it does."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that this run will read."""
        self._is_bounded = True
        try:
            self._latest({}, has_begun=False)
        except UnknownTopic:
            pass  # it may have been read by an earlier run, and be gone since: `latestOffset` will know

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = from_checkpoint(start)
        # Spark asks for the next batch when the last one is done, and calls `commit` only if there is a next one.
        self._progress.reached(begun)
        self._restarted = {place: offset for place, offset in self._restarted.items() if begun.get(place) == offset}
        self._ends = ends = self._latest(begun, has_begun=bool(start))
        if start:
            starts = self._starts(begun, ends)
        else:
            starts = self._cluster.resolved(self._options.starting, frozenset(ends), ends)
            if self._options.start_moves:
                return to_checkpoint(starts) or BEGUN_WITHOUT_PARTITIONS
        reached = self._admitted(starts, ends, limit)
        if reached == begun and self._restarted:
            reached = self._told_apart(begun, reached)
        # As a text it must be the same one, or Spark runs a batch for nothing.
        if reached is None or reached == begun:
            return start
        return to_checkpoint(reached) or BEGUN_WITHOUT_PARTITIONS

    def _latest(self, begun: Offsets, *, has_begun: bool) -> Offsets:
        target = self._target
        if target is not None and all(target.get(place, -1) >= offset for place, offset in begun.items()):
            return target
        may_be_missing = has_begun and not self._options.fail_on_data_loss
        ends = self._cluster.latest(self._cluster.partitions(begun, may_be_missing=may_be_missing), begun)
        if target is not None:
            # It did not reach what was read already: it came of a node that did not know better.
            ends = {place: end for place, end in ends.items() if place in target or place in begun}
        if self._is_bounded:
            self._target = ends
        return ends

    def _admitted(self, starts: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets | None:
        """How far the next batch goes. None: there is to be none yet."""
        if isinstance(limit, ReadAllAvailable):
            return ends
        # What this run is to read will not become more by waiting.
        if not self._is_bounded and self._patience.waits(available(starts, ends), self._clock_ms()):
            return None
        most = self._options.max_offsets_per_trigger
        return ends if most is None else limited(starts, ends, most)

    def _told_apart(self, begun: Offsets, reached: Offsets) -> Offsets:
        """A topic that was created again may end just where the old one was read to. Spark would see nothing new."""
        place = next((place for place in sorted(reached) if self._restarted.get(place) == begun[place] > 0), None)
        return reached if place is None else reached | {place: reached[place] - 1}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._ends is None else to_checkpoint(self._ends)

    # -- from where

    def _starts(self, begun: Offsets, ends: Offsets) -> Offsets:
        """Where partitions are read from, all those of `ends`. Those that were not there before begin with their first
        record. What is missing between the two offsets is told."""
        self._check_lost(begun, ends)
        added = [place for place in ends if place not in begun]
        restarted = [place for place in ends if place in begun and self._restarted.get(place) == begun[place]]
        earliest = self._cluster.earliest([*added, *restarted])
        for place in added:
            if earliest[place] > 0:
                self._lost(f"{place} is new, but its first {earliest[place]} records are gone already")
        return {place: earliest.get(place, begun.get(place, 0)) for place in ends}

    def _first_starts(self, ends: Offsets) -> Offsets:
        """Those of a start that does not move. Partitions that are younger than the batch are not in `ends`."""
        starting = self._options.starting
        given = starting.offsets if isinstance(starting, ByOffset) else {}
        starts = {place: given.get(place, EARLIEST) for place in ends}
        return starts | self._cluster.earliest([place for place, offset in starts.items() if offset == EARLIEST])

    def _check_lost(self, begun: Offsets, ends: Offsets) -> None:
        gone = sorted(begun.keys() - ends.keys())
        if gone:
            self._lost(f"{', '.join(map(str, gone))}: the partitions do not exist any more")
        for place, offset in sorted(begun.items()):
            if place.topic in self._cluster.recreated and place in ends and self._restarted.get(place) != offset:
                self._lost(f"{place}: the topic was deleted and created again; it is read from its new beginning")
                self._restarted[place] = offset
            elif ends.get(place, offset) < offset and self._restarted.get(place) != offset:
                self._lost(f"{place}: it was read up to offset {offset}, and ends at {ends[place]} now")
        self._cluster.recreated.clear()

    def _lost(self, text: str) -> None:
        report_loss(text, fails=self._options.fail_on_data_loss)

    # -- which ranges

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Asked more than once for the same batch."""
        if self._planned is None or self._planned[:2] != (start, end):
            self._planned = (start, end, self._plan(start, end))
        return [*self._planned[2]]

    def _plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
        if start == end or (not start and self._options.start_moves):
            return []
        ends = from_checkpoint(end)
        starts = self._starts(from_checkpoint(start), ends) if start else self._first_starts(ends)
        options = self._options
        return split(ranges_between(starts, ends), options.min_partitions, options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRange):
            return iter(())
        from semel.spark.reading import read_range

        return read_range(partition, self._options)

    # -- the end of a batch, and of all

    def commit(self, end: dict[str, Any]) -> None:
        self._progress.reached(from_checkpoint(end))

    def stop(self) -> None:
        self._progress.close()
        self._cluster.close()
