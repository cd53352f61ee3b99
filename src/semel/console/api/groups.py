"""Groups: a page of the list, one with its members and lag, and the preview of a reset."""

from __future__ import annotations

from typing import Any

from semel.console.query import Query
from semel.console.watch import Watch, now_ms
from semel.views import group_reset
from semel.views.groups import described, group_document, listed_document
from semel.views.positions import Place, position
from semel.views.refusals import Misasked

PAGE = 50
_SORTS = ("lag", "name", "state")
_MAX_MOVES = 1000


async def groups(watch: Watch, query: Query) -> dict[str, Any]:
    wanted, page = query.text("q").lower(), query.number("page", 1, least=1, most=100_000)
    sort = query.choice("sort", _SORTS)
    found = [one for one in (await watch.groups.get()).values() if wanted in one.group_id.lower()]
    lags = {name: sum(one.lag or 0 for one in lag.values()) for name, lag in watch.lags.items()}
    if sort == "lag":
        found.sort(key=lambda one: (-lags.get(one.group_id, -1), one.group_id))
    elif sort == "state":
        found.sort(key=lambda one: (one.state, one.group_id))
    else:
        found.sort(key=lambda one: one.group_id)
    shown = found[(page - 1) * PAGE : page * PAGE]
    return {
        "total": len(found),
        "page": page,
        "pages": max(1, -(-len(found) // PAGE)),
        "groups": [
            {
                **listed_document(one),
                "lag": lags.get(one.group_id),
                "topics": sorted({place.topic for place in watch.lags.get(one.group_id, ())}),
                "series": watch.group_lags.get(one.group_id).document(),
            }
            for one in shown
        ],
    }


async def group(watch: Watch, query: Query) -> dict[str, Any]:
    name = query.needed("name")
    found, lag = await described(watch.admin, name)
    watch.want_group(name)
    watch.take_lag(name, lag)
    document = group_document(found, lag)
    held = {one["place"]: one for one in await watch.held.get()}
    for one in document["partitions"]:
        # The one question of every reader that does not move: is there nothing, or is it held back?
        place = held.get(f"{one['topic']}/{one['partition']}")
        one["held_at"] = None if place is None else place["last_stable_offset"]
        one["held_by"] = None if place is None else place["transactions"][0]["transactional_id"]
    return {**document, "lag": sum(one["lag"] or 0 for one in document["partitions"]), "series": _series(watch, name)}


def _series(watch: Watch, name: str) -> list[list[float]]:
    return watch.group_lags.get(name).document()


async def reset_plan(watch: Watch, query: Query) -> dict[str, Any]:
    """What a reset would do. Nothing is changed."""
    name, topic = query.needed("name"), query.text("topic")
    places = [Place(topic, query.optional_number("partition"))] if topic else []
    where: Any = position(query.needed("to"))
    moves, active = await group_reset.plan(watch.admin, name, places, where, now_ms=now_ms())
    if len(moves) > _MAX_MOVES:
        raise Misasked(f"that is {len(moves)} partitions; allowed: {_MAX_MOVES}. Name a topic")
    return {"group": name, "refused": active, "moves": group_reset.moves_document(moves)}
