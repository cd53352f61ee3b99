"""The short way of a produce request: what it takes, the long way takes too, with the same outcome; and the compiled
kernel is its plain source, to the word, on good frames, on damaged ones, and on ones made to break it.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from plain_kernels import plain
from semel.config import BrokerConfig, topic_config
from semel.log import produce_kernel
from semel.log.epochs import LeaderEpochs
from semel.log.errors import BrokenLog, Refused
from semel.log.producers import Producers
from semel.log.validate import validated
from semel.records.batch import read_header, set_base_offset, set_crc, set_leader_epoch
from semel.records.build import build_batch
from semel.records.compression import Codec
from semel.wire.codec import decode
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_request_header, request_bytes
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NOW_MS = 1_700_000_000_000
LAST_SEQUENCE = 2**31 - 1
CONFIG = topic_config({"max.message.bytes": "3000"}, BrokerConfig())
COMPACTED = topic_config({"max.message.bytes": "3000", "cleanup.policy": "compact"}, BrokerConfig())

LEADER_EPOCH = 6

PLAIN = plain("produce_kernel", "log")
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


class PlainWorld:
    """A log's end as the kernel sees it, with a disk that is a list."""

    def __init__(self, kernel: Any, config: Any, producers: Producers, base_offset: int) -> None:
        self.log = type("Log", (kernel.LogEnd,), {})()
        self.log.config = config
        self.log.producers = type("Rows", (), {"live_rows": dict(producers.live_rows)})()
        self.log.epochs = LeaderEpochs()
        self.log.dirty = []
        self.log.start_offset, self.log.end_offset, self.log.high_watermark = 3, base_offset, base_offset
        segment = self.segment = type("Segment", (kernel.SegmentEnd,), {"write": self._write})()
        segment.base_offset = segment.next_offset = segment.max_timestamp_offset = base_offset
        segment.size_bytes = segment.bytes_since_index = 0
        segment.first_timestamp_ms = segment.max_timestamp_ms = -1
        segment.offset_index = segment.time_index = self
        self.log.segments = [segment]
        self.count = 0
        self.indexed: list[tuple[int, int]] = []
        self.written: list[bytes] = []

    def _write(self, batch: memoryview) -> int:
        self.written.append(bytes(batch))
        return int(self.segment.size_bytes)

    def append(self, offset: int, position: int) -> None:
        self.count += 1
        self.indexed.append((offset, position))

    maybe_append = append

    def state(self) -> Any:
        segment, log = self.segment, self.log
        return (
            [segment.base_offset, segment.next_offset, segment.size_bytes, segment.bytes_since_index],
            [segment.first_timestamp_ms, segment.max_timestamp_ms, segment.max_timestamp_offset],
            [log.end_offset, log.high_watermark, log.epochs.entries, [one is segment for one in log.dirty]],
            log.producers.live_rows,
            self.indexed,
            self.written,
        )


def makers(version: int, config: Any = CONFIG) -> list[Any]:
    """One reader for each kernel, of requests like those of `frame_of`."""
    empty = batch_of(Random(0))
    frame = frame_of(empty, version)
    is_flexible = version >= 9
    suffix_bytes = 3 if is_flexible else 0
    length_bytes = (1 if len(empty) < 127 else 2) if is_flexible else 4
    prefix = bytes(frame[: len(frame) - suffix_bytes - len(empty) - length_bytes])
    return [kernel.OrdinaryProduce(prefix, is_flexible, suffix_bytes, config) for kernel in KERNELS]


def read(readers: list[Any], frame: bytearray, producers: Producers, base_offset: int, config: Any = CONFIG) -> Any:
    """What both kernels make of a frame. If they take it, the long way does, and makes the same of it."""
    before = bytes(frame)
    worlds = [PlainWorld(kernel, config, producers, base_offset) for kernel in KERNELS]
    untouched = worlds[0].state()
    frames = [bytearray(frame) for _ in worlds]
    offsets = [
        reader.append(world.log, memoryview(one), LEADER_EPOCH, NOW_MS)
        for reader, world, one in zip(readers, worlds, frames, strict=True)
    ]
    told = worlds[0].state()
    assert all(world.state() == told for world in worlds)
    assert all(one == frames[0] for one in frames)
    assert all(offset == offsets[0] for offset in offsets)
    if offsets[0] < 0:
        assert told == untouched
        assert frames[0] == before
        return None
    assert offsets[0] == base_offset
    (written,) = worlds[0].written
    header = read_request_header(frame)
    request = decode(ProduceRequest, header.api_version, frame[header.body_position :])
    (data,) = request.topic_data[0].partition_data
    assert data.records is not None
    judged = validated(bytearray(data.records), config, NOW_MS)
    set_base_offset(judged.batch, base_offset)
    set_leader_epoch(judged.batch, LEADER_EPOCH)
    assert bytes(judged.batch) == written
    last_offset = base_offset + judged.header.last_offset_delta
    greatest = judged.header.max_timestamp
    assert told[0] == [base_offset, last_offset + 1, len(written), len(written)]
    assert told[1] == [greatest, greatest, last_offset if greatest > -1 else base_offset]
    assert told[2] == [last_offset + 1, base_offset, [(LEADER_EPOCH, base_offset)], [True]]
    rows = dict(producers.live_rows)
    if judged.header.producer_id >= 0:
        draft = producers.check(judged.header, base_offset, NOW_MS)
        assert (draft.began, draft.duplicate_of) == (-1, None)
        rows[draft.producer_id] = draft.row
    assert told[3] == rows
    return told


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
        for kernel, reader in zip(KERNELS, makers(9), strict=True):
            row = (b"\0" * 8 + b"\0\0" + (sequence - 1).to_bytes(4) + bytes(24) + b"\xff" * 8 + bytes(100))[:length]
            world = PlainWorld(kernel, CONFIG, Producers(), 0)
            world.log.producers.live_rows[4] = row
            found = reader.append(world.log, memoryview(frame_of(batch, 9)), LEADER_EPOCH, NOW_MS)
            assert (found == -1) == (length < 46)


