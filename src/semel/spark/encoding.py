"""Arrow rows of a task become record batches of their topics' partitions, ready to be sent.

Rows are gathered until batches of a good size come out of them. A record that its topic would refuse must not be
staged: the batch's rows are pinned by the checkpoint, so the commit would be refused for ever. It is set aside for the
dead-letter topic, or fails the task by name.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from semel.client.errors import BrokerRefused, UnknownTopic
from semel.host.api import Clock
from semel.records.batch import read_header
from semel.records.columns import rows_by_partition, write_columns
from semel.spark.refusals import Refused, find_refused
from semel.spark.sink_errors import RecordRefused
from semel.spark.sink_options import COLUMNS, Partitioner
from semel.spark.staging import Placement, StagedTopic
from semel.spark.topic_facts import TopicFacts

BATCH_BYTES = 1 << 20
_GATHERED_BYTES = 8 << 20
_PARTITION_BYTES = 256 << 10
_MOST_GATHERED_BYTES = 64 << 20
_MOST_GATHERED_ROWS = 1 << 20

TOPIC_HEADER = "semel.dead-letter.topic"
REASON_HEADER = "semel.dead-letter.reason"


class Encoded(NamedTuple):
    topic: StagedTopic
    placement: Placement
    partition: int
    batch: bytearray
    record_count: int


class Taker(Protocol):
    def __call__(
        self, topic: StagedTopic, placement: Placement, partition: int, batch: bytearray, records: int
    ) -> object: ...


class RowEncoder:
    """Of one task. `take` gets the batches, in the order of the rows within each partition."""

    def __init__(
        self,
        take: Taker,
        facts_of: Callable[[str], TopicFacts],
        clock: Clock,
        *,
        topic: str | None,
        dead_letter_topic: str | None,
        partitioner: Partitioner,
        codec: int,
        level: int | None,
        first_turn: int,
    ) -> None:
        self._take = take
        self._facts_of = facts_of
        self._clock = clock
        self._topic = topic
        self._dead_letter_topic = dead_letter_topic
        self._partitioner = partitioner
        self._codec = codec
        self._level = level
        self._turn = first_turn  # tasks begin at different partitions with what may go to any
        self._unknown: dict[str, str] = {}
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._gathered_rows = 0
        self._limit_bytes = _GATHERED_BYTES

    def add(self, rows: pa.RecordBatch) -> None:
        names = [name for name in COLUMNS if name in rows.schema.names]
        if self._topic is not None and "topic" in names:
            names.remove("topic")
        self._gathered.append(rows.select(names))
        self._gathered_bytes += self._gathered[-1].nbytes
        self._gathered_rows += rows.num_rows
        if self._gathered_bytes >= self._limit_bytes or self._gathered_rows >= _MOST_GATHERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Encodes what is gathered."""
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = self._gathered_rows = 0
        table = pa.Table.from_batches(gathered) if gathered else None
        if table is None or table.num_rows == 0:
            return
        for topic, rows in self._by_topic(table):
            if topic is None:
                self._set_aside(rows, [Refused(row, "its topic is null") for row in range(rows.num_rows)], None)
            else:
                self._encode(topic, rows)

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
        if self._topic is not None:
            yield self._topic, table
            return
        names = table.column("topic")
        rows = table.drop_columns(["topic"])
        found = pc.unique(names)
        if len(found) == 1:
            yield found[0].as_py(), rows
            return
        for name in found.to_pylist():
            chosen = pc.is_null(names) if name is None else pc.fill_null(pc.equal(names, name), False)
            yield name, rows.filter(chosen)

    def _encode(self, topic: str, rows: pa.Table) -> None:
        facts = self._known_facts(topic)
        if facts is None:
            self._set_aside(rows, [Refused(row, self._unknown[topic]) for row in range(rows.num_rows)], topic)
            return
        self._limit_bytes = min(max(_GATHERED_BYTES, facts.partition_count * _PARTITION_BYTES), _MOST_GATHERED_BYTES)
        codec = self._codec if facts.codec is None else facts.codec
        refused = find_refused(rows, facts, self._clock.wall_ms(), codec, self._level)
        if refused:
            self._set_aside(rows, refused, topic)
            rows = rows.filter(_all_but([entry.row for entry in refused], rows.num_rows))
        for encoded in self._batches(facts, rows, codec):
            self._take(*encoded)

    def _known_facts(self, topic: str) -> TopicFacts | None:
        """None if the rows name a topic that there is not; one that the options name must be there."""
        if topic in self._unknown:
            return None
        try:
            return self._facts_of(topic)
        except (UnknownTopic, BrokerRefused) as error:
            if topic in (self._topic, self._dead_letter_topic):
                raise
            self._unknown[topic] = error.text
            return None

    def _batches(self, facts: TopicFacts, rows: pa.Table, codec: int) -> Iterator[Encoded]:
        if rows.num_rows == 0:
            return
        self._turn += 1
        placement, rows = self._placed(facts, rows)
        staged = StagedTopic(facts.name, facts.partition_count, facts.max_batch_bytes, codec)
        for partition, chosen in rows_by_partition(
            rows, facts.partition_count, fallback=self._turn % facts.partition_count
        ):
            for batch in self._sized_batches(facts, rows, chosen, codec):
                yield Encoded(staged, placement, partition, batch, read_header(batch).record_count)

    def _placed(self, facts: TopicFacts, rows: pa.Table) -> tuple[Placement, pa.Table]:
        """Why rows go where they go; with a column `partition` if it is not for their keys to decide."""
        asked = rows.column("partition") if "partition" in rows.schema.names else None
        if asked is not None and asked.null_count == 0:
            return Placement.PINNED, rows
        if asked is not None and asked.null_count == rows.num_rows:
            rows, asked = rows.drop_columns(["partition"]), None
        if self._partitioner is Partitioner.MURMUR2:
            return Placement.HASHED if asked is None else Placement.MIXED, rows
        if self._partitioner is Partitioner.STICKY:
            chosen = pa.array(array("i", [self._turn % facts.partition_count]) * rows.num_rows, pa.int32())
        else:
            circle = array("i", ((self._turn + step) % facts.partition_count for step in range(facts.partition_count)))
            turns = circle * (rows.num_rows // len(circle) + 1)
            self._turn += rows.num_rows
            chosen = pa.array(turns[: rows.num_rows], pa.int32())
        if asked is None:
            return Placement.FREE, rows.append_column("partition", chosen)
        chosen = pc.coalesce(asked.cast(pa.int32()), pa.chunked_array([chosen]))
        return Placement.PINNED, rows.set_column(rows.schema.get_field_index("partition"), "partition", chosen)

    def _sized_batches(self, facts: TopicFacts, rows: pa.Table, chosen: memoryview, codec: int) -> list[bytearray]:
        """Batches that the topic takes. One that its codec has made larger than that goes uncompressed."""
        now_ms, limit_bytes = self._clock.wall_ms(), min(BATCH_BYTES, facts.max_batch_bytes)
        batches = write_columns(
            rows, chosen, batch_bytes=limit_bytes, default_timestamp_ms=now_ms, codec=codec, level=self._level
        )
        if codec and any(len(batch) > facts.max_batch_bytes for batch in batches):
            batches = write_columns(rows, chosen, batch_bytes=limit_bytes, default_timestamp_ms=now_ms)
        return batches

    def _set_aside(self, rows: pa.Table, refused: list[Refused], topic: str | None) -> None:
        first = refused[0]
        if self._dead_letter_topic is None or topic == self._dead_letter_topic:
            where = "no topic" if topic is None else f"topic {topic!r}"
            key = rows.column("key")[first.row].as_py() if "key" in rows.schema.names else None
            others = f", and {len(refused) - 1} more of the rows with it" if len(refused) > 1 else ""
            raise RecordRefused(
                f"a row for {where}, key {_shown(key)}, value {_shown(rows.column('value')[first.row].as_py())}: "
                f"{first.reason}{others}"
            )
        self._encode(self._dead_letter_topic, _dead_letters(rows, refused, topic))


def _dead_letters(rows: pa.Table, refused: list[Refused], topic: str | None) -> pa.Table:
    """Key and value as they were, and headers that say where they should have gone and why they did not."""
    chosen = rows.take([entry.row for entry in refused])
    before = chosen.column("headers").to_pylist() if "headers" in chosen.schema.names else [None] * len(refused)
    headers = [
        [
            *((pair["key"], pair["value"]) for pair in given or () if pair is not None),
            (TOPIC_HEADER, None if topic is None else topic.encode()),
            (REASON_HEADER, entry.reason.encode()),
        ]
        for given, entry in zip(before, refused, strict=True)
    ]
    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    columns = {name: chosen.column(name) for name in ("key", "value") if name in chosen.schema.names}
    columns["headers"] = pa.array([[{"key": k, "value": v} for k, v in row] for row in headers], pa.list_(pair))
    return pa.table(columns)


def _all_but(rows: list[int], count: int) -> pa.Array:
    kept = bytearray(b"\x01") * count
    for row in rows:
        kept[row] = 0
    return pa.array(list(kept), pa.uint8()).cast(pa.bool_())


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
