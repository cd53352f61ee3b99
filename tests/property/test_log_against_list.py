"""A log against a list of batches: append, read by offset and time, roll, cut the start, restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from semel.config import BrokerConfig, topic_config
from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.log.log import Log
from semel.log.recovery import load_log
from semel.records.batch import read_header, whole_batches
from semel.records.build import build_batch
from semel.sim.disk import SimDisk

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/events-0"
BROKER = BrokerConfig()


@dataclass
class Kept:
    base_offset: int
    last_offset: int
    timestamps: list[int]
    data: bytes


class Pair:
    """The log, and the list that it is compared with."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.disk = SimDisk()
        self.disk.make_dirs("/data")
        self.kept: list[Kept] = []
        self.start = 0
        self.log = self.load(clean=False)

    def load(self, *, clean: bool) -> Log:
        log, recovered = load_log(
            self.disk,
            DIRECTORY,
            self.config,
            recovery_point=self.end if clean else 0,
            start_offset=self.start,
            now_ms=NOW_MS,
            was_clean=clean,
        )
        assert recovered.cut_bytes == 0
        assert not clean or recovered.scanned_bytes == 0
        return log

    @property
    def end(self) -> int:
        return self.kept[-1].last_offset + 1 if self.kept else self.start

    def append(self, sizes: list[int], timestamps: list[int]) -> None:
        batch = build_batch(
            [b"v" * size for size in sizes],
            base_timestamp_ms=NOW_MS,
            timestamps_ms=[NOW_MS + timestamp for timestamp in timestamps],
        )
        base = self.end
        appended = self.log.append(batch, read_header(batch), 3, NOW_MS)
        assert (appended.base_offset, appended.last_offset) == (base, base + len(sizes) - 1)
        self.kept.append(Kept(base, appended.last_offset, [NOW_MS + t for t in timestamps], bytes(batch)))

    def read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> None:
        try:
            found = self.log.read(offset, max_bytes, up_to, at_least_one=at_least_one, warmed=True)
        except Refused:
            assert not self.start <= offset <= self.end
            return
        assert self.start <= offset <= self.end
        data = b""
        if found is not None:
            assert isinstance(found, FileRange)
            data = found.read()
            found.release()
        wanted = [kept for kept in self.kept if kept.last_offset >= offset and kept.last_offset < up_to]
        first = wanted[0].data if wanted and offset < up_to else b""
        if not data:
            assert not first or (not at_least_one and max_bytes < len(first))
            return
        assert b"".join(kept.data for kept in wanted).startswith(data), (
            "what is served is what was written, up to up_to"
        )
        assert data.startswith(first)
        assert len(data) <= max(max_bytes, len(first))

    def search(self, timestamp: int) -> None:
        wanted = NOW_MS + timestamp
        expected = next(
            (
                (stamp, kept.base_offset + number)
                for kept in self.kept
                for number, stamp in enumerate(kept.timestamps)
                if stamp >= wanted and kept.base_offset + number >= self.start
            ),
            None,
        )
        found = self.log.offset_for_timestamp(wanted)
        assert (None if found is None else found[:2]) == expected

    def search_newest(self) -> None:
        if self.kept and self.start <= self.kept[0].base_offset:
            found = self.log.offset_of_max_timestamp()
            stamps = [
                (-stamp, kept.base_offset + number)
                for kept in self.kept
                for number, stamp in enumerate(kept.timestamps)
            ]
            newest, offset = min(stamps)
            assert found is not None
            assert found[:2] == (-newest, offset)

    def advance(self, offset: int) -> None:
        """What DeleteRecords and then retention do."""
        offset = min(offset, self.end)
        if offset <= self.start:
            return
        self.log.advance_start(offset)
        self.start = offset
        self.log.remove_segments(self.log.removable_before(offset))
        if self.log.segments:
            base = self.log.segments[0].base_offset
            self.kept = [kept for kept in self.kept if kept.last_offset >= base]
        assert self.log.start_offset == self.start

    def check(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        sizes = [segment.size_bytes for segment in self.log.segments]
        assert all(size <= max(self.config.segment_bytes, 400) for size in sizes)
        assert sum(sizes) == self.log.size_bytes
        stored = b"".join(self.disk.read_file(segment.path) for segment in self.log.segments)
        assert stored == b"".join(kept.data for kept in self.kept)
        assert [header.base_offset for _, header in whole_batches(stored)] == [kept.base_offset for kept in self.kept]


operations = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(st.tuples(st.integers(0, 80), st.integers(-3000, 3000)), min_size=1, max_size=3),
    ),
    st.tuples(st.just("append"), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 50)), min_size=1, max_size=2)),
    st.tuples(
        st.just("read"), st.integers(-1, 40), st.sampled_from((1, 90, 250, 5000)), st.integers(0, 40), st.booleans()
    ),
    st.tuples(st.just("search"), st.integers(-3100, 3100)),
    st.tuples(st.just("newest")),
    st.tuples(st.just("advance"), st.integers(0, 30)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("kill")),
)
configs = st.fixed_dictionaries(
    {
        "segment.bytes": st.sampled_from(("400", "700", "100000")),
        "segment.ms": st.sampled_from(("1", "2000", "100000")),
        "index.interval.bytes": st.sampled_from(("0", "150", "4096")),
        "segment.index.bytes": st.sampled_from(("16", "10000")),
    }
)


@settings(max_examples=300, deadline=None)
@given(configs, st.lists(operations, min_size=10, max_size=50))
def test_a_log_is_a_list_of_batches(overrides: dict[str, str], steps: list[Any]) -> None:
    pair = Pair(topic_config(overrides, BROKER))
    for kind, *arguments in steps:
        if kind == "append":
            entries = arguments[0]
            pair.append([size for size, _ in entries], [timestamp for _, timestamp in entries])
        elif kind == "read":
            offset, max_bytes, up_to, at_least_one = arguments
            pair.read(pair.start + offset, max_bytes, min(pair.end, pair.start + up_to), at_least_one)
        elif kind == "search":
            pair.search(arguments[0])
        elif kind == "newest":
            pair.search_newest()
        elif kind == "advance":
            pair.advance(pair.start + arguments[0])
        elif kind == "roll":
            pair.log.roll()
        else:
            if kind == "stop":
                pair.log.close()
            pair.disk = pair.disk.after_kill()
            pair.log = pair.load(clean=kind == "stop")
        pair.check()
    for offset in range(pair.start, pair.end):
        pair.read(offset, 300, pair.end, True)
