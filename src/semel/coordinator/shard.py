"""One partition of an internal topic and the state that its records make, for one term of leadership.

A coordinator decides on the state, appends records here, and the state changes by replaying them: the same replay as
after a restart, so memory holds what the topic holds and nothing else. An append that is refused changes nothing. An
answer, also one that only reads, waits for `committed`: nobody is told of what a power cut or the next leader could
take back, and many operations share one flush.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from semel.coordinator.connections import Connections
from semel.coordinator.errors import as_coordinator
from semel.coordinator.work import Steps
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.log.log import Cold
from semel.log.types import Epoch, Offset, ProducerId
from semel.records.batch import BatchHeader
from semel.records.build import build_batch
from semel.records.control import ControlType, read_control
from semel.records.read import Record, read_records
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode

NO_PRODUCER = -1
# How long a client waits at most until what it was answered with is on enough replicas.
LONGEST_WAIT_MS = 10_000
# How many records are replayed, or entries dropped, in one step of a longer work.
RECORDS_AT_ONCE = 32
# A log is read in blocks of a MB. So much of it is brought into memory at a time, as long before it is needed.
_WARM_BYTES, _MARGIN_BYTES = 8 << 20, 2 << 20


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

    def dropped(self) -> Iterator[None]:
        """Forgets everything, step by step: to free a large state at once takes as long as to replay much of it."""


S = TypeVar("S", bound=State)


class Shard(Generic[S]):
    """The coordinator's side of one term of a partition."""

    def __init__(
        self, partition: Partition, state: S, clock: Clock, codec: int = 0, connections: Connections | None = None
    ) -> None:
        self.partition = partition
        # The coordinator epoch: the leader epoch of the partition when it was loaded.
        self.epoch: Epoch = partition.leader_epoch
        self.state = state
        self.connections = Connections() if connections is None else connections
        self._clock = clock
        self._codec = codec

    @property
    def is_current(self) -> bool:
        """Whether this node has led the partition ever since it was loaded. If not, another coordinator may have
        written to it meanwhile: what is known here may be old."""
        return not self.partition.is_closed and self.partition.leader_epoch == self.epoch

    def check_current(self) -> None:
        if self.partition.is_closed or self.partition.leader_epoch != self.epoch:
            index, topic = self.partition.index, getattr(self.partition, "topic", "")
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"leader epoch {self.epoch} of {topic}-{index} is over")

    def append(self, entries: Iterable[Entry], *, producer: tuple[ProducerId, Epoch] | None = None) -> None:
        """Writes one decision as one batch and replays it. `producer` makes it part of that producer's transaction."""
        entries = list(entries)
        if not entries:
            return
        self.check_current()
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
        self.check_current()
        return self.partition.append_record(entry.key, entry.value)

    def append_marker(
        self, kind: ControlType, producer_id: ProducerId, epoch: Epoch, coordinator_epoch: Epoch, *, bumps_epoch: bool
    ) -> Offset:
        """Ends a producer's transaction in this partition."""
        self.check_current()
        appended = self.partition.append_marker(kind, producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch)
        self.state.replay_marker(producer_id, is_commit=kind == ControlType.COMMIT)
        return appended.last_offset

    # -- what is committed

    def when_committed(self) -> asyncio.Future[None] | None:
        """None when everything appended so far is committed; otherwise a future of it."""
        return self.when_committed_at(self.partition.log.end_offset - 1)

    def when_committed_at(self, offset: Offset) -> asyncio.Future[None] | None:
        """The same for everything up to an offset. Nobody waits for ever for replicas that do not come. What was told
        to have failed may be committed later all the same; whoever sees it then waits for that commit, as always."""
        return self.partition.when_committed(offset, LONGEST_WAIT_MS)

    def when_decided(self) -> asyncio.Future[None] | None:
        """As `when_committed`, for work of the node itself: it waits as long as the term lasts."""
        return self.partition.when_committed(self.partition.log.end_offset - 1)

    async def committed(self) -> None:
        """Returns when everything appended so far is committed. Raises Refused, in the words of a coordinator, when
        that takes too long or is not known: then nothing of it may be told as done."""
        try:
            self.check_current()
            commit = self.when_committed()
            if commit is not None:
                await commit
        except Refused as refusal:
            raise as_coordinator(refusal) from refusal


def emptied(*tables: dict[Any, Any]) -> Iterator[None]:
    """Takes everything out of tables, in small steps."""
    for table in tables:
        while table:
            for _ in range(min(RECORDS_AT_ONCE, len(table))):
                table.popitem()
            yield


def replayed(shard: Shard[S]) -> Steps:
    """Replays the log of a shard up to its end, in small steps. Compaction may swap segments meanwhile: those that were
    there at the beginning stay readable, and say the same. Nobody writes: only a loaded shard does.

    Up to the end, not to the high watermark: what is above it may be committed already; answers wait for that."""
    segments = list(shard.partition.log.segments)
    for segment in segments:
        segment.file.pin()
    try:
        for segment in segments:
            batches = segment.batches()
            warm_to = 0
            position = 0
            while True:
                if position + _MARGIN_BYTES >= warm_to < segment.size_bytes:
                    ahead = Cold(segment.file, warm_to, min(_WARM_BYTES, segment.size_bytes - warm_to))
                    warm_to += ahead.length
                    if not segment.file.is_warm(ahead.position, ahead.length):
                        yield ahead
                found = next(batches, None)
                if found is None:
                    break
                position, header, batch = found
                for _ in replay_batch_in_steps(shard.state, header, batch):
                    yield None
                yield None
    finally:
        for segment in segments:
            segment.file.unpin()


def replay_batch(state: State, header: BatchHeader, batch: memoryview) -> None:
    for _ in replay_batch_in_steps(state, header, batch):
        pass


def replay_batch_in_steps(state: State, header: BatchHeader, batch: memoryview) -> Iterator[None]:
    if header.is_control:
        marker = read_control(batch, header)
        if marker is not None:
            state.replay_marker(header.producer_id, is_commit=marker.kind == ControlType.COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    for number, record in enumerate(read_records(batch, header), 1):
        state.replay(record, producer_id)
        if number % RECORDS_AT_ONCE == 0:
            yield
