"""Opens segments that were durable with their indexes, without reading them: the indexes are taken as they are if they
can be right, and made anew from the batches if not.

Damage that is met on the way is reported and stepped over: its bytes stay, and are never served.
"""

import logging
from collections.abc import Iterator

from semel.log.errors import BrokenLog, CorruptSegment
from semel.log.segment import MAX_RELATIVE_OFFSET, Segment
from semel.log.types import Offset
from semel.records.batch import HEADER_BYTES, BatchHeader, read_header
from semel.records.control import ControlMarker, read_control
from semel.records.errors import RecordError

logger = logging.getLogger("semel.log")


def open_trusted(segment: Segment, following_base: Offset | None, index_interval_bytes: int) -> bool:
    """Takes the indexes as they are, and rebuilds them when they cannot be right: then the answer is no."""
    try:
        if _take_indexes(segment, following_base):
            return True
    except CorruptSegment as damage:
        logger.error("%s", damage)
    except RecordError as damage:
        logger.error("%s: the batch that its index leads to cannot be read: %s", segment.path, damage)
    logger.warning("%s: indexes are missing or damaged, rebuilding them", segment.path)
    rebuild_indexes(segment, following_base, index_interval_bytes)
    return False


def _take_indexes(segment: Segment, following_base: Offset | None) -> bool:
    offsets, times = segment.offset_index, segment.time_index
    last_offset, last_time = offsets.last(), times.last()
    limit = following_base if following_base is not None else segment.base_offset + MAX_RELATIVE_OFFSET + 1
    if not (offsets.is_whole and times.is_whole):
        return False
    if last_offset is not None and not (
        segment.base_offset <= last_offset[0] < limit and 0 <= last_offset[1] < segment.size_bytes
    ):
        return False
    segment.next_offset = limit
    if following_base is None:
        segment.next_offset = segment.base_offset
        for found in segment.heads(0 if last_offset is None else last_offset[1]):
            segment.next_offset = found.last_offset + 1
    if last_time is not None:
        if not _carries(segment, *last_time):
            return False
        segment.max_timestamp_ms, segment.max_timestamp_offset = last_time
    elif segment.size_bytes:
        return False
    if following_base is None and segment.size_bytes:
        first = read_header(segment.file.read_at(0, HEADER_BYTES))
        segment.first_timestamp_ms = first.max_timestamp
    return True


def _carries(segment: Segment, timestamp_ms: int, offset: Offset) -> bool:
    """Whether the batch that ends at `offset` has this timestamp: retention by age goes by it."""
    found = segment.locate(offset)
    if found is None or found.last_offset != offset:
        return False
    return read_header(segment.file.read_at(found.position, HEADER_BYTES)).max_timestamp == timestamp_ms


def rebuild_indexes(segment: Segment, following_base: Offset | None, index_interval_bytes: int) -> None:
    """Reads a trusted segment. What was made of a damaged one is for this run only: the next one may find it mended."""
    segment.reset_for_scan()
    limit = segment.base_offset + MAX_RELATIVE_OFFSET + 1 if following_base is None else following_base
    is_whole = True
    for position, header, _, damage in batches_over_damage(segment):
        is_whole = is_whole and damage is None
        if segment.next_offset <= header.base_offset <= header.last_offset < limit:
            segment.note_batch(header, position, index_interval_bytes)
        else:
            logger.error("%s", CorruptSegment(segment.path, position, header.base_offset, "its offsets are wrong"))
            is_whole = False
    if following_base is not None:
        segment.next_offset = following_base
        if is_whole:
            segment.seal()
            segment.flush_now()


def batches_over_damage(
    segment: Segment,
) -> Iterator[tuple[int, BatchHeader, ControlMarker | None, CorruptSegment | None]]:
    """Every batch: where it stands, its header, what it marks, and what is wrong with it. Ends with BrokenLog where
    the next one cannot be found."""
    position = 0
    while position < segment.size_bytes:
        try:
            for at, header, batch in segment.batches(position):
                position = at + header.size_bytes
                yield at, header, marker_of(header, batch), None
            return
        except CorruptSegment as damage:
            logger.error("%s", damage)
            damaged = _header_at(segment, damage.position)
            if damaged is None:
                raise BrokenLog(f"{damage}: and the batch after it cannot be found") from damage
            position = damage.position + damaged.size_bytes
            yield damage.position, damaged, None, damage


def _header_at(segment: Segment, position: int) -> BatchHeader | None:
    """The header of a damaged batch, if it still says where the next one begins."""
    try:
        header = read_header(segment.file.read_at(position, HEADER_BYTES))
    except RecordError:
        return None
    end = position + header.size_bytes
    if end == segment.size_bytes:
        return header
    try:
        following = read_header(segment.file.read_at(end, HEADER_BYTES))
    except RecordError:
        return None
    return header if following.base_offset == header.next_offset else None


def marker_of(header: BatchHeader, batch: memoryview) -> ControlMarker | None:
    if not header.is_control:
        return None
    try:
        return read_control(batch, header)
    except RecordError:
        return None
