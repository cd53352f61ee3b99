"""A topic of its own for each turn at writing: nobody pays for what was written before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import memory
from brokers import Node


@contextmanager
def fresh_topic(node: Node, topic: str, partitions: int, needed_bytes: int) -> Iterator[None]:
    """Begins when all that was written before is on the disk, and with so much memory at hand. What is written goes
    with the topic at the end, and is not in memory any more."""
    node.create(topic, partitions)
    os.sync()
    memory.fetch_back(needed_bytes)
    yield
    node.delete(topic)
