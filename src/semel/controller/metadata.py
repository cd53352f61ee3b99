"""The committed metadata of a node, whether it follows the metadata log or leads it: replay, tell, and write snapshots.

Records count when they are committed. They are read from this node's own log, so that a start goes on from what is
here, and decoded in slices; those of one batch become visible at once. The active controller's own decisions are at
hand and are not read again.

Rule 1: only `committed_further` and `loaded` change the image, and one task awaits them, one at a time.
Rule 2: who is elected decides when the image has all that came before the first record of its term, and not sooner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from semel.controller.image import MetadataImage
from semel.controller.metadata_term import MetadataTerm
from semel.controller.metadata_transactions import HeldRecords
from semel.controller.snapshot import decode_snapshot, encode_in_steps
from semel.host.api import Clock, Disk, FileRange
from semel.host.complaints import Complaints
from semel.log.disk_trouble import NO_SPACE
from semel.log.errors import BrokenLog, CorruptSegment
from semel.log.log import Cold
from semel.log.types import Offset
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.snapshot_files import NO_SNAPSHOT, SnapshotId, remove_unfinished, snapshot_ids
from semel.quorum.term import Term
from semel.records.batch import check_crc, whole_batches
from semel.records.errors import RecordError
from semel.records.read import record_values
from semel.rpc.slices import Slices
from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import MetadataRecord, decode_metadata_record

logger = logging.getLogger("semel.controller")

SNAPSHOT_AFTER_BYTES = 20 << 20
SNAPSHOT_AFTER_MS = 3_600_000
_READ_BYTES = 1 << 20

Listener = Callable[[Sequence[MetadataRecord]], None]


def _ignore(term: MetadataTerm | None) -> None:
    """This node has no controller."""


class Metadata:
    """`listener` is told of records after the image has changed by them, `reloaded` of an image that is another one,
    `on_term` of the term in which this node decides, and with None when that is over."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        log: ReplicatedLog,
        listener: Listener,
        reloaded: Callable[[], None],
        on_broken: Callable[[BaseException], None],
        slices: Slices,
        *,
        on_term: Callable[[MetadataTerm | None], None] = _ignore,
    ) -> None:
        self.committed = MetadataImage()
        self.next_offset: Offset = 0
        """Everything below is in the image."""
        self.term: MetadataTerm | None = None
        """In which this node decides, if it does."""
        self.snapshot_after_bytes = SNAPSHOT_AFTER_BYTES
        self.snapshot_after_ms = SNAPSHOT_AFTER_MS
        self._disk = disk
        self._clock = clock
        self._log = log
        self._listener = listener
        self._reloaded = reloaded
        self._on_broken = on_broken
        self._on_term = on_term
        self._slices = slices
        self._held = HeldRecords()
        self._epoch = 0
        self._elected: Term | None = None  # and the image may not have all that came before
        self._bytes_since_snapshot = 0
        self._snapshot_ms = clock.monotonic_ms()
        self._snapshot: asyncio.Task[None] | None = None  # that is being written
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._complaints = Complaints(logger)

    async def open(self, *, may_drop: bool) -> None:
        """What the newest whole snapshot of this node says; what follows in the log counts when it is known to be
        committed. `may_drop`: others have all of it, so that what is damaged is dropped, with the log behind it. Else
        it raises BrokenLog: half a history would forget topics and give out producer ids a second time."""
        log, directory = self._log, self._log.log.directory
        remove_unfinished(self._disk, directory)
        for snapshot in reversed(snapshot_ids(self._disk, directory)):
            if snapshot == NO_SNAPSHOT or await self._read(snapshot):
                break
            logger.error("the metadata snapshot %s is damaged", snapshot.name)
            if may_drop:
                self._disk.remove(f"{directory}/{snapshot.name}")
        else:
            snapshot = NO_SNAPSHOT
        start = log.log.start_offset
        if start > snapshot.end_offset and not may_drop:
            raise BrokenLog(f"{directory} begins at offset {start}, and no whole snapshot says what was")
        if snapshot != log.snapshot and may_drop:
            logger.error("asking the leader for the metadata from offset %d on", snapshot.end_offset)
            await log.restart_at(snapshot)
        log.snapshot = snapshot
        await log.open()

    async def _read(self, snapshot: SnapshotId) -> bool:
        """Whether the snapshot is whole: the image is what it says then."""
        image = MetadataImage()
        try:
            for record in decode_snapshot(self._disk.read_file(f"{self._log.log.directory}/{snapshot.name}")):
                image.replay(record)
                if self._slices.step():
                    await self._slices.next()
        except (RecordError, WireError, LookupError, ValueError):
            return False
        self.committed, self.next_offset, self._epoch = image, snapshot.end_offset, snapshot.epoch
        self._held = HeldRecords()
        self._bytes_since_snapshot, self._snapshot_ms = 0, self._clock.monotonic_ms()
        return True

    # -- the Owner of a replica

    def leads(self, term: Term) -> None:
        self._elected = term

    def leads_no_more(self, term: Term) -> None:
        self._elected = None
        if self.term is not None:
            self.term.end()
            self.term = None
            self._on_term(None)

    async def loaded(self, snapshot: SnapshotId) -> None:
        if not await self._read(snapshot):
            raise BrokenLog(f"the leader has sent a metadata snapshot that cannot be read: {snapshot.name}")
        self._reloaded()
        self._tell_those_who_wait()

    async def committed_further(self) -> None:
        """Takes what is committed and not in the image yet."""
        while self.next_offset < (end := self._log.committed_end):
            decision = None if self.term is None else self.term.decision_at(self.next_offset)
            if decision is not None and decision.end_offset <= end:
                self._replay(decision.records, decision.end_offset, decision.size_bytes, decision.epoch)
                if self._slices.step():
                    await self._slices.next()
            else:
                await self._read_log(end)
            if self.term is not None:
                self.term.published(self.next_offset)
        elected = self._elected
        if elected is not None and self.term is None and self.next_offset > elected.epoch_start:
            await self._begin_term(elected)
        await self._snapshot_if_due()

    async def _begin_term(self, elected: Term) -> None:
        """Nothing was decided in this term before: what is decided is what is committed."""
        decided = MetadataImage()
        await self._slices.each(decided.fill_from(self.committed))
        if self._elected is elected and not elected.is_over:
            self.term = MetadataTerm(elected, decided, self._clock, aborts=self._held.is_open)
            self._on_term(self.term)

    async def _read_log(self, end: Offset) -> None:
        log = self._log.log
        found = log.read(self.next_offset, _READ_BYTES, end, at_least_one=True)
        if isinstance(found, Cold):
            await found.file.warm(found.position, found.length)
            found = log.read(self.next_offset, _READ_BYTES, end, at_least_one=True, warmed=True)
        if not isinstance(found, FileRange):
            raise BrokenLog(f"{log.directory}: nothing can be read at offset {self.next_offset}")
        try:
            data = found.read()
        finally:
            found.release()
        for position, header in whole_batches(data):
            if header.base_offset < self.next_offset:
                continue
            if not check_crc(data, position, header):
                raise CorruptSegment(log.directory, position, header.base_offset, "a batch fails its CRC")
            batch = memoryview(data)[position : position + header.size_bytes]
            records = [] if header.is_control else await self._decoded(batch)
            self._replay(records, header.next_offset, header.size_bytes, header.partition_leader_epoch)
            if self._slices.step():
                await self._slices.next()

    def _replay(self, records: Sequence[MetadataRecord], next_offset: Offset, size_bytes: int, epoch: int) -> None:
        """One batch: everyone sees all of it, or nothing."""
        self._bytes_since_snapshot += size_bytes
        self._epoch = epoch
        try:
            counting = self._held.admit(records)
            for record in counting:
                self.committed.replay(record)
        except (LookupError, ValueError) as error:
            what = f"the metadata log says what cannot be, before offset {next_offset}: {error!r}"
            raise BrokenLog(f"{self._log.log.directory}: {what}") from error
        self.next_offset = next_offset
        if counting:
            self._listener(counting)
        self._tell_those_who_wait()

    async def _decoded(self, batch: memoryview) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        try:
            for value in record_values(batch):
                if value is not None:
                    records.append(decode_metadata_record(value))
                if self._slices.step():
                    await self._slices.next()
        except (RecordError, WireError) as error:
            raise BrokenLog(f"a record of the metadata log cannot be read: {error}") from error
        return records

    # -- who waits for something to be true of the cluster

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until the committed image says so; whoever asks sets a time limit."""
        if is_so():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((is_so, future))
        try:
            await future
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not future]

    def _tell_those_who_wait(self) -> None:
        for is_so, future in self._waiting:
            if not future.done() and is_so():
                future.set_result(None)

    # -- snapshots

    async def _snapshot_if_due(self) -> None:
        if self._held.is_open or self._snapshot is not None or not self._bytes_since_snapshot:
            return
        age_ms = self._clock.monotonic_ms() - self._snapshot_ms
        if self._bytes_since_snapshot >= self.snapshot_after_bytes or 0 < self.snapshot_after_ms <= age_ms:
            await self._begin_snapshot()

    async def _begin_snapshot(self) -> asyncio.Task[None]:
        """Of the image as it is: it is written while that goes on."""
        image, snapshot = MetadataImage(), SnapshotId(self.next_offset, self._epoch)
        await self._slices.each(image.fill_from(self.committed))
        self._bytes_since_snapshot, self._snapshot_ms = 0, self._clock.monotonic_ms()
        self._snapshot = asyncio.get_running_loop().create_task(self._write_snapshot(image, snapshot))
        self._snapshot.add_done_callback(self._snapshot_ended)
        return self._snapshot

    async def snapshot(self) -> None:
        """Writes one now. Nobody may replay meanwhile."""
        if self._snapshot is not None:
            await self._snapshot
        await (await self._begin_snapshot())

    def _snapshot_ended(self, task: asyncio.Task[None]) -> None:
        self._snapshot = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            self._complaints.say("space", logging.ERROR, "a metadata snapshot cannot be written: %s", error)
        elif error is not None:
            self._on_broken(error)

    async def _write_snapshot(self, image: MetadataImage, snapshot: SnapshotId) -> None:
        """Writes the image down and drops the part of the log that it stands for."""
        parts: list[bytes | bytearray] = []
        await self._slices.each(encode_in_steps(parts, image, snapshot.epoch, self._clock.wall_ms()))
        log, path = self._log.log, f"{self._log.log.directory}/{snapshot.name}"
        await self._disk.replace_file(path, b"".join(parts))
        old = self._log.snapshot
        if old >= snapshot:  # the leader has sent a newer one meanwhile
            if old != snapshot:
                self._disk.remove(path)
            return
        self._log.snapshot = snapshot
        async with log.cutting():  # alone: upkeep lists the same files
            if self._log.snapshot != snapshot:
                return  # the log was begun again meanwhile, behind another one
            log.roll()
            if log.needs_settling:
                await log.settle()
            await log.retire_segments(log.removable_before(snapshot.end_offset))
        if old != NO_SNAPSHOT and self._disk.exists(f"{log.directory}/{old.name}"):
            self._disk.remove(f"{log.directory}/{old.name}")
        logger.info("metadata snapshot at offset %d", snapshot.end_offset)

    async def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.cancel()
            await asyncio.gather(self._snapshot, return_exceptions=True)
