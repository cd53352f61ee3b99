"""Groups of our consumers on a real broker, classic protocol: shares, takeovers, static members, deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from group_members import HEARTBEAT_MS, OurMember, eventually, read_once, shared, write

from semel.client.errors import BrokerRefused, FencedInstance

PARTITIONS = 3
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_two_consumers_share_a_topic_and_one_takes_over(
    address: str, topic: str, unique: Callable[[str], str], strategy: str
) -> None:
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    one, two = [OurMember(address, group, topic, partition_assignment_strategy=strategy) for _ in range(2)]
    await one.start()
    await shared(one, everything=everything)
    await two.start()
    await shared(one, two, everything=everything, each=1)
    values = [b"%d" % number for number in range(60)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, values)
    await read_once([one, two], values)
    assert one.values
    assert two.values
    before = list(two.values)
    await one.stop()
    await shared(two, everything=everything)
    more = [b"more %d" % number for number in range(30)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, more)
    await eventually(lambda: len(two.values) >= len(before) + len(more), lambda: two.values)
    assert sorted(two.values) == sorted(before + more), "what the other has read was committed when it left"
    await two.stop()


async def test_cooperative_consumers_keep_what_does_not_move(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    one, two = [OurMember(address, group, topic, partition_assignment_strategy="cooperative-sticky") for _ in range(2)]
    await one.start()
    await shared(one, everything=everything)
    await two.start()
    await shared(one, two, everything=everything, each=1)
    revoked = [note for note in one.told if note.startswith("revoked")]
    assert len(revoked) == 1
    assert len(revoked[0].split()) == 2
    await two.stop()
    await shared(one, everything=everything)
    assert [note for note in one.told if note.startswith("revoked")] == revoked
    await one.stop()


async def test_a_static_member_is_restarted_without_a_rebalance(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    one, two = [OurMember(address, group, topic, group_instance_id=name) for name in ("one", "two")]
    await one.start()
    await two.start()
    await shared(one, two, everything=everything, each=1)
    await eventually(
        lambda: one.consumer.group_metadata().generation_id == two.consumer.group_metadata().generation_id, lambda: ""
    )
    held, told = two.holds, list(one.told)
    generation = one.consumer.group_metadata().generation_id
    await two.stop()
    again = OurMember(address, group, topic, group_instance_id="two")
    await again.start()
    await eventually(lambda: again.holds == held, lambda: again.holds)
    await asyncio.sleep(4 * HEARTBEAT_MS / 1000)
    assert one.told == told
    assert one.consumer.group_metadata().generation_id == generation
    assert again.consumer.group_metadata().generation_id == generation
    await one.stop()
    await again.stop()


async def test_two_static_members_of_one_name_are_one_too_many(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    one, two = [OurMember(address, group, topic, group_instance_id="same") for _ in range(2)]
    await one.start()
    await eventually(lambda: len(one.holds) == PARTITIONS, lambda: one.holds)
    await two.start()
    await eventually(lambda: len(two.holds) == PARTITIONS, lambda: two.holds)
    with pytest.raises(FencedInstance):
        await eventually(lambda: one.holds is None, lambda: "it is not fenced")
    await one.stop()
    await two.stop()


async def test_no_assignor_in_common_is_said_with_names(address: str, topic: str, unique: Callable[[str], str]) -> None:
    group = unique("group")
    one = OurMember(address, group, topic, partition_assignment_strategy="range")
    await one.start()
    await eventually(lambda: len(one.holds) == PARTITIONS, lambda: one.holds)
    two = OurMember(address, group, topic, partition_assignment_strategy="roundrobin,sticky")
    await two.start()
    with pytest.raises(BrokerRefused, match=r"roundrobin, sticky .*Member does not support protocol"):
        await eventually(lambda: len(two.holds) > 9, lambda: "it joined")
    await two.stop()
    await one.stop()
