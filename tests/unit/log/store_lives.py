"""A store of three logs on a disk that fails now and then, over several lives, and what is known of each log.

Every life appends, ends transactions, flushes, rolls, retains, compacts, deletes records and topics, in any order,
while single calls of the disk fail or the power goes. Then the node is killed, loses power or stops, and starts
again, on a disk that may fail then, too.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random

from known_log import KnownLog, Sent
from log_samples import settings, write
from test_log_store import Stand

from semel.log.errors import BrokenLog, Refused
from semel.log.log import Log
from semel.records.control import ControlType
from semel.sim.disk import Kind, PowerLost, SimDisk, When

FAILING: list[Kind] = ["create", "write", "truncate", "flush", "mkdir", "rename", "remove", "sync_dir", "read"]
WHEN: list[When] = ["before", "during", "after"]
ENDS_THE_NODE = (OSError, BrokenLog, PowerLost)
COMPACTED = {"min_cleanable_dirty_ratio": 0, "delete_retention_ms": 0}
SETTINGS: dict[str, dict[str, object]] = {
    "events": {"segment_ms": 1000, "retention_bytes": 400, "retention_ms": 60_000},
    "table": {"segment_ms": 1000, "cleanup_policy": "compact", **COMPACTED},
    "both": {"segment_ms": 700, "cleanup_policy": "compact,delete", "retention_ms": 100_000, **COMPACTED},
}
NO_PRODUCER, IDEMPOTENT, TRANSACTIONAL = [-1], [1, 2], [3, 4]
STEPS = {"send": 50, "end": 10, "flush": 12, "roll": 3, "checkpoint": 5, "retain": 7, "compact": 7, "delete": 3}
RARE_STEPS = {"recreate": 1, "pass_time": 2}


@dataclass
class Lives:
    seed: int
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.disk = SimDisk(self.seed)
        self.index_interval_bytes = self.random.choice([0, 60, 200])
        self.past_s = 0.0
        self.numbers = 0
        self.known = {topic: self.new_log(topic) for topic in SETTINGS}
        self.logs: dict[str, Log] = {}

    def new_log(self, topic: str) -> KnownLog:
        self.numbers += 1
        return KnownLog(topic, f"{self.numbers:022d}", "compact" in str(SETTINGS[topic].get("cleanup_policy")))

    async def live(self) -> None:
        await asyncio.sleep(self.past_s)
        self.trouble(chance=0.15, crash_chance=0.1, calls=20)
        try:
            self.start()
        except ENDS_THE_NODE as error:
            self.tell(f"the start failed: {error!r}")
            self.die(self.random.choice(["killed", "powerless"]))
            self.start()
        self.disk.mend()
        for topic, log in self.logs.items():
            self.known[topic].check(log)
        how = await self.work()
        if how == "stopped" and not await self.stop():
            how = "killed"
        for task in list(self.store._tasks):
            task.cancel()
        await asyncio.gather(*self.store._tasks, return_exceptions=True)
        self.die(how)
        self.past_s = asyncio.get_running_loop().time()

    def start(self) -> None:
        self.stand = Stand(self.disk)
        self.store = self.stand.store
        self.store.host = replace(self.store.host, random=self.random)
        self.store.open()
        self.logs = {topic: self.load(topic) for topic in SETTINGS}

    def load(self, topic: str) -> Log:
        config = settings(**SETTINGS[topic] | {"index_interval_bytes": self.index_interval_bytes})
        log = self.store.load(topic, 0, self.known[topic].topic_id, config)
        log.high_watermark = log.end_offset
        return log

    def trouble(self, chance: float, crash_chance: float, calls: int) -> None:
        if self.random.random() < chance:
            kind, nth = self.random.choice(FAILING), self.random.randrange(1, 7)
            self.disk.fail_at(kind, nth, self.random.choice([errno.ENOSPC, errno.EIO]))
            self.tell(f"{kind} number {nth} will fail")
        if self.random.random() < crash_chance:
            self.disk.crash_at(self.disk.calls + self.random.randrange(1, calls), self.random.choice(WHEN))

    async def work(self) -> str:
        """How it ends."""
        self.trouble(chance=0, crash_chance=0.3, calls=120)
        for _ in range(self.random.randrange(5, 50)):
            self.trouble(chance=0.15, crash_chance=0, calls=0)
            try:
                await self.step()
            except Refused as refused:
                self.tell(f"refused: {refused}")
            except ENDS_THE_NODE as error:
                self.stand.broken.append(error)
            if self.stand.broken:
                self.tell(f"the node has ended: {self.stand.broken}")
                return self.random.choice(["killed", "powerless"])
        return self.random.choice(["killed", "powerless", "stopped"])

    async def stop(self) -> bool:
        try:
            await self.store.close()
        except ENDS_THE_NODE:
            return False
        for topic, log in self.logs.items():
            self.known[topic].durable_end = log.end_offset
        return True

    def die(self, how: str) -> None:
        self.tell(how)
        self.disk = self.disk.after_kill() if how != "powerless" and not self.disk.dead else self.after_power_loss()

    def after_power_loss(self) -> SimDisk:
        return self.disk.after_power_loss(self.random.randrange(1 << 30))

    def tell(self, text: str) -> None:
        self.story.append(text)

    # -- what happens to the logs

    async def step(self) -> None:
        topic = self.random.choice(list(SETTINGS))
        names = STEPS | RARE_STEPS
        name = self.random.choices(list(names), list(names.values()))[0] if self.logs[topic].segments else "send"
        self.tell(f"{topic} {name}")
        step: Callable[[str], Awaitable[None]] = getattr(self, name)
        await step(topic)
        self.known[topic].told_start = max(self.known[topic].told_start, self.logs[topic].start_offset)

    async def send(self, topic: str) -> None:
        await asyncio.sleep(self.random.choice([0, 0.01, 0.8, 1.5]))
        known, log, now_ms = self.known[topic], self.logs[topic], self.stand.clock.wall_ms()
        producer = self.random.choice(NO_PRODUCER + IDEMPOTENT + TRANSACTIONAL)
        self.numbers += 1
        sent = Sent(
            self.numbers,
            self.random.choice("abcd"),
            producer,
            known.next_sequence.get(producer, 0) if producer >= 0 else -1,
            known.open.get(producer, self.numbers) if producer in TRANSACTIONAL else None,
        )
        self.tell(f"  {sent}")
        offset = log.end_offset
        try:
            appended = write(log, sent.batch(now_ms), now_ms=now_ms)
        except (PowerLost, BrokenLog):
            known.sent[offset] = sent  # it may be there
            raise
        assert not appended.is_duplicate, "it was never sent before"
        known.note_sent(appended.base_offset, sent)

    async def end(self, topic: str) -> None:
        known, log, now_ms = self.known[topic], self.logs[topic], self.stand.clock.wall_ms()
        if not known.open:
            return
        producer = self.random.choice(sorted(known.open))
        kind = self.random.choice([ControlType.COMMIT, ControlType.ABORT])
        transaction, offset = known.open[producer], log.end_offset
        known.ends[transaction] = offset, kind == ControlType.COMMIT  # it may be there, also if that fails
        try:
            log.append_marker(kind, producer, 0, 0, 0, now_ms)
        except Refused:
            del known.ends[transaction]
            raise
        del known.open[producer]

    async def flush(self, topic: str) -> None:
        known, log = self.known[topic], self.logs[topic]
        end_offset = log.end_offset
        await log.flush()
        known.durable_end = max(known.durable_end, end_offset)
        log.high_watermark = log.flushed_offset

    async def roll(self, topic: str) -> None:
        self.logs[topic].roll()

    async def checkpoint(self, topic: str) -> None:
        await self.store.checkpoint()

    async def retain(self, topic: str) -> None:
        await self.store.apply_retention()

    async def compact(self, topic: str) -> None:
        await self.store.compact_one()

    async def delete(self, topic: str) -> None:
        log = self.logs[topic]
        log.advance_start(self.random.randint(log.start_offset, log.high_watermark))
        await self.store.checkpoint_starts()

    async def recreate(self, topic: str) -> None:
        self.known[topic] = self.new_log(topic)
        self.store.remove(topic, 0)
        self.logs[topic] = self.load(topic)
        self.known[topic].check(self.logs[topic])

    async def pass_time(self, topic: str) -> None:
        await asyncio.sleep(self.random.choice([0.1, 30, 90]))
