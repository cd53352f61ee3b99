"""`semel txn abort`: fences a transactional id, or writes the marker that a hanging transaction waits for.
`semel txn commit` writes the other marker, where the coordinator has committed the transaction."""

from __future__ import annotations

import argparse

from semel.cli.connection import admin_for
from semel.cli.failures import CommandFailed, Exit, NotFound, WrongCall
from semel.cli.output import Output
from semel.cli.positions import Place
from semel.cli.topic import described
from semel.cli.txn import known, no_such_id
from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, OpenTransaction
from semel.client.metadata import TopicPartition


async def abort(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        if options.hanging is None:
            if options.producer_id is not None:
                raise WrongCall("--producer-id goes with --hanging: a transactional id says enough")
            return await _fence(admin, options.id, output)
        if options.producer_id is None:
            raise WrongCall("--hanging needs --producer-id; semel txn why-stuck shows it")
        return await _abort_hanging(admin, options, output)


async def commit(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        one = await _hanging(admin, options.hanging, options.producer_id)
        if not one.may_be_committed:
            raise CommandFailed(
                f"no coordinator has committed the transaction of producer {one.producer.producer_id} in "
                f"{options.hanging}: nobody was told that its records count. To end it: semel txn abort --hanging "
                f"{options.hanging} --producer-id {one.producer.producer_id}"
            )
        await admin.commit_transaction(one.partition, one.producer)
    return _ended(options.hanging, one, output, "committed")


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


async def _abort_hanging(admin: Admin, options: argparse.Namespace, output: Output) -> int:
    one = await _hanging(admin, options.hanging, options.producer_id)
    if one.may_be_committed and not options.even_if_committed:
        raise CommandFailed(
            f"the coordinator of {one.transactional_id} has committed the last transaction of producer "
            f"{options.producer_id}: if the records since offset {one.start_offset} are part of it, an abort loses "
            f"what was acknowledged. To show them: semel txn commit --hanging {options.hanging} --producer-id "
            f"{options.producer_id}; if you know that they are not part of it: --even-if-committed"
        )
    await admin.abort_transaction(one.partition, one.producer)
    return _ended(options.hanging, one, output, "aborted")


async def _hanging(admin: Admin, where: Place, producer_id: int) -> OpenTransaction:
    if where.partition is None:
        raise WrongCall(f"--hanging {where.topic}: which partition? Give TOPIC/PARTITION")
    topic = (await described(admin, [where.topic]))[where.topic]
    if where.partition not in topic.partitions:
        raise NotFound(f"topic {where.topic!r} has no partition {where.partition}")
    place = TopicPartition(where.topic, where.partition)
    found = [
        one for one in (await admin.find_open_transactions(place))[place] if one.producer.producer_id == producer_id
    ]
    if not found:
        raise NotFound(f"producer {producer_id} has no open transaction in {where}")
    one = found[0]
    if not one.is_hanging:
        raise CommandFailed(f"the transaction of producer {producer_id} does not hang: {_its_end(one)}")
    return one


def _its_end(one: OpenTransaction) -> str:
    assert one.transaction is not None
    if one.transaction.state in (PREPARE_COMMIT, PREPARE_ABORT):
        end = "commit" if one.transaction.state == PREPARE_COMMIT else "abort"
        return f"its coordinator has decided to {end} it and writes its marker until the partition takes it"
    return f"its coordinator ends it. To abort it now: semel txn abort {one.transactional_id}"


def _ended(where: Place, one: OpenTransaction, output: Output, how: str) -> int:
    producer_id = one.producer.producer_id
    if output.is_json:
        output.json({"place": str(where), "producer_id": producer_id, "start_offset": one.start_offset})
    else:
        output.line(f"{how} the transaction of producer {producer_id} in {where}, open since offset {one.start_offset}")
    return Exit.OK
