"""One partition of an internal topic and the state that its records make.

A coordinator decides on the state, appends records here, and the state changes by replaying them: the same replay as
after a restart, so memory holds what the topic holds and nothing else. An append that is refused changes nothing. An
answer, also one that only reads, waits for `committed`: nobody is told of what a power cut could take back, and many
operations share one flush.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from semel.host.api import Clock
from semel.log.errors import CorruptSegment, Refused
from semel.log.types import Epoch, Offset, ProducerId
from semel.records.batch import BatchHeader
from semel.records.build import build_batch
from semel.records.control import ControlType, read_control
from semel.records.read import Record, read_records
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.primitives import coordinator_partition

logger = logging.getLogger("semel.coordinator")

NO_PRODUCER = -1
_partition_of = lru_cache(maxsize=4096)(coordinator_partition)
# A log up to this size is replayed at once; a larger one in pieces, between which the loop goes on.
_AT_ONCE_BYTES = 64 << 10


class Entry(NamedTuple):
    """A record for an internal topic. A value of None takes the key away."""

    key: bytes
    value: bytes | None


class State(Protocol):
    """What the records of one partition make. Only to replay them changes it: by these two functions, or told what a
    record means by who has just written it (`Shard.write`)."""

    def replay(self, record: Record, producer_id: ProducerId) -> None:
        """`producer_id` is -1 outside of transactions; inside, the record counts when its marker comes."""

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None: ...


S = TypeVar("S", bound=State)


class Shard(Generic[S]):
    """The coordinator's side of one partition."""

    def __init__(self, partition: Partition, state: S, clock: Clock, codec: int = 0) -> None:
        self.partition = partition
        # The coordinator epoch: the leader epoch of the partition when it was loaded.
        self.epoch: Epoch = partition.leader_epoch
        self.state = state
        self._clock = clock
        self._codec = codec

    @property
    def is_current(self) -> bool:
        """Whether this node has led the partition ever since it was loaded. If not, another coordinator may have
        written to it meanwhile: what is known here may be old."""
        return not self.partition.is_closed and self.partition.leader_epoch == self.epoch

    def append(self, entries: Iterable[Entry], *, producer: tuple[ProducerId, Epoch] | None = None) -> None:
        """Writes one decision as one batch and replays it. `producer` makes it part of that producer's transaction."""
        entries = list(entries)
        if not entries:
            return
        now_ms = self._clock.wall_ms()
        producer_id, producer_epoch = producer or (NO_PRODUCER, -1)
        batch = build_batch(
            [entry.value for entry in entries],
            keys=[entry.key for entry in entries],
            base_timestamp_ms=now_ms,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer is not None,
        )
        first = self.partition.append_prepared(batch).base_offset
        for number, entry in enumerate(entries):
            self.state.replay(Record(first + number, now_ms, entry.key, entry.value, ()), producer_id)

    def write(self, entry: Entry) -> Offset:
        """Writes one record; its offset. Whoever made its bytes knows what they mean, and replays that."""
        return self.partition.append_record(entry.key, entry.value)

    def append_marker(
        self, kind: ControlType, producer_id: ProducerId, epoch: Epoch, coordinator_epoch: Epoch, *, bumps_epoch: bool
    ) -> Offset:
        """Ends a producer's transaction in this partition."""
        appended = self.partition.append_marker(kind, producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch)
        self.state.replay_marker(producer_id, is_commit=kind == ControlType.COMMIT)
        return appended.last_offset

    def when_committed(self) -> asyncio.Future[None] | None:
        """None when everything appended so far is durable; otherwise a future of it."""
        return self.partition.when_committed(self.partition.log.end_offset - 1)

    async def committed(self) -> None:
        commit = self.when_committed()
        if commit is not None:
            await commit


class Shards(Generic[S]):
    """All shards of one internal topic on this node, loaded when they are first asked for."""

    def __init__(
        self,
        topic: str,
        partition: Callable[[str, int], Partition],
        count: Callable[[str], int],
        make_state: Callable[[], S],
        clock: Clock,
        on_loaded: Callable[[Shard[S]], None],
        codec: int = 0,
    ) -> None:
        self.topic = topic
        self._partition = partition
        self._count = count
        self._make_state = make_state
        self._clock = clock
        self._on_loaded = on_loaded
        self._codec = codec
        self._loaded: dict[int, Shard[S]] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._unreadable: dict[int, tuple[Partition, Refused]] = {}

    def for_key(self, key: str) -> Shard[S]:
        """The shard that a group id or transactional id belongs to; Refused while it is not there yet."""
        count = self._count(self.topic)
        if not count:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
        return self.at(_partition_of(key, count))

    def at(self, index: int) -> Shard[S]:
        shard = self._loaded.get(index)
        if shard is not None and shard.is_current:
            return shard
        try:
            partition = self._partition(self.topic, index)
        except Refused as refusal:
            if refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise Refused(ErrorCode.NOT_COORDINATOR, refusal.text) from refusal
            raise
        if index in self._unreadable and self._unreadable[index][0] is partition:
            raise self._unreadable[index][1]
        if index not in self._loading:
            shard = Shard(partition, self._make_state(), self._clock, self._codec)
            if partition.log.size_bytes <= _AT_ONCE_BYTES:
                try:
                    for _ in _replay(shard):
                        pass
                except CorruptSegment as damage:
                    raise self._give_up(partition, damage) from damage
                self._finish(index, shard)
                return shard
            self._loading[index] = asyncio.ensure_future(self._load(index, shard))
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is being loaded")

    async def _load(self, index: int, shard: Shard[S]) -> None:
        try:
            for _ in _replay(shard):
                await asyncio.sleep(0)
            self._finish(index, shard)
        except CorruptSegment as damage:
            self._give_up(shard.partition, damage)
        finally:
            del self._loading[index]

    def _give_up(self, partition: Partition, damage: CorruptSegment) -> Refused:
        """Half a state is none: what lives in this partition is not served, the others go on."""
        logger.error("%s-%d is not served: %s", self.topic, partition.index, damage)
        refusal = Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(damage))
        self._unreadable[partition.index] = (partition, refusal)
        return refusal

    def _finish(self, index: int, shard: Shard[S]) -> None:
        self._loaded[index] = shard
        self._on_loaded(shard)

    def load_all(self) -> None:
        """At start: what was left unfinished must go on without anyone asking."""
        for index in range(self._count(self.topic)):
            try:
                if self._partition(self.topic, index).log.segments:
                    self.at(index)
            except Refused:
                pass  # it is being loaded, or offline, or damaged, which has been logged

    def loaded(self) -> list[Shard[S]]:
        return list(self._loaded.values())

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    async def close(self) -> None:
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)


def _replay(shard: Shard[S]) -> Iterable[None]:
    """Replays the log of a shard, batch by batch, giving way after each. Compaction may swap segments meanwhile: those
    that were there at the beginning stay readable, and say the same."""
    segments = list(shard.partition.log.segments)
    for segment in segments:
        segment.file.pin()
    try:
        for segment in segments:
            for _, header, batch in segment.batches():
                replay_batch(shard.state, header, batch)
                yield
    finally:
        for segment in segments:
            segment.file.unpin()


def replay_batch(state: State, header: BatchHeader, batch: memoryview) -> None:
    if header.is_control:
        marker = read_control(batch, header)
        if marker is not None:
            state.replay_marker(header.producer_id, is_commit=marker.kind == ControlType.COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    for record in read_records(batch, header):
        state.replay(record, producer_id)
