"""The records that one answer brought of one partition: walked batch by batch, and decoded when the program asks.

What the program may not see is stepped over as soon as it is next, so that a position never rests before a marker. A
batch that is broken stops the walk there: `problem` says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from semel.client.consumer.isolation import AbortedTransactions
from semel.client.errors import CorruptRecords
from semel.client.metadata import TopicPartition
from semel.records.batch import HEADER_BYTES, LENGTH_FIELD_END, BatchHeader, check_crc, read_header
from semel.records.errors import RecordError

_OFFSET_AND_LENGTH = Struct(">qii")  # base offset, batch length, leader epoch
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_POSITION = 23
_CONTROL_BIT = 0x20


class Batch(NamedTuple):
    data: memoryview
    header: BatchHeader


class Fetched:
    """`current` is the next batch to hand out, None at the end or at a `problem`.

    `next_offset` is where reading goes on after everything before `current`, `next_epoch` the leader epoch of the batch
    that ends there.
    """

    __slots__ = (
        "_aborted",
        "_checks_crcs",
        "_data",
        "_next",
        "current",
        "end_epoch",
        "end_offset",
        "next_epoch",
        "next_offset",
        "partition",
        "problem",
        "size_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        first_offset: int,
        *,
        aborted: AbortedTransactions | None,
        checks_crcs: bool,
    ) -> None:
        self.partition = partition
        self.current: Batch | None = None
        self.problem: CorruptRecords | None = None
        self.next_offset = first_offset
        self.next_epoch = -1
        self.size_bytes = len(data)
        self.end_offset = first_offset
        self.end_epoch = -1
        self._aborted = aborted
        self._checks_crcs = checks_crcs
        self._data = data
        self._next = 0
        self._find_end()

    @property
    def left_bytes(self) -> int:
        """What was not looked at yet."""
        return self.size_bytes - self._next

    @property
    def is_over(self) -> bool:
        return self.current is None and self.problem is None and self.left_bytes <= 0

    def step(self) -> None:
        """Leaves `current` behind and finds the next batch that may be seen."""
        if self.problem is not None:
            return
        self._pass_current()
        for batch in self._whole_batches():
            if self._is_visible(batch):
                self.current = batch
                return
            if self.problem is not None:
                return
            self._pass(batch.header)

    def _pass_current(self) -> None:
        if self.current is not None:
            self._pass(self.current.header)
            self.current = None

    def _pass(self, header: BatchHeader) -> None:
        self.next_offset = max(self.next_offset, header.next_offset)
        if header.partition_leader_epoch >= 0:
            self.next_epoch = header.partition_leader_epoch

    def _is_visible(self, batch: Batch) -> bool:
        data, header = batch
        if self._checks_crcs and not check_crc(data, 0, header):
            self._stop("its bytes do not match its checksum", header)
            return False
        try:
            if self._aborted is not None and self._aborted.hide(data, header):
                return False
        except RecordError as error:
            self._stop(error, header)
            return False
        return not header.attributes & _CONTROL_BIT and header.next_offset > self.next_offset

    def _whole_batches(self) -> Iterator[Batch]:
        """The last batch of an answer may be cut: it comes whole with a later one."""
        data = self._data
        while self.left_bytes >= HEADER_BYTES:
            try:
                header = read_header(data, self._next)
            except RecordError as error:
                self._stop(error, None)
                return
            end = self._next + header.size_bytes
            if end > len(data):
                break
            batch = Batch(data[self._next : end], header)
            self._next = end
            yield batch
        self._next = self.size_bytes

    def _stop(self, reason: object, header: BatchHeader | None) -> None:
        self.problem = corrupt(self.partition, self.next_offset, reason, header)

    def _find_end(self) -> None:
        """Where the next fetch goes on, by a glance at lengths alone; a broken one ends it early, and is met later."""
        data, position, size = self._data, 0, self.size_bytes
        last = -1
        while size - position >= HEADER_BYTES:
            length = _OFFSET_AND_LENGTH.unpack_from(data, position)[1]
            if length < HEADER_BYTES - LENGTH_FIELD_END or length + LENGTH_FIELD_END > size - position:
                break
            last = position
            position += length + LENGTH_FIELD_END
        if last >= 0:
            base_offset, _, self.end_epoch = _OFFSET_AND_LENGTH.unpack_from(data, last)
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, last + _LAST_OFFSET_DELTA_POSITION)
            self.end_offset = max(self.end_offset, base_offset + delta + 1)


def corrupt(partition: TopicPartition, offset: int, reason: object, header: BatchHeader | None) -> CorruptRecords:
    """The error for a batch that cannot be read; `header` is None if not even that could be."""
    following = offset + 1 if header is None else max(header.next_offset, offset + 1)
    text = (
        f"{partition}, offset {offset}: the batch here cannot be read: {reason}; behind it offset {following} follows"
    )
    problem = CorruptRecords(text, partition=partition, offset=offset)
    problem.next_offset = following
    if isinstance(reason, BaseException):
        problem.__cause__ = reason
    return problem
