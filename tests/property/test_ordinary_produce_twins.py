"""The fast path of a produce request: what it takes, the long path takes too, with the same outcome; and the compiled
kernels are their plain source, to the word, on good frames, on damaged ones, and on ones made to break them.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from random import Random
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from plain_kernels import produce_kernels
from semel.config import BrokerConfig, topic_config
from semel.log.epochs import LeaderEpochs
from semel.log.errors import BrokenLog, Refused
from semel.log.producers import Producers
from semel.log.validate import validated
from semel.metrics.counts_kernel import Times, TopicCounts
from semel.records.batch import read_header, set_base_offset, set_crc, set_leader_epoch
from semel.records.build import build_batch
from semel.records.compression import Codec
from semel.records.errors import InvalidRecord
from semel.wire.codec import decode
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_request_header, request_bytes
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NOW_MS = 1_700_000_000_000
LAST_SEQUENCE = 2**31 - 1
CONFIG = topic_config({"max.message.bytes": "3000"}, BrokerConfig())
COMPACTED = topic_config({"max.message.bytes": "3000", "cleanup.policy": "compact"}, BrokerConfig())

LEADER_EPOCH = 6

KERNELS = produce_kernels()


def frame_of(
    batch: bytearray, version: int, correlation_id: int = 7, partition: int = 3, transactional_id: str | None = None
) -> bytearray:
    data = [PartitionProduceData(index=partition, records=memoryview(batch))]
    topics = [TopicProduceData(name="orders", topic_id=b"\x05" * 16, partition_data=data)]
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics)
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
        self.opened: list[tuple[int, int]] = []
        rows = {"live_rows": dict(producers.live_rows), "begin_transaction": staticmethod(self._begin_transaction)}
        self.log.producers = type("Rows", (), rows)()
        self.log.epochs = LeaderEpochs()
        self.log.dirty = []
        self.log.pending = []
        self.log.pending_bytes = 0
        self.log.counts = TopicCounts()
        self.log.start_offset, self.log.end_offset, self.log.high_watermark = 3, base_offset, base_offset
        segment = self.segment = type("Segment", (kernel.SegmentEnd,), {"take_back_write": self._take_back_write})()
        segment.file = self
        segment.base_offset = segment.next_offset = segment.max_timestamp_offset = base_offset
        segment.size_bytes = segment.bytes_since_index = 0
        segment.first_timestamp_ms = segment.max_timestamp_ms = -1
        segment.offset_index = segment.time_index = self
        self.log.segments = [segment]
        self.count = 0
        self.indexed: list[tuple[int, int]] = []
        self.written: list[bytes] = []
        self.writes = 0
        self.fails_with: Exception | None = None

    def _begin_transaction(self, producer_id: int, first_offset: int) -> None:
        self.opened.append((producer_id, first_offset))

    def write_at(self, position: int, *batches: memoryview) -> None:
        assert position == self.segment.size_bytes
        if self.fails_with is not None:
            raise OSError("planted")
        self.writes += 1
        self.written.extend(map(bytes, batches))

    def _take_back_write(self, error: OSError) -> None:
        raise self.fails_with or error

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
            self.opened,
            self.indexed,
            b"".join(self.written),
        )


def prefix_of(version: int, partition: int = 3, transactional_id: str | None = None) -> bytes:
    empty = batch_of(Random(0))
    frame = frame_of(empty, version, partition=partition, transactional_id=transactional_id)
    length_bytes = (1 if len(empty) < 127 else 2) if version >= 9 else 4
    return bytes(frame[: len(frame) - suffix_bytes_of(version) - len(empty) - length_bytes])


def suffix_bytes_of(version: int) -> int:
    return 3 if version >= 9 else 0


class Reader:
    """Takes requests of one kind by a lane, one by one."""

    def __init__(self, kernel: Any, prefix: bytes, version: int, config: Any, may_join: Any = None) -> None:
        self.kernel = kernel
        self.form = kernel.RequestForm(prefix, version >= 9, suffix_bytes_of(version))
        self.rules = kernel.OrdinaryRules(config)
        self.may_join = may_join

    def append(self, log: Any, frame: memoryview) -> int | None:
        """The first offset; the batch in the frame has it then. None: it was not taken."""
        term = term_of(self.kernel, log)
        term.leader_epoch = LEADER_EPOCH
        lane = lane_of(self.kernel, self, term, self.kernel.AppendRound(lambda: 0, Times()), {}, waits=False)
        buffer = memoryview(bytearray(len(frame).to_bytes(4) + frame))
        taken = lane.take(Sender(), buffer, 0, len(buffer))
        if taken is None:
            return None
        answer = taken.made()
        frame[:] = buffer[4:]
        return int.from_bytes(answer[8:16])


def lane_of(kernel: Any, reader: Reader, term: Any, round_: Any, siblings: Any, *, waits: bool) -> Any:
    reply = kernel.ReplyForm(bytes(40), 8, 16)
    generation = kernel.Generation()
    term.generation = generation
    return kernel.ProduceLane(
        round_, reader.form, reply, term, reader.rules, reader.may_join, waits, 1000, _refuse, generation, siblings
    )


def _refuse(correlation_id: int, connection: Any, error: BaseException) -> bytes:
    raise error


def makers(version: int, config: Any = CONFIG, partition: int = 3) -> list[Reader]:
    """One reader for each kernel, of requests like those of `frame_of`."""
    return [Reader(kernel, prefix_of(version, partition), version, config) for kernel in KERNELS]


def transactional_makers(version: int, may_join: Any) -> list[Reader]:
    prefix = prefix_of(version, transactional_id="mine")
    return [Reader(kernel, prefix, version, CONFIG, may_join) for kernel in KERNELS]


def read(readers: list[Any], frame: bytearray, producers: Producers, base_offset: int, config: Any = CONFIG) -> Any:
    """What both kernels make of a frame. If they take it, the long way does, and makes the same of it."""
    before = bytes(frame)
    worlds = [PlainWorld(kernel, config, producers, base_offset) for kernel in KERNELS]
    untouched = worlds[0].state()
    frames = [bytearray(frame) for _ in worlds]
    offsets = [
        reader.append(world.log, memoryview(one)) for reader, world, one in zip(readers, worlds, frames, strict=True)
    ]
    told = worlds[0].state()
    assert all(world.state() == told for world in worlds)
    assert all(one == frames[0] for one in frames)
    assert all(offset == offsets[0] for offset in offsets)
    if offsets[0] is None:
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
    opened = []
    if judged.header.producer_id >= 0:
        draft = producers.check(judged.header, base_offset, NOW_MS)
        assert draft.duplicate_of is None
        rows[draft.producer_id] = draft.row
        opened = [(draft.producer_id, draft.began)] if draft.began >= 0 else []
    assert told[3:5] == (rows, opened)
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
        "of an unknown producer, but not its first": batch_of(random, producer_id=5, sequence=1),
        "of a new epoch, but not its first": batch_of(random, epoch=1, sequence=sequence),
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


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_in_a_transaction_is_taken_if_it_is_in_it_and_may_begin_it_here(version: int) -> None:
    asked = []
    may_write = [True]

    def is_in_transaction(producer_id: int, epoch: int) -> bool:
        asked.append((producer_id, epoch))
        return may_write[0]

    readers = transactional_makers(version, is_in_transaction)
    for seed in range(40):
        random = Random(seed)
        producers, sequence, offset = known_producers(random, random.randint(1, 8))
        begins = random.random() < 0.5
        if not begins:
            header = read_header(batch_of(random, sequence=sequence, transactional=True))
            producers.apply(producers.check(header, offset, NOW_MS))
            offset, sequence = offset + header.record_count, sequence + header.record_count
        frame = frame_of(batch_of(random, sequence=sequence, transactional=True), version, transactional_id="mine")
        may_write[0] = False
        assert read(readers, frame, producers, offset) is None, "nothing that no marker would end"
        may_write[0] = True
        told = read(readers, frame, producers, offset)
        assert told is not None
        assert told[4] == ([(4, offset)] if begins else [])
        others = [
            batch_of(random, sequence=sequence),  # not in the transaction
            batch_of(random, sequence=sequence, transactional=True, codec=Codec.GZIP),
            batch_of(random, sequence=sequence + 1, transactional=True),
            batch_of(random, epoch=1, sequence=sequence, transactional=True),
            batch_of(random, producer_id=5, sequence=1, transactional=True),
            batch_of(random, producer_id=-1, epoch=-1, sequence=-1, transactional=True),
        ]
        for other in others:
            assert read(readers, frame_of(other, version, transactional_id="mine"), producers, offset) is None
        assert read(readers, frame_of(others[0], version, transactional_id="other"), producers, offset) is None
    assert set(asked) == {(4, 0)}


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("raised_by", ["the batch", "a marker", "a batch in a transaction that is still open"])
def test_the_first_batch_of_a_raised_epoch_is_taken_and_an_older_epoch_is_not(
    raised_by: str, is_transactional: bool
) -> None:
    transactional_id = "mine" if is_transactional else None
    readers = transactional_makers(13, lambda *_: True) if is_transactional else makers(13)
    for seed in range(40):
        random = Random(seed)
        producers, sequence, offset = known_producers(random, random.randint(1, 8))
        if raised_by != "the batch":
            header = read_header(batch_of(random, sequence=sequence, transactional=True))
            producers.apply(producers.check(header, offset, NOW_MS))
            offset, sequence = offset + header.record_count, sequence + header.record_count
        if raised_by == "a marker":
            producers.apply_marker(producers.check_marker(4, 1, 0, NOW_MS, bumps_epoch=True), offset, aborted=False)
            offset += 1
        raised = {"epoch": 1, "transactional": is_transactional}
        first = frame_of(batch_of(random, **raised), 13, transactional_id=transactional_id)
        is_outside = "open" in raised_by and not is_transactional
        assert (read(readers, first, producers, offset) is None) == is_outside
        for others in ({**raised, "sequence": 1}, {**raised, "epoch": -1}, {**raised, "epoch": 0, "sequence": 0}):
            other = frame_of(batch_of(random, **others), 13, transactional_id=transactional_id)
            assert read(readers, other, producers, offset) is None


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


def test_a_batch_by_itself_is_judged_as_in_its_request() -> None:
    readers = makers(9)
    taken = 0
    for seed in range(1500):
        random = Random(seed)
        producers, sequence, offset = known_producers(random, random.randint(1, 3))
        batch = batch_of(random, sequence=sequence)
        if random.random() < 0.8:
            batch[random.choice([*range(61), random.randrange(61, len(batch))])] ^= 1 << random.randrange(8)
        if random.random() < 0.5:
            set_crc(batch)
        if random.random() < 0.1:
            del batch[random.randrange(len(batch)) :]
        in_request = read(readers, frame_of(batch, 9), producers, offset)
        for kernel in KERNELS:
            world = PlainWorld(kernel, CONFIG, producers, offset)
            untouched, alone = world.state(), bytearray(batch)
            found = kernel.OrdinaryRules(CONFIG).append(world.log, memoryview(alone), LEADER_EPOCH, NOW_MS)
            if in_request is None:
                assert (found, world.state(), alone) == (None, untouched, batch)
            else:
                assert (found, world.state(), bytes(alone)) == (offset, in_request, in_request[-1])
        taken += in_request is not None
    assert 200 < taken < 1300


def test_rows_that_are_too_short_are_not_looked_into() -> None:
    (batch, sequence) = batch_of(Random(0), sequence=9), 9
    for length in range(60):
        for kernel, reader in zip(KERNELS, makers(9), strict=True):
            row = (b"\0" * 8 + b"\0\0" + (sequence - 1).to_bytes(4) + bytes(24) + b"\xff" * 8 + bytes(100))[:length]
            world = PlainWorld(kernel, CONFIG, Producers(), 0)
            world.log.producers.live_rows[4] = row
            found = reader.append(world.log, memoryview(frame_of(batch, 9)))
            assert (found is None) == (length < 46)


def test_only_unusual_records_are_walked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick look finds nothing wrong with what most clients send, and so is the only one at it."""

    def walk(*arguments: Any) -> tuple[int, int, int]:
        raise InvalidRecord("they are walked")

    values = [b"", b"value", b"long " * 60]
    plain = [
        build_batch(values[:count], keys=keys, base_timestamp_ms=NOW_MS, timestamps_ms=times)
        for count in (1, 3)
        for keys in (None, [b"key", None, b""][:count])
        for times in (None, [NOW_MS + 300, NOW_MS, NOW_MS - 70_000][:count])
    ]
    unusual = build_batch([b"value"], headers=[[("name", b"of a header")]], base_timestamp_ms=NOW_MS)
    for kernel in KERNELS:
        if kernel.OrdinaryRules.append.__class__ is FunctionType:
            monkeypatch.setitem(kernel.OrdinaryRules.append.__globals__, "walk_records", walk)
        else:
            monkeypatch.setattr("semel.log.ordinary_kernel.walk_records", walk)
        for batch, is_taken in [*((batch, True) for batch in plain), (unusual, False)]:
            world = PlainWorld(kernel, CONFIG, Producers(), 0)
            found = kernel.OrdinaryRules(CONFIG).append(world.log, memoryview(bytearray(batch)), LEADER_EPOCH, NOW_MS)
            assert (found is not None) == is_taken


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
            assert reader.append(world.log, memoryview(frame)) is None, case
            world.segment.size_bytes = 0  # whatever else: an empty one has room
            assert reader.append(world.log, memoryview(bytearray(frame))) == 1000, case


