"""`semel group reset`: shows what `semel.views.group_reset` has planned, and has it done if told to."""

from __future__ import annotations

import argparse
import time

from semel.cli.connection import admin_for
from semel.cli.failures import Exit
from semel.cli.output import Output
from semel.views.group_reset import Move, execute, moves_document, plan


async def reset(options: argparse.Namespace, output: Output) -> int:
    where = options.to if options.shift is None else options.shift
    async with admin_for(options) as admin:
        now_ms = round(time.time() * 1000)
        moves, active = await plan(admin, options.group, options.places, where, now_ms=now_ms)
        if options.execute:
            await execute(admin, options.group, moves, active)
    if output.is_json:
        output.json({"group": options.group, "executed": options.execute, "partitions": moves_document(moves)})
        return Exit.OK
    _show(output, moves)
    if options.execute:
        output.note(f"group {options.group} is set")
    else:
        output.note("nothing was changed: --execute does it" + (f"; but {active}" if active else ""))
    return Exit.OK


def _show(output: Output, moves: list[Move]) -> None:
    rows = []
    for move in moves:
        change = None if move.committed is None else move.new - move.committed
        remark = "" if move.wanted == move.new else f"{move.wanted} is not in the log"
        rows.append((*move.place, move.committed, move.new, change, move.end - move.new, remark))
    titles = ["TOPIC", "PARTITION", "COMMITTED", "NEW", "CHANGE", "LAG"]
    if any(row[-1] for row in rows):
        output.table([*titles, "REMARK"], rows)
    else:
        output.table(titles, [row[:-1] for row in rows])
