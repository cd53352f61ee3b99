"""One epoch in which this node leads the metadata log. A new epoch is a new object: who holds an old one finds it over.

Rule 1: nothing of this epoch is committed before an offset above its first record is on a majority of the voters: the
high watermark is not known until then, and never goes back.
Rule 2: a voter has what lies below the offset it fetches from, and the leader what it has flushed. A leader that is no
voter (any more) does not count.
Rule 3: a position of another replica counts only after it was found to be part of this log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from semel.host.api import Clock, Disk, FileRange
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.log import Cold
from semel.log.truncation import finish_cut_now
from semel.log.types import Epoch, Offset
from semel.quorum.fetch_validation import Judgement, judge
from semel.quorum.raft_messages import NO_HIGH_WATERMARK
from semel.quorum.replica_table import Replica, ReplicaTable
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.snapshot_files import NO_SNAPSHOT, SnapshotId
from semel.quorum.voters import ReplicaKey, VoterSet
from semel.records.batch import read_header
from semel.wire.errors import ErrorCode


class NotLeading(Exception):
    """This node does not lead the metadata log, or not any more in the epoch that was meant."""

    def __init__(self, epoch: Epoch) -> None:
        super().__init__(f"this node does not lead the metadata log in epoch {epoch} any more")
        self.epoch = epoch


class SnapshotPiece(NamedTuple):
    """Of a file of so many bytes; `records` is released by who sends it."""

    size_bytes: int
    records: FileRange


def committed_by_majority(ends: Iterable[Offset]) -> Offset:
    """How far a majority has the log, if each voter has what lies below its number."""
    descending = sorted(ends, reverse=True)
    return descending[len(descending) // 2]


def _ignore() -> None:
    """Nobody wants to know."""


def _ignore_replica(replica: ReplicaKey) -> None:
    """Nobody counts them."""


class Term:
    """Made by the replica when it is elected; `end` is its to call as well. Everyone else appends, waits and reads."""

    def __init__(
        self,
        key: ReplicaKey,
        epoch: Epoch,
        log: ReplicatedLog,
        voters: VoterSet,
        group_commit: GroupCommit,
        disk: Disk,
        clock: Clock,
        *,
        is_alone: bool = False,
    ) -> None:
        """`is_alone`: nobody else can read this log, so what is flushed is committed, and no record says who leads."""
        finish_cut_now(log.log)  # which it may have begun as a follower
        self.key = key
        self.epoch = epoch
        self.epoch_start: Offset = -1 if is_alone else log.end_offset
        """Where the first record of this epoch stands, which says who leads."""
        self.is_over = False
        self.voters = voters
        self.committed: Callable[[], None] = _ignore
        """Called when the high watermark has moved, before those who wait are told."""
        self.resign: Callable[[], None] = _ignore
        """Asks for the end of this term, because nothing can be decided in it any more."""
        self.heard: Callable[[ReplicaKey], None] = _ignore_replica
        """Called with each replica that fetches."""
        self._log = log
        self._group_commit = group_commit
        self._disk = disk
        self._clock = clock
        self._replicas = ReplicaTable()
        self._waiting: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._watchers: dict[object, Callable[[], None]] = {}
        if is_alone:
            log.log.epochs.assign(epoch, log.end_offset)  # else the first record does, which is written at once
        group_commit.told = self.advance

    # -- writing

    @property
    def next_offset(self) -> Offset:
        """Where the next record will stand."""
        return self._log.end_offset

    @property
    def high_watermark(self) -> Offset:
        """As far as committed; -1 until something of this epoch is."""
        committed = self._log.committed_end
        return committed if committed > self.epoch_start else NO_HIGH_WATERMARK

    def append(self, batch: bytearray) -> Offset:
        """Writes one batch; returns the offset of its last record. It counts when `when_committed` says so. Raises
        NotLeading when the term is over, and Refused when the disk has no room."""
        if self.is_over:
            raise NotLeading(self.epoch)
        log = self._log.log
        try:
            appended = log.append(batch, read_header(batch), self.epoch, self._clock.wall_ms())
        except Refused as refusal:
            if isinstance(refusal.__cause__, OSError):
                self._disk_refused(refusal.__cause__)
            raise
        self._group_commit.flush_if_due()
        self._wake()
        return appended.last_offset

    def _disk_refused(self, error: OSError) -> None:
        """Tells of it, and watches for the next write that is taken."""
        log, end_offset, loop = self._log.log, self.next_offset, asyncio.get_running_loop()
        log.trouble.refused(log.directory, error, loop)

        def look() -> None:
            if self.is_over or self._log.committed_end > end_offset:
                self.unwatch(log.trouble)
                if not self.is_over:
                    log.trouble.taken(loop)

        self.watch(log.trouble, look)

    def when_committed(self, offset: Offset) -> asyncio.Future[None] | None:
        """None when the record at `offset` is committed; else a future, which fails with NotLeading when the term ends
        first: then nobody knows whether it ever will be."""
        if offset < self.high_watermark:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_over:
            _fail(future, self.epoch)
        elif not self._waiting or self._waiting[-1][0] <= offset:
            self._waiting.append((offset, future))
        else:  # it asks late, of what was written before others
            self._waiting = deque(sorted([*self._waiting, (offset, future)], key=lambda one: one[0]))
        return future

    def advance(self) -> None:
        """More is flushed here, a voter has told of more, or the voters are others: moves the high watermark."""
        if self.is_over or not len(self.voters):
            return
        reached = committed_by_majority(self._end_of(voter.key) for voter in self.voters)
        if reached <= self.epoch_start or not self._log.commit(reached):
            return
        self.committed()
        while self._waiting and self._waiting[0][0] < reached:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)
        self._wake()

    def _end_of(self, voter: ReplicaKey) -> Offset:
        if voter.may_be(self.key):
            return self._log.log.flushed_offset
        replica = self._replicas.of(voter)
        return -1 if replica is None else replica.end_offset

    def watch(self, watcher: object, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever something is appended or committed, and when the term is over."""
        self._watchers[watcher] = wake

    def unwatch(self, watcher: object) -> None:
        self._watchers.pop(watcher, None)

    def _wake(self) -> None:
        for wake in list(self._watchers.values()):
            wake()

    def end(self) -> None:
        """Another epoch has begun, or this node stops. Who waits is told."""
        if self.is_over:
            return
        self.is_over = True
        while self._waiting:
            _fail(self._waiting.popleft()[1], self.epoch)
        self._wake()

    # -- what those who follow are given

    @property
    def log_start(self) -> Offset:
        return self._log.log.start_offset

    @property
    def log_end(self) -> Offset:
        return self._log.end_offset

    def check_epoch(self, epoch: Epoch) -> None:
        """Raises Refused for a follower that does not know of this epoch, or of a newer one."""
        if epoch < self.epoch:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} is over, it is {self.epoch} now")
        if epoch > self.epoch:
            raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {epoch} is not known here yet")
        if self.is_over:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the term of epoch {epoch} is over")

    def judge(self, offset: Offset, last_epoch: Epoch) -> Judgement:
        log, snapshots = self._log.log, self.snapshots()
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
        self.heard(replica)
        if replica in self.voters and offset > self._log.committed_end:
            self.advance()

    def replicas(self) -> dict[ReplicaKey, Replica]:
        """Those that follow."""
        return self._replicas.known(self._clock.monotonic_ms())

    def ends_of_voters(self) -> dict[ReplicaKey, Offset]:
        """How far each voter has come, -1 for those of which nothing is known."""
        return {voter.key: self._end_of(voter.key) for voter in self.voters}

    def read(self, offset: Offset, max_bytes: int, *, warmed: bool) -> FileRange | Cold | None:
        """What follows `offset`, committed or not: at least a batch, if there is one."""
        log = self._log.log
        return log.read(offset, max_bytes, log.end_offset, at_least_one=True, warmed=warmed)

    def snapshots(self) -> list[SnapshotId]:
        """Those that can be sent, oldest first."""
        return [] if self._log.snapshot == NO_SNAPSHOT else [self._log.snapshot]

    async def snapshot_piece(self, snapshot: SnapshotId, position: int, max_bytes: int) -> SnapshotPiece:
        """A piece of the file; raises Refused when it is not there, or not so long."""
        if snapshot not in self.snapshots():
            raise Refused(ErrorCode.SNAPSHOT_NOT_FOUND, f"there is no snapshot {snapshot.name}")
        file = self._disk.open(f"{self._log.log.directory}/{snapshot.name}")
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


def _fail(future: asyncio.Future[None], epoch: Epoch) -> None:
    if not future.done():
        future.set_exception(NotLeading(epoch))
        future.exception()  # whoever waited may have gone, and then it is no error that nobody hears of it
