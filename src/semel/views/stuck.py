"""Which open transaction holds the last stable offset of a partition back, whose it is, how old, and what ends it.

The protocol does not tell which client a producer is. If the transaction also commits offsets of a group, the members
of that group are the ones to look at, and they are named.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, OpenTransaction
from semel.client.admin.values import OffsetSpec
from semel.client.metadata import TopicPartition
from semel.views.positions import Place
from semel.views.refusals import Missing
from semel.views.topics import described
from semel.views.wording import count_text, duration_text
from semel.wire.primitives import coordinator_partition

OFFSETS_TOPIC = "__consumer_offsets"
_ENDING = (PREPARE_COMMIT, PREPARE_ABORT)


async def why_stuck(
    admin: Admin, places: Sequence[TopicPartition], *, now_ms: int, cluster_options: str = ""
) -> list[dict[str, Any]]:
    """A document of each partition. `cluster_options` are put behind each command that ends a transaction."""
    ends = await admin.list_offsets(places, OffsetSpec.LATEST)
    stable = await admin.list_offsets(places, OffsetSpec.LATEST, isolation_level="read_committed")
    found = await admin.find_open_transactions(places)
    return [
        {
            "place": f"{place.topic}/{place.partition}",
            "last_stable_offset": stable[place].offset,
            "end_offset": ends[place].offset,
            "transactions": [
                await _document(admin, one, now_ms=now_ms, cluster_options=cluster_options) for one in found[place]
            ],
        }
        for place in places
    ]


async def partitions_of(admin: Admin, given: Sequence[Place]) -> list[TopicPartition]:
    """The partitions that are meant; Missing if one is not there."""
    topics = await described(admin, [place.topic for place in given])
    places: dict[TopicPartition, None] = {}
    for place in given:
        numbers = sorted(topics[place.topic].partitions)
        if place.partition is not None and place.partition not in numbers:
            count = count_text(len(numbers), "partition")
            raise Missing(f"topic {place.topic!r} has no partition {place.partition}; it has {count}")
        for number in numbers if place.partition is None else [place.partition]:
            places[TopicPartition(place.topic, number)] = None
    return list(places)


async def _document(admin: Admin, one: OpenTransaction, *, now_ms: int, cluster_options: str) -> dict[str, Any]:
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
        "command": ending_command(one, cluster_options),
    }


def ending_command(one: OpenTransaction, cluster_options: str = "") -> str | None:
    """None where the coordinator has decided: nobody can end it otherwise, and nobody should."""
    if one.transaction is not None and one.transaction.state in _ENDING and not one.is_hanging:
        return None
    if one.is_hanging or one.transactional_id is None:
        verb = "commit" if one.may_be_committed else "abort"
        place = f"{one.partition.topic}/{one.partition.partition}"
        what = f"{verb} --hanging {place} --producer-id {one.producer.producer_id}"
    else:
        what = f"abort {shlex.quote(one.transactional_id)}"
    return f"semel txn {what}{cluster_options}"


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


# -- sentences about one of these transactions


def client_text(one: dict[str, Any]) -> str:
    if not one["clients"]:
        return "not told by the protocol: whoever uses this transactional id"
    shown = [f"{member['client_id']} at {member['host']} (group {member['group']})" for member in one["clients"]]
    return "probably " + ", ".join(shown)


def prospect_text(one: dict[str, Any]) -> str:
    """Whether and when it ends by itself."""
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
