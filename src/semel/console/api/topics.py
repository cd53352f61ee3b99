"""Topics: a page of the list, and one topic with its partitions, settings, readers and producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import OffsetSpec
from semel.client.errors import SemelError
from semel.client.metadata import NO_NODE, Topic, TopicPartition
from semel.console.query import Query
from semel.console.watch import MAX_PARTITIONS, Watch
from semel.views.topics import described, description, topic_document

PAGE = 50
_MAX_PRODUCERS = 200
_SORTS = ("name", "partitions", "size", "rate")


async def topics(watch: Watch, query: Query) -> dict[str, Any]:
    wanted, with_internal = query.text("q").lower(), query.flag("internal")
    page, sort = query.number("page", 1, least=1, most=100_000), query.choice("sort", _SORTS)
    everything, sizes = await watch.topics.get(), await watch.sizes.get()
    found = [
        topic
        for topic in everything.values()
        if (with_internal or not topic.is_internal)
        and wanted in topic.name.lower()
        and (not query.flag("trouble") or _trouble(topic))
    ]
    if sort == "partitions":
        found.sort(key=lambda topic: (-len(topic.partitions), topic.name))
    elif sort == "size":
        found.sort(key=lambda topic: (-sizes.get(topic.name, 0), topic.name))
    elif sort == "rate":
        found.sort(key=lambda topic: (-(watch.topic_ends.get(topic.name).rate or 0), topic.name))
    else:
        found.sort(key=lambda topic: topic.name)
    shown = found[(page - 1) * PAGE : page * PAGE]
    records = await _records(watch, shown)
    return {
        "total": len(found),
        "all": len(everything),
        "page": page,
        "pages": max(1, -(-len(found) // PAGE)),
        "topics": [
            {
                **topic_document(topic),
                "trouble": _trouble(topic),
                "bytes": sizes.get(topic.name),
                "records": records.get(topic.name),
                "rate": watch.topic_ends.get(topic.name).rate,
            }
            for topic in shown
        ],
    }


def _trouble(topic: Topic) -> str | None:
    partitions = topic.partitions.values()
    offline = sum(one.leader_id == NO_NODE for one in partitions)
    if offline:
        return f"{offline} without a leader"
    behind = sum(len(one.in_sync) < len(one.replicas) for one in partitions)
    return f"{behind} not in sync" if behind else None


async def _records(watch: Watch, shown: Iterable[Topic]) -> dict[str, int]:
    """Offsets that each holds; markers and what compaction has removed are counted, too."""
    places = [
        TopicPartition(topic.name, one.number)
        for topic in shown
        for one in topic.partitions.values()
        if one.leader_id != NO_NODE
    ]
    if not places or len(places) > MAX_PARTITIONS:
        return {}
    starts, ends = await asyncio.gather(
        _offsets(watch, places, OffsetSpec.EARLIEST), _offsets(watch, places, OffsetSpec.LATEST)
    )
    counts: dict[str, int] = {}
    for place, end in ends.items():
        counts[place.topic] = counts.get(place.topic, 0) + end - starts.get(place, end)
    return counts


async def _offsets(watch: Watch, places: Iterable[TopicPartition], at: OffsetSpec) -> dict[TopicPartition, int]:
    try:
        found = await watch.admin.list_offsets(dict.fromkeys(places, at))
    except AdminErrors as errors:
        found = dict(errors.results)
    except SemelError:
        return {}
    return {place: one.offset for place, one in found.items()}


async def topic(watch: Watch, query: Query) -> dict[str, Any]:
    name = query.needed("name")
    found = (await described(watch.admin, [name]))[name]
    document = await description(watch.admin, found)
    for setting, entry in document["settings"].items():
        entry["name"] = setting
    held = {one["place"]: one for one in await watch.held.get()}
    readers = [
        {
            "group": group_id,
            "lag": sum(one.lag or 0 for place, one in lag.items() if place.topic == name),
            "positions": [
                {"partition": place.partition, "committed": None if one.committed is None else one.committed.offset}
                for place, one in sorted(lag.items())
                if place.topic == name
            ],
        }
        for group_id, lag in sorted(watch.lags.items())
        if any(place.topic == name for place in lag)
    ]
    sizes = await watch.sizes.get()
    return {
        **document,
        "trouble": _trouble(found),
        "bytes": sizes.get(name),
        "rate": watch.topic_ends.get(name).rate,
        "held": {place: one for place, one in held.items() if place.rpartition("/")[0] == name},
        "readers": readers[:PAGE],
        "reader_count": len(readers),
    }


async def producers(watch: Watch, query: Query) -> dict[str, Any]:
    """Who writes to a topic: what the leaders of its partitions remember of idempotent producers."""
    name = query.needed("name")
    places = [
        TopicPartition(name, number) for number in sorted((await described(watch.admin, [name]))[name].partitions)
    ]
    states = await watch.admin.describe_producers(places[:MAX_PARTITIONS])
    listed = await watch.all_transactions.get()
    ids = {one.producer_id: one.transactional_id for one in listed.values()}
    found = [
        {
            "partition": place.partition,
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "transactional_id": ids.get(state.producer_id),
            "last_sequence": state.last_sequence,
            "last_write_ms": state.last_timestamp_ms if state.last_timestamp_ms >= 0 else None,
            "open_since_offset": state.transaction_start,
        }
        for place, some in states.items()
        for state in some
    ]
    found.sort(key=lambda one: -(one["last_write_ms"] or 0))
    return {"name": name, "total": len(found), "producers": found[:_MAX_PRODUCERS]}
