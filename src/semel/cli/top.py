"""`semel top`: what goes on in a cluster, live in the terminal; on Apache Kafka, too."""

from __future__ import annotations

import argparse
from typing import Any

from semel.cli.connection import add_connection_arguments, admin_for, run
from semel.cli.live import add_live_arguments, draw_again, title
from semel.cli.output import Cell, Output, add_output_arguments, duration_text

_EXAMPLES = """Throughput is told from the second picture on. `ms` is how long a node takes to answer the smallest
request, the network included.

examples:
  semel top
  semel top --every 5
  semel top --count 2 --json
"""
_MOST_ROWS = 8


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    add_live_arguments(command)
    add_output_arguments(command)
    add_connection_arguments(command)
    command.set_defaults(run=lambda options: run(_top(options, Output.of(options))))


async def _top(options: argparse.Namespace, output: Output) -> int:
    from semel.views.activity import Activity

    async with admin_for(options) as admin:
        activity = Activity(admin)

        async def draw(picture: Output) -> None:
            document = await activity.look()
            if picture.is_json:
                picture.json_line(document)
            else:
                show(picture, document)

        return await draw_again(options, output, draw)


def show(output: Output, document: dict[str, Any]) -> None:
    title(output, f"cluster {document['cluster_id']}")
    for key, what in (("offline_partitions", "without a leader"), ("under_replicated_partitions", "under-replicated")):
        if document[key]:
            output.line(output.paint(f"partitions {what}: {document[key]}", "red"))
    output.line()
    nodes = [
        (one["node"], one["leads"], _rate(one["records_per_s"]), _slow(one["round_trip_ms"]), one["address"])
        for one in document["nodes"]
    ]
    output.table(("NODE", "LEADS", "RECORDS/S", "MS", "ADDRESS"), nodes)
    _section(
        output, "TOPIC", document["topics"], "nothing is written", _topic_row, ("RECORDS/S", "PARTITIONS", "TOPIC")
    )
    _section(output, "GROUP", document["groups"], "no groups", _group_row, ("LAG", "PARTITIONS", "STATE", "GROUP"))
    titles = ("AGE", "STATE", "PARTITIONS", "OPEN TRANSACTION")
    _section(output, "TRANSACTION", document["transactions"], "no open transactions", _transaction_row, titles)


def _section(
    output: Output, what: str, found: list[dict[str, Any]] | None, nothing: str, row: Any, titles: tuple[str, ...]
) -> None:
    output.line()
    if found is None:
        output.line(f"{what.lower()}s: not known yet" if what == "TOPIC" else f"{what.lower()}s: no answer")
    elif not found:
        output.line(nothing)
    else:
        output.table(titles, [row(one) for one in found[:_MOST_ROWS]])
        if len(found) > _MOST_ROWS:
            output.line(f"... and {len(found) - _MOST_ROWS} more")


def _rate(rate: float | None) -> object:
    return None if rate is None else round(rate) if rate >= 10 else rate


def _slow(round_trip_ms: float | None) -> Cell:
    if round_trip_ms is None:
        return Cell("no answer", "red")
    return Cell(round_trip_ms, "yellow" if round_trip_ms > 1000 else "")


def _topic_row(one: dict[str, Any]) -> tuple[object, ...]:
    return _rate(one["records_per_s"]), one["partitions"], one["topic"]


def _group_row(one: dict[str, Any]) -> tuple[object, ...]:
    return Cell(one["lag"], "yellow" if one["lag"] else ""), one["partitions"], one["state"], one["group"]


def _transaction_row(one: dict[str, Any]) -> tuple[object, ...]:
    age = None if one["age_ms"] is None else duration_text(one["age_ms"])
    return age, one["state"], len(one["partitions"]), one["transactional_id"]
