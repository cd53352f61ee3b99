"""Readers of the workload: those that are given partitions, and those that share them in a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from semel.client.consumer.consumer import Consumer
from semel.client.errors import CommitFailed, RetriableError
from semel.client.metadata import TopicPartition
from semel.sim.history import NO_OFFSET, Client, Finish, History, Outcome
from semel.sim.workload.access import CLOSE_S, Access, place_of
from semel.sim.workload.recording import poll

POLL_MS = 100
LEAVES = 0.01


class AssignedReader:
    """Reads all partitions of some topics from the start, and knows how far it is."""

    def __init__(self, access: Access, name: str, topics: Iterable[str], *, reads_committed: bool) -> None:
        self.access = access
        self.name = name
        self.reads_committed = reads_committed
        self.partitions = [partition for topic in topics for partition in access.partitions(topic)]
        self._last_read = dict.fromkeys(self.partitions, NO_OFFSET)
        self._wanted: dict[TopicPartition, int] = {}
        self._random = access.random(name)

    def want(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Where the last records are: it is done when it has read them."""
        self._wanted = dict(offsets)

    def missing(self) -> list[TopicPartition]:
        return [partition for partition, offset in self._wanted.items() if self._last_read[partition] < offset]

    async def run(self, over: asyncio.Event) -> None:
        """Until `over`, and all that is wanted was seen by then or does not come any more."""
        access = self.access
        access.history.add_client(Client(self.name, "reader", reads_committed=self.reads_committed))
        isolation = "read_committed" if self.reads_committed else "read_uncommitted"
        consumer = access.consumer(self.name, isolation_level=isolation)
        await consumer.start()
        try:
            consumer.assign(self.partitions)
            access.history.move(self.name, {place_of(partition): 0 for partition in self.partitions})
            while not over.is_set():
                await self._poll(consumer)
            await self._finish(consumer)
        finally:
            await consumer.close(timeout_s=CLOSE_S)

    async def _poll(self, consumer: Consumer) -> bool:
        max_records = self._random.choice([1, 10, 500, 500])
        found = await poll(self.access, consumer, self.name, timeout_ms=POLL_MS, max_records=max_records)
        for partition, messages in found.items():
            self._last_read[partition] = messages[-1].offset
        return bool(found)

    async def _finish(self, consumer: Consumer) -> None:
        loop = asyncio.get_running_loop()
        moved_s = loop.time()
        while self.missing() and loop.time() - moved_s < self.access.load.patience_s:
            if await self._poll(consumer):
                moved_s = loop.time()
        missing = set(self.missing())
        for partition in self._wanted:
            operation = self.access.history.begin(
                Finish(process=self.name, place=place_of(partition), reads_committed=self.reads_committed)
            )
            if partition in missing:
                operation.offset = await position(consumer, partition)
                text = (
                    f"at offset {operation.offset}, last stable offset {consumer.last_stable_offset(partition)}, "
                    f"end {consumer.highwater(partition)}; got nothing more for {self.access.load.patience_s:.0f} s"
                )
                self.access.history.end(operation, Outcome.FAIL, text)
            else:
                self.access.history.ok(operation)


async def position(consumer: Consumer, partition: TopicPartition) -> int:
    """Where it stands, if it can say so at once."""
    try:
        async with asyncio.timeout(1):
            return await consumer.position(partition)
    except TimeoutError:
        return NO_OFFSET


class Rebalances:
    """Writes down that a member goes on with other partitions."""

    def __init__(self, history: History, process: str) -> None:
        self._history = history
        self._process = process

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        pass  # it matters where reading begins, not where it ends

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        places = {place_of(partition): NO_OFFSET for partition in sorted(partitions)}
        if places:
            self._history.move(self._process, places)


def assigned_readers(access: Access, topics: Sequence[str]) -> list[AssignedReader]:
    """As many as the load has, of committed records and of all."""
    return [
        AssignedReader(
            access, f"{'committed' if is_committed else 'all'}-{number}", topics, reads_committed=is_committed
        )
        for is_committed in (True, False)
        for number in range(access.load.assigned_readers)
    ]


async def read_in_group(access: Access, name: str, group: str, protocol: str, over: asyncio.Event) -> None:
    """One member after the other: reads, commits what it has read, and sometimes leaves."""
    random = access.random(name)
    instances = 0
    while not over.is_set():
        instances += 1
        process = f"{name}.{instances}"
        access.history.add_client(Client(process, "group", group=group))
        consumer = access.consumer(
            process,
            access.records_topic,
            listener=Rebalances(access.history, process),
            group_id=group,
            group_protocol=protocol,
        )
        await consumer.start()
        try:
            while not over.is_set() and random.random() >= LEAVES:
                if await poll(access, consumer, process, timeout_ms=POLL_MS):
                    try:
                        await consumer.commit()
                    except (CommitFailed, RetriableError):
                        pass  # somebody reads it again
        finally:
            await consumer.close(timeout_s=CLOSE_S)


async def finish_group(
    access: Access, group: str, last: dict[TopicPartition, int], reads_committed: bool, over: Callable[[], None]
) -> None:
    """Waits until a group has committed past the last records, or gets no further; then its members may go."""
    consumer = access.consumer(f"{group}-watch", group_id=group)
    await consumer.start()
    loop = asyncio.get_running_loop()
    committed: dict[TopicPartition, int] = {}
    moved_s = loop.time()
    try:
        while True:
            now = {partition: await consumer.committed(partition) or 0 for partition in last}
            if now != committed:
                moved_s = loop.time()
            committed = now
            behind = [partition for partition, offset in last.items() if committed[partition] <= offset]
            if not behind or loop.time() - moved_s >= access.load.group_patience_s:
                break
            await asyncio.sleep(POLL_MS / 1000)
    finally:
        over()
        await consumer.close(timeout_s=CLOSE_S)
    for partition in last:
        operation = access.history.begin(
            Finish(process=group, place=place_of(partition), reads_committed=reads_committed)
        )
        operation.offset = committed[partition]
        text = f"committed {committed[partition]}, the last record is at {last[partition]}"
        access.history.end(operation, Outcome.FAIL if partition in behind else Outcome.OK, text * (partition in behind))
