"""`semel cluster quorum status`: the controllers, which of them is active, and how far each node has the metadata."""

from __future__ import annotations

import argparse

from semel.cli.connection import admin_for
from semel.cli.failures import Exit
from semel.cli.output import Output
from semel.client.admin.values import QuorumDescription, QuorumReplica

_NONE = -1


async def run(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        quorum = await admin.describe_quorum()
    rows = [
        *(_row(quorum, node_id, one, is_voter=True) for node_id, one in sorted(quorum.voters.items())),
        *(_row(quorum, node_id, one, is_voter=False) for node_id, one in sorted(quorum.observers.items())),
    ]
    if output.is_json:
        output.json(_document(quorum, rows))
        return Exit.OK
    output.facts(
        [
            ("active controller", quorum.leader_id),
            ("epoch", quorum.leader_epoch),
            ("committed up to", quorum.high_watermark),
        ]
    )
    output.line()
    output.table(("NODE", "ROLE", "ADDRESS", "END", "LACKS"), rows)
    return Exit.OK


Row = tuple[int, str, str | None, int | None, int | None]


def _row(quorum: QuorumDescription, node_id: int, replica: QuorumReplica, *, is_voter: bool) -> Row:
    """What is not known of a node that the active controller has not heard of is left out."""
    role = "leader" if node_id == quorum.leader_id else "follower" if is_voter else "observer"
    node = quorum.nodes.get(node_id)
    address = None if node is None else f"{node.host}:{node.port}"
    if replica.end_offset == _NONE:
        return node_id, role, address, None, None
    leader = quorum.voters.get(quorum.leader_id)
    lacks = None if leader is None else max(leader.end_offset - replica.end_offset, 0)
    return node_id, role, address, replica.end_offset, lacks


def _document(quorum: QuorumDescription, rows: list[Row]) -> dict[str, object]:
    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "nodes": [
            {"node": node_id, "role": role, "address": address, "end": end, "lacks": lacks}
            for node_id, role, address, end, lacks in rows
        ],
    }
