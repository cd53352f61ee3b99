"""The metadata log of a cluster of one: append, commit, replay, tell.

Records of one decision go into one batch, so that a crash leaves all of them or none. `decided` includes what is not
durable yet, and further decisions are made on it; `committed` is what the rest of the node sees. Many decisions share
one flush. A quorum can replicate this log later without changing what is in it.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from collections.abc import Callable, Sequence

from semel.controller.image import MetadataImage
from semel.controller.levels import versioned
from semel.controller.snapshot import encode_snapshot, newest_snapshot, snapshot_name, snapshot_names
from semel.host.api import Clock, Disk
from semel.log.errors import BrokenLog
from semel.log.log import Log
from semel.log.types import Offset
from semel.records.build import build_batch
from semel.records.read import record_values
from semel.replication.partition import Partition
from semel.wire.spec.metadata_records import MetadataRecord, decode_metadata_record, encode_metadata_record

logger = logging.getLogger("semel.controller")

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"
_SNAPSHOT_AFTER_BYTES = 20 << 20

Listener = Callable[[Sequence[MetadataRecord]], None]


class MetadataLog:
    """Opened by the node that holds it; `write` is the only way to change cluster metadata."""

    def __init__(
        self, disk: Disk, clock: Clock, log: Log, on_broken: Callable[[BaseException], None], listener: Listener
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._listener = listener
        self.decided = MetadataImage()
        self.committed = MetadataImage()
        start = 0
        snapshot = newest_snapshot(disk, log.directory)
        if snapshot is not None:
            start, records = snapshot
            for record in records:
                self._load(record)
        if log.start_offset > start:
            # Half a history would forget topics and give out producer ids a second time.
            raise BrokenLog(f"{log.directory} begins at offset {log.start_offset}, and no whole snapshot says what was")
        for segment in log.segments:
            for _, header, batch in segment.batches():
                if header.base_offset >= start and not header.is_control:
                    for value in record_values(batch, header):
                        if value is not None:
                            self._load(decode_metadata_record(value))
        self.epoch = log.epochs.latest + 1
        self._partition = Partition(TOPIC, TOPIC_ID, 0, log, self.epoch, clock, on_broken)
        self._uncommitted: deque[tuple[Offset, Sequence[MetadataRecord], asyncio.Future[None]]] = deque()
        self._bytes_since_snapshot = log.size_bytes
        self._partition.watch(self, self._commit)

    def _load(self, record: MetadataRecord) -> None:
        self.decided.replay(record)
        self.committed.replay(copy.copy(record))

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
        return future

    def when_committed(self) -> asyncio.Future[None] | None:
        """None when everything decided so far is committed; otherwise a future of it."""
        return self._partition.when_committed(self.next_offset - 1)

    def _commit(self) -> None:
        high_watermark = self._partition.log.high_watermark
        while self._uncommitted and self._uncommitted[0][0] < high_watermark:
            _, records, future = self._uncommitted.popleft()
            for record in records:
                self.committed.replay(copy.copy(record))
            self._listener(records)
            if not future.done():
                future.set_result(None)

    @property
    def wants_snapshot(self) -> bool:
        return self._bytes_since_snapshot >= _SNAPSHOT_AFTER_BYTES

    async def snapshot(self) -> None:
        """Writes the committed image down and drops the part of the log that it stands for."""
        log = self._partition.log
        end_offset, image = log.high_watermark, encode_snapshot(self.committed, self.epoch, self._clock.wall_ms())
        old = snapshot_names(self._disk, log.directory)
        name = snapshot_name(end_offset, self.epoch)
        await self._disk.replace_file(f"{log.directory}/{name}", image)
        self._bytes_since_snapshot = 0
        log.roll()
        if log.needs_settling:
            await log.settle()
        log.remove_segments(log.removable_before(end_offset))
        for stale in old:
            if stale != name:
                self._disk.remove(f"{log.directory}/{stale}")
        logger.info("metadata snapshot at offset %d", end_offset)

    async def close(self) -> None:
        await self._partition.close()