def test_a_log_without_a_segment_or_with_other_settings_is_for_the_long_way() -> None:
    frame = frame_of(build_batch([b"value"], base_timestamp_ms=NOW_MS), 9)
    for kernel, reader in zip(KERNELS, makers(9), strict=True):
        world = PlainWorld(kernel, COMPACTED, Producers(), 0)
        assert reader.append(world.log, memoryview(frame)) is None
        world = PlainWorld(kernel, CONFIG, Producers(), 0)
        world.log.segments = []
        assert reader.append(world.log, memoryview(frame)) is None
        assert reader.append(world.log, memoryview(bytearray())) is None


def test_what_is_appended_is_indexed_every_so_many_bytes() -> None:
    random = Random(3)
    worlds = [PlainWorld(kernel, CONFIG, Producers(), 10) for kernel in KERNELS]
    readers = makers(9)
    for _ in range(200):
        frame = frame_of(batch_of(random, producer_id=-1, epoch=-1, sequence=-1), 9)
        for world, reader in zip(worlds, readers, strict=True):
            assert reader.append(world.log, memoryview(bytearray(frame))) >= 10
    told = worlds[0].state()
    assert all(world.state() == told for world in worlds)
    positions = [position for _, position in worlds[0].indexed[::2]]
    assert len(positions) > 5
    assert min(b - a for a, b in pairwise(positions)) > CONFIG.index_interval_bytes


