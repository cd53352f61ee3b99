"""Which partition a key belongs to: the rule that all of Kafka's clients share, so that a key's records stay together
whoever writes them.
"""

from __future__ import annotations

from semel.records import column_kernel


def murmur2(data: bytes) -> int:
    """Kafka's variant of the hash, as a signed number of 32 bits."""
    return column_kernel.murmur2(data)


def partition_of_key(key: bytes, partition_count: int) -> int:
    if partition_count < 1:
        raise ValueError(f"a topic of {partition_count} partitions")
    return (column_kernel.murmur2(key) & 0x7FFFFFFF) % partition_count
