"""Decodes the records of a batch into Python objects, for consumers, coordinators and tests; not for hot paths."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from semel.records import kernel
from semel.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    Buffer,
    open_records,
    read_header,
)

M = TypeVar("M")


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


_make_record: partial[Record] = partial(tuple.__new__, Record)


def read_records(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """Every record of a batch, also of one that compaction has thinned out, and also control records."""
    header = header or read_header(batch)
    data, start = open_records(batch, header, max_decompressed_bytes)
    return kernel.read_records(
        data,
        start,
        header.record_count,
        header.last_offset_delta,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        _make_record,
    )


def read_messages(
    batch: Buffer,
    header: BatchHeader,
    topic: str,
    partition: int,
    first_offset: int,
    make: type[M] | Callable[[tuple[object, ...]], M],
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[M]:
    """What a consumer gets of a batch: its records from `first_offset` on, each as `make` turns it into a message.

    `make` is a NamedTuple of topic, partition, offset, timestamp_ms, timestamp_type, key, value and headers, or it is
    called with a tuple of these, which takes longer. The type is 0 for the time of creation, 1 for that of the append.
    """
    data, start = open_records(batch, header, max_decompressed_bytes)
    return kernel.read_messages(
        data,
        start,
        header.record_count,
        header.last_offset_delta,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        topic,
        partition,
        first_offset,
        make,
    )


def record_values(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[bytes | None]:
    """Only the values, several times faster than whole records."""
    header = header or read_header(batch)
    data, start = open_records(batch, header, max_decompressed_bytes)
    return kernel.read_values(data, start, header.record_count, header.last_offset_delta)
