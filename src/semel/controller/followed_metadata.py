"""The committed metadata of a node that follows the metadata log: replay, tell, and snapshots of its own.

Records count when the leader has said that they are committed. They are read from this node's own log, so that a start
goes on from what is here, and decoded in slices; those of one batch become visible at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from semel.controller.image import MetadataImage
from semel.controller.metadata_transactions import HeldRecords
from semel.controller.snapshot import decode_snapshot, encode_snapshot
from semel.host.api import Clock, Disk, FileRange
from semel.log.errors import BrokenLog
from semel.log.log import Cold
from semel.log.types import Offset
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.snapshot_files import NO_SNAPSHOT, SnapshotId, remove_unfinished
from semel.records.batch import whole_batches
from semel.records.errors import RecordError
from semel.records.read import record_values
from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import MetadataRecord, decode_metadata_record

logger = logging.getLogger("semel.controller")

SNAPSHOT_AFTER_BYTES = 20 << 20
_READ_BYTES = 1 << 20
# Of records, between two turns of the loop: less than two milliseconds.
_SLICE = 200

Listener = Callable[[Sequence[MetadataRecord]], None]


class FollowedMetadata:
    """`listener` is told of records after the image has changed by them, `reloaded` of an image that is another one."""

    def __init__(
        self, disk: Disk, clock: Clock, log: ReplicatedLog, listener: Listener, reloaded: Callable[[], None]
    ) -> None:
        self.committed = MetadataImage()
        self.next_offset: Offset = 0
        """Everything below is in the image."""
        self.snapshot_after_bytes = SNAPSHOT_AFTER_BYTES
        self._disk = disk
        self._clock = clock
        self._log = log
        self._listener = listener
        self._reloaded = reloaded
        self._held = HeldRecords()
        self._epoch = 0
        self._bytes_since_snapshot = 0
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def open(self) -> None:
        """What the newest snapshot of this node says; what follows in the log counts when the leader has confirmed it.
        One that is damaged is dropped, with the log behind it: the leader has all of it."""
        remove_unfinished(self._disk, self._log.log.directory)
        while self._log.snapshot != NO_SNAPSHOT:
            snapshot = self._log.snapshot
            if await self._read(snapshot):
                return
            logger.error("the metadata snapshot %s is damaged: asking the leader for another", snapshot.name)
            self._disk.remove(f"{self._log.log.directory}/{snapshot.name}")
            await self._log.restart_at(NO_SNAPSHOT)

    async def _read(self, snapshot: SnapshotId) -> bool:
        image = MetadataImage()
        records = decode_snapshot(self._disk.read_file(f"{self._log.log.directory}/{snapshot.name}"))
        if records is None:
            return False
        for number, record in enumerate(records, 1):
            image.replay(record)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self.committed, self.next_offset, self._epoch = image, snapshot.end_offset, snapshot.epoch
        self._held = HeldRecords()
        self._bytes_since_snapshot = 0
        return True

    # -- the Owner of an Observer

    async def loaded(self, snapshot: SnapshotId) -> None:
        if not await self._read(snapshot):
            raise BrokenLog(f"the leader has sent a metadata snapshot that cannot be read: {snapshot.name}")
        self._reloaded()
        self._tell_those_who_wait()

    async def committed_further(self) -> None:
        """Reads what is committed and not in the image yet."""
        log = self._log
        while self.next_offset < log.committed_end:
            found = log.log.read(self.next_offset, _READ_BYTES, log.committed_end, at_least_one=True)
            if isinstance(found, Cold):
                await found.file.warm(found.position, found.length)
                found = log.log.read(self.next_offset, _READ_BYTES, log.committed_end, at_least_one=True, warmed=True)
            if not isinstance(found, FileRange):
                raise BrokenLog(f"{log.log.directory}: nothing can be read at offset {self.next_offset}")
            try:
                data = found.read()
            finally:
                found.release()
            await self._apply(data)
        if self._bytes_since_snapshot >= self.snapshot_after_bytes and not self._held.is_open:
            await self.snapshot()

    async def _apply(self, data: bytes) -> None:
        for position, header in whole_batches(data):
            if header.base_offset < self.next_offset:
                continue
            batch = memoryview(data)[position : position + header.size_bytes]
            records = [] if header.is_control else await self._decoded(batch)
            self._bytes_since_snapshot += header.size_bytes
            self._epoch = header.partition_leader_epoch
            self.next_offset = header.next_offset
            counting = self._held.admit(records)
            for record in counting:
                self.committed.replay(record)
            if counting:
                self._listener(counting)
            self._tell_those_who_wait()
            await asyncio.sleep(0)

    async def _decoded(self, batch: memoryview) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        try:
            for number, value in enumerate(record_values(batch), 1):
                if value is not None:
                    records.append(decode_metadata_record(value))
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
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

    async def snapshot(self) -> None:
        """Writes the image down and drops the part of the log that it stands for."""
        log, old = self._log.log, self._log.snapshot
        snapshot = SnapshotId(self.next_offset, self._epoch)
        data = encode_snapshot(self.committed, snapshot.epoch, self._clock.wall_ms())
        self._bytes_since_snapshot = 0
        await self._disk.replace_file(f"{log.directory}/{snapshot.name}", data)
        self._log.snapshot = snapshot
        log.roll()
        if log.needs_settling:
            await log.settle()
        await log.retire_segments(log.removable_before(snapshot.end_offset))
        if old not in (NO_SNAPSHOT, snapshot):
            self._disk.remove(f"{log.directory}/{old.name}")
        logger.info("metadata snapshot at offset %d", snapshot.end_offset)
