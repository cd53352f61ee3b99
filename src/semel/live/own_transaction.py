"""A transaction to be looked at: it writes to two partitions, takes a group's offset along, and commits or aborts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic
from semel.client.errors import SemelError
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer

_RECORDS = ((0, b"42", b"10.00 EUR"), (1, b"43", b"12.50 EUR"))


class Names(NamedTuple):
    """What the transaction uses; all but the transactional id is deleted again."""

    transactional_id: str
    source: str
    sink: str
    group: str


def names(unique: str) -> Names:
    return Names(f"trace-{unique}", f"trace-orders-{unique}", f"trace-invoices-{unique}", f"trace-{unique}")


async def prepare(admin: Admin, settings: Mapping[str, Any], used: Names) -> None:
    """Makes the topics, and two records that the transaction is said to have read."""
    await admin.create_topics([NewTopic(used.source, partitions=1), NewTopic(used.sink, partitions=2)])
    async with Producer(**settings) as producer:
        for number in (1, 2):
            await producer.send_and_wait(used.source, b"order %d" % number, partition=0)


async def run(settings: Mapping[str, Any], used: Names, *, commits: bool) -> None:
    async with Producer(**{**settings, "transactional_id": used.transactional_id}) as producer:
        await producer.init_transactions()
        await producer.begin()
        for partition, key, value in _RECORDS:
            await producer.send_and_wait(used.sink, value, key=key, partition=partition)
        await producer.send_offsets_to_transaction({TopicPartition(used.source, 0): 2}, used.group)
        await (producer.commit() if commits else producer.abort())


async def remove(admin: Admin, used: Names) -> None:
    """What cannot be removed was never made, or goes with its topic."""
    for work in (admin.delete_topics([used.source, used.sink]), admin.delete_groups([used.group])):
        try:
            await work
        except SemelError:
            pass
