"""What is known of a log from outside, and whether a log that was started again keeps to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from log_samples import NOW_MS, batch, write

from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.log.log import Log
from semel.records.batch import check_crc, whole_batches
from semel.records.read import read_records
from semel.wire.errors import ErrorCode


class Sent(NamedTuple):
    """A batch of one record, whose value is its number, and never another's."""

    number: int
    key: str
    producer: int
    sequence: int
    transaction: int | None

    def batch(self, timestamp_ms: int = NOW_MS) -> bytearray:
        return batch(
            str(self.number).encode(),
            keys=[self.key.encode()],
            producer=self.producer,
            sequence=self.sequence,
            transactional=self.transaction is not None,
            timestamp_ms=timestamp_ms,
        )


@dataclass
class KnownLog:
    topic: str
    topic_id: str
    compacts: bool
    durable_end: int = 0
    told_start: int = 0
    sent: dict[int, Sent] = field(default_factory=dict)
    next_sequence: dict[int, int] = field(default_factory=dict)
    # Of producers, their transactions; of transactions, where their markers are and whether they were committed.
    open: dict[int, int] = field(default_factory=dict)
    ends: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def note_sent(self, offset: int, sent: Sent) -> None:
        self.sent[offset] = sent
        if sent.producer >= 0:
            self.next_sequence[sent.producer] = sent.sequence + 1
        if sent.transaction is not None:
            self.open[sent.producer] = sent.transaction

    def check(self, log: Log) -> None:
        """Nothing durable is lost, and nothing else is there. What the log holds now is durable, and known."""
        log.high_watermark = log.end_offset
        assert log.end_offset >= self.durable_end, f"{self.topic}: what was durable is lost"
        assert log.start_offset >= self.told_start, f"{self.topic}: what was removed is there again"
        self._forget_what_was_lost(log)
        self._check_stable(log)
        self._check_records(log)
        self._check_producers(log)
        self.durable_end, self.told_start = log.end_offset, log.start_offset

    def _forget_what_was_lost(self, log: Log) -> None:
        sent = {offset: one for offset, one in sorted(self.sent.items()) if offset < log.end_offset}
        self.ends = {number: end for number, end in self.ends.items() if end[0] < log.end_offset}
        self.sent, self.open, self.next_sequence = {}, {}, {}
        for offset, one in sent.items():
            self.note_sent(offset, one)
        self.open = {producer: number for producer, number in self.open.items() if number not in self.ends}

    def _check_stable(self, log: Log) -> None:
        still_open = [offset for offset, one in self.sent.items() if one.transaction in self.open.values()]
        assert log.last_stable_offset == min(still_open, default=log.end_offset), f"{self.topic}: {self.open}"

    def _check_records(self, log: Log) -> None:
        found, visible = records_of(log)
        for offset, number in found.items():
            assert offset in self.sent, f"{self.topic}: {number} at {offset} was never sent"
            assert self.sent[offset].number == number, f"{self.topic}: {number} for {self.sent[offset]} at {offset}"
        due: dict[int | str, int] = {}
        for offset, one in self.sent.items():
            if not log.start_offset <= offset < log.last_stable_offset:
                continue
            is_committed = one.transaction is None or self.ends[one.transaction][1]
            assert is_committed or offset not in visible, f"{self.topic}: {one} was aborted, and is shown"
            if is_committed:
                due[one.key if self.compacts else offset] = offset
        lost = {offset: self.sent[offset] for offset in due.values() if offset not in visible}
        assert not lost, f"{self.topic}: {lost}"

    def _check_producers(self, log: Log) -> None:
        last = {one.producer: (offset, one) for offset, one in self.sent.items() if one.producer >= 0}
        for offset, one in last.values():
            if one.transaction is not None and one.transaction not in self.open.values():
                with pytest.raises(Refused) as refused:  # it would hold other records by now
                    write(log, one.batch())
                assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{self.topic}: {one}"
                continue
            again = write(log, one.batch())
            assert again.is_duplicate, f"{self.topic}: {one} is there twice"
            assert again.base_offset == offset


def records_of(log: Log) -> tuple[dict[int, int], set[int]]:
    """Numbers by their offsets, and which of them a reader of what is committed sees."""
    found: dict[int, int] = {}
    visible: set[int] = set()
    offset, stable = log.start_offset, log.last_stable_offset
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, log.end_offset, at_least_one=True, warmed=True)
        if read is None:
            break
        assert isinstance(read, FileRange)
        data, aborted = read.read(), log.aborted_between(offset, read)
        read.release()
        for position, header in whole_batches(data):
            assert check_crc(data, position, header)
            offset = header.next_offset
            if header.is_control:
                continue
            is_aborted = header.is_transactional and any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
            for record in read_records(data[position : position + header.size_bytes], header):
                if record.offset < log.start_offset:
                    continue
                assert record.offset not in found
                found[record.offset] = int(record.value or b"")
                if record.offset < stable and not is_aborted:
                    visible.add(record.offset)
    return found, visible
