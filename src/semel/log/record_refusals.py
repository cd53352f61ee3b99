"""Which records of a refused batch are to blame, so that a client can tell them from the others (KIP-467).

A batch is judged as a whole, and fast. Only when it is refused is it opened once more, to name its bad records. At most
`MOST_NAMED` are named: an answer must not grow with what a compressed batch unfolds to.
"""

from __future__ import annotations

from semel.host.api import Buffer
from semel.log.errors import RecordRefusal, RecordsRefused
from semel.records import kernel
from semel.records.batch import BatchHeader, open_records
from semel.records.errors import InvalidRecord
from semel.wire.errors import ErrorCode

MOST_NAMED = 1000
_NO_KEY = "the record has no key, and the topic is compacted"


def refused_records(
    batch: Buffer,
    header: BatchHeader,
    max_decompressed_bytes: int,
    *,
    needs_keys: bool,
    earliest_ms: int,
    latest_ms: int,
) -> RecordsRefused | None:
    """The refusal of a batch whose records are whole; None if all of them are right after all."""
    data, start = open_records(batch, header, max_decompressed_bytes)
    found, without_key, out_of_range = kernel.find_refused(
        data,
        start,
        header.record_count,
        header.last_offset_delta,
        header.base_timestamp,
        needs_keys,
        earliest_ms,
        latest_ms,
        MOST_NAMED,
    )
    if not found:
        return None
    allowed = (
        f"timestamps from {earliest_ms} to {latest_ms} are allowed "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
    )
    records = [
        RecordRefusal(index, _NO_KEY if timestamp is None else f"the timestamp is {timestamp}, {allowed}")
        for index, timestamp in found
    ]
    reasons = [f"{without_key} have no key, but the topic is compacted"] if without_key else []
    if out_of_range:
        reasons.append(f"{out_of_range} have a timestamp out of range: {allowed}")
    # One code stands for all, and Kafka lets the timestamps decide.
    code = ErrorCode.INVALID_TIMESTAMP if out_of_range else ErrorCode.INVALID_RECORD
    return RecordsRefused(code, f"of {header.record_count} records {' and '.join(reasons)}", records)


def broken_record(
    batch: Buffer, header: BatchHeader, max_decompressed_bytes: int, error: InvalidRecord
) -> RecordsRefused | None:
    """The refusal of a batch with a record that breaks the format; None if it is the batch as a whole that does."""
    try:
        data, start = open_records(batch, header, max_decompressed_bytes)
        index = kernel.count_whole(data, start, header.record_count, header.last_offset_delta)
    except InvalidRecord:
        return None
    if index == header.record_count:
        return None
    return RecordsRefused(ErrorCode.INVALID_RECORD, f"record {index}: {error}", [RecordRefusal(index, str(error))])
