"""The metadata log of a node that follows: whole batches as the leader has them, cut where it differs, restarted behind
a snapshot. It tells nobody: what is committed of it is for its owner to read.

Only the newest snapshot matters to the log: before it nothing is kept, and an empty log goes on from its end.
"""

from __future__ import annotations

import logging

from semel.host.api import Clock, Disk
from semel.log.errors import BrokenLog
from semel.log.following import append_as_follower
from semel.log.log import Log
from semel.log.truncation import restart_at, truncate_to
from semel.log.types import Epoch, Offset
from semel.quorum.snapshot_files import NO_SNAPSHOT, SnapshotId, snapshot_ids
from semel.records.batch import check_crc, whole_batches
from semel.records.errors import RecordError

logger = logging.getLogger("semel.quorum")


class ForeignBatches(Exception):
    """What a leader gave does not follow what is here, or its bytes have changed on the way: it is not taken."""


class ReplicatedLog:
    """`committed_end` is how far the leader has said that the log is committed, -1 as long as that is not known."""

    def __init__(self, disk: Disk, log: Log, clock: Clock) -> None:
        self.log = log
        self.committed_end: Offset = -1
        self._clock = clock
        ids = [one for one in snapshot_ids(disk, log.directory) if one != NO_SNAPSHOT]
        self.snapshot = ids[-1] if ids else NO_SNAPSHOT

    async def open(self) -> None:
        """Call it first: what the log holds is to follow the newest snapshot."""
        log, snapshot = self.log, self.snapshot
        if log.end_offset < snapshot.end_offset or log.start_offset > snapshot.end_offset:
            # Its last part was not durable when power was lost, or the snapshot that it went on from is gone.
            await self.restart_at(snapshot)
        else:
            # What a loss of power has brought back of what was removed: some of it, with gaps between.
            await log.retire_segments(log.removable_before(snapshot.end_offset))

    @property
    def end_offset(self) -> Offset:
        return self.log.end_offset

    @property
    def end_epoch(self) -> Epoch:
        """The epoch of the last record; that of the snapshot if nothing came after it."""
        return max(self.log.epochs.latest, self.snapshot.epoch, 0)

    def append(self, batches: memoryview, epoch: Epoch) -> None:
        """Takes the whole batches up to the first of an epoch above that of the request (KAFKA-18723). Raises
        ForeignBatches if there is one that does not follow, or is damaged; those before it are taken."""
        end, expected, last_epoch, wrong = 0, self.end_offset, self.end_epoch, None
        try:
            for position, header in whole_batches(batches):
                if header.partition_leader_epoch > epoch:
                    break
                if header.base_offset != expected or header.partition_leader_epoch < last_epoch:
                    wrong = f"offset {header.base_offset} of epoch {header.partition_leader_epoch} after {expected}"
                    break
                if not check_crc(batches, position, header):
                    wrong = f"the batch at offset {header.base_offset} is damaged"
                    break
                end, expected = position + header.size_bytes, header.next_offset
                last_epoch = header.partition_leader_epoch
        except RecordError as error:
            wrong = str(error)
        taken = 0
        while taken < end and (more := append_as_follower(self.log, batches[taken:end], epoch, self._clock.wall_ms())):
            taken += more
        if wrong is not None:
            raise ForeignBatches(wrong)

    async def truncate(self, epoch: Epoch, end_offset: Offset) -> None:
        """Takes away what the leader does not have: `epoch` is the newest that it knows of those up to ours, and ends
        there at `end_offset`."""
        epochs, end = self.log.epochs, self.end_offset
        if epoch <= 0:
            to = min(end, end_offset)
        else:
            known, known_end = epochs.end_offset_for(min(epoch, epochs.latest), end)
            to = min(known_end, end_offset) if known == epoch else known_end
        if max(to, 0) < max(self.committed_end, self.snapshot.end_offset) or to >= end:
            raise BrokenLog(
                f"{self.log.directory}: the leader's log parts from this one at offset {to}, which was committed: it "
                "has lost what it had acknowledged"
            )
        logger.info("%s: cutting offsets %d to %d, the leader has others", self.log.directory, to, end)
        await truncate_to(self.log, max(to, 0), self._clock.wall_ms())

    async def restart_at(self, snapshot: SnapshotId) -> None:
        """What the snapshot stands for is dropped, and all that came after it: it is fetched again from there."""
        await restart_at(self.log, snapshot.end_offset)
        self.snapshot = snapshot
        self.committed_end = max(self.committed_end, snapshot.end_offset) if self.committed_end >= 0 else -1

    def commit(self, high_watermark: Offset) -> bool:
        """It is known how far the log is committed. Whether that is further than before."""
        reached = min(high_watermark, self.end_offset)
        if reached <= self.committed_end:
            return False
        self.committed_end = reached
        return True
