"""Transactions in the simulated world: some commit, some abort, some producers are replaced while they still live.

Afterwards a reader of committed data has seen every committed transaction whole, nothing of the others, in order, and
nothing hangs. The truth are the markers in the logs; the reader is our consumer, and runs all the while.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from client_reader import CommittedReader
from client_workload import CALM_S, TOPIC, broker_deaths, drawn_settings, number_of, pause

from client_world import ClientWorld, RawClient
from semel.client.errors import AbortTransactionError, FatalError, RestartProducerError, RetriableError, SemelError
from semel.client.metadata import TopicPartition
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

INPUT = "input"
GROUP = "group"
TRANSACTIONAL_ID = "payments"


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Its commit was asked for, and the producer ended before the answer came."""


@dataclass
class Attempt:
    """One transaction. `records` are (partition, number)."""

    number: int
    wants_commit: bool
    offset: int | None
    records: list[tuple[int, int]] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


class TransactionalRun:
    """One transactional producer, replaced when it has ended, and plain records of another one between its own."""

    def __init__(self, world: ClientWorld) -> None:
        self.world = world
        self.random = world.random("workload")
        self.partitions = self.random.randint(1, 3)
        self.settings = drawn_settings(self.random, impatient=self.random.random() < 0.25)
        if self.random.random() < 0.2:
            self.settings["transaction_timeout_ms"] = self.random.choice([500, 3_000])
        self.attempts: list[Attempt] = []
        self.plain: dict[int, Delivery] = {}
        self.zombies: list[tuple[Producer, bool]] = []
        """Producers that were replaced, and whether they have a transaction open."""
        self._numbers = 0

    async def run(self) -> None:
        world, random = self.world, self.random
        await world.create_topic(TOPIC, self.partitions)
        await world.create_topic(INPUT, 1)
        world.note(f"settings: {self.settings}")
        producer = await self._new_producer()
        plain = Producer(host=world.host("plain"), bootstrap_servers=world.address, **drawn_settings(random))
        await plain.start()
        reader = CommittedReader(world, [TopicPartition(TOPIC, number) for number in range(self.partitions)])
        deaths = broker_deaths(world, random, 5.0)
        for _ in range(random.randint(1, 8)):
            attempt = Attempt(len(self.attempts), random.random() < 0.6, self._drawn_offset())
            self.attempts.append(attempt)
            fate = random.random()
            attempt.outcome, is_ended = await self._attempt(producer, attempt, walks_away=fate < 0.1)
            world.note(f"{attempt.outcome.value}: {attempt.records}")
            if is_ended:
                await producer.close(timeout_s=5)
                producer = await self._new_producer()
            elif fate < 0.2:
                has_open = fate < 0.1 and bool(attempt.records or attempt.offset is not None)
                self.zombies.append((producer, has_open))
                producer = await self._new_producer()
            if random.random() < 0.3:
                value = self._next_value()
                self.plain[number_of(value)] = await plain.send(TOPIC, value, partition=0)
            await pause(random)
        if deaths is not None:
            await deaths
        world.calm()
        await asyncio.sleep(CALM_S)
        try:
            await self._go_on(producer)
        except RestartProducerError as error:
            # Its transaction was timed out, or an InitProducerId of its own came late and has fenced it.
            world.note(f"one more producer: {error!r}")
            self.attempts[-1].outcome = Outcome.ABORTED
            await producer.close(timeout_s=5)
            producer = await self._new_producer()
            await self._go_on(producer)
        await plain.close()
        await producer.close()
        for zombie, has_open in self.zombies:
            await self._check_fenced(zombie, has_open)
        await self._judge(reader)

    def _drawn_offset(self) -> int | None:
        return len(self.attempts) + 1 if self.random.random() < 0.3 else None

    def _next_value(self) -> bytes:
        self._numbers += 1
        return b"%d %s" % (self._numbers, b"." * self.random.choice([1, 20, 90]))

    async def _new_producer(self) -> Producer:
        """As often as it takes: another start of it fences those before."""
        while True:
            producer = Producer(
                host=self.world.host("producer"),
                bootstrap_servers=self.world.address,
                transactional_id=TRANSACTIONAL_ID,
                **self.settings,
            )
            await producer.start()
            try:
                await producer.init_transactions()
                return producer
            except (RestartProducerError, RetriableError) as error:
                # A request of its own that came late has overtaken it.
                self.world.note(f"init_transactions: {error!r}")
                await producer.close(timeout_s=5)

    async def _attempt(self, producer: Producer, attempt: Attempt, *, walks_away: bool) -> tuple[Outcome, bool]:
        """What became of it, and whether the producer is of no more use. One that walks away leaves it open."""
        is_commit_asked = False
        try:
            try:
                await producer.begin()
                await self._fill(producer, attempt)
                if walks_away:
                    return Outcome.ABORTED, False
                if attempt.wants_commit:
                    is_commit_asked = True
                    await self._insist(producer.commit)
                    return Outcome.COMMITTED, False
            except AbortTransactionError as error:
                self.world.note(f"to be aborted: {error!r}")
            await self._insist(producer.abort)
            return Outcome.ABORTED, False
        except (RestartProducerError, FatalError, RetriableError) as error:
            self.world.note(f"ended: {error!r}")
            return Outcome.UNKNOWN if is_commit_asked else Outcome.ABORTED, True

    async def _fill(self, producer: Producer, attempt: Attempt) -> None:
        deliveries = []
        for _ in range(self.random.randint(0, 12)):
            partition, value = self.random.randrange(self.partitions), self._next_value()
            attempt.records.append((partition, number_of(value)))
            deliveries.append(await producer.send(TOPIC, value, partition=partition))
            await pause(self.random)
        if attempt.offset is not None:
            await producer.send_offsets_to_transaction({TopicPartition(INPUT, 0): attempt.offset}, GROUP)
        if self.random.random() < 0.3:
            for delivery in deliveries:
                await delivery

    async def _insist(self, call: Any) -> None:
        for _ in range(20):
            try:
                await call()
                return
            except RetriableError as error:
                self.world.note(f"once more: {error!r}")
        await call()

    async def _go_on(self, producer: Producer) -> None:
        """Whatever has happened before, in a calm world a transaction succeeds, in every partition."""
        attempt = Attempt(len(self.attempts), True, None)
        self.attempts.append(attempt)
        await producer.begin()
        for partition in range(self.partitions):
            value = self._next_value()
            attempt.records.append((partition, number_of(value)))
            await producer.send(TOPIC, value, partition=partition)
        await producer.commit()
        attempt.outcome = Outcome.COMMITTED

    async def _check_fenced(self, zombie: Producer, has_open: bool) -> None:
        """A producer that was replaced can write nothing that anybody sees."""
        if has_open:  # else there is nothing to commit, and nobody is asked
            with pytest.raises(SemelError) as refused:
                await self._insist(zombie.commit)
            self.world.note(f"zombie: {refused.value!r}")
        else:
            attempt = Attempt(len(self.attempts), True, None)
            self.attempts.append(attempt)
            _, is_ended = await self._attempt(zombie, attempt, walks_away=False)
            assert not attempt.records or is_ended, "a producer that was replaced goes on"
            attempt.outcome = Outcome.ABORTED
        await zombie.close(timeout_s=5)

    # -- afterwards

    async def _judge(self, reader: CommittedReader) -> None:
        world = self.world
        last = await self._new_producer()
        await last.close()
        await asyncio.sleep(1)
        visible: dict[int, list[int]] = {}
        seen: set[int] = set()
        for partition in range(self.partitions):
            records = await world.logged(TOPIC, partition)
            numbers = [number_of(record.value) for record in records]
            assert len(seen | set(numbers)) == len(seen) + len(numbers), f"twice in {numbers} or {seen}"
            seen |= set(numbers)
            assert all(record.is_committed is not None for record in records), f"partition {partition} has open ones"
            assert world.open_transactions(TOPIC, partition) == 0
            shown = [record for record in records if record.is_committed]
            visible[partition] = [number_of(record.value) for record in shown]
            told = [number_of(value) for value in await world.committed(TOPIC, partition)]
            assert told == visible[partition], "what the broker tells of aborted transactions is what the markers say"
            await reader.check(TopicPartition(TOPIC, partition), [(record.offset, record.value) for record in shown])
        await reader.close()
        self._judge_attempts(visible)
        await self._judge_offsets(visible)

    def _judge_attempts(self, visible: dict[int, list[int]]) -> None:
        everything = {(partition, number) for partition, numbers in visible.items() for number in numbers}
        assert all(delivery.exception() is None for delivery in self.plain.values())
        assert {(0, number) for number in self.plain} <= everything, "plain records do not wait for transactions"
        for attempt in self.attempts:
            shown = everything & set(attempt.records)
            if attempt.outcome is Outcome.COMMITTED:
                assert shown == set(attempt.records), f"{attempt}: only {shown} can be seen"
            elif attempt.outcome is Outcome.ABORTED:
                assert not shown, f"{attempt}: {shown} can be seen"
            else:
                assert not shown or shown == set(attempt.records), f"{attempt} is half there: {shown}"
        for partition, numbers in visible.items():
            mine = [number for number in numbers if number not in self.plain]
            others = [number for number in numbers if number in self.plain]
            assert (mine, others) == (sorted(mine), sorted(others)), f"partition {partition} is out of order"

    async def _judge_offsets(self, visible: dict[int, list[int]]) -> None:
        everything = {number for numbers in visible.values() for number in numbers}
        client = await self.world.node.client()
        committed = await committed_offset(client, GROUP, INPUT)
        client.close()
        allowed = {-1}
        for attempt in self.attempts:
            if attempt.offset is None:
                continue
            is_visible = any(number in everything for _, number in attempt.records)
            if attempt.outcome is Outcome.COMMITTED or is_visible:
                allowed = {attempt.offset}
            elif attempt.outcome is Outcome.UNKNOWN and not attempt.records:
                allowed.add(attempt.offset)
        assert committed in allowed, f"the group's offset is {committed}, not one of {allowed}"


async def committed_offset(client: RawClient, group: str, topic: str) -> int:
    found = await client.ask(FindCoordinatorRequest(key=group, key_type=0), 2)
    assert found.error_code == 0
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    request.require_stable = True
    answer = await client.ask(request, 7)
    assert answer.error_code == 0
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0, "nothing is open any more"
    return int(part.committed_offset)
