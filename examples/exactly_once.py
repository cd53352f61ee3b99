"""Exactly once: consume, transform, produce. What was written and how far was read are one transaction.

    python examples/exactly_once.py localhost:9092 orders invoices

A crash anywhere leaves both or neither. A copy of this program that was thought dead and wakes up late is refused, by
the transactional id and by the group's generation. Readers of the result set isolation_level="read_committed".
"""

import asyncio
import signal
import sys
from typing import Any

import semel


def invoice(order: bytes) -> bytes:
    return order.upper()


async def run(address: str, source: str, sink: str, **settings: Any) -> None:
    async with (
        semel.Consumer(
            source,
            bootstrap_servers=address,
            group_id="exactly-once",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **settings,
        ) as consumer,
        semel.Producer(bootstrap_servers=address, transactional_id=f"{source}-to-{sink}") as producer,
    ):
        batches = semel.transform(consumer, producer, "exactly_once")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, batches.stop)  # after the batch in hand
        async for batch in batches:
            for message in batch:
                await producer.send(sink, invoice(message.value), key=message.key)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/exactly_once.py ADDRESS SOURCE SINK, such as localhost:9092 orders invoices")
    try:
        asyncio.run(run(*sys.argv[1:4]))
    except KeyboardInterrupt:
        pass
