"""Kafka Streams with exactly_once_v2 on three semel brokers that are killed and paused while it works.

Its program keeps a total for each key, so its output tells how often it has counted each record, in which order: a
record that was lost or counted twice shows in every later one of its key.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apache_kafka
from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic
from semel.client.consumer.consumer import Consumer
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.client.values import Message
from semel.host.real import real_host
from semel.sim.attack.assault import FaultKind
from semel.sim.attack.attacked_cluster import AttackedCluster
from semel.sim.attack.cluster_assault import ClusterAssault
from semel.sim.history import History

PROGRAM = Path(__file__).parent / "Totals.java"
INPUT, OUTPUT, APPLICATION = "numbers", "totals", "adding"
PARTITIONS, KEYS, INSTANCES = 3, 20, 2
RECORDS_A_SECOND = 100
KILL_EVERY_S = 40.0
PATIENCE_S = 180.0
_LONG_MS = 600_000


class StreamsRun(NamedTuple):
    """What was done; `wrong` says what the output does not hold as it should."""

    faults: Counter[str]
    instances_killed: int
    written: int
    results: int
    wrong: list[str]


class Instance:
    """One process of the program, with a directory for its state."""

    def __init__(self, number: int, address: str, root: Path) -> None:
        directory = root / f"streams-{number}"
        java = ["java", "-Xmx256m", *apache_kafka.QUICK_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        arguments = [address, APPLICATION, INPUT, OUTPUT, str(KEYS), str(directory)]
        self._command = [*java, "-cp", apache_kafka.streams_class_path(), str(PROGRAM), *arguments]
        self.log = root / f"streams-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"the program has ended by itself:\n{self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def run_streams(root: Path, seconds: float, seed: int, kinds: Sequence[FaultKind]) -> StreamsRun:
    apache_kafka.broker_class_path()
    apache_kafka.streams_class_path()
    with closing(real_host()) as host:
        cluster = AttackedCluster(host, root, 3)
        try:
            return asyncio.run(_run(cluster, root, seconds, random.Random(seed), kinds))
        finally:
            cluster.close()


async def _run(
    cluster: AttackedCluster, root: Path, seconds: float, chance: random.Random, kinds: Sequence[FaultKind]
) -> StreamsRun:
    await cluster.start()
    address = cluster.bootstrap_servers
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(INPUT, PARTITIONS), NewTopic(OUTPUT, PARTITIONS)])
    instances = [Instance(number, address, root) for number in range(INSTANCES)]
    for instance in instances:
        instance.start()
    try:
        output = _Output(address)
        async with output:
            writing = asyncio.create_task(_write(address, over := asyncio.Event()))
            await output.until(1, PATIENCE_S)  # the program is at work
            assault = ClusterAssault(kinds, cluster, [], chance, History())
            attack = asyncio.create_task(assault.run())
            killed = await _watch(instances, [writing, attack], seconds, chance)
            attack.cancel()
            with suppress(asyncio.CancelledError):
                await attack
            await assault.heal()
            over.set()
            written = await writing
            await output.until(written, PATIENCE_S)
            await output.look(3.0)  # nothing may come after that
            for instance in instances:
                instance.check()
    finally:
        for instance in instances:
            instance.kill()
    await cluster.stop()
    faults = Counter({kind.value: count for kind, count in assault.dealt.items()})
    return StreamsRun(faults, killed, written, len(output.messages), wrong_with(output.messages, written))


async def _watch(
    instances: list[Instance],
    tasks: Sequence[asyncio.Task[Any]],
    seconds: float,
    chance: random.Random,
) -> int:
    """From time to time an instance is killed, too. Returns how many were."""
    loop = asyncio.get_running_loop()
    until_s, kill_s, killed = loop.time() + seconds, loop.time() + KILL_EVERY_S / 2, 0
    while loop.time() < until_s:
        await asyncio.sleep(0.2)
        for task in tasks:
            if task.done():
                task.result()
        for instance in instances:
            instance.check()
        if loop.time() >= kill_s:
            kill_s += KILL_EVERY_S
            killed += 1
            instance = chance.choice(instances)
            instance.kill()
            instance.start()
    return killed


async def _write(address: str, over: asyncio.Event) -> int:
    """The numbers from 0 on; how many were acknowledged, which is all."""
    settings = {"delivery_timeout_ms": _LONG_MS, "max_block_ms": _LONG_MS, "request_timeout_ms": 2000}
    count = 0
    async with Producer(bootstrap_servers=address, linger_ms=0, **settings) as producer:
        while not over.is_set():
            await producer.send(INPUT, b"%d" % count, partition=count % PARTITIONS)
            count += 1
            await asyncio.sleep(1 / RECORDS_A_SECOND)
        await producer.flush()
    return count


class _Output:
    """Reads what is committed of the output."""

    def __init__(self, address: str) -> None:
        settings = {"request_timeout_ms": 2000, "default_api_timeout_ms": _LONG_MS, "auto_offset_reset": "earliest"}
        self._consumer = Consumer(bootstrap_servers=address, isolation_level="read_committed", **settings)
        self.messages: list[Message] = []

    async def __aenter__(self) -> _Output:
        await self._consumer.start()
        self._consumer.assign([TopicPartition(OUTPUT, number) for number in range(PARTITIONS)])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.close()

    async def look(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            for messages in (await self._consumer.poll(timeout_ms=200)).values():
                self.messages += messages

    async def until(self, count: int, patience_s: float) -> None:
        """Returns when there are so many, or nothing has come for so long."""
        loop = asyncio.get_running_loop()
        moved_s = loop.time()
        while len(self.messages) < count and loop.time() - moved_s < patience_s:
            before = len(self.messages)
            await self.look(0.2)
            if len(self.messages) > before:
                moved_s = loop.time()


def wrong_with(messages: Sequence[Message], written: int) -> list[str]:
    """Each number once; under each key the counts 1, 2, 3 and so on, with the sums of all numbers so far."""
    wrong = []
    totals: dict[bytes | None, tuple[int, int]] = {}
    seen: Counter[int] = Counter()
    for message in messages:
        count, total, number = map(int, (message.value or b"").split())
        seen[number] += 1
        before_count, before_total = totals.get(message.key, (0, 0))
        if (count, total) != (before_count + 1, before_total + number):
            place = f"{message.partition} at offset {message.offset}"
            wrong.append(
                f"key {message.key!r}, partition {place}: count {count}, sum {total} with {number}, "
                f"after count {before_count}, sum {before_total}"
            )
        totals[message.key] = count, total
    lost = [number for number in range(written) if not seen[number]]
    doubled = [number for number, count in seen.items() if count > 1]
    if lost:
        wrong.append(f"{len(lost)} of {written} are not in the output, the first: {lost[0]}")
    if doubled:
        wrong.append(f"{len(doubled)} are in the output twice, the first: {doubled[0]}")
    return wrong
