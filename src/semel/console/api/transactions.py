"""Transactions: who holds what back and how to end it, every transactional id on a timeline, and one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel.console.query import Query
from semel.console.watch import Watch, now_ms
from semel.views.refusals import Missing
from semel.views.stuck import client_text, prospect_text
from semel.views.transactions import known, no_such_id, transaction_document

PAGE = 40
_MAX_WINDOW_S = 24 * 3600
_MARKS = 300
"""So many places of a timeline can be told apart."""


async def transactions(watch: Watch, query: Query) -> dict[str, Any]:
    now = now_ms()
    window_ms = query.number("window", 600, least=10, most=_MAX_WINDOW_S) * 1000
    wanted, page = query.text("q").lower(), query.number("page", 1, least=1, most=100_000)
    await watch.follow_history()
    listed, opened = await watch.all_transactions.get(), await watch.open_transactions.get()
    held = await watch.held.get()
    holders = _holders(held)
    # Who holds something back first, then what is open, then who has done something lately, then all others.
    ordered = dict.fromkeys(
        [
            *(name for name in holders if name in opened),
            *sorted(opened, key=lambda name: opened[name].started_ms or now),
            *(name for name in watch.history.recent_ids() if name in listed),
            *listed,
        ]
    )
    names = [name for name in ordered if wanted in name.lower()]
    shown = names[(page - 1) * PAGE : page * PAGE]
    past = {name: watch.history.drawn(name, now - window_ms, now, _MARKS) for name in shown}
    details = await known(watch.admin, [name for name in shown if name not in opened and name in listed]) | opened
    return {
        "now_ms": now,
        "window_ms": window_ms,
        "history_problem": watch.history_problem,
        "held": [_held_document(watch, one) for one in held],
        "total": len(names),
        "page": page,
        "pages": max(1, -(-len(names) // PAGE)),
        "open": len(opened),
        "transactions": [
            {
                **transaction_document(details[name], now),
                "past": past[name][0],
                "past_count": past[name][1],
                "holds": holders.get(name, []),
            }
            for name in shown
            if name in details
        ],
    }


def _holders(held: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Which partitions a transactional id is the first to hold back."""
    holders: dict[str, list[str]] = {}
    for one in held:
        name = one["transactions"][0]["transactional_id"]
        if name is not None:
            holders.setdefault(name, []).append(one["place"])
    return holders


def _held_document(watch: Watch, one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **one,
        "transactions": [
            {**each, "client_text": client_text(each), "prospect": prospect_text(each)} for each in one["transactions"]
        ],
        "waiting_groups": _waiting(watch, one),
    }


def _waiting(watch: Watch, one: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Groups that have read up to where the partition is held back, and cannot go on if they read committed records."""
    stable, found = one["last_stable_offset"], []
    for group_id, lag in watch.lags.items():
        for place, partition in lag.items():
            if f"{place.topic}/{place.partition}" == one["place"] and partition.committed is not None:
                committed = partition.committed.offset
                found.append({"group": group_id, "committed": committed, "is_at_end": committed >= stable})
    return sorted(found, key=lambda group: (not group["is_at_end"], group["group"]))[:20]


async def transaction(watch: Watch, query: Query) -> dict[str, Any]:
    name, now = query.needed("name"), now_ms()
    found = (await known(watch.admin, [name])).get(name)
    if found is None:
        raise Missing(no_such_id(name))
    await watch.follow_history()
    held = [
        _held_document(watch, one)
        for one in await watch.held.get()
        if any(each["transactional_id"] == name for each in one["transactions"])
    ]
    return {
        **transaction_document(found, now),
        "now_ms": now,
        "held": held,
        "past": watch.history.documents(name),
        "history_problem": watch.history_problem,
    }
