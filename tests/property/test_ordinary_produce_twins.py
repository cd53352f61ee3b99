"""The short way of a produce request: what it takes, the long way takes too, with the same outcome; and the compiled
kernel is its plain source, to the word, on good frames, on damaged ones, and on ones made to break it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from plain_kernels import plain
from semel.config import BrokerConfig, topic_config
from semel.log.producers import Producers
from semel.log.validate import validated
from semel.records import produce_kernel
from semel.records.batch import read_header, set_crc
from semel.records.build import build_batch
from semel.records.compression import Codec
from semel.wire.codec import decode
from semel.wire.frame import read_request_header, request_bytes
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NOW_MS = 1_700_000_000_000
LAST_SEQUENCE = 2**31 - 1
CONFIG = topic_config({"max.message.bytes": "3000"}, BrokerConfig())
COMPACTED = topic_config({"max.message.bytes": "3000", "cleanup.policy": "compact"}, BrokerConfig())

PLAIN = plain("produce_kernel")
KERNELS = [PLAIN, produce_kernel] if produce_kernel.compiled else [PLAIN]


def frame_of(batch: bytearray, version: int, correlation_id: int = 7) -> bytearray:
    data = [PartitionProduceData(index=3, records=memoryview(batch))]
    topics = [TopicProduceData(name="orders", topic_id=b"\x05" * 16, partition_data=data)]
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topics)
    return bytearray(request_bytes(request, version, correlation_id, "client"))[4:]


def batch_of(random: Random, producer_id: int = 4, epoch: int = 0, sequence: int = 0, **options: Any) -> bytearray:
    count = random.randint(1, 6)
    return build_batch(
        [random.choice([b"", b"value", b"long " * random.randint(1, 90)]) for _ in range(count)],
        keys=[random.choice([b"k", b"key"]) for _ in range(count)],
        timestamps_ms=[NOW_MS - random.randint(0, 1000) for _ in range(count)],
        base_timestamp_ms=NOW_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,
    )


def makers(version: int, config: Any = CONFIG) -> list[Any]:
    """One reader for each kernel, of requests like those of `frame_of`."""
    empty = batch_of(Random(0))
    frame = frame_of(empty, version)
    is_flexible = version >= 9
    suffix_bytes = 3 if is_flexible else 0
    length_bytes = (1 if len(empty) < 127 else 2) if is_flexible else 4
    prefix = bytes(frame[: len(frame) - suffix_bytes - len(empty) - length_bytes])
    return [
        kernel.OrdinaryProduce(
            prefix,
            is_flexible,
            suffix_bytes,
            config.max_message_bytes,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            "compact" in config.cleanup_policy,
        )
        for kernel in KERNELS
    ]


def read(readers: list[Any], frame: bytearray, producers: Producers, base_offset: int, config: Any = CONFIG) -> Any:
    """What both kernels say. If they take the frame, the long way does, and makes the same of it."""
    before = bytes(frame)
    found = [reader.read(memoryview(frame), producers.live_rows, base_offset, NOW_MS) for reader in readers]
    told = [None if one is None else (bytes(one[0]), *one[1:]) for one in found]
    assert all(one == told[0] for one in told)
    assert frame == before
    if told[0] is None:
        return None
    batch, correlation_id, last_offset_delta, greatest, producer_id, row = told[0]
    header = read_request_header(frame)
    request = decode(ProduceRequest, header.api_version, frame[header.body_position :])
    (data,) = request.topic_data[0].partition_data
    assert bytes(data.records) == batch
    assert correlation_id == header.correlation_id
    judged = validated(bytearray(batch), config, NOW_MS)
    assert bytes(judged.batch) == batch
    assert (judged.header.last_offset_delta, judged.header.max_timestamp) == (last_offset_delta, greatest)
    assert judged.header.producer_id == producer_id
    if producer_id < 0:
        assert row is None
    else:
        draft = producers.check(judged.header, base_offset, NOW_MS)
        assert (draft.row, draft.began, draft.duplicate_of) == (row, -1, None)
    return told[0]


def known_producers(random: Random, batches: int = 1, sequence: int = 0) -> tuple[Producers, int, int]:
    """Producers of which 4 has written some batches; its next sequence, and the end of the log."""
    producers, offset = Producers(), random.randint(0, 10**12)
    for number in range(batches):
        header = read_header(batch_of(random, sequence=sequence))
        if number == 0 and sequence:
            producers.replay(header._replace(base_offset=offset), None, NOW_MS)
        else:
            producers.apply(producers.check(header, offset, NOW_MS))
        offset += header.record_count
        sequence = (sequence + header.record_count) & LAST_SEQUENCE
    return producers, sequence, offset


@pytest.mark.parametrize("version", range(3, 14))
def test_an_ordinary_request_is_taken_in_every_version(version: int) -> None:
    readers = makers(version)
    for seed in range(40):
        random = Random(seed)
        producers, sequence, offset = known_producers(random, random.randint(1, 8))
        frame = frame_of(batch_of(random, sequence=sequence), version, random.randint(-(2**31), 2**31 - 1))
        assert read(readers, frame, producers, offset) is not None
        nameless = frame_of(batch_of(random, producer_id=-1, epoch=-1, sequence=-1), version)
        assert read(readers, nameless, producers, offset) is not None


def test_a_sequence_that_wraps_is_the_next_one() -> None:
    readers = makers(9)
    for seed in range(40):
        random = Random(seed)
        producers, sequence, offset = known_producers(random, 3, LAST_SEQUENCE - random.randint(0, 12))
        assert read(readers, frame_of(batch_of(random, sequence=sequence), 9), producers, offset) is not None


def test_what_is_not_ordinary_is_for_the_long_way() -> None:
    readers = makers(9)
    random = Random(1)
    producers, sequence, offset = known_producers(random, 3)
    others = {
        "of an unknown producer": batch_of(random, producer_id=5),
        "of another epoch": batch_of(random, epoch=1),
        "a sequence too late": batch_of(random, sequence=sequence + 1),
        "a duplicate": batch_of(random, sequence=0),
        "in a transaction": batch_of(random, sequence=sequence, transactional=True),
        "compressed": batch_of(random, sequence=sequence, codec=Codec.GZIP),
        "too large": build_batch([b"." * 3000], base_timestamp_ms=NOW_MS),
        "from the future": build_batch([b"."], base_timestamp_ms=NOW_MS + 10**9),
    }
    for name, batch in others.items():
        assert read(readers, frame_of(batch, 9), producers, offset) is None, name
    ordinary = batch_of(random, sequence=sequence)
    assert read(readers, frame_of(ordinary, 9), producers, offset) is not None
    assert read(readers, frame_of(ordinary, 10), producers, offset) is None
    open_transaction = Producers()
    header = read_header(batch_of(random, transactional=True))
    open_transaction.apply(open_transaction.check(header, 0, NOW_MS))
    following = batch_of(random, sequence=header.record_count)
    assert read(readers, frame_of(following, 9), open_transaction, header.record_count) is None


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    without_key = frame_of(build_batch([b"a", b"b"], keys=[b"k", None], base_timestamp_ms=NOW_MS), 9)
    assert read(makers(9), without_key, Producers(), 0) is not None
    assert read(makers(9, COMPACTED), without_key, Producers(), 0, COMPACTED) is None


@pytest.mark.parametrize("version", [8, 9])
def test_no_truncation_and_no_addition_is_taken(version: int) -> None:
    readers = makers(version)
    frame = frame_of(build_batch([b"value"], keys=[b"key"], base_timestamp_ms=NOW_MS), version)
    assert read(readers, frame, Producers(), 0) is not None
    for length in range(len(frame)):
        assert read(readers, frame[:length], Producers(), 0) is None
    for more in (b"\0", b"\1", b"\0\0\0"):
        assert read(readers, frame + more, Producers(), 0) is None


@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("mends_crc", [False, True])
def test_what_is_taken_of_damaged_frames_is_what_the_long_way_takes(version: int, mends_crc: bool) -> None:
    readers = makers(version)
    taken = 0
    for seed in range(1500):
        random = Random(seed)
        producers, sequence, offset = known_producers(random, random.randint(1, 3))
        batch = batch_of(random, sequence=sequence)
        at = random.choice([random.randrange(8), *range(8, 61), random.randrange(61, len(batch))])
        if mends_crc:
            batch[at] = random.choice([0, 0xFF, 0x7F, 0x80, batch[at] ^ 1 << random.randrange(8)])
            set_crc(batch)
        frame = frame_of(batch, version)
        if not mends_crc:
            frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
        taken += read(readers, frame, producers, offset) is not None
    assert taken < 1500


def test_rows_that_are_too_short_are_not_looked_into() -> None:
    (batch, sequence) = batch_of(Random(0), sequence=9), 9
    for length in range(60):
        for reader in makers(9):
            row = (b"\0" * 8 + b"\0\0" + (sequence - 1).to_bytes(4) + bytes(24) + b"\xff" * 8 + bytes(100))[:length]
            found = reader.read(memoryview(frame_of(batch, 9)), {4: row}, 0, NOW_MS)
            assert (found is None) == (length < 46)


def test_a_prefix_that_is_none_is_refused() -> None:
    for kernel in KERNELS:
        for prefix, suffix_bytes in ((b"1234567", 3), (b"12345678", -1)):
            with pytest.raises(ValueError, match="a frame does not begin with"):
                kernel.OrdinaryProduce(prefix, True, suffix_bytes, 1000, 0, 0, False)
