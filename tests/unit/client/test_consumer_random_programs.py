"""Programs that do whatever they like, under a seed: read in every way, seek, pause, leave loops. Each record must come
when it is its turn, and no other, with small answers, transactions that are aborted, and broken connections between.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from random import Random
from typing import Any

import pytest
from consumer_world import Consumer, Node, at, consumer_of, on_broker
from transaction_harness import TOPIC, V2, started, with_transactions

PARTITIONS = 3
SEEDS = 40
ACTIONS = ["many", "many", "columns", "loop", "one", "seek", "ends", "pause", "resume", "check", "wait"]


class Judge:
    """Knows what is visible in each partition, and where the program should be."""

    def __init__(self) -> None:
        self.visible: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.paused: set[int] = set()
        self.history: list[str] = []

    def next_of(self, partition: int) -> tuple[int, bytes] | None:
        records = self.visible[partition]
        index = bisect_left(records, (self.positions[partition], b""))
        return records[index] if index < len(records) else None

    def gave(self, partition: int, offset: int, value: Any) -> None:
        assert partition not in self.paused, f"{partition} is paused; {self.history[-10:]}"
        assert (offset, value) == self.next_of(partition), f"partition {partition}; {self.history[-10:]}"
        self.positions[partition] = offset + 1

    @property
    def is_through(self) -> bool:
        return all(self.next_of(partition) is None for partition in self.visible)


async def fill(node: Node, judge: Judge, random: Random) -> None:
    client = await with_transactions(node, PARTITIONS)
    producer = await started(client, V2)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for number in range(40):
        partition = random.randrange(PARTITIONS)
        is_kept = random.random() < 0.6
        for part in range(random.randint(1, 3)):
            values = [
                b"%d.%d.%d " % (number, part, index) * random.randint(1, 20) for index in range(random.randint(1, 9))
            ]
            options = {"codec": 4} if random.random() < 0.3 else {}
            assert await producer.write(*values, partition=partition, **options) == 0
            for value in values:
                if is_kept:
                    judge.visible[partition].append((ends[partition], value))
                ends[partition] += 1
        assert await producer.end(commit=is_kept) == 0
        ends[partition] += 1
    client.close()


async def act(consumer: Consumer, judge: Judge, random: Random) -> None:
    partition = random.randrange(PARTITIONS)
    place = at(f"{TOPIC}-{partition}")
    action = random.choice(
        ["many", "many", "columns", "loop", "one", "seek", "ends", "pause", "resume", "check", "wait"]
    )
    judge.history.append(f"{action} {partition}")
    if action == "many":
        only = [place] if random.random() < 0.3 else []
        found = await consumer.getmany(*only, timeout_ms=random.choice([0, 50, 600]), max_records=random.randint(1, 30))
        for one, messages in found.items():
            for message in messages:
                judge.gave(one.partition, message.offset, message.value)
    elif action == "columns":
        most = random.choice([None, random.randint(1, 30)])
        for row in (await consumer.poll_columns(timeout_ms=50, max_records=most)).to_pylist():
            judge.gave(row["partition"], row["offset"], row["value"])
    elif action in ("loop", "one"):
        if all(judge.next_of(one) is None for one in judge.visible if one not in judge.paused):
            return
        left = random.randint(1, 12)
        if action == "one":
            message = await consumer.getone()
            judge.gave(message.partition, message.offset, message.value)
            return
        async for message in consumer:
            judge.gave(message.partition, message.offset, message.value)
            left -= 1
            if not left or all(judge.next_of(one) is None for one in judge.visible if one not in judge.paused):
                break
            if random.random() < 0.1:
                await act(consumer, judge, random)
                if all(judge.next_of(one) is None for one in judge.visible if one not in judge.paused):
                    break
    elif action == "seek":
        end = judge.visible[partition][-1][0] if judge.visible[partition] else 0
        judge.positions[partition] = random.randint(0, end)
        consumer.seek(place, judge.positions[partition])
    elif action == "ends":
        await consumer.seek_to_beginning(place)
        judge.positions[partition] = 0
    elif action == "pause":
        consumer.pause(place)
        judge.paused.add(partition)
    elif action == "resume":
        consumer.resume(place)
        judge.paused.discard(partition)
    elif action == "check":
        following = judge.next_of(partition)
        position = await consumer.position(place)
        assert position >= judge.positions[partition], judge.history[-10:]
        assert following is None or position <= following[0], judge.history[-10:]
    else:
        await asyncio.sleep(random.uniform(0, 1))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_a_program_does_each_record_comes_in_its_turn(seed: int) -> None:
    @on_broker()
    async def scenario(node: Node) -> None:
        random = Random(seed)
        judge = Judge()
        await fill(node, judge, random)
        wires = node.world.wires
        wires.latency_ms = (0.1, 10.0)
        settings = {
            "isolation_level": "read_committed",
            "max_partition_fetch_bytes": random.choice([1, 500, 2000, 1 << 20]),
            "fetch_max_bytes": random.choice([1, 1000, 1 << 20]),
            "fetch_max_wait_ms": random.choice([0, 20, 500]),
        }
        async with consumer_of(node, **settings) as consumer:
            consumer.assign([at(f"{TOPIC}-{number}") for number in range(PARTITIONS)])
            for _ in range(60):
                if random.random() < 0.05:
                    links = [link for link in wires.links() if link.node.startswith("consumer")]
                    if links:
                        wires.cut(random.choice(links))
                await act(consumer, judge, random)
            consumer.resume()
            judge.paused.clear()
            judge.history.append("to the end")
            async with asyncio.timeout(600):
                while not judge.is_through:
                    for one, messages in (await consumer.getmany(timeout_ms=1000)).items():
                        for message in messages:
                            judge.gave(one.partition, message.offset, message.value)

    scenario()
