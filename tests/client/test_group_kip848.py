"""Groups of KIP-848 on a real broker: our consumers among themselves, and together with librdkafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from group_members import ConfluentMember, Member, OurMember, eventually, read_once, shared, write

from semel.client.errors import FatalError

PARTITIONS = 3

pytestmark = pytest.mark.timeout(240)


def ours(address: str, group: str, *topics: str, **settings: object) -> OurMember:
    return OurMember(address, group, *topics, group_protocol="consumer", **settings)


@pytest.mark.parametrize("other", ["ours", "confluent"])
@pytest.mark.parametrize("first", ["ours", "confluent"])
async def test_two_members_share_a_topic_and_one_takes_over(
    address: str, topic: str, unique: Callable[[str], str], first: str, other: str
) -> None:
    if first == other == "confluent":
        pytest.skip("no member of ours")
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    one, two = [
        ours(address, group, topic) if kind == "ours" else ConfluentMember(address, group, topic, protocol="consumer")
        for kind in (first, other)
    ]
    members: list[Member] = [one, two]
    await one.start()
    await shared(one, everything=everything)
    await two.start()
    await shared(one, two, everything=everything, each=1)
    values = [b"%d" % number for number in range(60)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, values)
    await read_once(members, values)
    await one.stop()
    await shared(two, everything=everything)
    more = [b"more %d" % number for number in range(30)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, more)
    await eventually(lambda: set(more) <= set(two.values), lambda: two.values)
    await two.stop()


async def test_a_static_member_is_restarted_and_finds_its_partitions(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    one, two = [ours(address, group, topic, group_instance_id=name) for name in ("one", "two")]
    await one.start()
    await two.start()
    await shared(one, two, everything=everything, each=1)
    held, told = two.holds, list(one.told)
    await two.stop()
    again = ours(address, group, topic, group_instance_id="two")
    await again.start()
    await eventually(lambda: again.holds == held, lambda: again.holds)
    assert one.told == told
    await one.stop()
    await again.stop()


async def test_a_pattern_is_resolved_by_the_broker(address: str, topic: str, unique: Callable[[str], str]) -> None:
    member = ours(address, unique("group"))
    member.consumer.subscribe(pattern=f"{topic[:-1]}[0-9a-f]", listener=member)
    await member.start()
    await shared(member, everything=frozenset((topic, index) for index in range(PARTITIONS)))
    values = [b"%d" % number for number in range(12)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, values)
    await read_once([member], values)
    await member.stop()


async def test_an_assignor_that_the_broker_does_not_have_is_refused(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    member = ours(address, unique("group"), topic, group_remote_assignor="clever")
    await member.start()
    with pytest.raises(FatalError, match="group_remote_assignor"):
        await eventually(lambda: len(member.holds) > 0, lambda: "nothing was said")
    await member.stop()
