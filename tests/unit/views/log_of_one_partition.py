"""One partition as an admin reads it: batches of the real form, ends, producers, aborted transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ProducerState
from semel.client.admin.log_reading import LogPiece
from semel.client.metadata import TopicPartition
from semel.records.build import build_batch
from semel.records.control import ControlType, control_batch

PLACE = TopicPartition("payments", 0)


class OnePartition:
    def __init__(self, place: TopicPartition = PLACE) -> None:
        self.place = place
        self.batches: list[tuple[int, bytes]] = []
        self.end = 0
        self.opened: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        """Producer, first offset, offset of the marker."""
        self.bytes_read = 0

    def write(self, *values: bytes, producer_id: int = -1, key: bytes | None = None) -> None:
        """In a transaction, if there is a producer."""
        keys: list[bytes | None] = [key] * len(values)
        batch = build_batch(
            list(values),
            keys=keys,
            base_timestamp_ms=1000 + self.end,
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
        if producer_id >= 0:
            self.opened.setdefault(producer_id, self.end)
        self.batches.append((self.end, bytes(batch)))
        self.end += len(values)

    def finish(self, producer_id: int, *, is_commit: bool) -> None:
        """Writes the marker."""
        batch = control_batch(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=1000 + self.end,
            base_offset=self.end,
        )
        start = self.opened.pop(producer_id)
        if not is_commit:
            self.aborted.append((producer_id, start, self.end))
        self.batches.append((self.end, bytes(batch)))
        self.end += 1

    @property
    def stable(self) -> int:
        return min(self.opened.values(), default=self.end)

    @property
    def admin(self) -> Admin:
        return cast(Admin, self)

    # -- as the admin does

    async def read_log(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> dict[TopicPartition, LogPiece]:
        position = offsets[self.place]
        limit = self.stable if read_committed else self.end
        found = b""
        for index, (base, batch) in enumerate(self.batches):
            next_base = self.batches[index + 1][0] if index + 1 < len(self.batches) else self.end
            if next_base > position and base < limit and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
            elif found:
                break
        self.bytes_read += len(found)
        aborted = tuple((one[0], one[1]) for one in self.aborted if one[2] >= position) if read_committed else ()
        return {self.place: LogPiece(found, 0, self.stable, self.end, aborted)}

    async def describe_producers(self, place: TopicPartition) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        states = tuple(ProducerState(one, 0, 0, 0, 0, start) for one, start in self.opened.items())
        return {place: states}
