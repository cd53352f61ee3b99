"""`semel topic trim`: shows what `semel.views.trimming` has planned, and has it done if told to."""

from __future__ import annotations

import argparse
import time

from semel.cli.connection import admin_for
from semel.cli.failures import Exit
from semel.cli.output import Output, count_text
from semel.views.trimming import execute, plan, trims_document


async def trim(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        trims = await plan(admin, options.places, options.before, now_ms=round(time.time() * 1000))
        if options.execute:
            trims = await execute(admin, trims)
    if output.is_json:
        output.json({"executed": options.execute, "partitions": trims_document(trims)})
        return Exit.OK
    rows = [(*one.place, one.start, one.new, one.end, one.new - one.start) for one in trims]
    output.table(("TOPIC", "PARTITION", "START", "NEW START", "END", "DELETES"), rows)
    number = sum(one.new - one.start for one in trims)
    if options.execute:
        output.note(f"{count_text(number, 'offset')} deleted")
    else:
        output.note("nothing was deleted: --execute does it")
    return Exit.OK
