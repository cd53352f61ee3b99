"""What the leader of the metadata log gives to those who follow it, and what it knows of them.

Followers are given records before they are committed, and the high watermark with them. That is not known until a
record of this leader's own epoch is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from semel.controller.metadata_log import MetadataLog
from semel.host.api import Clock, Disk, FileRange
from semel.log.errors import Refused
from semel.log.log import Cold
from semel.log.types import Epoch, Offset
from semel.quorum.fetch_validation import Judgement, judge
from semel.quorum.raft_messages import NO_HIGH_WATERMARK
from semel.quorum.replica_table import Replica, ReplicaTable
from semel.quorum.snapshot_files import NO_SNAPSHOT, SnapshotId
from semel.quorum.voters import ReplicaKey
from semel.wire.errors import ErrorCode


class SnapshotPiece(NamedTuple):
    """Of a file of so many bytes; `records` is released by who sends it."""

    size_bytes: int
    records: FileRange


class MetadataLeader:
    """One epoch of leading, of a controller that is the only voter."""

    def __init__(self, node_id: int, directory_id: bytes, metadata: MetadataLog, disk: Disk, clock: Clock) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self._metadata = metadata
        self._disk = disk
        self._clock = clock
        self._replicas = ReplicaTable()

    @property
    def epoch(self) -> Epoch:
        return self._metadata.epoch

    @property
    def log_start(self) -> Offset:
        return self._metadata.log.start_offset

    @property
    def log_end(self) -> Offset:
        return self._metadata.log.end_offset

    @property
    def high_watermark(self) -> Offset:
        committed = self._metadata.log.high_watermark
        return committed if committed > self._metadata.epoch_start else NO_HIGH_WATERMARK

    def watch(self, watcher: object, wake: Callable[[], None]) -> None:
        """Calls `wake` when there is more to give, or to tell."""
        self._metadata.watch(watcher, wake)

    def unwatch(self, watcher: object) -> None:
        self._metadata.unwatch(watcher)

    def check_epoch(self, epoch: Epoch) -> None:
        """Raises Refused for a follower that does not know of this epoch, or of a newer one."""
        if self._metadata.is_closed:
            raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, "this controller is stopping")
        if epoch < self.epoch:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} is over, it is {self.epoch} now")
        if epoch > self.epoch:
            raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {epoch} is not known here yet")

    def judge(self, offset: Offset, last_epoch: Epoch) -> Judgement:
        log, snapshots = self._metadata.log, self.snapshots()
        return judge(
            offset,
            last_epoch,
            log_start=log.start_offset,
            log_end=log.end_offset,
            epochs=log.epochs,
            newest_snapshot=snapshots[-1] if snapshots else None,
            snapshot_at_start=next((one for one in snapshots if one.end_offset == log.start_offset), None),
        )

    def fetched(self, replica: ReplicaKey, offset: Offset) -> None:
        """A replica has everything below `offset`; `judge` has found it to be valid."""
        wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        self._replicas.fetched(replica, offset, self.log_end, wall_ms, monotonic_ms)

    def replicas(self) -> dict[ReplicaKey, Replica]:
        """Those that follow."""
        return self._replicas.known(self._clock.monotonic_ms())

    def read(self, offset: Offset, max_bytes: int, *, warmed: bool) -> FileRange | Cold | None:
        """What follows `offset`, committed or not: at least a batch, if there is one."""
        log = self._metadata.log
        return log.read(offset, max_bytes, log.end_offset, at_least_one=True, warmed=warmed)

    # -- snapshots

    def snapshots(self) -> list[SnapshotId]:
        """Those that can be sent, oldest first."""
        return [one for one in self._metadata.snapshots if one != NO_SNAPSHOT]

    async def snapshot_piece(self, snapshot: SnapshotId, position: int, max_bytes: int) -> SnapshotPiece:
        """A piece of the file; raises Refused when it is not there, or not so long."""
        if snapshot not in self.snapshots():
            raise Refused(ErrorCode.SNAPSHOT_NOT_FOUND, f"there is no snapshot {snapshot.name}")
        file = self._disk.open(f"{self._metadata.log.directory}/{snapshot.name}")
        try:
            size_bytes = file.size()
            if not 0 <= position < size_bytes:
                raise Refused(
                    ErrorCode.POSITION_OUT_OF_RANGE, f"position {position} of {snapshot.name}, which has {size_bytes}"
                )
            length = min(max(max_bytes, 1), size_bytes - position)
            if not file.is_warm(position, length):
                await file.warm(position, length)
            return SnapshotPiece(size_bytes, FileRange(file, position, length))
        finally:
            file.close()  # the range keeps it readable
