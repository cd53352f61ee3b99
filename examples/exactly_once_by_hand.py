"""What `semel.transform` does in examples/exactly_once.py, step by step: offsets, commit, abort, rewind.

python examples/exactly_once_by_hand.py localhost:9092 orders invoices
"""

import asyncio
import sys
from typing import Any

import semel


def transform(value: bytes) -> bytes:
    return value.upper()


async def run(address: str, source: str, sink: str, **settings: Any) -> None:
    async with (
        semel.Consumer(
            source,
            bootstrap_servers=address,
            group_id="exactly-once",
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **settings,
        ) as consumer,
        semel.Producer(bootstrap_servers=address, transactional_id=f"{source}-to-{sink}") as producer,
    ):
        # Before anything is read: a copy that died in a transaction holds its offsets back until that is ended.
        await producer.init_transactions()
        while True:
            batch = await consumer.poll(timeout_ms=1000)
            if not batch:
                continue
            try:
                async with producer.transaction():
                    for messages in batch.values():
                        for message in messages:
                            await producer.send(sink, transform(message.value), key=message.key)
                    offsets = {partition: messages[-1].offset + 1 for partition, messages in batch.items()}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            except semel.errors.AbortTransactionError as error:
                print(f"aborted, and read again: {error}", file=sys.stderr)
                await rewind(consumer, batch)


async def rewind(consumer: semel.Consumer, batch: dict[semel.TopicPartition, list[semel.Message]]) -> None:
    """Back to where the aborted transaction began, in the partitions that are still ours."""
    for partition, messages in batch.items():
        if partition in consumer.assignment():
            consumer.seek(partition, messages[0].offset)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(
            "usage: python examples/exactly_once_by_hand.py ADDRESS SOURCE SINK, such as localhost:9092 orders invoices"
        )
    try:
        asyncio.run(run(*sys.argv[1:4]))
    except KeyboardInterrupt:
        pass