def test_a_prefix_that_is_none_is_refused() -> None:
    for kernel in KERNELS:
        for prefix, suffix_bytes in ((b"1234567", 3), (b"12345678", -1)):
            with pytest.raises(ValueError, match="a frame does not begin with"):
                kernel.RequestForm(prefix, True, suffix_bytes)


@pytest.mark.parametrize("start_at", [-1, 20])
def test_a_reply_has_its_numbers_where_they_belong(start_at: int) -> None:
    form = bytes(range(100, 130))
    for kernel in KERNELS:
        reply = kernel.ReplyForm(form, 9, start_at).to(-2, 2**62 + 5, 7)
        expected = bytearray(form)
        expected[4:8] = (-2).to_bytes(4, signed=True)
        expected[9:17] = (2**62 + 5).to_bytes(8)
        if start_at >= 0:
            expected[20:28] = (7).to_bytes(8)
        assert reply == bytes(expected)
        for base_at, other in ((-1, 0), (23, 0), (0, 23), (0, -2)):
            with pytest.raises(ValueError, match="no offsets can be put"):
                kernel.ReplyForm(form, base_at, other)


def term_of(kernel: Any, log: Any, *, commits_at_append: bool = False) -> Any:
    """A term of leadership as a lane sees it, which counts how often it was told that something is to be flushed."""

    class PlainTerm(kernel.TermEnd):  # type: ignore[misc]
        def __init__(self) -> None:
            self.log = log
            self.leader_epoch = 2
            self.is_closed = False
            self.commits_at_append = commits_at_append
            self.flushes_in_turns = False
            self.waiting: deque[Any] = deque()
            self.watchers: dict[str, str] = {}
            self.told = 0
            self.woken = 0
            self.broken: list[BaseException] = []
            self.on_broken = self.broken.append
            self.clock = SimpleNamespace(wall_ms=lambda: NOW_MS)

        def flush_if_due(self) -> None:
            self.told += 1

        def wake_watchers(self) -> None:
            self.woken += 1

        def when_committed(self, last_offset: int, timeout_ms: int) -> str | None:
            return None if last_offset < self.log.high_watermark else f"committed up to {last_offset}"

    return PlainTerm()


