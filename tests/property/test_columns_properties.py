"""Arrow columns hold what records hold, either way, however they are cut into chunks, batches and calls."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.records.batch import BatchHeader, Buffer, check_crc, read_header, set_base_offset
from semel.records.build import build_batch
from semel.records.columns import read_columns, rows_by_partition, write_columns
from semel.records.compact import filter_batch
from semel.records.compression import Codec
from semel.records.partitioning import partition_of_key
from semel.records.read import Record, read_messages, read_records

INT64 = st.integers(-(2**63), 2**63 - 1)
FIELD = st.none() | st.binary(max_size=100)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=6), FIELD), max_size=3)
ROW = st.tuples(st.none() | INT64 | st.integers(0, 2**41), FIELD, FIELD, HEADERS)
ROWS = st.lists(ROW, max_size=60)
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DEFAULT_MS = 1_700_000_000_000


def chunked(values: list[Any], kind: Any, random: Random) -> pa.ChunkedArray:
    """A column in pieces of any size, each a slice of something larger."""
    chunks = []
    position = 0
    while position < len(values):
        size = random.randint(0, len(values) - position)
        before, after = random.randint(0, 9), random.randint(0, 9)
        whole = pa.array([*values[:before], *values[position : position + size], *values[:after]], kind)
        chunks.append(whole.slice(min(before, len(values)), size))
        position += size
    return pa.chunked_array(chunks, kind)


def table_of(rows: list[Any], random: Random) -> pa.Table:
    timestamps, keys, values, headers = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
    pairs = [None if of_row is None else [{"key": k, "value": v} for k, v in of_row] for of_row in headers]
    lists: list[tuple[Any, list[Any]]] = [(PAIRS, pairs), (pa.map_(pa.string(), pa.binary()), headers)]
    kind, of_rows = random.choice(lists)
    return pa.table(
        {
            "timestamp": chunked(timestamps, random.choice([pa.int64(), pa.timestamp("ms", tz="UTC")]), random),
            "headers": chunked(of_rows, kind, random),
            "key": chunked(keys, random.choice([pa.binary(), pa.large_binary()]), random),
            "value": chunked(values, random.choice([pa.binary(), pa.large_binary()]), random),
        }
    )


def as_records(columns: pa.RecordBatch) -> list[Record]:
    columns.validate(full=True)
    stamps = columns.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [tuple((h["key"], h["value"]) for h in of_row) for of_row in columns.column("headers").to_pylist()]
    keys, values = columns.column("key").to_pylist(), columns.column("value").to_pylist()
    return [Record(*r) for r in zip(columns.column("offset").to_pylist(), stamps, keys, values, headers, strict=True)]


@given(
    rows=ROWS,
    chosen=st.none() | st.lists(st.integers(0, 59), max_size=80),
    batch_bytes=st.integers(60, 4000),
    codec=st.sampled_from(Codec),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=120, deadline=None)
def test_columns_that_were_written_are_read_again(
    rows: list[Any], chosen: list[int] | None, batch_bytes: int, codec: Codec, seed: int
) -> None:
    table = table_of(rows, Random(seed))
    numbers = None if chosen is None else array("i", [row for row in chosen if row < len(rows)])
    batches = write_columns(table, numbers, batch_bytes=batch_bytes, default_timestamp_ms=DEFAULT_MS, codec=codec)
    wanted = rows if numbers is None else [rows[row] for row in numbers]
    expected = [
        Record(offset, DEFAULT_MS if timestamp is None else timestamp, key, value, tuple(headers or ()))
        for offset, (timestamp, key, value, headers) in enumerate(wanted)
    ]
    offset = 0
    pairs = []
    for batch in batches:
        set_base_offset(batch, offset)
        header = read_header(batch)
        assert check_crc(batch, 0, header)
        of_batch = expected[offset : offset + header.record_count]
        # the same bytes as when built record by record
        plain = build_batch(
            [r.value for r in of_batch],
            keys=[r.key for r in of_batch],
            headers=[r.headers for r in of_batch],
            timestamps_ms=[r.timestamp_ms for r in of_batch],
            base_timestamp_ms=of_batch[0].timestamp_ms,
            base_offset=offset,
        )
        assert len(plain) <= batch_bytes or len(of_batch) == 1
        if codec == Codec.NONE:
            assert batch == plain
        assert read_records(batch) == of_batch
        pairs.append((memoryview(batch), header))
        offset += header.record_count
    columns = read_columns(pairs, first_offset=0, with_headers=True)
    assert columns.next_offset == len(expected)
    assert as_records(columns.batch) == expected


def thinned_batches(random: Random) -> list[tuple[Buffer, BatchHeader]]:
    """Batches as a compacted log has them: records are missing within them, and whole batches between them."""
    batches = []
    offset = random.randint(0, 20)
    for _ in range(random.randint(0, 6)):
        count = random.randint(1, 12)
        batch = build_batch(
            [random.choice([None, b"", random.randbytes(random.randint(0, 40))]) for _ in range(count)],
            keys=[random.choice([None, b"k", b""]) for _ in range(count)],
            headers=[[("h", b"x")] * random.randint(0, 2) for _ in range(count)],
            timestamps_ms=[random.randint(0, 2**40) for _ in range(count)],
            base_timestamp_ms=random.randint(0, 2**40),
            base_offset=offset,
            codec=random.choice(list(Codec)),
            log_append_time=random.random() < 0.3,
        )
        marks = bytes(random.random() < 0.6 for _ in range(count))
        kept = filter_batch(batch, marks, keep_empty=True)
        assert kept is not None
        batches.append((memoryview(kept), read_header(kept)))
        offset += count + random.choice([0, 0, 1, 7])
    return batches


@given(
    seed=st.integers(0, 2**32),
    first=st.integers(0, 100),
    end=st.none() | st.integers(0, 100),
    most=st.none() | st.integers(1, 30),
    max_bytes=st.sampled_from([1, 100, 500, 2**31 - 1, 2**40]),
)
@settings(max_examples=200, deadline=None)
def test_reading_on_from_the_next_offset_misses_nothing_and_repeats_nothing(
    seed: int, first: int, end: int | None, most: int | None, max_bytes: int
) -> None:
    batches = thinned_batches(Random(seed))
    everything = [record for batch, header in batches for record in read_records(batch, header)]
    expected = [r for r in everything if r.offset >= first and (end is None or r.offset < end)]
    log_end = max([first, *(header.next_offset for _, header in batches)])
    found: list[Record] = []
    position = first
    while position < (log_end if end is None else min(log_end, end)):
        columns = read_columns(
            batches, first_offset=position, end_offset=end, max_records=most, max_bytes=max_bytes, with_headers=True
        )
        assert columns.next_offset > position
        assert columns.batch.num_rows <= (most or 10**9)
        if most is None and max_bytes >= 2**31 - 1:
            assert columns.next_offset >= (log_end if end is None else min(log_end, max(end, position)))
        position = columns.next_offset
        found += as_records(columns.batch)
    assert found == expected
    messages = [fields for batch, header in batches for fields in read_messages(batch, header, "t", 1, first, tuple)]
    types = {r.offset: int(h.is_log_append_time) for b, h in batches for r in read_records(b, h)}
    assert messages == [("t", 1, *r[:2], types[r.offset], *r[2:]) for r in everything if r.offset >= first]


@given(
    keys=st.lists(st.none() | st.binary(max_size=20), max_size=80),
    numbers=st.none() | st.lists(st.none() | st.integers(0, 11), min_size=80, max_size=80),
    count=st.integers(12, 40),
    fallback=st.integers(0, 11),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_every_row_goes_to_its_partition_in_order(
    keys: list[bytes | None], numbers: list[int | None] | None, count: int, fallback: int, seed: int
) -> None:
    random = Random(seed)
    columns = {"value": chunked([b"v"] * len(keys), pa.binary(), random), "key": chunked(keys, pa.binary(), random)}
    expected: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        number = None if numbers is None else numbers[row]
        if number is None:
            number = fallback if key is None else partition_of_key(key, count)
        expected.setdefault(number, []).append(row)
    if numbers is not None:
        columns["partition"] = chunked(numbers[: len(keys)], random.choice([pa.int32(), pa.int64()]), random)
    found = rows_by_partition(pa.table(columns), count, fallback=fallback)
    assert [(partition, rows.tolist()) for partition, rows in found] == sorted(expected.items())
