"""`semel txn abort`: fences a transactional id, or writes the marker that a hanging transaction waits for.
`semel txn commit` writes the other marker, where the coordinator has committed the transaction."""

from __future__ import annotations

import argparse

from semel.cli.connection import admin_for
from semel.cli.failures import Exit, WrongCall
from semel.cli.output import Output
from semel.cli.positions import Place
from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ONGOING, OpenTransaction
from semel.views.transactions import abort_hanging, commit_hanging, fence


async def abort(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        if options.hanging is None:
            if options.producer_id is not None:
                raise WrongCall("--producer-id goes with --hanging: a transactional id says enough")
            return await _fence(admin, options.id, output)
        if options.producer_id is None:
            raise WrongCall("--hanging needs --producer-id; semel txn why-stuck shows it")
        one = await abort_hanging(
            admin, options.hanging, options.producer_id, even_if_committed=options.even_if_committed
        )
    return _ended(options.hanging, one, output, "aborted")


async def commit(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        one = await commit_hanging(admin, options.hanging, options.producer_id)
    return _ended(options.hanging, one, output, "committed")


async def _fence(admin: Admin, name: str, output: Output) -> int:
    found, fenced = await fence(admin, name)
    if output.is_json:
        output.json(
            {
                "transactional_id": name,
                "was": found.state,
                "producer_id": fenced.producer_id,
                "producer_epoch": fenced.producer_epoch,
            }
        )
        return Exit.OK
    if found.state == ONGOING:
        output.line(f"aborted the transaction of {name}; its producer is fenced")
    else:
        output.line(f"{name} had no open transaction ({found.state}); its producer is fenced all the same")
    return Exit.OK


def _ended(where: Place, one: OpenTransaction, output: Output, how: str) -> int:
    producer_id = one.producer.producer_id
    if output.is_json:
        output.json({"place": str(where), "producer_id": producer_id, "start_offset": one.start_offset})
    else:
        output.line(f"{how} the transaction of producer {producer_id} in {where}, open since offset {one.start_offset}")
    return Exit.OK