class Sender:
    """The connection that a request came by."""

    principal = "User:a"
    host = "127.0.0.1"
    has_outstanding = False

    def __init__(self) -> None:
        self.lane: Any = None
        self.waiting: list[tuple[list[Any], bytes]] = []
        self.longer: list[bytes] = []
        self.not_served_for: list[BaseException] = []
        self.not_served = self.not_served_for.append

    def serve_alone(self, frame: memoryview) -> bytes:
        self.longer.append(bytes(frame))
        return b"in other words"

    def answer_when(self, commits: list[Any], answer: bytes, taken: Any) -> bytes | None:
        if not commits:
            return answer
        self.waiting.append((commits, answer))
        return None


class Lane:
    """A lane of one kernel, with all that it reaches."""

    def __init__(
        self,
        reader: Reader,
        producers: Producers | None = None,
        other: Lane | None = None,
        waits: bool = False,
    ) -> None:
        """Beside another: with the same log, if it is not for producers of its own. `waits`: for flushes."""
        kernel = reader.kernel
        shares_log = other is not None and producers is None
        self.world = other.world if other and shares_log else PlainWorld(kernel, CONFIG, producers or Producers(), 0)
        if other and shares_log:
            self.term = other.term
        else:
            self.term = term_of(kernel, self.world.log, commits_at_append=not waits)
        self.siblings: dict[bytes, Any] = {} if other is None else other.siblings
        self.round = other.round if other else kernel.AppendRound(lambda: 0, Times())
        self.sender = Sender()
        self.buffer = memoryview(bytearray(4000))
        self.lane = lane_of(kernel, reader, self.term, self.round, self.siblings, waits=waits)

    def take(self, sent: bytes, start: int = 0, count: int | None = None) -> Any:
        self.buffer[start : start + len(sent)] = sent
        return self.lane.take(self.sender, self.buffer, start, len(sent) if count is None else count)

    def answer(self, sent: bytes, count: int | None = None) -> bytes | None:
        later = self.take(sent, 0, count)
        if later is None:
            return None
        assert not later.is_made
        answer: bytes | None = later.made()
        assert later.is_made
        return answer


