"""Messages of a topic: a page of them, one of them whole, and the live tail."""

from __future__ import annotations

from typing import Any

from semel.client.metadata import TopicPartition
from semel.console.query import Query
from semel.console.watch import Watch, now_ms
from semel.views.places import ends_of, offsets_at, partitions_of, starts_of
from semel.views.positions import Kind, Place, position
from semel.views.record_filter import key_filter, record_filter
from semel.views.records import (
    Bounds,
    Wanted,
    cursor_offsets,
    cursor_text,
    place_of_key,
    read_backward,
    read_forward,
    record_document,
)
from semel.views.refusals import Missing

_MAX_LIMIT = 200
_WHOLE_BYTES = 1 << 20
_DIRECTIONS = ("older", "newer")


async def messages(watch: Watch, query: Query) -> dict[str, Any]:
    topic = query.needed("topic")
    where, direction = position(query.text("from") or "latest"), query.choice("direction", _DIRECTIONS)
    limit = query.number("limit", 50, least=1, most=_MAX_LIMIT)
    partition = query.optional_number("partition")
    places = await partitions_of(watch.admin, [Place(topic, partition)])
    wanted, key = wanted_of(query), query.text("key")
    if key and partition is None and not query.flag("everywhere"):
        places = [place_of_key(places, key.encode())]
    starts, ends = await starts_of(watch.admin, places), await ends_of(watch.admin, places)
    cursor = cursor_offsets(query.text("cursor"), starts, ends)
    if cursor is not None:
        at = cursor
    elif where.kind is Kind.LATEST:
        at = ends
    else:
        asked = await offsets_at(watch.admin, where, starts, ends, now_ms())
        at = {place: min(max(offset, starts[place]), ends[place]) for place, offset in asked.items()}
        direction = "newer"
    bounds, with_markers = Bounds(limit), query.flag("markers")
    if direction == "older":
        page = await read_backward(watch.admin, at, starts, wanted, bounds, with_markers=with_markers)
    else:
        page = await read_forward(watch.admin, at, wanted, bounds, with_markers=with_markers)
    return {
        "topic": topic,
        "direction": direction,
        "partitions": [place.partition for place in places],
        "messages": [record_document(one) for one in page.records],
        "older": None if all(page.older[place] <= starts[place] for place in page.older) else cursor_text(page.older),
        "newer": None if all(page.newer[place] >= ends[place] for place in page.newer) else cursor_text(page.newer),
        "scanned_records": page.scanned_records,
        "scanned_bytes": page.scanned_bytes,
        "is_exhausted": page.is_exhausted,
    }


def wanted_of(query: Query) -> Wanted:
    """What `filter` and `key` ask for."""
    text, key, fate = query.text("filter"), query.text("key"), query.text("fate")
    parts: list[Wanted] = [record_filter(text)] if text.strip() else []
    if key:
        parts.append(key_filter(key.encode()))
    if fate:
        parts.append(lambda one: one.fate == fate)
    return lambda one: all(part(one) for part in parts)


async def message(watch: Watch, query: Query) -> dict[str, Any]:
    """One, with up to a megabyte of its key and value."""
    place = TopicPartition(query.needed("topic"), query.number("partition", 0, most=1 << 30))
    offset = query.number("offset", -1)
    await partitions_of(watch.admin, [Place(*place)])
    start = (await starts_of(watch.admin, [place]))[place]
    end = (await ends_of(watch.admin, [place]))[place]
    if start <= offset < end:
        page = await read_forward(watch.admin, {place: offset}, lambda one: True, Bounds(limit=1), with_markers=True)
        if page.records and page.records[0].record.offset == offset:
            return record_document(page.records[0], _WHOLE_BYTES)
    raise Missing(
        f"{place.topic}/{place.partition} has no record at offset {offset}: it goes from {start} to {end}, and "
        "compaction leaves gaps"
    )
