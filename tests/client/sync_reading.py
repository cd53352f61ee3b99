"""Reads a topic to its end with the blocking consumer."""

from __future__ import annotations

import semel
import semel.sync


def read_all(address: str, topic: str, count: int, **settings: object) -> list[semel.Message]:
    with semel.sync.Consumer(bootstrap_servers=address, **settings) as consumer:
        partitions = consumer.partitions_for_topic(topic)
        assert partitions is not None
        consumer.assign([semel.TopicPartition(topic, number) for number in sorted(partitions)])
        consumer.seek_to_beginning()
        found: list[semel.Message] = []
        while len(found) < count:
            batch = consumer.poll(timeout_ms=5000)
            assert batch, f"only {len(found)} of {count} records came"
            found += [message for messages in batch.values() for message in messages]
        return found