def lanes() -> list[Lane]:
    return [Lane(reader) for reader in makers(9)]


def sent_frame(correlation_id: int = 7, batch: bytearray | None = None, partition: int = 3) -> bytes:
    frame = frame_of(batch or build_batch([b"value"], base_timestamp_ms=NOW_MS), 9, correlation_id, partition)
    return len(frame).to_bytes(4) + frame


def answer_of(correlation_id: int, base_offset: int) -> bytes:
    return bytes(4) + correlation_id.to_bytes(4) + base_offset.to_bytes(8) + (3).to_bytes(8) + bytes(16)


def test_an_answer_that_waits_for_a_flush_is_left_to_its_connection() -> None:
    for reader in makers(9):
        lane = Lane(reader, waits=True)
        lane.sender.has_outstanding = True
        assert [lane.answer(sent_frame(number)) for number in range(2)] == [None, None]
        assert lane.world.log.high_watermark == 0
        assert lane.term.told == 2
        expected = [([f"committed up to {number}"], answer_of(number, number)) for number in range(2)]
        assert lane.sender.waiting == expected
        lane.world.log.high_watermark = 10
        assert lane.answer(sent_frame(2)) == answer_of(2, 2), "what others have flushed already waits for nothing"


def test_one_that_waits_for_nothing_does_not_overtake_those_that_do() -> None:
    for lane in lanes():
        lane.sender.has_outstanding = True
        assert lane.answer(sent_frame()) is None
        assert lane.world.written == []


