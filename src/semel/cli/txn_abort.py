"""`semel txn abort`: fences a transactional id, or writes the marker that a hanging transaction waits for."""

from __future__ import annotations

import argparse

from semel.cli.connection import admin_for
from semel.cli.failures import CommandFailed, Exit, NotFound, WrongCall
from semel.cli.output import Output
from semel.cli.positions import Place
from semel.cli.topic import described
from semel.cli.txn import known, no_such_id
from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ONGOING, OpenTransaction
from semel.client.metadata import TopicPartition


async def abort(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        if options.hanging is None:
            if options.producer_id is not None:
                raise WrongCall("--producer-id goes with --hanging: a transactional id says enough")
            return await _fence(admin, options.id, output)
        if options.producer_id is None:
            raise WrongCall("--hanging needs --producer-id; semel txn why-stuck shows it")
        return await _end_hanging(admin, options.hanging, options.producer_id, output)


async def _fence(admin: Admin, name: str, output: Output) -> int:
    """Fencing an id that nobody has used would make it known: so it is looked for first."""
    found = (await known(admin, [name])).get(name)
    if found is None:
        raise NotFound(no_such_id(name))
    fenced = (await admin.fence_producers(name))[name]
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


async def _end_hanging(admin: Admin, where: Place, producer_id: int, output: Output) -> int:
    if where.partition is None:
        raise WrongCall(f"--hanging {where.topic}: which partition? Give TOPIC/PARTITION")
    topic = (await described(admin, [where.topic]))[where.topic]
    if where.partition not in topic.partitions:
        raise NotFound(f"topic {where.topic!r} has no partition {where.partition}")
    place = TopicPartition(where.topic, where.partition)
    found = [one for one in (await admin.find_open_transactions(place))[place] if _is_of(one, producer_id)]
    if not found:
        raise NotFound(f"producer {producer_id} has no open transaction in {where}")
    one = found[0]
    if not one.is_hanging:
        raise CommandFailed(
            f"the transaction of producer {producer_id} does not hang: its coordinator ends it. To abort it now: "
            f"semel txn abort {one.transactional_id}"
        )
    await admin.abort_transaction(place, one.producer)
    if output.is_json:
        output.json({"place": str(where), "producer_id": producer_id, "start_offset": one.start_offset})
    else:
        output.line(
            f"aborted the transaction of producer {producer_id} in {where}, open since offset {one.start_offset}"
        )
    return Exit.OK


def _is_of(one: OpenTransaction, producer_id: int) -> bool:
    return one.producer.producer_id == producer_id
