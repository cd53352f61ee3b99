"""At least once: work first, then commit. A crash in between repeats what was done; nothing is ever lost.

python examples/at_least_once.py localhost:9092 orders
"""

import asyncio
import sys
from typing import Any

import semel


async def handle(message: semel.Message) -> None:
    print(f"{message.topic}-{message.partition} offset {message.offset}: {message.value!r}", flush=True)


async def run(address: str, topic: str, **settings: Any) -> None:
    async with semel.Consumer(
        topic,
        bootstrap_servers=address,
        group_id="at-least-once",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **settings,
    ) as consumer:
        while True:
            batch = await consumer.poll(timeout_ms=1000)
            for messages in batch.values():
                for message in messages:
                    await handle(message)
            await consumer.commit()  # only now: whoever takes over after a crash reads the batch again


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/at_least_once.py ADDRESS TOPIC, such as localhost:9092 orders")
    try:
        asyncio.run(run(*sys.argv[1:3]))
    except KeyboardInterrupt:
        pass
