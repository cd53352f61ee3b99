"""What `semel cluster status` shows: the document of `semel.views.cluster`, for people or programs, once or again."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from semel.cli.connection import admin_for
from semel.cli.failures import Exit
from semel.cli.output import Cell, Output, count_text

if TYPE_CHECKING:
    from semel.views.cluster import ClusterView, NodeView, PartitionView

_MOST_SHOWN = 20
_CLEAR = "\x1b[H\x1b[2J"
_COLOURS = {"up": "green", "active": "green", "fenced": "yellow", "down": "red"}


async def run(options: argparse.Namespace, output: Output) -> int:
    from semel.views.cluster import look_at

    async with admin_for(options) as admin:
        while True:
            view = await look_at(admin)
            if options.watch is None:
                if output.is_json:
                    output.json(view.document())
                else:
                    show(output, view)
                return Exit.OK if view.is_healthy else Exit.FAILED
            if output.is_json:
                output.json_line(view.document())
            else:
                output.stream.write(_CLEAR if output.is_terminal else "")
                show(output, view)
                output.line()
            output.stream.flush()
            await asyncio.sleep(options.watch)


def show(output: Output, view: ClusterView) -> None:
    controller = "" if view.controller is None else f", controller {view.controller} in epoch {view.controller_epoch}"
    output.line(f"cluster {view.cluster_id}{controller}")
    if not view.has_controller:
        text = "no controller answers: nothing can be changed, and no leader elected"
        output.line(output.paint(text, "red"))
    output.line()
    has_racks = any(node.rack for node in view.nodes)
    titles = ("NODE", "STATE", "ROLES", "ADDRESS", *(("RACK",) if has_racks else ()))
    titles += ("LEADS", "FOLLOWS", "LACKS", "METADATA")
    output.table(titles, [_row(node, has_racks=has_racks) for node in view.nodes])
    output.line()
    counts = f"{count_text(view.topics, 'topic')}, {count_text(view.partitions, 'partition')}"
    output.line(f"{counts}, {count_text(view.replicas, 'replica')}")
    for number, text, colour in (
        (len(view.offline), "no leader: nobody can read or write", "red"),
        (len(view.below_min), "too few replicas in sync: writes with acks=all are refused", "red"),
        (len(view.under_replicated), "replicas that are not in sync", "yellow"),
        (len(view.moving), "replicas that come or go", "dim"),
    ):
        if number:
            verb = "has" if number == 1 else "have"
            output.line(output.paint(f"{count_text(number, 'partition')} {verb} {text}", colour))
    if not view.under_replicated:
        output.line(output.paint("all replicas are in sync", "green"))
        return
    output.line()
    shown = view.under_replicated[:_MOST_SHOWN]
    output.table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "MIN", "LACKS"), [_trouble(one) for one in shown]
    )
    if len(view.under_replicated) > len(shown):
        output.line(f"and {len(view.under_replicated) - len(shown):,} more; --json has all of them")


def _row(node: NodeView, *, has_racks: bool) -> list[object]:
    is_broker = "broker" in node.roles
    return [
        node.node_id,
        Cell(node.state, _COLOURS[node.state]),
        ", ".join(node.roles),
        node.address,
        *([node.rack] if has_racks else []),
        node.leads if is_broker else None,
        Cell(node.follows, "yellow" if node.out_of_sync else "") if is_broker else None,
        node.lacks,
        node.metadata_lacks,
    ]


def _trouble(one: PartitionView) -> list[object]:
    lacks = ", ".join(
        f"{node_id}: {'unknown' if count is None else count_text(count, 'record')}"
        for node_id, count in one.lacks.items()
    )
    return [
        f"{one.topic}-{one.partition}",
        Cell("none", "red") if one.leader is None else one.leader,
        one.leader_epoch,
        ",".join(str(node_id) for node_id in one.replicas),
        Cell(",".join(str(node_id) for node_id in one.in_sync), "red" if one.is_below_min else ""),
        one.min_in_sync,
        lacks,
    ]
