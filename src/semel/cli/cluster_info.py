"""`semel cluster info`: what a cluster is and can do: nodes, features, APIs, disks."""

from __future__ import annotations

import argparse
from typing import Any

from semel.cli.connection import admin_for
from semel.cli.failures import Exit
from semel.cli.output import Output, size_text
from semel.views.cluster_info import cluster_info


async def run(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        document = await cluster_info(admin)
    if output.is_json:
        output.json(document)
    else:
        _show(output, document)
    return Exit.OK


def _show(output: Output, document: dict[str, Any]) -> None:
    output.facts([("cluster", document["cluster_id"]), *document["features"].items()])
    output.line()
    rows = [
        (
            one["node"],
            one["address"],
            one["rack"],
            one["apis"],
            one["replicas"],
            size_text(one["bytes"]),
            None if one["free_bytes"] is None else size_text(one["free_bytes"]),
        )
        for one in document["nodes"]
    ]
    output.table(("NODE", "ADDRESS", "RACK", "APIS", "REPLICAS", "DATA", "FREE"), rows)