def test_those_of_one_read_wait_for_the_last_of_each_log() -> None:
    for reader in makers(9):
        first = Lane(reader, waits=True)
        ways = [first, Lane(reader, Producers(), first, waits=True), Lane(reader, other=first)]
        for lane in ways[:2]:
            lane.take(sent_frame()).made()  # nothing is gathered behind the first of a segment
        together = [ways[number % 3].take(sent_frame(number), 500 * number) for number in range(7)]
        told: list[Any] = []
        for one in together:
            one.batch = told
        together[0].made()
        assert together[0].commits_of(together) == ["committed up to 5", "committed up to 2"]
        assert together[2].commits_of([together[2]]) == [], "the leader alone is asked"
        assert told == []


def test_a_lane_answers_and_the_log_may_be_read_that_far() -> None:
    for lane in lanes():
        for number in range(5):
            assert lane.answer(sent_frame(number)) == answer_of(number, number)
            assert lane.world.log.high_watermark == lane.world.log.end_offset == number + 1
        assert lane.term.told == 0


def test_whoever_watches_is_woken_and_flushes_that_are_due_begin() -> None:
    for case in ("watched", "flushed in turns", "committed when flushed"):
        for reader in makers(9):
            lane = Lane(reader)
            if case == "watched":
                lane.term.watchers["fetch"] = "wake"
            lane.term.flushes_in_turns = case == "flushed in turns"
            lane.term.commits_at_append = case != "committed when flushed"
            assert lane.answer(sent_frame()) is not None
            assert (lane.term.woken, lane.term.told) == ((1, 0) if case == "watched" else (0, 1))
            assert lane.world.log.high_watermark == (0 if case == "committed when flushed" else 1)


def test_a_lane_does_nothing_with_what_is_not_for_it() -> None:
    sent = sent_frame()
    for lane in lanes():
        before = lane.world.state()
        for count in range(len(sent)):
            assert lane.take(sent, 0, count) is None
        assert lane.take(sent + sent) is None
        assert lane.take(sent, 0, 4001) is None
        assert lane.take(sent, 1, 4000) is None
        assert lane.lane.take(lane.sender, lane.buffer, -1, len(sent)) is None
        for at in range(len(sent)):
            damaged = bytearray(sent)
            damaged[at] ^= 0xFF
            if not 8 <= at < 12 and not 54 <= at < 58:  # correlation id and leader epoch may be any
                assert lane.take(damaged) is None, at
        lane.sender.lane = lane.lane.take
        lane.term.generation.raise_it()
        assert lane.lane.is_over()
        assert lane.take(sent) is None
        assert lane.sender.lane is None
        assert lane.world.state() == before
        assert lane.world.log.pending == []
        assert lane.term.told == 0


def test_a_lane_gives_what_is_for_another_lane_to_that_one() -> None:
    for mine, others in zip(makers(9), makers(9, partition=4), strict=True):
        lane = Lane(mine)
        other = Lane(others, Producers(), lane)
        assert lane.take(sent_frame(partition=4)) is None
        lane.siblings[prefix_of(9, partition=4)[8:]] = other.lane
        lane.siblings[prefix_of(9)[8:]] = lane.lane
        for number in range(3):
            assert lane.answer(sent_frame(number, partition=4)) == answer_of(number, number)
            assert lane.sender.lane == other.lane.take
            assert lane.answer(sent_frame(number)) == answer_of(number, number)
        damaged = bytearray(sent_frame(partition=4))
        damaged[-4] ^= 1
        assert lane.take(damaged) is None
        assert [one.world.log.end_offset for one in (lane, other)] == [3, 3]


