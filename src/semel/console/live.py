"""Server-sent events: a document whenever it has changed, and records as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.errors import SemelError
from semel.console.api.messages import wanted_of
from semel.console.query import Query
from semel.views.places import ends_of, partitions_of, starts_of
from semel.views.positions import Place
from semel.views.records import SeenRecord, Tail, cursor_offsets, record_document
from semel.views.refusals import Refusal

_KEEP_ALIVE_S = 15.0
_WAIT_MS = 500
_MAX_AT_ONCE = 100
"""So many records go into one event; what is more is counted, and left out."""
_LEAST_PAUSE_S = 0.25


def event(name: str, document: object, event_id: str = "") -> str:
    numbered = f"id: {event_id}\n" if event_id else ""
    return f"{numbered}event: {name}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n"


async def documents(ask: Callable[[], Awaitable[Any]], every_s: float, closing: asyncio.Event) -> AsyncIterator[str]:
    """Begins with one, and sends the next when it differs. What goes wrong is told, and tried again."""
    last, silent_s = "", 0.0
    while not closing.is_set():
        try:
            told = event("document", await ask())
        except (SemelError, Refusal, TimeoutError) as error:
            told = event("problem", {"error": str(error)})
        if told != last:
            yield told
            last, silent_s = told, 0.0
        elif silent_s >= _KEEP_ALIVE_S:
            yield ": still here\n\n"
            silent_s = 0.0
        silent_s += every_s
        await _pause(every_s, closing)


async def tail(
    make_admin: Callable[[], AbstractAsyncContextManager[Admin]],
    query: Query,
    closing: asyncio.Event,
    last_id: str = "",
) -> AsyncIterator[str]:
    """Records from now on, or from where the last event of a connection that broke has said. Its fetches wait at the
    brokers, so it has connections of its own."""
    wanted = wanted_of(query)
    silent_s = 0.0
    try:
        async with make_admin() as admin:
            places = await partitions_of(admin, [Place(query.needed("topic"), query.optional_number("partition"))])
            starts, ends = await starts_of(admin, places), await ends_of(admin, places)
            following = Tail(admin, cursor_offsets(last_id, starts, ends) or ends)
            yield event("begin", {"partitions": [place.partition for place in places]}, following.cursor)
            while not closing.is_set():
                found = await following.next(wait_ms=_WAIT_MS)
                if found:
                    yield event("records", _records(found, wanted), following.cursor)
                    silent_s = 0.0
                    await _pause(_LEAST_PAUSE_S, closing)
                else:
                    silent_s += _WAIT_MS / 1000
                    if silent_s >= _KEEP_ALIVE_S:
                        yield ": still here\n\n"
                        silent_s = 0.0
    except (SemelError, Refusal) as error:
        yield event("problem", {"error": str(error)})


def _records(found: list[SeenRecord], wanted: Callable[[SeenRecord], bool]) -> dict[str, Any]:
    fitting = [one for one in found if one.marker is None and wanted(one)]
    return {
        "messages": [record_document(one) for one in fitting[-_MAX_AT_ONCE:]],
        "left_out": max(len(fitting) - _MAX_AT_ONCE, 0),
        "ends": [
            {
                "partition": one.place.partition,
                "offset": one.record.offset,
                "producer_id": one.producer_id,
                "how": "committed" if one.marker == "commit" else "aborted",
            }
            for one in found
            if one.marker is not None
        ],
    }


async def _pause(seconds: float, closing: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await closing.wait()
    except TimeoutError:
        pass
