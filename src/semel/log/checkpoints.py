"""Kafka's checkpoint files at the root of a data directory: one line per partition, `topic partition offset`.

`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `cleaner-offset-checkpoint` and
`replication-offset-checkpoint` (high watermarks) all have this form.
A damaged file is treated as missing: recovery then reads more, and never less.
"""

import logging
from collections.abc import Mapping
from typing import TypeAlias

from semel.host.api import Disk
from semel.log.types import Offset

logger = logging.getLogger("semel.log")

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
_VERSION = "0"

TopicPartition: TypeAlias = tuple[str, int]


def encode_checkpoint(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join([_VERSION, str(len(lines)), *lines]) + "\n").encode()


def read_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return {}
    try:
        lines = data.decode().split("\n")
        if lines[0] != _VERSION:
            raise ValueError(f"version {lines[0]}")
        found: dict[TopicPartition, Offset] = {}
        for line in lines[2 : 2 + int(lines[1])]:
            topic, partition, offset = line.split()
            found[topic, int(partition)] = int(offset)
        return found
    except (ValueError, IndexError) as error:
        logger.warning("%s is damaged (%s) and is not used", path, error)
        return {}
