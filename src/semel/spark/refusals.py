"""Which rows a topic would refuse, and why, found without looking at each: columns as wholes first, rows if need be."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from semel.records.columns import largest_record, write_columns
from semel.spark.topic_facts import TopicFacts

_MARGIN_MS = 15 * 60_000
"""Between staging and commit a record gets older: so much is left of the time that a topic allows."""
_PARTS_BYTES = 96
"""More than the numbers of a record need, beside its key, value and headers, and the batch around it."""
_HEADER_PARTS_BYTES = 10


class Refused(NamedTuple):
    row: int
    reason: str


def find_refused(rows: pa.Table, facts: TopicFacts, now_ms: int, codec: int, level: int | None) -> list[Refused]:
    """The refused rows in order, each with the first reason there is."""
    reasons: dict[int, str] = {}
    for row, reason in (
        *_without_key(rows, facts),
        *_partition_unknown(rows, facts),
        *_time_refused(rows, facts, now_ms),
        *_too_large(rows, facts, codec, level),
    ):
        reasons.setdefault(row, reason)
    return [Refused(row, reasons[row]) for row in sorted(reasons)]


def _without_key(rows: pa.Table, facts: TopicFacts) -> list[Refused]:
    if not facts.needs_key:
        return []
    keys = rows.column("key") if "key" in rows.schema.names else pa.nulls(rows.num_rows)
    if keys.null_count == 0:
        return []
    return [Refused(row, "it has no key, and the topic is compacted") for row in _where(pc.is_null(keys))]


def _partition_unknown(rows: pa.Table, facts: TopicFacts) -> list[Refused]:
    if "partition" not in rows.schema.names:
        return []
    asked = rows.column("partition")
    if asked.null_count == rows.num_rows:
        return []
    wrong = pc.or_(pc.less(asked, 0), pc.greater_equal(asked, facts.partition_count))
    return [
        Refused(row, f"it asks for partition {asked[row]}; the topic has 0 to {facts.partition_count - 1}")
        for row in _where(wrong)
    ]


def _time_refused(rows: pa.Table, facts: TopicFacts, now_ms: int) -> list[Refused]:
    if "timestamp" not in rows.schema.names or facts.stamps_itself:
        return []
    times = rows.column("timestamp")
    if times.null_count == rows.num_rows:
        return []
    times_ms = pc.cast(times, pa.timestamp("ms", tz=getattr(times.type, "tz", None)), safe=False).cast(pa.int64())
    bounds = pc.min_max(times_ms)
    oldest_ms = max(now_ms - facts.oldest_ms + _MARGIN_MS, 0) if facts.oldest_ms < now_ms else 0
    newest_ms = now_ms + facts.newest_ms
    if bounds["min"].as_py() >= oldest_ms and bounds["max"].as_py() <= newest_ms:
        return []
    wrong = pc.or_(pc.less(times_ms, oldest_ms), pc.greater(times_ms, newest_ms))
    return [
        Refused(row, f"its timestamp, {times[row]}, is not one that the topic takes now: too far off, or before 1970")
        for row in _where(wrong)
    ]


def _too_large(rows: pa.Table, facts: TopicFacts, codec: int, level: int | None) -> list[Refused]:
    columns = rows.drop_columns(["partition"]) if "partition" in rows.schema.names else rows
    largest = largest_record(columns)
    if largest is None or largest.batch_bytes <= facts.max_batch_bytes:
        return []
    refused = []
    for row in _where(pc.greater(_estimate(rows), facts.max_batch_bytes)):
        alone = array("i", [row])
        size = largest_record(columns, alone)
        if size is None or size.batch_bytes <= facts.max_batch_bytes:
            continue
        size_bytes = size.batch_bytes
        if codec:
            (batch,) = write_columns(columns, alone, batch_bytes=1, default_timestamp_ms=0, codec=codec, level=level)
            size_bytes = len(batch)
        if size_bytes > facts.max_batch_bytes:
            text = f"it needs {size_bytes} bytes, and the topic's max.message.bytes is {facts.max_batch_bytes}"
            refused.append(Refused(row, text))
    return refused


def _estimate(rows: pa.Table) -> pa.ChunkedArray:
    """At least the size of each row's batch: cheap, and the few that come near are measured."""
    total = pc.add(pc.fill_null(pc.cast(pc.binary_length(rows.column("value")), pa.int64()), 0), _PARTS_BYTES)
    if "key" in rows.schema.names and not pa.types.is_null(rows.column("key").type):
        total = pc.add(total, pc.fill_null(pc.cast(pc.binary_length(rows.column("key")), pa.int64()), 0))
    if "headers" in rows.schema.names and not pa.types.is_null(rows.column("headers").type):
        sizes = [
            sum(
                len((pair["key"] or "").encode()) + len(pair["value"] or b"") + _HEADER_PARTS_BYTES
                for pair in given or ()
                if pair is not None
            )
            for given in rows.column("headers").to_pylist()
        ]
        total = pc.add(total, pa.array(sizes, pa.int64()))
    return total


def _where(mask: pa.ChunkedArray | pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return found
