"""Which segments have outlived their topic's settings. Pure: the store carries it out."""

from semel.log.log import Log
from semel.log.segment import NO_TIMESTAMP, Segment

_NO_LIMIT = -1


def expired_segments(log: Log, now_ms: int) -> list[Segment]:
    """The segments at the front that are too old, too many, or before the start of the log; never the active one, and
    nothing that is not committed and settled yet."""
    candidates = log.removable_before(log.high_watermark)
    expired = {id(segment) for segment in log.removable_before(log.start_offset)}
    if log.config.deletes:
        expired |= _too_old(log, candidates, now_ms) | _too_many(log, candidates)
    front: list[Segment] = []
    for segment in candidates:
        if id(segment) not in expired or not log.is_settled(segment):
            break
        front.append(segment)
    return front


def _too_old(log: Log, candidates: list[Segment], now_ms: int) -> set[int]:
    if log.config.retention_ms == _NO_LIMIT:
        return set()
    return {id(s) for s in candidates if now_ms - _newest_ms(s) > log.config.retention_ms}


def _too_many(log: Log, candidates: list[Segment]) -> set[int]:
    """As many of the oldest as leave at least `retention.bytes` behind."""
    if log.config.retention_bytes == _NO_LIMIT:
        return set()
    surplus = log.size_bytes - log.config.retention_bytes
    found: set[int] = set()
    for segment in candidates:
        if surplus < segment.size_bytes:
            break
        surplus -= segment.size_bytes
        found.add(id(segment))
    return found


def wants_roll(log: Log, now_ms: int) -> bool:
    """Whether everything in the active segment has expired, so that it has to be sealed before it can go."""
    if not log.segments or not log.segments[-1].size_bytes or log.end_offset > log.high_watermark:
        return False
    active = log.segments[-1]
    if log.config.deletes and log.config.retention_ms != _NO_LIMIT:
        return now_ms - _newest_ms(active) > log.config.retention_ms
    return False


def _newest_ms(segment: Segment) -> int:
    """A segment without timestamps counts as new: age cannot be told, so age removes nothing."""
    return segment.max_timestamp_ms if segment.max_timestamp_ms != NO_TIMESTAMP else 1 << 62
