"""Two replicas of a partition, beside each other: what both must have is compared, up to the high watermark.

Below it everything was in sync: the same batches, byte by byte, at the same offsets. A follower that lags may end
earlier, and what stands above may still be cut. Of a compacted topic each node has cleaned its copy at its own time:
there the latest committed record of each key must be the same, where a tombstone is as good as nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from semel.log.inspection.fates import ABORTED, OPEN, read_fates
from semel.log.inspection.files import Files, PartitionFiles, open_partition
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.scan import Scanned, headers, scan
from semel.log.segment import LOG_SUFFIX
from semel.log.types import Offset
from semel.records.batch import BatchHeader
from semel.records.errors import RecordError
from semel.records.read import read_records

_DIGEST_BYTES = 16
_FIELDS = (
    ("last_offset", "last offset"),
    ("partition_leader_epoch", "leader epoch"),
    ("producer_id", "producer id"),
    ("producer_epoch", "producer epoch"),
    ("base_sequence", "sequence"),
    ("record_count", "number of records"),
    ("attributes", "attributes"),
)


class Replica(NamedTuple):
    """`end` is behind the last whole batch; `high_watermark` what the checkpoint says, None if it says nothing."""

    partition: PartitionFiles
    start: Offset
    end: Offset
    high_watermark: Offset | None


class Compared(NamedTuple):
    """The offsets that were compared, the second not among them."""

    start: Offset
    limit: Offset


def open_replica(files: Files, directory: str, *, start: Offset = 0, high_watermark: Offset | None = None) -> Replica:
    """`start` is what the checkpoint of log starts says."""
    partition = open_partition(files, directory)
    bases = partition.bases
    if not bases:
        return Replica(partition, start, start, high_watermark)
    end = bases[-1]
    file = files.open(partition.path(bases[-1], LOG_SUFFIX))
    try:
        for _, header in headers(file, file.size()):
            end = header.next_offset
    finally:
        file.close()
    return Replica(partition, max(start, bases[0]), end, high_watermark)


def compare(
    one: Replica, other: Replica, findings: Findings, *, is_compacted: bool, progress: Callable[[int], None]
) -> Compared:
    """Adds what is not the same. Findings are of `one` and say what `other` has."""
    start, limit = max(one.start, other.start), min(one.end, other.end)
    known = [replica.high_watermark for replica in (one, other) if replica.high_watermark is not None]
    if known:
        limit = min(limit, max(known))
    if one.end != other.end:
        behind, ahead = sorted((one, other), key=lambda replica: replica.end)
        findings.add(
            Kind.BEHIND,
            behind.partition.directory,
            f"it ends at offset {behind.end}, {ahead.partition.directory} at {ahead.end}",
            offset=behind.end,
        )
    if start >= limit:
        return Compared(start, start)
    compare_all = _compare_keys if is_compacted else _compare_batches
    compare_all(one, other, start, limit, findings, progress)
    return Compared(start, limit)


class _Batch(NamedTuple):
    path: str
    scanned: Scanned
    header: BatchHeader


def _batches(
    replica: Replica, start: Offset, limit: Offset, findings: Findings, progress: Callable[[int], None]
) -> Iterator[_Batch]:
    """All batches with offsets between the two. Those that cannot be read are findings."""
    partition, bases = replica.partition, replica.partition.bases
    for number, base in enumerate(bases):
        following = bases[number + 1] if number + 1 < len(bases) else None
        if base >= limit or (following is not None and following <= start):
            continue
        path = partition.path(base, LOG_SUFFIX)
        file = partition.files.open(path)
        try:
            size = file.size()
            for scanned in scan(file, size):
                header = scanned.header
                if header is not None and header.base_offset >= limit:
                    break
                if header is None or scanned.problem is not None:
                    findings.add(
                        Kind.BAD_BATCH if header is not None else Kind.UNREADABLE,
                        path,
                        str(scanned.problem),
                        position=scanned.position,
                        offset=None if header is None else header.base_offset,
                    )
                elif header.next_offset > start:
                    yield _Batch(path, scanned, header)
            progress(size)
        finally:
            file.close()


# -- batch by batch


def _compare_batches(
    one: Replica, other: Replica, start: Offset, limit: Offset, findings: Findings, progress: Callable[[int], None]
) -> None:
    ones = _batches(one, start, limit, findings, progress)
    others = _batches(other, start, limit, findings, progress)
    mine, theirs = next(ones, None), next(others, None)
    while mine is not None or theirs is not None:
        if theirs is None or (mine is not None and mine.header.base_offset < theirs.header.base_offset):
            if mine is not None:
                _miss(mine, other, findings)
            mine = next(ones, None)
        elif mine is None or theirs.header.base_offset < mine.header.base_offset:
            _miss(theirs, one, findings)
            theirs = next(others, None)
        else:
            difference = _difference(mine, theirs)
            if difference is not None:
                what = f"{difference} in {theirs.path} at byte {theirs.scanned.position}"
                place = {"position": mine.scanned.position, "offset": mine.header.base_offset}
                findings.add(Kind.DIFFERENT_BATCH, mine.path, what, **place)
            mine, theirs = next(ones, None), next(others, None)


def _miss(batch: _Batch, absent: Replica, findings: Findings) -> None:
    header = batch.header
    findings.add(
        Kind.MISSING_BATCH,
        batch.path,
        f"offsets {header.base_offset} to {header.last_offset} are here, and no batch that begins there is in "
        f"{absent.partition.directory}",
        position=batch.scanned.position,
        offset=header.base_offset,
    )


def _difference(mine: _Batch, theirs: _Batch) -> str | None:
    """In words; None if they are the same. The largest batches are not in memory: their checksums stand for them."""
    if mine.header == theirs.header and mine.scanned.batch == theirs.scanned.batch:
        return None
    for field, name in _FIELDS:
        here, there = getattr(mine.header, field), getattr(theirs.header, field)
        if here != there:
            return f"its {name} is {here} here and {there}"
    return "its records are others"


# -- key by key


class _Latest(NamedTuple):
    offset: Offset
    digest: bytes
    path: str


def _compare_keys(
    one: Replica, other: Replica, start: Offset, limit: Offset, findings: Findings, progress: Callable[[int], None]
) -> None:
    mine = _latest_of_keys(one, start, limit, findings, progress)
    theirs = _latest_of_keys(other, start, limit, findings, progress)
    for key in sorted(mine.keys() | theirs.keys()):
        here, there = mine.get(key), theirs.get(key)
        if here is not None and there is not None:
            if here[:2] != there[:2]:
                what = (
                    f"the latest record of key {_shown(key)} has offset {here.offset} here and {there.offset} in "
                    f"{there.path}"
                    if here.offset != there.offset
                    else f"the latest record of key {_shown(key)} has another value in {there.path}"
                )
                findings.add(Kind.DIFFERENT_KEY, here.path, what, offset=here.offset)
            continue
        for found, absent in ((here, other), (there, one)):
            if found is not None:
                what = f"key {_shown(key)} has a record here, and none in {absent.partition.directory}"
                findings.add(Kind.DIFFERENT_KEY, found.path, what, offset=found.offset)


def _latest_of_keys(
    replica: Replica, start: Offset, limit: Offset, findings: Findings, progress: Callable[[int], None]
) -> dict[bytes, _Latest]:
    """The latest committed record of each key. One that is a tombstone is left out."""
    partition = replica.partition
    fates = read_fates(partition, partition.bases)
    latest: dict[bytes, _Latest] = {}
    for path, scanned, header in _batches(replica, start, limit, findings, progress):
        if header.is_control or scanned.batch is None or fates.of(header) in (ABORTED, OPEN):
            continue
        try:
            records = read_records(scanned.batch, header)
        except RecordError as error:
            findings.add(Kind.BAD_BATCH, path, str(error), position=scanned.position, offset=header.base_offset)
            continue
        for record in records:
            if record.key is None or not start <= record.offset < limit:
                continue
            if record.value is None:
                latest.pop(record.key, None)
            else:
                digest = hashlib.blake2b(record.value, digest_size=_DIGEST_BYTES).digest()
                latest[record.key] = _Latest(record.offset, digest, path)
    return latest


def _shown(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
