"""Consumers that die without a word, killed as processes: after their session the others take over."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import pytest
from group_members import LONG_S, SESSION_MS, OurMember, eventually, read_once, shared, write

from real_broker import clean_environment

PARTITIONS = 3
READER = f"""
import asyncio, sys, semel
address, group, topic, protocol = sys.argv[1:]
timing = dict(session_timeout_ms={SESSION_MS}, heartbeat_interval_ms=500) if protocol == "classic" else dict()
async def main():
    async with semel.Consumer(
        topic, bootstrap_servers=address, group_id=group, group_protocol=protocol, enable_auto_commit=False, **timing
    ) as consumer:
        while True:
            await consumer.getmany(timeout_ms=100)
            print(len(consumer.assignment()), flush=True)
asyncio.run(main())
"""

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_who_is_killed_is_missed_after_its_session_and_not_before(
    address: str, topic: str, unique: Callable[[str], str], protocol: str
) -> None:
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    one = OurMember(address, group, topic, group_protocol=protocol)
    await one.start()
    await shared(one, everything=everything)
    arguments = ["-c", READER, address, group, topic, protocol]
    other = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL, env=clean_environment()
    )
    try:
        await eventually(lambda: 0 < len(one.holds) < PARTITIONS, lambda: one.holds)
        await asyncio.sleep(2)
    finally:
        other.kill()
        await other.wait()
    killed_s = time.monotonic()
    await asyncio.sleep(2)
    assert len(one.holds) < PARTITIONS
    await eventually(lambda: one.holds == everything, lambda: one.holds, LONG_S + 30)
    assert time.monotonic() - killed_s > SESSION_MS / 1000 - 2
    values = [b"%d" % number for number in range(30)]
    await asyncio.to_thread(write, address, topic, PARTITIONS, values)
    await read_once([one], values)
    await one.stop()
