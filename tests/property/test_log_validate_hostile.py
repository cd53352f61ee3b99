"""Truncations and mutations of good batches: refused or good, never anything else, and the log as it was."""

from __future__ import annotations

import random

import pytest

from semel.config import BrokerConfig, topic_config
from semel.log.errors import Refused
from semel.log.log import Log
from semel.log.validate import validated
from semel.records.batch import check_crc, read_header, set_crc
from semel.records.build import build_batch
from semel.records.compression import Codec
from semel.records.read import read_records
from semel.sim.disk import SimDisk

NOW_MS = 1_700_000_000_000
CONFIGS = [
    topic_config(overrides, BrokerConfig())
    for overrides in (
        {},
        {"cleanup.policy": "compact", "compression.type": "lz4"},
        {"message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed"},
    )
]


def good(codec: Codec) -> bytearray:
    return build_batch(
        [b"one" * 5, None, b"three"],
        keys=[b"a", b"b", b"c"],
        headers=[[("h", b"v"), ("n", None)], [], []],
        timestamps_ms=[NOW_MS, NOW_MS - 5, NOW_MS + 5],
        base_timestamp_ms=NOW_MS,
        codec=codec,
        producer_id=4,
        producer_epoch=0,
        base_sequence=0,
    )


def offer(data: bytes, log: Log) -> bool:
    """Whether it was taken. What is refused leaves the log as it was; what is taken is a whole batch."""
    before = log.end_offset, log.size_bytes, log.producers.rows()
    try:
        batch, header = validated(data, log.config, NOW_MS)
        assert check_crc(batch, 0, header)
        assert header == read_header(batch)
        assert len(read_records(batch)) == header.record_count == header.last_offset_delta + 1
        log.append(batch, header, 0, NOW_MS)
    except Refused:
        assert (log.end_offset, log.size_bytes, log.producers.rows()) == before
        return False
    return True


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_is_refused(codec: Codec) -> None:
    data = bytes(good(codec))
    for config in CONFIGS:
        log = Log(SimDisk(), "/log", config)
        assert not any(offer(data[:length], log) for length in range(len(data)))
        assert not offer(data + b"\0", log)
        assert offer(data, log)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_truncation_with_a_length_and_a_checksum_to_match_is_refused(codec: Codec) -> None:
    data = good(codec)
    for length in range(61, len(data)):
        cut = data[:length]
        cut[8:12] = (length - 12).to_bytes(4, "big")
        set_crc(cut)
        assert not offer(bytes(cut), Log(SimDisk(), "/log", CONFIGS[0]))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("mends_crc", [False, True])
def test_mutations_are_refused_or_harmless(codec: Codec, mends_crc: bool) -> None:
    chance = random.Random(f"{codec} {mends_crc}")
    data = good(codec)
    taken = 0
    for number in range(1500):
        mutated = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 5))):
            kind = chance.randrange(4)
            at = chance.randrange(len(mutated))
            if kind == 0:
                mutated[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                mutated[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif kind == 2:
                mutated[at : at + 4] = chance.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0")
                )
            else:
                del mutated[at : at + chance.randrange(1, 9)]
        if mends_crc and len(mutated) >= 61:
            if chance.random() < 0.5:
                mutated[8:12] = (len(mutated) - 12).to_bytes(4, "big")
            set_crc(mutated)
        taken += offer(bytes(mutated), Log(SimDisk(), "/log", CONFIGS[number % 3]))
    assert mends_crc or taken < 200, "without a checksum to match, only what lies outside of it can change"


def test_random_bytes_are_refused() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        assert not offer(chance.randbytes(chance.randrange(200)), Log(SimDisk(), "/log", CONFIGS[0]))
