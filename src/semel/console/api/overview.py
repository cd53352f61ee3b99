"""The overview: what is wrong and what to do, and a few numbers."""

from __future__ import annotations

from typing import Any

from semel.console.query import Query
from semel.console.watch import Watch
from semel.views.health import findings

_SHOWN = 6
_MOST_TROUBLED = 50


async def overview(watch: Watch, query: Query) -> dict[str, Any]:
    view = await watch.view.get()
    info = await watch.info.get()
    held = await watch.held.get()
    groups = await watch.groups.get()
    document = view.document()
    document["under_replicated"] = document["under_replicated"][:_MOST_TROUBLED]  # type: ignore[index]
    lags = sorted(((sum(one.lag or 0 for one in lag.values()), name) for name, lag in watch.lags.items()), reverse=True)
    opened = await watch.open_transactions.get()
    return {
        **document,
        "findings": [one.document() for one in findings(view, held, info["nodes"])],
        "groups": len(groups),
        "open_transactions": len(opened),
        "held": held[:_SHOWN],
        "held_count": len(held),
        "bytes": sum(node["bytes"] for node in info["nodes"]),
        "free_bytes": [node["free_bytes"] for node in info["nodes"]],
        "features": info["features"],
        "rate": watch.rate.last,
        "rate_series": watch.rate.document(),
        "rate_is_partial": watch.is_rate_partial,
        "slowest_groups": [
            {"group": name, "lag": lag, "series": watch.group_lags.get(name).document()}
            for lag, name in lags[:_SHOWN]
            if lag
        ],
    }
