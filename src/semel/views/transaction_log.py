"""What transactional ids have done lately, from the log of their coordinators: begun, prepared, completed, and when.

Each change of a transaction is one record of `__transaction_state`. `TransactionHistory` reads the ends of its
partitions once and follows them from there; it keeps a bounded number of transactions. Who may not read the topic still
has what `describe_transactions` tells of the present.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.values import OffsetSpec
from semel.client.metadata import TopicPartition
from semel.records.batch import whole_batches
from semel.records.errors import CorruptBatch, InvalidRecord
from semel.records.read import Record, read_records
from semel.wire.codec import decode
from semel.wire.errors import WireError
from semel.wire.spec.transaction_log import TransactionLogKey, TransactionLogValue

TRANSACTIONS_TOPIC = "__transaction_state"
_VERSION = struct.Struct(">h")
_EMPTY, _ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT, _DEAD, _FENCE = range(8)
_OPENS = (_ONGOING,)
_PREPARES = {_PREPARE_COMMIT: "commit", _PREPARE_ABORT: "abort", _FENCE: "abort"}
_COMPLETES = {_COMPLETE_COMMIT: "commit", _COMPLETE_ABORT: "abort"}
_BACK = 400
"""So many offsets of each partition are read at first."""
_MAX_BYTES = 256 * 1024
_MAX_ROUNDS = 16
_MAX_IDS = 2000
_MAX_OF_ONE = 1000
_SHOWN_OF_ONE = 200
_MAX_PARTITIONS = 50
_MAX_RECORD_BYTES = 4 << 20


@dataclass
class PastTransaction:
    """`end` is commit or abort once that is decided. Times are those of the coordinator, in milliseconds."""

    producer_id: int
    producer_epoch: int
    began_ms: int
    partitions: tuple[str, ...]
    partition_count: int
    prepared_ms: int | None = None
    completed_ms: int | None = None
    end: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "began_ms": self.began_ms,
            "prepared_ms": self.prepared_ms,
            "completed_ms": self.completed_ms,
            "end": self.end,
            "partitions": list(self.partitions),
            "partition_count": self.partition_count,
        }


class TransactionHistory:
    def __init__(self) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self._by_id: OrderedDict[str, deque[PastTransaction]] = OrderedDict()

    async def follow(self, admin: Admin) -> None:
        """Reads what is new. Raises a SemelError if the topic may not be read."""
        topics = await admin.list_topics(include_internal=True)
        if TRANSACTIONS_TOPIC not in topics:
            return
        places = [TopicPartition(TRANSACTIONS_TOPIC, number) for number in topics[TRANSACTIONS_TOPIC].partitions]
        new = [place for place in places if place not in self._positions]
        if new:
            ends = await admin.list_offsets(dict.fromkeys(new, OffsetSpec.LATEST))
            starts = await admin.list_offsets(dict.fromkeys(new, OffsetSpec.EARLIEST))
            for place in new:
                self._positions[place] = max(ends[place].offset - _BACK, starts[place].offset)
        left = dict(self._positions)
        for _ in range(_MAX_ROUNDS):
            if not left:
                return
            pieces = await admin.read_log(left, max_bytes=_MAX_BYTES)
            for place, piece in pieces.items():
                before = self._positions[place]
                if before < piece.start_offset:
                    self._positions[place] = piece.start_offset
                self._take(place, piece.batches)
                if self._positions[place] >= piece.high_watermark or self._positions[place] == before:
                    left.pop(place, None)
                else:
                    left[place] = self._positions[place]

    def _take(self, place: TopicPartition, batches: bytes) -> None:
        view = memoryview(batches)
        for where, header in whole_batches(view):
            if header.next_offset <= self._positions[place]:
                continue
            try:
                records = read_records(
                    view[where : where + header.size_bytes], header, max_decompressed_bytes=_MAX_RECORD_BYTES
                )
            except (CorruptBatch, InvalidRecord):
                records = []
            if not header.is_control:
                for record in records:
                    if record.offset >= self._positions[place]:
                        self.take(record)
            self._positions[place] = header.next_offset

    def take(self, record: Record) -> None:
        """One record of the topic; what is not understood is left out."""
        if record.key is None or record.value is None:
            return
        try:
            key = decode(TransactionLogKey, 0, memoryview(record.key)[_VERSION.size :])
            (version,) = _VERSION.unpack_from(record.value)
            value = decode(TransactionLogValue, version, memoryview(record.value)[_VERSION.size :])
        except (WireError, struct.error):  # a newer form
            return
        self._note(key.transactional_id, value)

    def _note(self, name: str, value: TransactionLogValue) -> None:
        status, at_ms = value.transaction_status, value.transaction_last_update_timestamp_ms
        past = self._by_id.get(name)
        if past is None:
            past = self._by_id[name] = deque(maxlen=_MAX_OF_ONE)
            while len(self._by_id) > _MAX_IDS:
                self._by_id.popitem(last=False)
        self._by_id.move_to_end(name)
        if status not in _OPENS and status not in _PREPARES and status not in _COMPLETES:
            return
        began_ms = value.transaction_start_timestamp_ms
        last = past[-1] if past else None
        is_over = last is not None and last.completed_ms is not None
        if last is None or last.began_ms < began_ms or (is_over and (status in _OPENS or last.began_ms != began_ms)):
            if began_ms < 0:
                return
            last = PastTransaction(value.producer_id, value.producer_epoch, began_ms, (), 0)
            past.append(last)
        partitions = [
            f"{topic.topic}/{number}" for topic in value.transaction_partitions or () for number in topic.partition_ids
        ]
        if partitions:
            last.partitions, last.partition_count = tuple(sorted(partitions)[:_MAX_PARTITIONS]), len(partitions)
        if status in _PREPARES:
            last.prepared_ms, last.end = at_ms, _PREPARES[status]
        elif status in _COMPLETES:
            last.completed_ms, last.end = at_ms, _COMPLETES[status]

    def documents(self, name: str) -> list[dict[str, Any]]:
        """The last transactions of an id, the oldest first."""
        return [one.document() for one in list(self._by_id.get(name, ()))[-_SHOWN_OF_ONE:]]

    def drawn(self, name: str, since_ms: int, until_ms: int, marks: int) -> tuple[list[dict[str, Any]], int]:
        """What is to be drawn of a span of time, the oldest first, and how many there were. Where several begin at the
        same mark, one stands for them: what is open before what was aborted before the longest."""
        found = [one for one in self._by_id.get(name, ()) if one.completed_ms is None or one.completed_ms >= since_ms]
        width_ms = max((until_ms - since_ms) // marks, 1)
        chosen: dict[int, PastTransaction] = {}
        for one in found:
            mark = max(one.began_ms - since_ms, 0) // width_ms
            if mark not in chosen or _weight(one, until_ms) > _weight(chosen[mark], until_ms):
                chosen[mark] = one
        return [one.document() for one in chosen.values()], len(found)

    def recent_ids(self) -> list[str]:
        """Those that have done something, the latest first."""
        return list(reversed(self._by_id))


def _weight(one: PastTransaction, until_ms: int) -> tuple[int, int]:
    rank = {None: 2, "abort": 1, "commit": 0}[one.end]
    return rank, (one.completed_ms or until_ms) - one.began_ms
