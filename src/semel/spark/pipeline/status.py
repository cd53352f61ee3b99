"""What a checkpoint and its marker say about each other: batches, offsets, lag, and what the next start will do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from semel.client.errors import SemelError
from semel.client.metadata import TopicPartition
from semel.spark.checkpoint import Checkpoint
from semel.spark.connection_options import client_settings
from semel.spark.marker import Marker
from semel.spark.offsets import from_checkpoint
from semel.spark.pipeline.errors import PipelineError
from semel.spark.places import absolute_uri
from semel.spark.sink_errors import CheckpointRefused
from semel.spark.succession import NextBatch

_NONE_YET = -1


@dataclass(frozen=True)
class PartitionStatus:
    topic: str
    partition: int
    offset: int
    """Of the next record to read."""
    end: int | None
    """Where the partition ends for a reader of committed records; None if it is gone."""

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(self.end - self.offset, 0)


@dataclass(frozen=True)
class Status:
    checkpoint: str
    query_id: str
    completed: int
    """The last batch that Spark knows to be done, -1 if none."""
    planned: int
    marker: Marker | None
    is_marker_known: bool
    """False of a table, if the database was not named."""
    next: str
    fits: bool
    partitions: tuple[PartitionStatus, ...]
    app_id: str = ""
    """Of the `publish_each` whose marker it is; empty for the sink's."""

    @property
    def lag(self) -> int | None:
        lags = [one.lag for one in self.partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    def as_json(self) -> str:
        told: dict[str, Any] = asdict(self) | {"lag": self.lag}
        told["partitions"] = [asdict(one) | {"lag": one.lag} for one in self.partitions]
        return json.dumps(told, indent=2)

    def lines(self) -> Iterator[str]:
        yield f"checkpoint  {self.checkpoint}"
        yield f"query       {self.query_id}"
        begun = "" if self.planned == self.completed else f", batch {self.planned} has been begun"
        yield f"batches     {'none done' if self.completed == _NONE_YET else f'done up to {self.completed}'}{begun}"
        yield f"marker      {self._marker_told()}"
        yield f"next        {self.next}"
        yield f"lag         {'unknown' if self.lag is None else f'{self.lag:,}'}"
        yield ""
        yield from _table(self.partitions)

    def _marker_told(self) -> str:
        if not self.is_marker_known:
            return "in the database that is written to: give the pipeline's file instead of its checkpoint"
        if self.marker is None:
            return "none"
        count = self.marker.record_count
        records = "1 record" if count == 1 else f"{count:,} records"
        count_told = "" if count == 0 else f", {records}"
        other = self.marker.query_id not in ("", self.query_id)
        of_query = f" of another query, {self.marker.query_id}" if other else ""
        return f"batch {self.marker.number}{of_query}{count_told}, as {self.marker.transactional_id}"


def _table(partitions: tuple[PartitionStatus, ...]) -> Iterator[str]:
    rows = [("topic", "partition", "offset", "end", "lag")]
    for one in partitions:
        end, lag = ("gone" if number is None else f"{number:,}" for number in (one.end, one.lag))
        rows.append((one.topic, str(one.partition), f"{one.offset:,}", end, lag))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        yield f"{row[0]:<{widths[0]}}  " + "  ".join(f"{row[column]:>{widths[column]}}" for column in range(1, 5))


def status_of(
    location: str, options: Mapping[str, str], marker_from: Callable[[], Marker | None] | None, app_id: str = ""
) -> Status:
    """`options` are those of the write, among them the cluster's address. Without `marker_from` nobody knows it."""
    checkpoint = Checkpoint(absolute_uri(location))
    query_id = checkpoint.query_id()
    completed, planned = (
        -1 if batch is None else batch for batch in (checkpoint.last_completed(), checkpoint.last_planned())
    )
    try:
        marker = None if marker_from is None else marker_from()
        partitions = tuple(_partitions(checkpoint, completed, options))
    except SemelError as error:
        raise PipelineError(f"the cluster at {options['kafka.bootstrap.servers']} does not tell: {error}") from error
    is_known = marker_from is not None
    fits, following = (
        judged(checkpoint, query_id, completed, marker, app_id) if is_known else (True, _begins(completed))
    )
    return Status(location, query_id, completed, planned, marker, is_known, following, fits, partitions, app_id)


def judged(
    checkpoint: Checkpoint, query_id: str, completed: int, marker: Marker | None, app_id: str = ""
) -> tuple[bool, str]:
    """Whether the next start will go on, and what it will do or why it will not: the rule of the sink itself."""
    following = completed + 1
    rule = NextBatch(
        query_id,
        following,
        checkpoint.digest(following) or "",
        None if completed == _NONE_YET else checkpoint.digest(completed),
        transactional_id="" if marker is None else marker.transactional_id,
        app_id=app_id,
    )
    try:
        is_done = rule.is_done(marker)
    except CheckpointRefused as error:
        return False, f"refused: {error.text}; for the person who means it: {error.command}"
    if is_done:
        return True, f"batch {following} is published, and Spark will be told at the next start"
    return True, _begins(completed)


def _begins(completed: int) -> str:
    return f"batch {completed + 1}"


def _partitions(checkpoint: Checkpoint, completed: int, options: Mapping[str, str]) -> Iterator[PartitionStatus]:
    offsets: dict[TopicPartition, int] = {}
    lines = [] if completed == _NONE_YET else checkpoint.source_lines(completed)
    for line in [line for line in lines if line.strip() not in (b"", b"-")]:  # a source without an offset has a dash
        for place, offset in from_checkpoint(json.loads(line)).items():
            offsets[place] = min(offset, offsets.get(place, offset))
    if not offsets:
        return
    ends = _ends(sorted(offsets), options)
    for place, offset in sorted(offsets.items()):
        yield PartitionStatus(place.topic, place.partition, offset, ends.get(place))


def _ends(places: list[TopicPartition], options: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Of those that still exist."""
    from semel.sync.consumer import Consumer

    with Consumer(**client_settings(options), isolation_level="read_committed") as consumer:
        known = {topic: consumer.partitions_for_topic(topic) for topic in {place.topic for place in places}}
        there = [place for place in places if place.partition in (known[place.topic] or ())]
        return dict(consumer.end_offsets(there)) if there else {}
