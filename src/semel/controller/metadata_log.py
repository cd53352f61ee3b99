"""The metadata log on the controller that leads it: append, commit, replay, tell.

Records of one decision go into one batch, so that a crash leaves all of them or none. `decided` includes what is not
durable yet, and further decisions are made on it; `committed` is what the rest of the node sees. Many decisions share
one flush. What other nodes are given of this log is told by `MetadataLeader`.

Each start is an epoch of its own. In a cluster, where others may have read what this node did not keep, the epoch is
on disk (`quorum-state`) before anything is written in it, and its first record says who leads. A node alone has
neither: nobody else reads its log, and older programs can.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from struct import Struct

from semel.controller.image import MetadataImage
from semel.controller.levels import versioned
from semel.controller.metadata_transactions import HeldRecords
from semel.controller.snapshot import encode_snapshot, newest_snapshot
from semel.host.api import Clock, Disk
from semel.log.errors import BrokenLog
from semel.log.log import Log
from semel.log.types import Epoch, Offset
from semel.quorum.metadata_topic import TOPIC, TOPIC_ID
from semel.quorum.snapshot_files import SnapshotId, remove_unfinished, snapshot_ids
from semel.quorum.state_file import QuorumState, read_state, write_state_now
from semel.records.build import build_batch
from semel.records.read import record_values
from semel.replication.partition import Partition
from semel.wire.codec import encode
from semel.wire.spec.metadata_records import (
    AbortTransactionRecord,
    MetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from semel.wire.spec.quorum_records import LEADER_CHANGE, LeaderChangeMessage, QuorumVoter

logger = logging.getLogger("semel.controller")

_CONTROL_KEY = Struct(">hh")
_SNAPSHOT_AFTER_BYTES = 20 << 20

Listener = Callable[[Sequence[MetadataRecord]], None]


class MetadataLog:
    """Opened by the node that holds it; `write` is the only way to change cluster metadata."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        log: Log,
        on_broken: Callable[[BaseException], None],
        listener: Listener,
        *,
        leads_as: int | None = None,
    ) -> None:
        """`leads_as`: the id of this node in a cluster, whose only voter it is; None if it is alone."""
        self._disk = disk
        self._clock = clock
        self._listener = listener
        self.decided = MetadataImage()
        self.committed = MetadataImage()
        self._held = HeldRecords()
        start = 0
        remove_unfinished(disk, log.directory)
        snapshot = newest_snapshot(disk, log.directory)
        if snapshot is not None:
            start, records = snapshot
            self._load(records)
        if log.start_offset > start:
            # Half a history would forget topics and give out producer ids a second time.
            raise BrokenLog(f"{log.directory} begins at offset {log.start_offset}, and no whole snapshot says what was")
        for segment in log.segments:
            for _, header, batch in segment.batches():
                if header.base_offset >= start and not header.is_control:
                    values = record_values(batch, header)
                    self._load(decode_metadata_record(value) for value in values if value is not None)
        self.snapshots = snapshot_ids(disk, log.directory)
        """Those that are there, oldest first."""
        self.epoch = self._begin_epoch(log, leads_as)
        self.log = log
        self._partition = Partition(TOPIC, TOPIC_ID, 0, log, self.epoch, clock, on_broken)
        self._uncommitted: deque[tuple[Offset, Sequence[MetadataRecord], asyncio.Future[None]]] = deque()
        self._watchers: dict[object, Callable[[], None]] = {}
        self._bytes_since_snapshot = log.size_bytes
        self.snapshot_after_bytes = _SNAPSHOT_AFTER_BYTES
        self._partition.watch(self, self._commit)
        self.epoch_start = log.end_offset
        if leads_as is not None:
            self._write_leader_change(leads_as)
        if self._held.is_open:
            self.write([AbortTransactionRecord(reason="the controller that began it has ended")])

    def _load(self, records: Iterable[MetadataRecord]) -> None:
        for record in self._held.admit(records):
            self.decided.replay(record)
            self.committed.replay(copy.copy(record))

    def _begin_epoch(self, log: Log, leads_as: int | None) -> Epoch:
        newest = max(log.epochs.latest, self.snapshots[-1].epoch if self.snapshots else -1)
        state = read_state(self._disk, log.directory)
        if state is not None:
            newest = max(newest, state.epoch)
        if leads_as is not None:
            newest = max(newest, 0)  # in which nobody leads
            self._disk.make_dirs(log.directory)
            write_state_now(self._disk, log.directory, QuorumState(newest + 1, leads_as, leads_as, (leads_as,)))
            self._disk.sync_parents_now(log.directory)
        return newest + 1

    def _write_leader_change(self, node_id: int) -> None:
        voters = [QuorumVoter(voter_id=node_id)]
        change = LeaderChangeMessage(version=0, leader_id=node_id, voters=voters, granting_voters=voters)
        batch = build_batch(
            [encode(change, 0)],
            keys=[_CONTROL_KEY.pack(0, LEADER_CHANGE)],
            base_timestamp_ms=self._clock.wall_ms(),
            control=True,
        )
        self._partition.append_prepared(batch)

    @property
    def next_offset(self) -> Offset:
        return self._partition.log.end_offset

    def write(self, records: Sequence[MetadataRecord]) -> asyncio.Future[None]:
        """Appends one decision. The future is done when it is durable and everyone here has been told."""
        written = list(versioned(records, self.decided.metadata_version))
        records = [record for record, _ in written]
        values: list[bytes | None] = [encode_metadata_record(*one) for one in written]
        batch = build_batch(values, base_timestamp_ms=self._clock.wall_ms())
        self._bytes_since_snapshot += len(batch)
        appended = self._partition.append_prepared(batch)
        for record in records:
            self.decided.replay(record)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._uncommitted.append((appended.last_offset, records, future))
        self._commit()
        self._wake()
        return future

    def watch(self, watcher: object, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever something is appended or committed, and when the log is closed."""
        self._watchers[watcher] = wake

    def unwatch(self, watcher: object) -> None:
        self._watchers.pop(watcher, None)

    def _wake(self) -> None:
        for wake in list(self._watchers.values()):
            wake()

    def when_committed(self) -> asyncio.Future[None] | None:
        """None when everything decided so far is committed; otherwise a future of it."""
        return self._partition.when_committed(self.next_offset - 1)

    def _commit(self) -> None:
        high_watermark = self._partition.log.high_watermark
        while self._uncommitted and self._uncommitted[0][0] < high_watermark:
            _, records, future = self._uncommitted.popleft()
            counting = self._held.admit(records)
            for record in counting:
                self.committed.replay(copy.copy(record))
            self._listener(counting)
            if not future.done():
                future.set_result(None)
        self._wake()

    @property
    def wants_snapshot(self) -> bool:
        return self._bytes_since_snapshot >= self.snapshot_after_bytes and not self._held.is_open

    async def snapshot(self) -> None:
        """Writes the committed image down and drops the part of the log that it stands for."""
        log = self._partition.log
        end_offset = log.high_watermark
        snapshot = SnapshotId(end_offset, max(log.epochs.epoch_at(end_offset - 1), 0))
        image = encode_snapshot(self.committed, snapshot.epoch, self._clock.wall_ms())
        old = self.snapshots
        await self._disk.replace_file(f"{log.directory}/{snapshot.name}", image)
        self._bytes_since_snapshot = 0
        log.roll()
        if log.needs_settling:
            await log.settle()
        self.snapshots = [snapshot]
        await log.retire_segments(log.removable_before(end_offset))
        for stale in old:
            if stale != snapshot:
                self._disk.remove(f"{log.directory}/{stale.name}")
        logger.info("metadata snapshot at offset %d", end_offset)

    @property
    def is_closed(self) -> bool:
        return self._partition.is_closed

    async def close(self) -> None:
        await self._partition.close()
        self._wake()
