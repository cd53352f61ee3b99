"""Records that every client produces and must read back unchanged, and a look at what lies on disk for them."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from semel.records.batch import BatchHeader, whole_batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Far enough back that no clock skew counts, near enough that no retention does.
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000
STEP_MS = 1000


@dataclass(frozen=True)
class Sample:
    """A record as a client sends and sees it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def sample_records(count: int, seed: int = 7) -> list[Sample]:
    """Compressible and random values, short and long ones, empty and null ones, with and without keys and headers."""
    chance = random.Random(seed)
    samples = []
    for number in range(count):
        value: bytes | None = f"value {number} ".encode() * chance.choice((1, 3, 40))
        if number % 17 == 3:
            value = chance.randbytes(chance.randrange(1, 3000))
        elif number % 17 == 5:
            value = b""
        elif number % 17 == 7:
            value = None
        key = None if number % 5 == 0 and value is not None else f"key {number % 11} \N{SNOWMAN}".encode()
        headers = (("number", str(number).encode()), ("empty", b"")) if number % 3 == 0 else ()
        samples.append(Sample(key, value, headers, FIRST_TIMESTAMP_MS + number * STEP_MS))
    return samples


def stored_batches(data: Path, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The headers of the batches in a partition's files, in order."""
    headers = []
    for path in sorted((data / f"{topic}-{partition}").glob("*.log")):
        headers += [header for _, header in whole_batches(path.read_bytes())]
    return headers


def stored_codecs(data: Path, topic: str, partition: int = 0) -> set[str]:
    """How the batches on disk are compressed: a client that gave up its codec in silence would be noticed."""
    return {CODECS[header.codec] for header in stored_batches(data, topic, partition)}
