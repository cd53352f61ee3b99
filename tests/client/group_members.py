"""Members of groups, ours and those of other clients, that poll by themselves and note what they hold and read."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

import semel

SESSION_MS = 10_000
HEARTBEAT_MS = 500
LONG_S = 60.0

Held = frozenset[tuple[str, int]]


class Member(ABC):
    """Something that reads topics with a group, from the beginning on."""

    values: list[bytes]

    @property
    @abstractmethod
    def holds(self) -> Held: ...

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None:
        """Leaves the group."""


class OurMember(Member):
    """`told` has what its listener heard."""

    def __init__(self, address: str, group: str, *topics: str, **settings: Any) -> None:
        self.values = []
        self.told: list[str] = []
        classic = settings.get("group_protocol", "classic") == "classic"
        timing = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS} if classic else {}
        self.consumer = semel.Consumer(
            *topics,
            listener=self,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            **{"metadata_max_age_ms": 1000, **timing, **settings},
        )
        self._task: asyncio.Task[None] | None = None

    def on_partitions_assigned(self, partitions: Iterable[Any]) -> None:
        self.told.append(f"assigned {' '.join(sorted(map(str, partitions)))}".strip())

    def on_partitions_revoked(self, partitions: Iterable[Any]) -> None:
        self.told.append(f"revoked {' '.join(sorted(map(str, partitions)))}")

    def on_partitions_lost(self, partitions: Iterable[Any]) -> None:
        self.told.append(f"lost {' '.join(sorted(map(str, partitions)))}")

    @property
    def holds(self) -> Held:
        if self._task is not None and self._task.done():
            self._task.result()
        return frozenset((topic, index) for topic, index in self.consumer.assignment())

    async def start(self) -> None:
        await self.consumer.start()
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while True:
            for messages in (await self.consumer.getmany(timeout_ms=100)).values():
                self.values += [message.value for message in messages]

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.consumer.close()


class _Threaded(Member):
    """A client that blocks: it polls in a thread of its own."""

    def __init__(self, address: str, group: str, *topics: str, **settings: Any) -> None:
        self.values = []
        self._given = (address, group, topics, settings)
        self._holds: Held = frozenset()
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def holds(self) -> Held:
        if self._failure is not None:
            raise self._failure
        return self._holds

    async def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._ends.set()
        deadline_s = time.monotonic() + LONG_S
        while self._thread.is_alive():
            assert time.monotonic() < deadline_s, "the other client does not end"
            await asyncio.sleep(0.05)
        self._holds = frozenset()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._read(*self._given)
        except BaseException as error:
            self._failure = error

    @abstractmethod
    def _read(self, address: str, group: str, topics: tuple[str, ...], settings: dict[str, Any]) -> None: ...


class ConfluentMember(_Threaded):
    def _read(self, address: str, group: str, topics: tuple[str, ...], settings: dict[str, Any]) -> None:
        protocol = settings.get("protocol", "classic")
        options: dict[str, Any] = {"group.protocol": protocol}
        if protocol == "classic":
            options |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
            options |= {"partition.assignment.strategy": settings["strategy"]}
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1000,
                **options,
            }
        )
        consumer.subscribe(list(topics))
        while not self._ends.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(message.value())
            self._holds = frozenset((one.topic, one.partition) for one in consumer.assignment())
        consumer.close()


_KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class KafkaPythonMember(_Threaded):
    def _read(self, address: str, group: str, topics: tuple[str, ...], settings: dict[str, Any]) -> None:
        consumer = kafka.KafkaConsumer(
            *topics,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[_KAFKA_PYTHON[settings["strategy"]]],
        )
        while not self._ends.is_set():
            # Long: kafka-python forgets the answer to a SyncGroup that comes after the poll that asked has timed out,
            # and then neither reads nor sends heartbeats.
            for messages in consumer.poll(2000).values():
                self.values += [message.value for message in messages]
            self._holds = frozenset((one.topic, one.partition) for one in consumer.assignment())
        consumer.close()


_AIOKAFKA = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}


class AiokafkaMember(Member):
    def __init__(self, address: str, group: str, *topics: str, **settings: Any) -> None:
        self.values = []
        self._consumer = aiokafka.AIOKafkaConsumer(
            *topics,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[_AIOKAFKA[settings["strategy"]]],
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def holds(self) -> Held:
        return frozenset((one.topic, one.partition) for one in self._consumer.assignment())

    async def start(self) -> None:
        # It joins inside start, and returns when the group is ready.
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        await self._consumer.start()
        while True:
            for messages in (await self._consumer.getmany(timeout_ms=100)).values():
                self.values += [message.value for message in messages]

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._consumer.stop()


async def eventually(condition: Callable[[], bool], what: Callable[[], object], timeout_s: float = LONG_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, what()
        await asyncio.sleep(0.05)


async def shared(*members: Member, everything: Held, each: int | None = None) -> None:
    """Waits until the members hold everything together, nothing twice, and `each` at least so many."""

    def is_so() -> bool:
        held = [one for member in members for one in member.holds]
        enough = each is None or all(len(member.holds) >= each for member in members)
        return enough and sorted(held) == sorted(everything)

    await eventually(is_so, lambda: [sorted(member.holds) for member in members])


def write(address: str, topic: str, partitions: int, values: Iterable[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 1})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(LONG_S) == 0


async def read_once(members: Iterable[Member], values: list[bytes]) -> None:
    """Waits until the members have read these values, each of them once."""
    members = list(members)

    def read() -> list[bytes]:
        return sorted(value for member in members for value in member.values)

    await eventually(lambda: len(read()) >= len(values), read)
    await asyncio.sleep(0.3)
    assert read() == sorted(values)
