"""The course of every run: topics are made, everybody works until the time is over, everything heals, everybody comes
to an end, and new readers read all of it once more. Who works, and what has to end, is said by those built on it."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic
from semel.client.errors import RetriableError, SemelError
from semel.client.metadata import TopicPartition
from semel.sim.history import Client, Finish, Outcome
from semel.sim.workload.access import CLOSE_S, Access
from semel.sim.workload.readers import AssignedReader
from semel.sim.workload.recording import send

CONDUCTOR = "conductor"
WATCH_S = 0.1
FIRST_ANSWER_MS = 10_000
"""Before anybody attacks: a cluster that does not answer by then is not there."""
READING = "reading"
ATTACK = "attack"


async def nothing() -> None:
    """Nobody attacks: there is nothing to heal."""


class Stage(ABC):
    """`phase` says what it is at; `access.counts` what was done so far."""

    def __init__(self, access: Access, topics: Sequence[str]) -> None:
        self.access = access
        self.topics = list(topics)
        self.phase = "starting"
        self.reading_over = asyncio.Event()
        self._has_begun = False  # the cluster has answered, and something may have been made
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    @abstractmethod
    def start_all(self) -> None:
        """Starts everybody."""

    @abstractmethod
    async def wind_up(self) -> None:
        """Ends everybody, in order, after everything has healed."""

    async def run(
        self,
        seconds: float,
        *,
        attack: Callable[[], Coroutine[Any, Any, None]] | None = None,
        heal: Callable[[], Awaitable[None]] = nothing,
    ) -> None:
        """`attack` runs beside it, and is cancelled before `heal` is called."""
        try:
            await self._create_topics()
            self.start_all()
            self.set_phase("working")
            if attack is not None:
                self.start(ATTACK, attack())
            await self._watch(seconds)
            self.set_phase("healing")
            await self._stop(ATTACK)
            await heal()
            try:
                async with asyncio.timeout(self.access.load.ending_s):
                    await self.wind_up()
                    self.set_phase("done")
            except TimeoutError:
                self._note_unended()
        finally:
            for role in list(self._tasks):
                await self._stop(role)

    def _note_unended(self) -> None:
        history = self.access.history
        finish = history.begin(Finish(process=CONDUCTOR, place=self.phase, reads_committed=False))
        history.end(finish, Outcome.FAIL, f"not over after {self.access.load.ending_s:.0f} s")

    # -- topics

    async def _create_topics(self) -> None:
        access = self.access
        settings = {**access.connection(), "bootstrap_timeout_ms": FIRST_ANSWER_MS}
        async with Admin(host=access.hosts(CONDUCTOR), **settings) as admin:
            self._has_begun = True
            await admin.create_topics([NewTopic(name, access.load.partitions) for name in self.topics])

    async def remove_all(self) -> None:
        """Topics and groups of this run, as far as they were made."""
        if not self._has_begun:
            return
        access = self.access
        async with Admin(host=access.hosts(CONDUCTOR), **access.connection()) as admin:
            made = await admin.list_topics()
            await admin.delete_topics([topic for topic in self.topics if topic in made])
            for group in await admin.list_groups():
                if group.startswith(f"{access.name}-"):
                    await self._remove_group(admin, group)

    @staticmethod
    async def _remove_group(admin: Admin, group: str) -> None:
        """Members that were cut off while they closed are still in it: nobody is meant to come back."""
        with contextlib.suppress(SemelError):
            await admin.remove_members(group, everybody=True)
        with contextlib.suppress(SemelError):
            await admin.delete_groups(group)

    async def write_last(self, topic: str) -> dict[TopicPartition, int]:
        """One more record in every partition, and where it stands: who has read it was at the end."""
        access = self.access
        process = f"last-{topic}"
        access.history.add_client(Client(process, "plain"))
        producer = access.producer(process)
        await producer.start()
        offsets: dict[TopicPartition, int] = {}
        try:
            for partition in access.partitions(topic):
                while partition not in offsets:
                    delivery = await send(access, producer, process, partition, access.random(process))
                    try:
                        offsets[partition] = (await delivery).offset
                    except RetriableError:
                        continue
        finally:
            await producer.close(timeout_s=CLOSE_S)
        return offsets

    async def read_to_end(self, offsets: Mapping[TopicPartition, int], readers: Sequence[AssignedReader] = ()) -> None:
        """New readers read everything from the start; those that read already go on to the end as well."""
        new = [
            AssignedReader(
                self.access, f"last-{'committed' if is_committed else 'all'}", self.topics, reads_committed=is_committed
            )
            for is_committed in (True, False)
        ]
        for reader in new:
            self.start(READING, reader.run(self.reading_over))
        for reader in (*readers, *new):
            reader.want(offsets)
        self.reading_over.set()
        await self.finish(READING)

    # -- tasks

    def set_phase(self, phase: str) -> None:
        self.phase = phase
        self.access.history.note(CONDUCTOR, phase)

    def start(self, role: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.setdefault(role, []).append(asyncio.get_running_loop().create_task(work))

    async def _watch(self, seconds: float) -> None:
        """An error in a client that it does not expect ends the run."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            await asyncio.sleep(min(WATCH_S, max(until_s - loop.time(), 0.001)))
            for tasks in self._tasks.values():
                for task in tasks:
                    if task.done():
                        task.result()

    async def finish(self, role: str) -> None:
        """Waits for them."""
        await asyncio.gather(*self._tasks.get(role, []))
        self._tasks.pop(role, None)

    async def _stop(self, role: str) -> None:
        tasks = self._tasks.pop(role, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
