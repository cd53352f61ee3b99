"""Groups of our consumers together with those of other clients, on a real broker: whoever leads, all are served.

The first member leads; so each pair is tried in both orders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from group_members import (
    AiokafkaMember,
    ConfluentMember,
    KafkaPythonMember,
    Member,
    OurMember,
    eventually,
    read_once,
    shared,
    write,
)

PARTITIONS = 3

pytestmark = pytest.mark.timeout(240)

FOREIGN: dict[str, type[Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}
PAIRS = [
    ("confluent", "range"),
    ("confluent", "roundrobin"),
    ("confluent", "cooperative-sticky"),
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "sticky"),
    ("kafka-python", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("aiokafka", "sticky"),
]


@pytest.mark.parametrize("leads", ["ours", "theirs"])
@pytest.mark.parametrize(("client", "strategy"), PAIRS)
async def test_a_group_with_members_of_another_client(
    address: str, topic: str, unique: Callable[[str], str], client: str, strategy: str, leads: str
) -> None:
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    ours = OurMember(address, group, topic, partition_assignment_strategy=strategy)
    theirs = FOREIGN[client](address, group, topic, strategy=strategy)
    first, second = (ours, theirs) if leads == "ours" else (theirs, ours)
    await first.start()
    await shared(first, everything=everything)
    await second.start()
    await shared(first, second, everything=everything, each=1)
    await asyncio.sleep(1)
    await shared(first, second, everything=everything, each=1)
    values = [b"%d" % number for number in range(60)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, values)
    await read_once([first, second], values)
    assert first.values
    assert second.values
    await first.stop()
    await shared(second, everything=everything)
    more = [b"more %d" % number for number in range(30)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, more)
    await eventually(lambda: set(more) <= set(second.values), lambda: second.values)
    await second.stop()


async def test_a_group_that_moves_from_range_to_cooperative_sticky_with_another_client(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    """The default of both has both assignors: the group takes what all have, and nobody reads twice."""
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    ours = OurMember(address, group, topic)
    theirs = ConfluentMember(address, group, topic, strategy="range")
    await ours.start()
    await theirs.start()
    await shared(ours, theirs, everything=everything, each=1)
    await theirs.stop()
    await shared(ours, everything=everything)
    other = OurMember(address, group, topic, partition_assignment_strategy="cooperative-sticky")
    await other.start()
    await shared(ours, other, everything=everything, each=1)
    values = [b"%d" % number for number in range(60)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, values)
    await read_once([ours, other], values)
    await ours.stop()
    await other.stop()
