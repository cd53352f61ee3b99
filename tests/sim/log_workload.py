"""A busy node in small: two logs in one store, and a history of all that was written, to judge a restart by.

`events` rolls, settles, has transactions and loses its oldest segments to retention; `table` is compacted. The node is
stopped cleanly and started again on the way, so that those disk calls are among the ones that lose power too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from semel.config import BrokerConfig, topic_config
from semel.host.api import Host
from semel.log.log import Appended, Log
from semel.log.store import LogStore
from semel.records.batch import read_header
from semel.records.build import build_batch
from semel.records.control import ControlType, control_batch
from semel.records.sequences import next_sequence
from semel.sim.clock import SimClock
from semel.sim.disk import PowerLost, SimDisk
from semel.sim.loop import SimLoop, run

ROOT = "/srv/node"
TOPIC_IDS = {"events": "AAAAAAAAAAAAAAAAAAAAAQ", "table": "AAAAAAAAAAAAAAAAAAAAAg"}
BROKER = BrokerConfig({"log.cleaner.dedupe.buffer.size": "1048576"})
CONFIGS = {
    "events": topic_config(
        {"segment.bytes": "900", "index.interval.bytes": "100", "retention.bytes": "2600", "retention.ms": "-1"}, BROKER
    ),
    "table": topic_config(
        {
            "segment.bytes": "900",
            "index.interval.bytes": "100",
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": "200",
        },
        BROKER,
    ),
}


class InlineJobs:
    async def run(self, function: Any, *args: Any) -> Any:
        return function(*args)

    def close(self) -> None:
        pass


@dataclass
class Written:
    """One batch as it went into the log, and what it says of its producer."""

    base_offset: int
    last_offset: int
    data: bytes


@dataclass
class History:
    """All that was ever written to one log. `log` is the latest Log: its attributes tell what had been promised."""

    topic: str
    written: list[Written] = field(default_factory=list)
    log: Log | None = None
    flushed_offset: int = 0
    start_offset: int = 0
    """Where it begins, or is about to: retention makes that durable before it tells anybody."""
    coming_starts: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def promise(self) -> None:
        if self.log is not None:
            self.flushed_offset = max(self.flushed_offset, self.log.flushed_offset)
            coming = self.coming_starts.get((self.topic, 0), 0)
            self.start_offset = max(self.start_offset, self.log.start_offset, coming)


@dataclass
class Writer:
    """A producer that numbers its records."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    transactional: bool = False

    def batch(self, entries: list[tuple[bytes | None, bytes | None]], now_ms: int) -> bytearray:
        built = build_batch(
            [value for _, value in entries],
            keys=[key for key, _ in entries],
            base_timestamp_ms=now_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=self.transactional,
        )
        self.sequence = next_sequence(self.sequence, len(entries))
        return built


