"""A small shop on a real cluster: topics, groups and transactions of all kinds, for the pages to show."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import semel
from semel.client.admin.values import NewTopic

CITIES = ("Bern", "Chur", "Genf", "Lugano", "Zug")


def payment(number: int, chance: random.Random) -> bytes:
    return json.dumps(
        {
            "id": f"p-{number:06}",
            "order": {"id": 7000 + number // 3, "city": chance.choice(CITIES)},
            "amount": round(chance.uniform(1, 400), 2),
            "currency": "CHF",
            "paid": number % 5 != 0,
        }
    ).encode()


@asynccontextmanager
async def shop(address: str, *, replicas: int = 1, payments: int = 600) -> AsyncIterator[Shop]:
    """Written and read; `till-3` holds payments/1 back until the end."""
    async with AsyncExitStack() as stack:
        opened = Shop(address, stack)
        await opened.open(replicas, payments)
        yield opened


class Shop:
    def __init__(self, address: str, stack: AsyncExitStack) -> None:
        self.address = address
        self._stack = stack
        self.chance = random.Random(7)
        self.number = 0

    async def open(self, replicas: int, payments: int) -> None:
        async with semel.Admin(bootstrap_servers=self.address) as admin:
            await admin.create_topics(
                [
                    NewTopic("payments", 3, replicas, {"retention.ms": 604_800_000}),
                    NewTopic("orders", 6, replicas),
                    NewTopic("receipts", 3, replicas, {"cleanup.policy": "compact"}),
                    NewTopic("page-views", 12, replicas, {"compression.type": "lz4"}),
                    NewTopic("returns", 1, replicas),
                    NewTopic("fraud-alerts", 1, replicas),
                ]
            )
        await self.write("orders", payments)
        await self.write("page-views", payments * 2)
        await self.pay("till-1", payments // 2)
        await self.pay("till-1", payments // 6)
        await self.pay("till-2", payments // 6, is_aborted=True)
        await self.read("reports", ["payments", "orders"], payments // 2)
        await self.read("search-index", ["orders", "page-views"], payments)
        self.stuck = await self._stack.enter_async_context(self.producer("till-3"))
        transaction = self.stuck.transaction()
        await transaction.__aenter__()
        self._stack.push_async_callback(self._let_go, transaction)
        for _ in range(4):
            await self.stuck.send("payments", self._next(), key=b"42", partition=1)
        await self.stuck.flush()
        await self.pay("till-1", payments // 12)
        await self.read("billing", ["payments"], 10_000)
        await self.pay("till-2", payments // 20, is_aborted=True)
        await self.pay("till-1", payments // 12)

    async def _let_go(self, transaction: object) -> None:
        """Whoever looks may have ended it."""
        try:
            await transaction.__aexit__(ValueError, ValueError("the shop closes"), None)  # type: ignore[attr-defined]
        except Exception:
            pass

    def producer(self, transactional_id: str | None = None) -> semel.Producer:
        return semel.Producer(
            bootstrap_servers=self.address,
            transactional_id=transactional_id,
            client_id=transactional_id or "web",
            transaction_timeout_ms=600_000,
        )

    def _next(self) -> bytes:
        self.number += 1
        return payment(self.number, self.chance)

    async def write(self, topic: str, count: int) -> None:
        async with self.producer() as producer:
            for number in range(count):
                await producer.send(topic, self._next(), key=f"{number % 50}".encode(), headers=[("source", b"web")])

    async def pay(self, transactional_id: str, count: int, *, is_aborted: bool = False, held_s: float = 0.0) -> None:
        """In transactions of 20 payments, each of which is open for so long."""
        async with self.producer(transactional_id) as producer:
            for _ in range(max(count // 20, 1)):
                try:
                    async with producer.transaction():
                        for _ in range(20):
                            key = f"{self.chance.randrange(100)}".encode()
                            headers = [("source", b"till"), ("trace", b"\x01\x02\xff")]
                            await producer.send("payments", self._next(), key=key, headers=headers)
                        await producer.send("receipts", b"printed", key=key)
                        await asyncio.sleep(held_s)
                        if is_aborted:
                            await producer.flush()  # what was not sent yet would leave no trace
                            raise _Torn
                except _Torn:
                    pass
                await asyncio.sleep(0.05)

    async def read(self, group: str, topics: list[str], count: int) -> None:
        """Commits what it has read, and goes away."""
        async with semel.Consumer(
            *topics,
            bootstrap_servers=self.address,
            group_id=group,
            client_id=f"{group}-1",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            left, idle = count, 0
            while left > 0 and idle < 3:
                found = await consumer.poll(500, min(left, 500))
                left -= sum(len(messages) for messages in found.values())
                idle = 0 if found else idle + 1
            await consumer.commit()


class _Torn(Exception):
    pass
