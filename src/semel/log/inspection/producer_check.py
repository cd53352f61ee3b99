"""Compares producer snapshots and windows with a replay of the log up to their offset.

A replay knows only what is still in the log: retention takes the oldest batches, compaction takes some in between. So
what a snapshot says of those cannot be judged, and is not; all the rest must be the same. Times are not compared: a
node counts a producer's silence by its own clock.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.log.inspection.files import PartitionFiles
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.producer_files import WindowFile, read_snapshot_file, read_window_file
from semel.log.producers import NO_OFFSET, NO_SEQUENCE, Batch, Entry, Producers
from semel.log.snapshots import SNAPSHOT_SUFFIX, WINDOW_SUFFIX
from semel.log.types import Offset

MayBeGone = Callable[[Offset], bool]
_NOTHING = WindowFile({}, None)


class ProducerCheck:
    """Call `reach` before each batch, and once at the end of the log."""

    def __init__(
        self,
        partition: PartitionFiles,
        producers: Producers,
        may_be_gone: MayBeGone,
        active_base: Offset,
        findings: Findings,
    ) -> None:
        self._partition = partition
        self._producers = producers
        # Whether a batch with this offset may have stood in the log once, and be gone for a good reason.
        self._may_be_gone = may_be_gone
        self._findings = findings
        self.offsets = partition.offsets(SNAPSHOT_SUFFIX)
        self._windows = set(partition.offsets(WINDOW_SUFFIX))
        # The next start begins with one of these: at the end of the log, or at the begin of the active segment.
        self._used = {max(self.offsets, default=0), max((o for o in self.offsets if o <= active_base), default=0)}
        self._next = 0
        self._first: Offset | None = None
        # From this offset on the log cannot be followed.
        self.blind_from: Offset | None = None
        self._not_compared = 0
        for offset in sorted(self._windows - set(self.offsets)):
            self._findings.add(Kind.LEFT_OVER, partition.path(offset, WINDOW_SUFFIX), "a window without its snapshot")

    @property
    def next_offset(self) -> Offset:
        """The offset of the next snapshot to compare."""
        return self.offsets[self._next] if self._next < len(self.offsets) else 1 << 63

    def begin(self, first: Offset) -> None:
        """The log begins here: what was before can only be read for its form."""
        self._first = first

    def reach(self, offset: Offset) -> None:
        """All batches below `offset` have been replayed."""
        while self.next_offset <= offset:
            snapshot = self.next_offset
            self._next += 1
            self._check(snapshot)

    def finish(self, end_offset: Offset) -> None:
        """Snapshots beyond the end: the log is shorter than it was."""
        self.reach(end_offset)
        while self.next_offset < 1 << 63:
            offset = self.next_offset
            self._next += 1
            path = self._partition.path(offset, SNAPSHOT_SUFFIX)
            if self.blind_from is None:
                what = f"the log ends at offset {end_offset}, but once it went up to {offset}"
                self._findings.add(Kind.SHORT_LOG, path, what, offset=end_offset)
            self._read(offset)
        if self._not_compared:
            what = (
                f"{self._not_compared} producer snapshots are not compared with the log, which cannot be followed from "
            )
            what += f"offset {self.blind_from} on"
            self._findings.add(Kind.NOT_COMPARED, self._partition.directory, what, offset=self.blind_from)

    def _check(self, offset: Offset) -> None:
        read = self._read(offset)
        if read is None or self._first is None or offset < self._first:
            return
        path = self._partition.path(offset, SNAPSHOT_SUFFIX)
        if self.blind_from is not None:
            self._not_compared += 1
            return
        entries, window = read
        forgotten = {entry.producer_id for entry in self._producers.entries()}
        for entry in entries:
            forgotten.discard(entry.producer_id)
            problem = self._wrong_with(entry, offset)
            if problem is not None:
                self._findings.add(Kind.WRONG_SNAPSHOT, path, problem, offset=offset)
            elif entry.producer_id in window.older:
                self._check_window(offset, entry, window.older[entry.producer_id])
        self._check_forgotten(path, offset, forgotten)

    def _read(self, offset: Offset) -> tuple[list[Entry], WindowFile] | None:
        path = self._partition.path(offset, SNAPSHOT_SUFFIX)
        data = self._partition.read(offset, SNAPSHOT_SUFFIX)
        if data is None:
            self._findings.add(Kind.VANISHED, path, "it was removed meanwhile", offset=offset)
            return None
        snapshot = read_snapshot_file(data)
        if snapshot.problem is not None:
            self._findings.add(Kind.BAD_SNAPSHOT, path, snapshot.problem, offset=offset)
        window = self._read_window(offset)
        return None if snapshot.problem is not None else (snapshot.entries, window)

    def _read_window(self, offset: Offset) -> WindowFile:
        path = self._partition.path(offset, WINDOW_SUFFIX)
        data = self._partition.read(offset, WINDOW_SUFFIX)
        if data is None:
            if self._windows:  # Kafka writes none
                kind = Kind.BAD_WINDOW if offset in self._used else Kind.LEFT_OVER
                self._findings.add(kind, path, "a snapshot without its window", offset=offset)
            return _NOTHING
        window = read_window_file(data)
        if window.problem is not None:
            self._findings.add(Kind.BAD_WINDOW, path, window.problem, offset=offset)
            return _NOTHING
        return window

    def _wrong_with(self, entry: Entry, offset: Offset) -> str | None:
        who = f"producer {entry.producer_id}"
        if max(entry.last_offset, entry.transaction_first_offset) >= offset:
            return f"{who} is said to have written offset {entry.last_offset}, which comes after the snapshot"
        known = self._producers.entry(entry.producer_id)
        if known is None:
            if self._may_be_gone(max(entry.last_offset, 0)):
                return None
            return f"{who} is said to have written offset {entry.last_offset}, but the log has nothing of it"
        for name, said, replayed in (
            ("epoch", entry.epoch, known.epoch),
            ("last sequence", entry.last_sequence, known.last_sequence),
            ("last offset", entry.last_offset, known.last_offset),
            ("offset delta", entry.offset_delta, known.offset_delta),
            ("coordinator epoch", entry.coordinator_epoch, known.coordinator_epoch),
            ("first offset of its transaction", entry.transaction_first_offset, known.transaction_first_offset),
        ):
            if said != replayed and not self._may_differ(name, entry, known):
                return f"{who}: {name} is {said} in it, {replayed} in the log"
        return None

    def _may_differ(self, name: str, entry: Entry, known: Entry) -> bool:
        """When a batch or marker that the snapshot knew of may be gone from the log."""
        if name == "first offset of its transaction":
            began, seen = entry.transaction_first_offset, known.transaction_first_offset
            return began != NO_OFFSET and (seen == NO_OFFSET or began < seen) and self._may_be_gone(began)
        if name == "coordinator epoch":
            return entry.coordinator_epoch > known.coordinator_epoch and self._may_be_gone(0)
        # A newer batch or a marker that raised the epoch was there, and all that is left of the producer is older.
        if entry.last_offset == NO_OFFSET:
            return entry.epoch > known.epoch and self._may_be_gone(known.last_offset + 1)
        return entry.last_offset > known.last_offset and self._may_be_gone(entry.last_offset)

    def _check_window(self, offset: Offset, entry: Entry, older: list[Batch]) -> None:
        replayed = self._producers.window(entry.producer_id)[1:] if entry.last_sequence != NO_SEQUENCE else []
        for number, batch in enumerate(older):
            if number < len(replayed) and replayed[number] == batch:
                continue
            if self._may_be_gone(batch.last_offset):
                return
            if number >= len(replayed):
                what = f"producer {entry.producer_id} is said to have written offset {batch.last_offset}"
                what += ", but the log has nothing of it"
            else:
                found = replayed[number]
                what = f"producer {entry.producer_id}: sequences {batch.first_sequence} to {batch.last_sequence} "
                what += f"at offset {batch.first_offset} in it, "
                what += f"{found.first_sequence} to {found.last_sequence} at {found.first_offset} in the log"
            path = self._partition.path(offset, WINDOW_SUFFIX)
            self._findings.add(Kind.WRONG_WINDOW, path, what, offset=offset)
            return

    def _check_forgotten(self, path: str, offset: Offset, forgotten: set[int]) -> None:
        """Only a producer without an open transaction is ever forgotten."""
        for producer_id in sorted(forgotten):
            known = self._producers.entry(producer_id)
            if known is not None and known.transaction_first_offset != NO_OFFSET:
                what = f"producer {producer_id} is not in it, but has a transaction open since offset "
                what += str(known.transaction_first_offset)
                self._findings.add(Kind.WRONG_SNAPSHOT, path, what, offset=offset)
                forgotten.discard(producer_id)
        if forgotten:
            what = f"{len(forgotten)} producers of the log are not in it, such as {min(forgotten)}"
            self._findings.add(Kind.FORGOTTEN_PRODUCERS, path, what, offset=offset)
