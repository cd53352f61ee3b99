"""Steps of the admin's tests on running brokers. Kafka's nodes learn of a change a moment after it was answered: what
they tell is waited for, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from raw_client import RawClient, batch_of
from semel.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000
DEADLINE_S = 30.0
PAUSE_S = 0.05

T = TypeVar("T")


async def eventually(ask: Callable[[], Awaitable[T]], is_as_wished: Callable[[T], bool]) -> T:
    """Asks until the answer is as wished; at the deadline returns the last one, for the test to judge."""
    for _ in range(int(DEADLINE_S / PAUSE_S)):
        answer = await ask()
        if is_as_wished(answer):
            return answer
        await asyncio.sleep(PAUSE_S)
    return await ask()


def write(address: str, topic: str, *values: bytes, partition: int = 0, timestamp_ms: int = NOW_MS) -> None:
    deadline = time.monotonic() + DEADLINE_S
    batch = batch_of(list(values), timestamp_ms=timestamp_ms)
    with RawClient(int(address.rpartition(":")[2])) as client:
        while (code := client.produce(topic, partition, batch).error_code) != ErrorCode.NONE:
            assert ErrorCode(code).retriable, code
            assert time.monotonic() < deadline, code
            time.sleep(PAUSE_S)