def test_records_with_headers_are_taken_too() -> None:
    for seed in range(40):
        random = Random(seed)
        headers = [[("k", b"v")] * random.randint(0, 2) for _ in range(2)]
        batch = build_batch([b"a", b"b"], headers=headers, base_timestamp_ms=NOW_MS)
        assert read(makers(9), frame_of(batch, 9), Producers(), 0) is not None


def test_a_segment_without_room_is_for_the_long_way() -> None:
    frame = frame_of(build_batch([b"value"], base_timestamp_ms=NOW_MS), 9)
    cases = [
        {"size_bytes": CONFIG.segment_bytes - 10},
        {"size_bytes": 1, "base_offset": 1000 - 2**31},
        {"size_bytes": 1, "count": CONFIG.segment_index_bytes // 8},
        {"size_bytes": 1, "first_timestamp_ms": NOW_MS - CONFIG.segment_ms - 1},
        {"size_bytes": 1, "first_timestamp_ms": -(2**63)},
    ]
    for case in cases:
        for kernel, reader in zip(KERNELS, makers(9), strict=True):
            world = PlainWorld(kernel, CONFIG, Producers(), 1000)
            for name, value in case.items():
                setattr(world if name == "count" else world.segment, name, value)
            assert reader.append(world.log, memoryview(frame), LEADER_EPOCH, NOW_MS) == -1, case
            world.segment.size_bytes = 0  # whatever else: an empty one has room
            assert reader.append(world.log, memoryview(bytearray(frame)), LEADER_EPOCH, NOW_MS) == 1000, case


def test_a_log_without_a_segment_or_with_other_settings_is_for_the_long_way() -> None:
    frame = frame_of(build_batch([b"value"], base_timestamp_ms=NOW_MS), 9)
    for kernel, reader in zip(KERNELS, makers(9), strict=True):
        world = PlainWorld(kernel, COMPACTED, Producers(), 0)
        assert reader.append(world.log, memoryview(frame), LEADER_EPOCH, NOW_MS) == -1
        world = PlainWorld(kernel, CONFIG, Producers(), 0)
        world.log.segments = []
        assert reader.append(world.log, memoryview(frame), LEADER_EPOCH, NOW_MS) == -1
        assert reader.append(world.log, memoryview(bytearray()), LEADER_EPOCH, NOW_MS) == -1


def test_what_is_appended_is_indexed_every_so_many_bytes() -> None:
    random = Random(3)
    worlds = [PlainWorld(kernel, CONFIG, Producers(), 10) for kernel in KERNELS]
    readers = makers(9)
    for _ in range(200):
        frame = frame_of(batch_of(random, producer_id=-1, epoch=-1, sequence=-1), 9)
        for world, reader in zip(worlds, readers, strict=True):
            assert reader.append(world.log, memoryview(bytearray(frame)), LEADER_EPOCH, NOW_MS) >= 10
    told = worlds[0].state()
    assert all(world.state() == told for world in worlds)
    positions = [position for _, position in worlds[0].indexed[::2]]
    assert len(positions) > 5
    assert min(b - a for a, b in pairwise(positions)) > CONFIG.index_interval_bytes


def test_a_prefix_that_is_none_is_refused() -> None:
    for kernel in KERNELS:
        for prefix, suffix_bytes in ((b"1234567", 3), (b"12345678", -1)):
            with pytest.raises(ValueError, match="a frame does not begin with"):
                kernel.OrdinaryProduce(prefix, True, suffix_bytes, CONFIG)


@pytest.mark.parametrize("start_at", [-1, 20])
def test_a_reply_has_its_numbers_where_they_belong(start_at: int) -> None:
    form = bytes(range(100, 130))
    for kernel in KERNELS:
        reply = kernel.Reply(form, 9, start_at).to(-2, 2**62 + 5, 7)
        expected = bytearray(form)
        expected[4:8] = (-2).to_bytes(4, signed=True)
        expected[9:17] = (2**62 + 5).to_bytes(8)
        if start_at >= 0:
            expected[20:28] = (7).to_bytes(8)
        assert reply == bytes(expected)
        for base_at, other in ((-1, 0), (23, 0), (0, 23), (0, -2)):
            with pytest.raises(ValueError, match="no offsets can be put"):
                kernel.Reply(form, base_at, other)


class PlainPartition:
    """What a quick lane needs of a partition."""

    flushes_in_turns = False
    leader_epoch = 2
    is_closed = False

    def __init__(self, log: Any) -> None:
        self.log = log
        self.watchers: dict[str, str] = {}
        self.told = 0
        self.broken: list[BaseException] = []
        self.on_broken = self.broken.append
        self.clock = self

    def wall_ms(self) -> int:
        return NOW_MS

    def tell_appended(self) -> None:
        self.told += 1


class Lane:
    """A quick lane of one kernel, with all that it reaches."""

    def __init__(self, kernel: Any, ordinary: Any) -> None:
        self.world = PlainWorld(kernel, CONFIG, Producers(), 0)
        self.partition = PlainPartition(self.world.log)
        self.buffer = memoryview(bytearray(4000))
        self.is_allowed = True
        self.asked: list[Any] = []
        reply = kernel.Reply(bytes(40), 8, 16)
        self._lane = kernel.QuickLane(ordinary, reply, self.partition, self._authorise, ("write", "topic", "orders"))

    def _authorise(self, *what: str) -> bool:
        self.asked.append(what)
        return self.is_allowed

    def answer(self, sent: bytes, count: int | None = None) -> bytes | None:
        self.buffer[: len(sent)] = sent
        answer: bytes | None = self._lane.answer("User:a", self.buffer, len(sent) if count is None else count)
        return answer


def lanes() -> list[Lane]:
    return [Lane(kernel, ordinary) for kernel, ordinary in zip(KERNELS, makers(9), strict=True)]


def sent_frame(correlation_id: int = 7) -> bytes:
    frame = frame_of(build_batch([b"value"], base_timestamp_ms=NOW_MS), 9, correlation_id)
    return len(frame).to_bytes(4) + frame


def test_a_quick_lane_answers_and_the_log_may_be_read_that_far() -> None:
    for lane in lanes():
        for number in range(5):
            answer = lane.answer(sent_frame(number))
            assert answer == bytes(4) + number.to_bytes(4) + number.to_bytes(8) + (3).to_bytes(8) + bytes(16)
            assert lane.world.log.high_watermark == lane.world.log.end_offset == number + 1
        assert lane.partition.told == 0
        assert lane.asked == [("User:a", "write", "topic", "orders")] * 5


def test_a_quick_lane_leaves_to_the_partition_what_more_is_to_be_done() -> None:
    for case in ("watched", "behind", "flushed in turns"):
        for kernel, ordinary in zip(KERNELS, makers(9), strict=True):
            PlainPartition.flushes_in_turns = case == "flushed in turns"
            lane = Lane(kernel, ordinary)
            PlainPartition.flushes_in_turns = False
            if case == "watched":
                lane.partition.watchers["fetch"] = "wake"
            if case == "behind":
                lane.world.log.high_watermark = -1
            high_watermark = lane.world.log.high_watermark
            assert lane.answer(sent_frame()) is not None
            assert lane.partition.told == 1
            assert lane.world.log.high_watermark == high_watermark


def test_a_quick_lane_does_nothing_with_what_is_not_for_it() -> None:
    sent = sent_frame()
    for lane in lanes():
        before = lane.world.state()
        for count in range(len(sent)):
            assert lane.answer(sent, count) is None
        assert lane.answer(sent + sent) is None
        assert lane.answer(sent, 4001) is None
        for at in range(len(sent)):
            damaged = bytearray(sent)
            damaged[at] ^= 0xFF
            if not 8 <= at < 12 and not 54 <= at < 58:  # correlation id and leader epoch may be any
                assert lane.answer(damaged) is None, at
        lane.is_allowed = False
        assert lane.answer(sent) is None
        lane.is_allowed = True
        lane.partition.is_closed = True
        assert lane.answer(sent) is None
        assert lane.world.state() == before
        assert lane.partition.told == 0


def test_a_disk_that_refuses_is_for_the_longer_way_and_one_that_is_broken_is_told_of() -> None:
    for error in (Refused(ErrorCode.KAFKA_STORAGE_ERROR, "full"), BrokenLog("cannot be cut back")):
        for lane in lanes():

            def fail(_: memoryview, error: Exception = error) -> int:
                raise error

            lane.world.segment.write = fail
            before = lane.world.state()
            if isinstance(error, Refused):
                assert lane.answer(sent_frame()) is None
            else:
                with pytest.raises(BrokenLog, match="cannot be cut back"):
                    lane.answer(sent_frame())
                assert lane.partition.broken == [error]
            assert lane.world.state() == before
            assert lane.buffer[: len(sent_frame())] == sent_frame(), "the longer way finds it as it was sent"


def test_a_quick_lane_follows_the_buffer_that_it_is_given() -> None:
    for lane in lanes():
        for size in (200, 4000, 200):
            lane.buffer = memoryview(bytearray(size))
            assert lane.answer(sent_frame()) is not None
