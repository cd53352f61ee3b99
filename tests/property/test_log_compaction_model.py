"""Compaction against brute force: what must stay, what must go, and a log that reads the same to everyone."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from semel.config import BrokerConfig, topic_config
from semel.host.api import FileRange
from semel.log.cleaner import compaction_task, run_compaction
from semel.log.log import Log
from semel.log.recovery import load_log
from semel.records.batch import BatchHeader, check_crc, read_header, whole_batches
from semel.records.build import build_batch
from semel.records.control import ControlType
from semel.records.read import Record, read_records
from semel.sim.disk import SimDisk

NOW_MS = 1_700_000_000_000
RETENTION_MS = 100
DIRECTORY = "/data/table-0"
BROKER = BrokerConfig({"log.cleaner.dedupe.buffer.size": str(1 << 20)})


class InlineJobs:
    async def run(self, function: Any, *args: Any) -> Any:
        return function(*args)

    def close(self) -> None:
        pass


class Table:
    """The log of a compacted topic, and every record that was ever written to it."""

    def __init__(self, overrides: dict[str, str]) -> None:
        self.config = topic_config(
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0",
                "delete.retention.ms": str(RETENTION_MS),
                **overrides,
            },
            BROKER,
        )
        self.disk = SimDisk()
        self.disk.make_dirs("/data")
        self.now_ms = NOW_MS
        self.records: dict[int, Record] = {}
        self.fate: dict[int, str] = {}  # of an offset: committed, aborted, open
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.cleaned_to = 0
        self.horizons: dict[int, int] = {}
        self.last_batches: dict[int, int] = {}
        self.log = self.load(clean=False)

    def load(self, *, clean: bool) -> Log:
        log, _ = load_log(
            self.disk,
            DIRECTORY,
            self.config,
            recovery_point=0 if not self.records else self.log.flushed_offset,
            start_offset=0,
            now_ms=self.now_ms,
            was_clean=clean,
        )
        return log

    def append(self, producer: int, entries: list[tuple[bytes, bytes | None]], codec: int) -> None:
        transactional = producer > 2
        sequence = self.sequences.get(producer, 0)
        batch = build_batch(
            [value for _, value in entries],
            keys=[key for key, _ in entries],
            base_timestamp_ms=self.now_ms,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
            codec=codec,
        )
        base = self.log.append(batch, read_header(batch), 0, self.now_ms).base_offset
        self.sequences[producer] = sequence + len(entries)
        self.last_batches[producer] = base + len(entries) - 1
        for record in read_records(batch):
            self.records[record.offset] = record
            self.fate[record.offset] = "open" if transactional else "committed"
        if transactional:
            self.open.setdefault(producer, []).extend(range(base, base + len(entries)))

    def end(self, producer: int, kind: ControlType) -> None:
        if producer in self.open:
            for offset in self.open.pop(producer):
                self.fate[offset] = "committed" if kind == ControlType.COMMIT else "aborted"
            self.log.append_marker(kind, producer, 0, 0, 0, self.now_ms)

    def commit(self) -> None:
        asyncio.run(self.log.flush())
        self.log.high_watermark = self.log.flushed_offset

    def compact(self) -> None:
        asyncio.run(self._compact())

    async def _compact(self) -> None:
        if self.log.needs_settling:
            await self.log.settle()
        task = compaction_task(self.log, self.cleaned_to, self.now_ms, BROKER)
        if task is None:
            return
        reading = self.log.read(
            self.log.segments[0].base_offset, 1 << 20, self.log.end_offset, at_least_one=True, warmed=True
        )
        bytes_before = reading.read() if isinstance(reading, FileRange) else b""
        result = await run_compaction(self.disk, InlineJobs(), self.log, task)
        assert result is not None
        if isinstance(reading, FileRange):
            assert reading.read() == bytes_before, "who reads an old segment can go on"
            reading.release()
        self.cleaned_to = result.end_offset
        self.check_cleaned(result.end_offset)

    def check_cleaned(self, end: int) -> None:
        """Below `end` exactly the newest committed record of every key is left, and tombstones for their time."""
        newest: dict[bytes, int] = {}
        for offset, record in sorted(self.records.items()):
            if offset < end and self.fate[offset] == "committed":
                newest[record.key or b""] = offset
        expected = set()
        for offset in newest.values():
            if self.records[offset].value is None:
                horizon = self.horizons.setdefault(offset, self.now_ms + RETENTION_MS)
                if self.now_ms >= horizon and horizon != self.now_ms + RETENTION_MS:
                    continue
            expected.add(offset)
        left = {
            record.offset
            for header, data in self.batches()
            if not header.is_control
            for record in read_records(data, header)
            if record.offset < end
        }
        assert left == expected
        ends = {header.last_offset for header, _ in self.batches() if not header.is_control}
        assert set(self.last_batches.values()) <= ends, "the last batch of every producer is kept, be it empty"

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        found: list[tuple[BatchHeader, bytes]] = []
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            read = self.log.read(offset, 500, self.log.end_offset, at_least_one=True, warmed=True)
            if read is None:
                break
            assert isinstance(read, FileRange)
            data = read.read()
            read.release()
            for position, header in whole_batches(data):
                assert check_crc(data, position, header)
                assert header.base_offset >= offset or header.last_offset >= offset
                found.append((header, data[position : position + header.size_bytes]))
                offset = header.next_offset
        return found

    def committed_view(self) -> dict[bytes, bytes]:
        """As a read_committed reader sees it: up to the last stable offset, without the aborted transactions it is
        told of, each from its first offset up to its marker."""
        stable = self.log.last_stable_offset
        values: dict[bytes, bytes | None] = {}
        offset = self.log.start_offset
        aborted_now: dict[int, int] = {}
        while offset < stable:
            read = self.log.read(offset, 300, stable, at_least_one=True, warmed=True)
            if read is None:
                break
            assert isinstance(read, FileRange)
            aborted = sorted(self.log.aborted_between(offset, read), key=lambda a: a.first_offset)
            data = read.read()
            read.release()
            for position, header in whole_batches(data):
                while aborted and aborted[0].first_offset <= header.last_offset:
                    started = aborted.pop(0)
                    aborted_now[started.producer_id] = started.last_offset
                offset = header.next_offset
                if header.is_control:
                    aborted_now.pop(header.producer_id, None)
                    continue
                if header.is_transactional and aborted_now.get(header.producer_id, -1) >= header.base_offset:
                    continue
                for record in read_records(data[position : position + header.size_bytes], header):
                    values[record.key or b""] = record.value
        return {key: value for key, value in values.items() if value is not None}

    def check(self) -> None:
        stable = self.log.last_stable_offset
        values: dict[bytes, bytes | None] = {}
        for offset, record in sorted(self.records.items()):
            if offset < stable and self.fate[offset] == "committed":
                values[record.key or b""] = record.value
        assert self.committed_view() == {key: value for key, value in values.items() if value is not None}
        for header, data in self.batches():
            if not header.is_control:
                for record in read_records(data, header):
                    original = self.records[record.offset]
                    assert (record.key, record.value) == (original.key, original.value)


entries = st.lists(
    st.tuples(st.sampled_from((b"a", b"b", b"c", b"d")), st.one_of(st.none(), st.binary(min_size=0, max_size=30))),
    min_size=1,
    max_size=3,
)
operations = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), entries, st.sampled_from((0, 0, 3))),
    st.tuples(st.just("append"), st.integers(3, 4), entries, st.just(0)),
    st.tuples(st.just("end"), st.integers(3, 4), st.sampled_from((ControlType.COMMIT, ControlType.ABORT))),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact"), st.sampled_from((0, 40, 150))),
    st.tuples(st.just("restart"), st.booleans()),
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(("250", "600", "5000")), st.lists(operations, min_size=8, max_size=45))
def test_compaction_keeps_the_newest_committed_record_of_every_key_and_nothing_else(
    segment_bytes: str, steps: list[Any]
) -> None:
    table = Table({"segment.bytes": segment_bytes, "index.interval.bytes": "60"})
    for kind, *arguments in steps:
        if kind == "append":
            table.append(*arguments)
        elif kind == "end":
            table.end(*arguments)
        elif kind == "roll":
            table.log.roll()
        elif kind == "compact":
            table.now_ms += arguments[0]
            table.commit()
            table.compact()
        else:
            (clean,) = arguments
            if clean:
                table.log.close()
            table.disk = table.disk.after_kill()
            table.log = table.load(clean=clean)
        table.commit()
        table.check()
