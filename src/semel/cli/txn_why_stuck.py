"""`semel txn why-stuck`: the documents of `semel.views.stuck`, for people or programs."""

from __future__ import annotations

import argparse
from typing import Any

from semel.cli.connection import admin_for, shown_options
from semel.cli.failures import Exit
from semel.cli.output import Cell, Output, count_text, duration_text, time_text
from semel.views import stuck
from semel.views.stuck import client_text, prospect_text

_WAIT = "look again in a moment; if it stays so, the log of the coordinator's node says what refuses the marker"


async def why_stuck(options: argparse.Namespace, output: Output, *, now_ms: int) -> int:
    async with admin_for(options) as admin:
        places = await stuck.partitions_of(admin, options.places)
        documents = await stuck.why_stuck(admin, places, now_ms=now_ms, cluster_options=shown_options(options))
    if output.is_json:
        output.json(documents)
        return Exit.OK
    for number, document in enumerate(documents):
        if number:
            output.line()
        _show(output, document)
    return Exit.OK


# -- for people


def _show(output: Output, document: dict[str, Any]) -> None:
    place, stable, end = document["place"], document["last_stable_offset"], document["end_offset"]
    transactions = document["transactions"]
    if not transactions:
        if stable < end:
            output.line(f"{place}: what held readers back at offset {stable} has just ended: look again")
        else:
            output.line(f"{place}: nothing is stuck; readers of committed records get to its end, offset {end}")
        return
    output.line(
        output.paint(f"{place}: readers of committed records stop at offset {stable}", "bold")
        + f"; {count_text(end - stable, 'offset')} up to {end} wait behind an open transaction"
    )
    output.line()
    _show_one(output, transactions[0])
    if len(transactions) > 1:
        output.line()
        output.line(f"  behind it {count_text(len(transactions) - 1, 'younger one')}, to be ended too:")
        output.line()
        rows = [
            (one["transactional_id"], one["producer_id"], one["start_offset"], one["command"])
            for one in transactions[1:]
        ]
        output.table(("TRANSACTIONAL ID", "PRODUCER", "SINCE OFFSET", "TO END IT"), rows, indent="  ")


def _show_one(output: Output, one: dict[str, Any]) -> None:
    output.facts(
        [
            ("transactional id", one["transactional_id"] or Cell("none that a coordinator knows", "red")),
            ("producer", f"id {one['producer_id']}, epoch {one['producer_epoch']}"),
            ("open since", f"offset {one['start_offset']}" + _since(one)),
            ("last write", _last_write(one)),
            ("client", client_text(one)),
            ("ends by itself", prospect_text(one)),
            ("to end it now", Cell(one["command"], "green") if one["command"] else _WAIT),
        ],
        indent="  ",
    )


def _since(one: dict[str, Any]) -> str:
    if one["started_ms"] is None:
        return ""
    return f", {time_text(one['started_ms'])} ({duration_text(one['age_ms'])} ago)"


def _last_write(one: dict[str, Any]) -> str | None:
    if one["idle_ms"] is None:
        return None
    return f"{time_text(one['last_write_ms'])} ({duration_text(one['idle_ms'])} ago)"
