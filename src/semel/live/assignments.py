"""Who of a group reads what: the assignors of the client, asked with examples; and which one a group chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from semel.client.admin.admin import Admin
from semel.client.consumer.consumer import Consumer
from semel.client.consumer.membership.assignors import (
    Assignor,
    PartitionCounts,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscriptions,
)
from semel.client.consumer.membership.protocol import Subscription
from semel.client.errors import UnknownGroup
from semel.client.metadata import TopicPartition

_SETTLED_S = 60.0
_LOOK_S = 0.05


class Example(NamedTuple):
    title: str
    assignor: Assignor
    partitions: PartitionCounts
    subscriptions: Subscriptions

    def given(self) -> dict[str, list[str]]:
        """The partitions of each member."""
        assignments = self.assignor.assign(self.partitions, self.subscriptions)
        return {
            name: sorted(_short(one) for one in assignments[name].partitions) if name in assignments else []
            for name in self.subscriptions
        }


def _short(partition: TopicPartition) -> str:
    return f"{partition.topic}p{partition.partition}"


_TWO_TOPICS = {"t0": 3, "t1": 3}
_BOTH = {"C0": Subscription(("t0", "t1")), "C1": Subscription(("t0", "t1"))}
_THREE_TOPICS = {"t0": 1, "t1": 2, "t2": 3}
_UNLIKE = {
    "C0": Subscription(("t0",)),
    "C1": Subscription(("t0", "t1")),
    "C2": Subscription(("t0", "t1", "t2")),
}
EXAMPLES = (
    Example("range: two topics of three partitions, two members", RangeAssignor(), _TWO_TOPICS, _BOTH),
    Example("roundrobin: the same", RoundRobinAssignor(), _TWO_TOPICS, _BOTH),
    Example("roundrobin: members that read different topics", RoundRobinAssignor(), _THREE_TOPICS, _UNLIKE),
    Example("sticky: the same", StickyAssignor(), _THREE_TOPICS, _UNLIKE),
)


# -- a vote

BALLOTS: Mapping[str, Sequence[str]] = {
    "C0": ("range", "sticky", "roundrobin"),
    "C1": ("sticky", "roundrobin", "range"),
    "C2": ("sticky", "range"),
}
"""What each member supports, most wanted first."""


async def chosen_by_vote(admin: Admin, settings: Mapping[str, Any], topic: str, group: str) -> str:
    """The assignor of a real group whose members have these ballots. Every member votes for the first of its own that
    all members support; most votes win."""
    consumers = [
        Consumer(
            topic,
            **settings,
            group_id=group,
            group_protocol="classic",
            partition_assignment_strategy=list(ballot),
        )
        for ballot in BALLOTS.values()
    ]
    polls: list[asyncio.Task[None]] = []
    try:
        for consumer in consumers:
            await consumer.start()
            polls.append(asyncio.get_running_loop().create_task(_poll(consumer)))
        async with asyncio.timeout(_SETTLED_S):
            while True:
                with suppress(UnknownGroup):  # the first member has not joined yet
                    described = (await admin.describe_groups(group))[group]
                    if described.state == "Stable" and len(described.members) == len(consumers):
                        return described.assignor
                await asyncio.sleep(_LOOK_S)
    finally:
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        for consumer in consumers:
            await consumer.close()


async def _poll(consumer: Consumer) -> None:
    while True:
        await consumer.poll(timeout_ms=100)
