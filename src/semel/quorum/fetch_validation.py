"""What a leader of the metadata log answers to a replica that has fetched up to some offset: a pure function.

The order of the questions is Kafka's. A position that is not part of this log never counts, and is given no records.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from semel.log.epochs import LeaderEpochs
from semel.log.types import Epoch, Offset
from semel.quorum.snapshot_files import SnapshotId


class Verdict(Enum):
    VALID = auto()
    DIVERGING = auto()
    NEEDS_SNAPSHOT = auto()


class Judgement(NamedTuple):
    """Of a position; with `DIVERGING` the epoch in which the logs part, and where it ends here."""

    verdict: Verdict
    epoch: Epoch = -1
    end_offset: Offset = -1


_VALID = Judgement(Verdict.VALID)
_NEEDS_SNAPSHOT = Judgement(Verdict.NEEDS_SNAPSHOT)


def judge(
    offset: Offset,
    last_epoch: Epoch,
    *,
    log_start: Offset,
    log_end: Offset,
    epochs: LeaderEpochs,
    newest_snapshot: SnapshotId | None,
    snapshot_at_start: SnapshotId | None,
) -> Judgement:
    """`offset` is where the replica's log ends, `last_epoch` the epoch of its last record."""
    if offset == 0 and newest_snapshot is not None:
        return _NEEDS_SNAPSHOT
    if offset == 0 and log_start == 0:
        return _VALID
    if newest_snapshot is not None:
        if offset < log_start or (snapshot_at_start is not None and last_epoch < snapshot_at_start.epoch):
            return _NEEDS_SNAPSHOT
        if offset == log_start and (snapshot_at_start is None or last_epoch != snapshot_at_start.epoch):
            return _NEEDS_SNAPSHOT
        if snapshot_at_start is not None and offset == log_start:
            return _VALID
    epoch, end_offset = epochs.end_offset_for(min(last_epoch, epochs.latest), log_end)
    if end_offset < 0:
        # Nothing here is of that epoch or an older one: all that it has is foreign to this log.
        return Judgement(Verdict.DIVERGING, epoch=0, end_offset=log_start)
    if epoch != last_epoch or end_offset < offset:
        return Judgement(Verdict.DIVERGING, epoch=epoch, end_offset=end_offset)
    return _VALID