class Node:
    """The store of one process on one disk, and what the test remembers across processes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: SimDisk, histories: dict[str, History]) -> None:
        self.clock = SimClock(loop)
        host = Host(self.clock, disk, None, random.Random(disk.process_id), InlineJobs())  # type: ignore[arg-type]
        self.disk = disk
        self.broken: list[BaseException] = []
        self.store = LogStore(host, ROOT, BROKER, self.broken.append)
        self.histories = histories

    def start(self) -> None:
        self.store.open()
        for topic, history in self.histories.items():
            history.log = None
            history.coming_starts = self.store.notes.coming_starts
            history.log = self.store.load(topic, 0, TOPIC_IDS[topic], CONFIGS[topic])

    def append(self, topic: str, batch: bytearray, leader_epoch: int) -> Appended:
        history = self.histories[topic]
        assert history.log is not None
        base_offset = history.log.end_offset
        header = read_header(batch)
        # Noted first: a power loss "after" the write leaves a batch that nobody was told of.
        expected = bytearray(batch)
        expected[0:8] = base_offset.to_bytes(8, "big")
        expected[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
        written = Written(base_offset, base_offset + header.last_offset_delta, bytes(expected))
        history.written.append(written)
        appended = history.log.append(batch, header, leader_epoch, self.clock.wall_ms())
        if appended.is_duplicate:
            history.written.pop()
        else:
            assert (appended.base_offset, appended.last_offset) == (written.base_offset, written.last_offset)
        return appended

    def mark(self, topic: str, writer: Writer, kind: ControlType, leader_epoch: int, *, bumps_epoch: bool) -> None:
        history = self.histories[topic]
        assert history.log is not None
        if bumps_epoch:
            writer.epoch, writer.sequence = writer.epoch + 1, 0
        offset = history.log.end_offset
        now_ms = self.clock.wall_ms()
        expected = control_batch(
            kind,
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            coordinator_epoch=3,
            timestamp_ms=now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        history.written.append(Written(offset, offset, bytes(expected)))
        history.log.append_marker(
            kind, writer.producer_id, writer.epoch, 3, leader_epoch, now_ms, bumps_epoch=bumps_epoch
        )

    async def commit(self, *topics: str) -> None:
        """What a partition does: flush, then let readers see it."""
        for topic in topics:
            log = self.histories[topic].log
            assert log is not None
            await log.flush()
            log.high_watermark = max(log.high_watermark, log.flushed_offset)


async def busy(node: Node, rounds: int) -> None:
    """One process's life, from start to clean stop."""
    node.start()
    epoch = 1 + max((log.epochs.latest for log in node.store.logs.values()), default=0)
    base = 100 * epoch
    plain, first, second = Writer(base), Writer(base + 1, transactional=True), Writer(base + 2, transactional=True)
    keyed, keyed_first = Writer(base + 3), Writer(base + 4, transactional=True)
    for number in range(rounds):
        now_ms = node.clock.wall_ms()
        tag = b"%d-%d" % (epoch, number)
        retried = plain.batch([(None, b"a" * (150 + 60 * (number % 4)) + tag)] * (1 + number % 3), now_ms)
        again = bytearray(retried)
        where = node.append("events", retried, epoch)
        node.append("events", first.batch([(None, b"first " + tag)], now_ms), epoch)
        if number % 3 == 1:
            node.append("events", second.batch([(None, b"second " + tag)] * 2, now_ms), epoch)
        if number % 2:
            kind = ControlType.ABORT if number % 4 == 1 else ControlType.COMMIT
            node.mark("events", first, kind, epoch, bumps_epoch=number % 4 == 3)
        if number % 6 == 4:
            node.mark("events", second, ControlType.ABORT, epoch, bumps_epoch=False)
        entries = [(b"k%d" % (n % 4), b"%s %d" % (tag, n) + b"." * 40) for n in range(number, number + 3)]
        if number % 5 == 2:
            entries[0] = (entries[0][0], None)
        node.append("table", keyed.batch(list(entries), now_ms), epoch)
        node.append("table", keyed_first.batch([(b"k%d" % (number % 4), b"txn " + tag)], now_ms), epoch)
        if number % 2:
            node.mark(
                "table",
                keyed_first,
                ControlType.COMMIT if number % 4 == 1 else ControlType.ABORT,
                epoch,
                bumps_epoch=False,
            )
        if number % 3:
            # The flush runs while more is written: it may not promise what came after its begin.
            flush = asyncio.ensure_future(node.commit("events", "table"))
            await asyncio.sleep(0)
            node.append("events", plain.batch([(None, b"meanwhile " + tag)], now_ms), epoch)
            await flush
        assert node.append("events", again, epoch) == where._replace(is_duplicate=True)
        await asyncio.sleep(0.05)
        if number % 3 == 2:
            await node.store.checkpoint()
        if number % 4 == 3:
            await node.store.apply_retention()
            await node.store.compact_one()
    await node.store.close()


async def run_node(disk: SimDisk, histories: dict[str, History], lives: int, rounds: int) -> list[BaseException]:
    """Several lives of a node on one disk, each ended by a clean stop; or up to where the power goes."""
    loop = asyncio.get_running_loop()
    node = Node(loop, disk, histories)
    try:
        for life in range(lives):
            if life:
                node = Node(loop, disk, histories)
            await busy(node, rounds)
            for history in histories.values():
                history.promise()
    except PowerLost:
        for history in histories.values():
            history.promise()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            try:
                await task
            except (asyncio.CancelledError, PowerLost):
                pass
    return [error for error in node.broken if not isinstance(error, PowerLost)]


def run_until_crash(
    seed: int, lives: int, rounds: int, crash_at: int = 0, when: Any = "before"
) -> tuple[SimDisk, dict[str, History]]:
    disk = SimDisk(seed, flush_latency_ms=(0.0, 3.0))
    disk.crash_at(crash_at, when)
    histories = {topic: History(topic) for topic in CONFIGS}
    broken = run(run_node(disk, histories, lives, rounds), loop=SimLoop(end_s=3600))
    assert not broken, broken
    return disk, histories
