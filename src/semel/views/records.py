"""Records of a topic as documents, each with its fate: committed, aborted, still open, or never part of a transaction.

The log itself tells a fate. Below the last stable offset everything is decided, and the broker names what was aborted.
Above it, a transaction is open if its producer has one now that began before the record; otherwise its marker stands
further on in the log, and is looked for there. Reading is bounded in bytes, records and time.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semel.client.admin.admin import Admin
from semel.client.admin.log_reading import LogPiece
from semel.client.consumer.isolation import AbortedTransactions
from semel.client.metadata import TopicPartition
from semel.records.batch import BatchHeader, whole_batches
from semel.records.control import ControlType, read_control
from semel.records.errors import CorruptBatch, InvalidRecord
from semel.records.partitioning import partition_of_key
from semel.records.read import Record, read_records
from semel.views.refusals import Misasked

PLAIN, COMMITTED, ABORTED, OPEN, ENDED = "plain", "committed", "aborted", "open", "ended"
"""Fates. `ended`: its marker is further on than was read."""
PIECE_BYTES = 256 * 1024
_MAX_BATCH_BYTES = 32 << 20
"""A batch is opened up to here, however well it is compressed."""
_MARKERS_WITHIN_BYTES = 4 << 20
_WINDOW = 400
"""Offsets of one step back."""


class Bounds(NamedTuple):
    """What one page may cost. Where it is used up, the page says how far it got."""

    limit: int = 50
    max_bytes: int = 24 << 20
    max_s: float = 4.0


class SeenRecord(NamedTuple):
    """A record as it is in the log. `marker` is commit or abort where a transaction ends; then there is no value."""

    place: TopicPartition
    record: Record
    producer_id: int
    producer_epoch: int
    fate: str
    is_visible: bool
    """Readers of committed records can get to it."""
    marker: str | None = None


Wanted = Callable[[SeenRecord], bool]


@dataclass
class Page:
    """`older` and `newer` are where reading goes on, before and after what was found, by partition."""

    records: list[SeenRecord]
    older: dict[TopicPartition, int]
    newer: dict[TopicPartition, int]
    scanned_records: int = 0
    scanned_bytes: int = 0
    is_exhausted: bool = True
    """False: the bounds ended it, and there may be more of what was asked for."""


@dataclass
class _Budget:
    bounds: Bounds
    began_s: float = field(default_factory=time.monotonic)
    bytes_read: int = 0
    records_read: int = 0

    @property
    def is_over(self) -> bool:
        return self.bytes_read >= self.bounds.max_bytes or time.monotonic() - self.began_s >= self.bounds.max_s


async def read_forward(
    admin: Admin, starts: Mapping[TopicPartition, int], wanted: Wanted, bounds: Bounds, *, with_markers: bool = False
) -> Page:
    """The first records at or after these offsets that are wanted, in the order of their times."""
    budget = _Budget(bounds)
    positions = dict(starts)
    found: dict[TopicPartition, list[SeenRecord]] = {place: [] for place in starts}
    unread = set(starts)
    while unread and not budget.is_over:
        asked = [place for place in sorted(unread) if len(found[place]) < bounds.limit]
        if not asked:
            break
        pieces = await _pieces(admin, {place: positions[place] for place in asked})
        for place in asked:
            some, next_offset = await _seen(admin, place, positions[place], pieces[place], budget)
            found[place] += [one for one in some if (with_markers or one.marker is None) and wanted(one)]
            if next_offset == positions[place]:
                unread.discard(place)
            positions[place] = next_offset
            if next_offset >= pieces[place].high_watermark:
                unread.discard(place)
    merged = sorted((one for some in found.values() for one in some), key=_by_time)
    kept = merged[: bounds.limit]
    newer = dict(positions)
    for one in merged[bounds.limit :]:
        newer[one.place] = min(newer[one.place], one.record.offset)
    is_exhausted = len(merged) <= bounds.limit and not unread
    return Page(kept, dict(starts), newer, budget.records_read, budget.bytes_read, is_exhausted)


async def read_backward(
    admin: Admin,
    ends: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    wanted: Wanted,
    bounds: Bounds,
    *,
    with_markers: bool = False,
) -> Page:
    """The last records before these offsets that are wanted, the youngest first."""
    budget = _Budget(bounds)
    lows = dict(ends)
    found: dict[TopicPartition, list[SeenRecord]] = {place: [] for place in ends}
    while not budget.is_over:
        asked = [place for place in sorted(lows) if lows[place] > starts[place] and len(found[place]) < bounds.limit]
        if not asked:
            break
        for place in asked:
            low = max(lows[place] - _WINDOW, starts[place])
            window: list[SeenRecord] = []
            position = low
            while position < lows[place]:
                piece = (await _pieces(admin, {place: position}))[place]
                some, next_offset = await _seen(admin, place, position, piece, budget, end=lows[place])
                window += some
                if next_offset == position:
                    break
                position = next_offset
            window = [one for one in window if (with_markers or one.marker is None) and wanted(one)]
            found[place] = window + found[place]
            lows[place] = low
            if budget.is_over:
                break
    merged = sorted((one for some in found.values() for one in some), key=_by_time, reverse=True)
    older = dict(lows)
    for one in merged[bounds.limit :]:
        older[one.place] = max(older[one.place], one.record.offset + 1)
    is_exhausted = all(older[place] <= starts[place] for place in older)
    kept = merged[: bounds.limit]
    return Page(kept, older, dict(ends), budget.records_read, budget.bytes_read, is_exhausted)


def _by_time(one: SeenRecord) -> tuple[int, int, int]:
    return one.record.timestamp_ms, one.place.partition, one.record.offset


# -- pieces of the log


async def _pieces(admin: Admin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogPiece]:
    """With the aborted transactions named, as far as they are decided; what is open comes without."""
    pieces = await admin.read_log(offsets, read_committed=True, max_bytes=PIECE_BYTES)
    undecided = {
        place: offsets[place]
        for place, piece in pieces.items()
        if not piece.batches and offsets[place] < piece.high_watermark
    }
    if undecided:
        pieces |= await admin.read_log(undecided, max_bytes=PIECE_BYTES)
    return pieces


async def _seen(
    admin: Admin, place: TopicPartition, position: int, piece: LogPiece, budget: _Budget, end: int | None = None
) -> tuple[list[SeenRecord], int]:
    """The records of a piece from `position` on, and where the next one begins."""
    some, next_offset, ends = await asyncio.to_thread(_decoded, place, position, piece, end)
    budget.bytes_read += len(piece.batches)
    budget.records_read += len(some)
    if any(one.fate == OPEN for one in some):
        some = await _with_ends(admin, place, some, next_offset, piece, ends)
    return some, next_offset


def _decoded(
    place: TopicPartition, position: int, piece: LogPiece, end: int | None
) -> tuple[list[SeenRecord], int, dict[tuple[int, int], str]]:
    """What is transactional and not decided is called open here. Also the markers: by producer and offset."""
    aborted = AbortedTransactions(piece.aborted)
    view = memoryview(piece.batches)
    found: list[SeenRecord] = []
    markers: dict[tuple[int, int], str] = {}
    next_offset = position
    try:
        for where, header in whole_batches(view):
            if end is not None and header.base_offset >= end:
                break
            batch = view[where : where + header.size_bytes]
            is_aborted = aborted.hide(batch, header)
            marker = _marker(batch, header) if header.is_control else None
            is_visible = header.base_offset < piece.last_stable_offset
            if marker is not None:
                markers[header.producer_id, header.base_offset] = marker
            fate = _fate(header, is_aborted=is_aborted, is_decided=is_visible)
            for record in read_records(batch, header, max_decompressed_bytes=_MAX_BATCH_BYTES):
                if record.offset >= position and (end is None or record.offset < end):
                    found.append(
                        SeenRecord(place, record, header.producer_id, header.producer_epoch, fate, is_visible, marker)
                    )
            next_offset = header.next_offset
    except (CorruptBatch, InvalidRecord):
        if not found and next_offset == position:
            raise
    return found, next_offset, markers


def _fate(header: BatchHeader, *, is_aborted: bool, is_decided: bool) -> str:
    if not header.is_transactional or header.is_control:
        return PLAIN
    if not is_decided:
        return OPEN
    return ABORTED if is_aborted else COMMITTED


def _marker(batch: memoryview, header: BatchHeader) -> str | None:
    try:
        found = read_control(batch, header)
    except InvalidRecord:
        return None
    return None if found is None else "commit" if found.kind is ControlType.COMMIT else "abort"


# -- as they come


class Tail:
    """Follows the ends of partitions. Nothing is taken as decided but by the markers that come: who looks on gets
    them, too, and knows then how the records before them have ended."""

    def __init__(self, admin: Admin, ends: Mapping[TopicPartition, int]) -> None:
        self._admin = admin
        self._positions = dict(ends)

    @property
    def cursor(self) -> str:
        """Where it goes on."""
        return cursor_text(self._positions)

    async def next(self, *, wait_ms: int, max_bytes: int = PIECE_BYTES) -> list[SeenRecord]:
        """What has come, with markers; empty after `wait_ms`."""
        pieces = await self._admin.read_log(self._positions, max_bytes=max_bytes, wait_ms=wait_ms)
        found: list[SeenRecord] = []
        for place, piece in pieces.items():
            position = max(self._positions[place], piece.start_offset)
            undecided = piece._replace(last_stable_offset=0)
            some, self._positions[place], markers = await asyncio.to_thread(_decoded, place, position, undecided, None)
            found += [one._replace(fate=_end_of(one, markers) or OPEN) if one.fate == OPEN else one for one in some]
        return sorted(found, key=_by_time)


# -- above the last stable offset


async def _with_ends(
    admin: Admin,
    place: TopicPartition,
    some: list[SeenRecord],
    next_offset: int,
    piece: LogPiece,
    markers: Mapping[tuple[int, int], str],
) -> list[SeenRecord]:
    """Which of the records that may be open are, and how the others have ended."""
    producers = (await admin.describe_producers(place))[place]
    opened = {one.producer_id: one.transaction_start for one in producers if one.transaction_start is not None}

    def is_open(one: SeenRecord) -> bool:
        start = opened.get(one.producer_id)
        return start is not None and one.record.offset >= start

    ended = [one for one in some if one.fate == OPEN and not is_open(one)]
    known = dict(markers)
    missing = {one.producer_id for one in ended if _end_of(one, known) is None}
    if missing:
        known |= await _markers_ahead(admin, place, next_offset, piece.high_watermark, missing)
    return [
        one._replace(fate=_end_of(one, known) or ENDED) if one.fate == OPEN and not is_open(one) else one
        for one in some
    ]


def _end_of(one: SeenRecord, markers: Mapping[tuple[int, int], str]) -> str | None:
    later = [
        (offset, kind)
        for (producer_id, offset), kind in markers.items()
        if producer_id == one.producer_id and offset > one.record.offset
    ]
    return None if not later else COMMITTED if min(later)[1] == "commit" else ABORTED


async def _markers_ahead(
    admin: Admin, place: TopicPartition, position: int, end: int, producer_ids: set[int]
) -> dict[tuple[int, int], str]:
    """The next marker of each producer; only headers are looked at on the way."""
    found: dict[tuple[int, int], str] = {}
    missing, read_bytes = set(producer_ids), 0
    while missing and position < end and read_bytes < _MARKERS_WITHIN_BYTES:
        piece = (await admin.read_log({place: position}, max_bytes=PIECE_BYTES))[place]
        view, before = memoryview(piece.batches), position
        for where, header in whole_batches(view):
            if header.is_control and header.producer_id in missing:
                marker = _marker(view[where : where + header.size_bytes], header)
                if marker is not None:
                    found[header.producer_id, header.base_offset] = marker
                    missing.discard(header.producer_id)
            position = header.next_offset
        read_bytes += len(view)
        if position == before:
            break
    return found


# -- documents

SHOWN_BYTES = 2048


def record_document(one: SeenRecord, shown_bytes: int = SHOWN_BYTES) -> dict[str, Any]:
    record = one.record
    return {
        "topic": one.place.topic,
        "partition": one.place.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": None if one.marker else value_document(record.key, shown_bytes),
        "value": None if one.marker else value_document(record.value, shown_bytes),
        "headers": [[name, value_document(value, shown_bytes)] for name, value in record.headers],
        "fate": one.fate,
        "visible": one.is_visible,
        "marker": one.marker,
        "producer_id": one.producer_id if one.producer_id >= 0 else None,
        "producer_epoch": one.producer_epoch if one.producer_id >= 0 else None,
    }


def value_document(value: bytes | None, shown_bytes: int = SHOWN_BYTES) -> dict[str, Any] | None:
    """`text` where it is UTF-8, else `hex`; of a long one the first bytes. None stays None."""
    if value is None:
        return None
    document: dict[str, Any] = {"size": len(value), "is_cut": len(value) > shown_bytes}
    try:
        # What is cut may end within a character.
        decoder = codecs.getincrementaldecoder("utf-8")()
        return document | {"text": decoder.decode(value[:shown_bytes], final=not document["is_cut"])}
    except UnicodeDecodeError:
        return document | {"hex": value[:shown_bytes].hex()}


def cursor_text(offsets: Mapping[TopicPartition, int]) -> str:
    """`0:120,1:88`"""
    return ",".join(f"{place.partition}:{offset}" for place, offset in sorted(offsets.items()))


def cursor_offsets(
    text: str, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int] | None:
    """What `cursor_text` wrote, as far as the log still has it; Misasked for anything else, None for nothing."""
    if not text:
        return None
    try:
        given = {int(number): int(offset) for number, offset in (part.split(":") for part in text.split(","))}
    except ValueError:
        raise Misasked(f"cursor {text[:40]!r} is not allowed; allowed: the cursor that a page has given") from None
    return {place: min(max(given.get(place.partition, start), start), ends[place]) for place, start in starts.items()}


def place_of_key(places: Sequence[TopicPartition], key: bytes) -> TopicPartition:
    """Where clients write records with this key, unless their programs choose partitions by themselves. `places` are
    all partitions of the topic, in order."""
    return places[partition_of_key(key, len(places))]
