"""`semel txn why-stuck`: which open transaction holds the last stable offset of a partition back, whose it is, how old,
and the command that ends it.

The protocol does not tell which client a producer is. If the transaction also commits offsets of a group, the members
of that group are the ones to look at, and they are named.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from semel.cli.connection import admin_for, shown_options
from semel.cli.failures import Exit, NotFound
from semel.cli.output import Cell, Output, count_text, duration_text, time_text
from semel.cli.positions import Place
from semel.cli.topic import described
from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, OpenTransaction
from semel.client.admin.values import OffsetSpec
from semel.client.metadata import TopicPartition
from semel.wire.primitives import coordinator_partition

OFFSETS_TOPIC = "__consumer_offsets"
_ENDING = (PREPARE_COMMIT, PREPARE_ABORT)
_WAIT = "look again in a moment; if it stays so, the log of the coordinator's node says what refuses the marker"


async def why_stuck(options: argparse.Namespace, output: Output, *, now_ms: int) -> int:
    async with admin_for(options) as admin:
        places = await _places(admin, options.places)
        ends = await admin.list_offsets(places, OffsetSpec.LATEST)
        stable = await admin.list_offsets(places, OffsetSpec.LATEST, isolation_level="read_committed")
        found = await admin.find_open_transactions(places)
        documents = []
        for place in places:
            documents.append(
                {
                    "place": f"{place.topic}/{place.partition}",
                    "last_stable_offset": stable[place].offset,
                    "end_offset": ends[place].offset,
                    "transactions": [await _document(admin, one, options, now_ms) for one in found[place]],
                }
            )
    if output.is_json:
        output.json(documents)
        return Exit.OK
    for number, document in enumerate(documents):
        if number:
            output.line()
        _show(output, document)
    return Exit.OK


async def _places(admin: Admin, given: list[Place]) -> list[TopicPartition]:
    topics = await described(admin, [place.topic for place in given])
    places: dict[TopicPartition, None] = {}
    for place in given:
        numbers = sorted(topics[place.topic].partitions)
        if place.partition is not None and place.partition not in numbers:
            count = count_text(len(numbers), "partition")
            raise NotFound(f"topic {place.topic!r} has no partition {place.partition}; it has {count}")
        for number in numbers if place.partition is None else [place.partition]:
            places[TopicPartition(place.topic, number)] = None
    return list(places)


async def _document(admin: Admin, one: OpenTransaction, options: argparse.Namespace, now_ms: int) -> dict[str, Any]:
    transaction = one.transaction
    started_ms = None if transaction is None else transaction.started_ms
    return {
        "transactional_id": one.transactional_id,
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.producer_epoch,
        "start_offset": one.start_offset,
        "last_write_ms": one.producer.last_timestamp_ms,
        "state": None if transaction is None else transaction.state,
        "started_ms": started_ms,
        "age_ms": None if started_ms is None else max(now_ms - started_ms, 0),
        "idle_ms": max(now_ms - one.producer.last_timestamp_ms, 0) if one.producer.last_timestamp_ms >= 0 else None,
        "timeout_ms": None if transaction is None else transaction.timeout_ms,
        "hangs": one.is_hanging,
        "may_be_committed": one.may_be_committed,
        "clients": await _clients(admin, one),
        "command": _command(one, options),
    }


def _command(one: OpenTransaction, options: argparse.Namespace) -> str | None:
    """None where the coordinator has decided: nobody can end it otherwise, and nobody should."""
    if one.transaction is not None and one.transaction.state in _ENDING and not one.is_hanging:
        return None
    if one.is_hanging or one.transactional_id is None:
        verb = "commit" if one.may_be_committed else "abort"
        place = f"{one.partition.topic}/{one.partition.partition}"
        what = f"{verb} --hanging {place} --producer-id {one.producer.producer_id}"
    else:
        what = f"abort {shlex.quote(one.transactional_id)}"
    return f"semel txn {what}{shown_options(options)}"


async def _clients(admin: Admin, one: OpenTransaction) -> list[dict[str, str]]:
    """Members of groups whose offsets the transaction commits, as far as one can tell: those whose coordinator is one
    of its partitions of the offsets topic."""
    partitions = (
        set()
        if one.transaction is None
        else {place.partition for place in one.transaction.partitions if place.topic == OFFSETS_TOPIC}
    )
    if not partitions:
        return []
    count = len((await admin.describe_topics(OFFSETS_TOPIC))[OFFSETS_TOPIC].partitions)
    names = [name for name in await admin.list_groups() if coordinator_partition(name, count) in partitions]
    if not names:
        return []
    return [
        {"group": group.group_id, "client_id": member.client_id, "host": member.client_host.removeprefix("/")}
        for group in (await admin.describe_groups(names)).values()
        for member in group.members
    ]


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
            ("client", _client_text(one)),
            ("ends by itself", _prospect(one)),
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


def _client_text(one: dict[str, Any]) -> str:
    if not one["clients"]:
        return "not told by the protocol: whoever uses this transactional id"
    shown = [f"{member['client_id']} at {member['host']} (group {member['group']})" for member in one["clients"]]
    return "probably " + ", ".join(shown)


def _prospect(one: dict[str, Any]) -> str:
    if one["may_be_committed"]:
        return (
            "never: its coordinator has committed the last transaction of this producer. If these records are part of "
            "it, an abort loses what was acknowledged"
        )
    if one["hangs"]:
        return "never: no coordinator will end it here"
    if one["state"] in _ENDING:
        end = "commit" if one["state"] == PREPARE_COMMIT else "abort"
        return (
            f"now: its coordinator has decided to {end} it and is writing the markers until every partition has its own"
        )
    if one["state"] != ONGOING or one["age_ms"] is None:
        return "its coordinator decides"
    left_ms = one["timeout_ms"] - one["age_ms"]
    when = f"in {duration_text(left_ms)}" if left_ms > 0 else "at any moment"
    return f"{when}: its time is over {duration_text(one['timeout_ms'])} after it began, and the broker aborts it"
