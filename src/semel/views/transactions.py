"""Transactions as documents, and what ends one: fencing its transactional id, or a marker where it hangs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.group_values import (
    PREPARE_ABORT,
    PREPARE_COMMIT,
    FencedProducer,
    OpenTransaction,
    TransactionDescription,
)
from semel.client.admin.outcome import AdminErrors
from semel.client.errors import BrokerRefused
from semel.client.metadata import TopicPartition
from semel.views.positions import Place
from semel.views.refusals import Misasked, Missing, Refusal
from semel.views.topics import described
from semel.wire.errors import ErrorCode

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


async def known(admin: Admin, names: Collection[str]) -> dict[str, TransactionDescription]:
    """Those that are still there: one may expire after it was listed."""
    if not names:
        return {}
    try:
        return await admin.describe_transactions(names)
    except BrokerRefused as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return {}
        raise
    except AdminErrors as errors:
        if all(error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for error in errors.errors.values()):
            return dict(errors.results)
        raise


def transaction_document(one: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """Brokers also tell when the last one began, of which nothing is open: that is left out."""
    started_ms = one.started_ms if one.state in OPEN_STATES else None
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "started_ms": started_ms,
        "age_ms": None if started_ms is None else max(now_ms - started_ms, 0),
        "timeout_ms": one.timeout_ms,
        "coordinator": one.coordinator_id,
        "partitions": [f"{topic}/{number}" for topic, number in sorted(one.partitions)],
    }


def no_such_id(*names: str) -> str:
    which = " and ".join(repr(name) for name in names)
    return f"there is no transactional id {which}; semel txn list shows what there is"


# -- ends


async def fence(admin: Admin, name: str) -> tuple[TransactionDescription, FencedProducer]:
    """Aborts what is open under a transactional id; its producer can write no more until it starts anew. Returns what
    was there before. Fencing an id that nobody has used would make it known: so it is looked for first."""
    found = (await known(admin, [name])).get(name)
    if found is None:
        raise Missing(no_such_id(name))
    return found, (await admin.fence_producers(name))[name]


async def commit_hanging(admin: Admin, where: Place, producer_id: int) -> OpenTransaction:
    """Writes the commit marker that a committed transaction waits for; Refusal where it was not committed."""
    one = await _hanging(admin, where, producer_id)
    if not one.may_be_committed:
        raise Refusal(
            f"no coordinator has committed the transaction of producer {one.producer.producer_id} in {where}: nobody "
            f"was told that its records count. To end it: semel txn abort --hanging {where} --producer-id {producer_id}"
        )
    await admin.commit_transaction(one.partition, one.producer)
    return one


async def abort_hanging(
    admin: Admin, where: Place, producer_id: int, *, even_if_committed: bool = False
) -> OpenTransaction:
    """Writes the abort marker that a transaction waits for which no coordinator will end."""
    one = await _hanging(admin, where, producer_id)
    if one.may_be_committed and not even_if_committed:
        raise Refusal(
            f"the coordinator of {one.transactional_id} has committed the last transaction of producer {producer_id}: "
            f"if the records since offset {one.start_offset} are part of it, an abort loses what was acknowledged. To "
            f"show them: semel txn commit --hanging {where} --producer-id {producer_id}; if you know that they are not "
            "part of it: --even-if-committed"
        )
    await admin.abort_transaction(one.partition, one.producer)
    return one


async def _hanging(admin: Admin, where: Place, producer_id: int) -> OpenTransaction:
    if where.partition is None:
        raise Misasked(f"--hanging {where.topic}: which partition? Give TOPIC/PARTITION")
    topic = (await described(admin, [where.topic]))[where.topic]
    if where.partition not in topic.partitions:
        raise Missing(f"topic {where.topic!r} has no partition {where.partition}")
    place = TopicPartition(where.topic, where.partition)
    found = [
        one for one in (await admin.find_open_transactions(place))[place] if one.producer.producer_id == producer_id
    ]
    if not found:
        raise Missing(f"producer {producer_id} has no open transaction in {where}")
    one = found[0]
    if not one.is_hanging:
        raise Refusal(f"the transaction of producer {producer_id} does not hang: {_its_end(one)}")
    return one


def _its_end(one: OpenTransaction) -> str:
    assert one.transaction is not None
    if one.transaction.state in (PREPARE_COMMIT, PREPARE_ABORT):
        end = "commit" if one.transaction.state == PREPARE_COMMIT else "abort"
        return f"its coordinator has decided to {end} it and writes its marker until the partition takes it"
    return f"its coordinator ends it. To abort it now: semel txn abort {one.transactional_id}"
