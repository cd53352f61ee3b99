"""At most once: commit first, then work. A crash in between loses what was read; nothing is ever done twice.

python examples/at_most_once.py localhost:9092 orders
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
        group_id="at-most-once",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **settings,
    ) as consumer:
        while True:
            batch = await consumer.poll(timeout_ms=1000)
            await consumer.commit()  # the positions after the batch: from here on nobody reads it again
            for messages in batch.values():
                for message in messages:
                    await handle(message)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/at_most_once.py ADDRESS TOPIC, such as localhost:9092 orders")
    try:
        asyncio.run(run(*sys.argv[1:3]))
    except KeyboardInterrupt:
        pass
