"""Producers of the workload: plain ones, and transactional ones that commit, abort, walk away and come back late."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from semel.client.errors import AbortTransactionError, RestartProducerError, RetriableError, SemelError
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.sim.history import NO_TRANSACTION, Client
from semel.sim.workload.access import CLOSE_S, Access
from semel.sim.workload.recording import delivered, end, init, send

WAITING_MAX = 50
ABORTS = 0.25
WALKS_AWAY = 0.06
DAWDLES = 0.01
IMPATIENT_MS = 300


async def write_plainly(access: Access, name: str, over: asyncio.Event, *, is_impatient: bool = False) -> None:
    """One idempotent producer; it sends in bursts, so that several batches are in flight. An impatient one gives
    records up soon, and does not know then whether they were written."""
    random = access.random(name)
    access.history.add_client(Client(name, "plain"))
    timeout_ms = access.load.request_timeout_ms + IMPATIENT_MS
    producer = access.producer(name, **({"delivery_timeout_ms": timeout_ms} if is_impatient else {}))
    await producer.start()
    waiting: list[Delivery] = []
    try:
        while not over.is_set():
            partitions = access.partitions(access.records_topic)
            if random.random() < 0.5:
                partitions = [random.choice(partitions)]  # as many batches in flight as a broker has to remember
            for _ in range(random.randint(1, 10)):
                waiting.append(await send(access, producer, name, random.choice(partitions), random))
            if len(waiting) > WAITING_MAX or random.random() < 0.3:
                await delivered(waiting)
                waiting.clear()
            await access.pause(random)
        await delivered(waiting)
    finally:
        await producer.close(timeout_s=CLOSE_S)


class Transactor:
    """Whoever holds one transactional id: one producer after the other, of which each fences those before."""

    def __init__(self, access: Access, name: str, generation: int, transactional_id: str | None = None) -> None:
        self.access = access
        self.name = name
        self.generation = generation
        self.random = access.random(name)
        self.transactional_id = f"{access.name}-{name}" if transactional_id is None else transactional_id
        self._dawdles = False
        self._instances = 0
        self._zombies: set[asyncio.Task[None]] = set()

    async def run(self, over: asyncio.Event) -> None:
        process, producer = await self.take_over()
        try:
            while not over.is_set():
                is_usable, transaction, waiting = await self._transact(process, producer)
                if transaction != NO_TRANSACTION:
                    following = await self.take_over()
                    self._leave(self._come_back_late(process, producer, transaction, waiting))
                    process, producer = following
                elif not is_usable:
                    await producer.close(timeout_s=CLOSE_S)
                    process, producer = await self.take_over()
                await self.access.pause(self.random)
            await asyncio.gather(*self._zombies)
        finally:
            for task in self._zombies:
                task.cancel()
            await asyncio.gather(*self._zombies, return_exceptions=True)
            await producer.close(timeout_s=CLOSE_S)

    async def take_over(self) -> tuple[str, Producer]:
        """A new producer of the same id: what the one before has left open is aborted."""
        while True:
            self._instances += 1
            process = f"{self.name}.{self._instances}"
            self.access.history.add_client(Client(process, "transactor", transactional_id=self.transactional_id))
            load = self.access.load
            # One of three will take longer for a transaction than it has said.
            self._dawdles = self.random.random() < 1 / 3
            timeout_ms = load.short_transaction_timeout_ms if self._dawdles else load.transaction_timeout_ms
            producer = self.access.producer(
                process, self.generation, transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
            )
            try:
                await producer.start()
                if await init(self.access, producer, process):
                    return process, producer
            except BaseException:
                await producer.close(timeout_s=0)
                raise
            await producer.close(timeout_s=CLOSE_S)

    async def _transact(self, process: str, producer: Producer) -> tuple[bool, int, list[Delivery]]:
        """Whether the producer can go on; and the transaction that it has walked away from, if it has."""
        access, random = self.access, self.random
        transaction = access.history.next_transaction()
        try:
            await producer.begin()
            waiting: list[Delivery] = []
            for number in range(random.randint(1, 6)):
                partition = random.choice(access.partitions(access.records_topic))
                waiting.append(await send(access, producer, process, partition, random, transaction=transaction))
                if random.random() < (0.5 if number == 0 else 0.2):
                    await delivered(waiting)
                if random.random() < 0.3:
                    await access.pause(random)
            if self._dawdles and random.random() < DAWDLES:
                await asyncio.sleep(1.5 * access.load.short_transaction_timeout_ms / 1000)
            if random.random() < WALKS_AWAY:
                return True, transaction, waiting
        except AbortTransactionError:
            return await self._end(process, producer, transaction, is_commit=False), NO_TRANSACTION, []
        except (RestartProducerError, RetriableError):
            return False, NO_TRANSACTION, []
        is_commit = random.random() >= ABORTS
        return await self._end(process, producer, transaction, is_commit=is_commit), NO_TRANSACTION, []

    async def _end(self, process: str, producer: Producer, transaction: int, *, is_commit: bool) -> bool:
        return (await end(self.access, producer, process, transaction, is_commit=is_commit)).is_usable

    def _leave(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._zombies.add(task)
        task.add_done_callback(self._zombies.discard)

    async def _come_back_late(
        self, process: str, producer: Producer, transaction: int, waiting: list[Delivery]
    ) -> None:
        """Thought dead, replaced, and now it goes on: nothing of it may ever be seen."""
        access, random = self.access, self.random
        await access.pause(random)
        try:
            await delivered(waiting)
            partition = random.choice(access.partitions(access.records_topic))
            await delivered([await send(access, producer, process, partition, random, transaction=transaction)])
            await end(access, producer, process, transaction, is_commit=True)
        except SemelError:
            pass  # fenced, as it should be
        finally:
            await producer.close(timeout_s=CLOSE_S)