def test_a_lane_follows_the_buffer_that_it_is_given() -> None:
    for lane in lanes():
        for size in (200, 4000, 200):
            lane.buffer = memoryview(bytearray(size))
            assert lane.answer(sent_frame()) is not None


# -- those that are answered together


@pytest.mark.parametrize("seed", range(30))
def test_what_is_gathered_ends_as_if_each_had_come_alone(seed: int) -> None:
    """By two lanes to one log, and one to another."""
    told = []
    for reader in makers(9):
        for together in (1, Random(seed).randint(2, 12)):
            random = Random(seed)
            producers, sequence, _ = known_producers(random, random.randint(1, 8))
            first = Lane(reader, producers)
            ways = [first, Lane(reader, None, first), Lane(reader, producers, first)]
            sequences = {id(first.world): sequence, id(ways[2].world): sequence}
            for way in ways:
                way.answer(sent_frame())  # an empty segment takes them one by one
            answers: list[bytes | None] = []
            waiting: list[Any] = []
            for number in range(36):
                way = random.choice(ways)
                if random.random() < 0.5:
                    batch = batch_of(random, sequence=sequences[id(way.world)])
                    sequences[id(way.world)] += read_header(batch).record_count
                else:
                    batch = batch_of(random, producer_id=-1, epoch=-1, sequence=-1)
                sent = sent_frame(number, batch)
                way.buffer = memoryview(bytearray(len(sent)))
                waiting.append(way.take(sent))
                if len(waiting) >= together:
                    answers += [one.made() for one in waiting]
                    waiting = []
            answers += [one.made() for one in waiting]
            worlds = [first.world, ways[2].world]
            told.append((answers, [world.state() for world in worlds], [world.log.high_watermark for world in worlds]))
            assert None not in answers
            calls = sum(world.writes for world in worlds)
            assert calls == 39 if together == 1 else calls <= 3 + 2 * -(-36 // together)
    assert all(one == told[0] for one in told)


def test_nothing_is_there_before_it_is_settled_and_all_are_settled_together() -> None:
    for lane in lanes():
        lane.answer(sent_frame(0))
        before = lane.world.state()
        waiting = [lane.take(sent_frame(number), 500 * number) for number in range(1, 4)]
        assert lane.world.state() == before
        assert [one.is_made for one in waiting] == [False] * 3
        assert waiting[1].made() == answer_of(2, 2)
        assert [one.is_made for one in waiting] == [True] * 3
        assert [one.made() for one in waiting] == [answer_of(number, number) for number in range(1, 4)]
        assert lane.world.log.end_offset == lane.world.log.high_watermark == 4
        assert lane.world.log.pending == []
        assert lane.world.writes == 2


@pytest.mark.parametrize(("value_bytes", "parts"), [(10, 1), (2600, 1), (2900, 12)])
def test_small_batches_are_put_together_and_large_ones_are_not(value_bytes: int, parts: int) -> None:
    for lane in lanes():
        lane.answer(sent_frame())
        lane.world.written.clear()
        lane.buffer = memoryview(bytearray(50_000))
        batches = [build_batch([b"%x" % number * value_bytes], base_timestamp_ms=NOW_MS) for number in range(12)]
        waiting = [lane.take(sent_frame(number, batch), 4000 * number) for number, batch in enumerate(batches)]
        assert [one.made() for one in waiting] == [answer_of(number, number + 1) for number in range(12)]
        for number, batch in enumerate(batches):
            set_base_offset(batch, number + 1)
            set_leader_epoch(batch, lane.term.leader_epoch)
        assert b"".join(lane.world.written) == b"".join(batches)
        assert (len(lane.world.written), lane.world.writes) == (parts, 2)


def test_a_producer_that_is_gathered_twice_must_be_in_order() -> None:
    random = Random(5)
    producers, sequence, _ = known_producers(random)
    for reader in makers(9):
        lane = Lane(reader, producers)
        lane.answer(sent_frame())
        batch = batch_of(random, sequence=sequence)
        following = sequence + read_header(batch).record_count
        first = lane.take(sent_frame(1, batch))
        lane.buffer = memoryview(bytearray(4000))
        assert lane.take(sent_frame(2, batch)) is None, "a duplicate"
        assert lane.take(sent_frame(2, batch_of(random, sequence=following + 1))) is None, "a gap"
        second = lane.take(sent_frame(2, batch_of(random, sequence=following)))
        assert first.made() == answer_of(1, 1)
        assert second.made() is not None


def test_none_is_gathered_that_the_segment_may_have_no_room_for() -> None:
    sent = sent_frame(0)
    size = len(build_batch([b"value"], base_timestamp_ms=NOW_MS))
    cases = {
        "another would not fit": {"size_bytes": CONFIG.segment_bytes - 2 * size + 1, "first_timestamp_ms": NOW_MS},
        "offsets": {"size_bytes": 1, "first_timestamp_ms": NOW_MS, "base_offset": 1 - 2**31},
        "the index": {"size_bytes": 1, "first_timestamp_ms": NOW_MS, "count": CONFIG.segment_index_bytes // 8 - 1},
        "empty: the first decides when it is full": {},
        "only the first has no timestamp": {"size_bytes": 1, "first_timestamp_ms": -1},
    }
    for name, case in cases.items():
        for lane in lanes():
            for attribute, value in case.items():
                setattr(lane.world if attribute == "count" else lane.world.segment, attribute, value)
            first = lane.take(sent)
            assert first is not None, name
            assert lane.take(sent, 1000) is None, name
            assert first.made() is not None
            assert lane.world.log.end_offset == 1


def test_a_disk_that_refuses_leaves_all_of_its_log_to_the_longer_way_as_they_were_sent() -> None:
    for reader in makers(9):
        lane = Lane(reader)
        beside, elsewhere = Lane(reader, None, lane), Lane(reader, Producers(), lane)
        for one in (lane, elsewhere):
            one.answer(sent_frame())
        lane.world.fails_with = Refused(ErrorCode.KAFKA_STORAGE_ERROR, "full")
        before = lane.world.state()
        frames = [sent_frame(number) for number in range(4)]
        waiting = [lane.take(frames[0]), beside.take(frames[1]), elsewhere.take(frames[2])]
        waiting.append(lane.take(frames[3], 1000))
        answers = [one.made() for one in waiting]
        assert answers == [b"in other words", b"in other words", answer_of(2, 1), b"in other words"]
        assert lane.sender.longer == [frames[0][4:], frames[3][4:]]
        assert beside.sender.longer == [frames[1][4:]]
        assert lane.world.state() == before
        lane.world.fails_with = None
        assert lane.answer(sent_frame(9)) == answer_of(9, 1), "the next one stands in their place"


def test_a_log_that_breaks_is_told_of_once_and_none_of_its_requests_is_served() -> None:
    for error in (BrokenLog("cannot be cut back"), RuntimeError("planted")):
        for lane in lanes():
            lane.answer(sent_frame())
            lane.world.fails_with = error
            before = lane.world.state()
            waiting = [lane.take(sent_frame(number), 1000 * number) for number in range(3)]
            assert [one.made() for one in waiting] == [None] * 3
            assert lane.term.broken == ([error] if isinstance(error, BrokenLog) else [])
            assert lane.sender.not_served_for == [error] * 3
            assert lane.sender.longer == []
            assert lane.world.state() == before


def test_one_that_cannot_be_told_of_the_others_harms_nobody_else() -> None:
    for reader in makers(9):
        lane = Lane(reader)
        other = Lane(reader, Producers(), lane)
        lane.term.watchers["fetch"] = other.term.watchers["fetch"] = "wake"
        error = ValueError("planted")

        def fail(error: Exception = error) -> None:
            raise error

        lane.term.wake_watchers = fail
        waiting = [lane.take(sent_frame(1)), other.take(sent_frame(2))]
        assert [one.made() for one in waiting] == [answer_of(1, 0), answer_of(2, 0)]
        assert lane.sender.not_served_for == [error]
        assert other.term.woken == 1
