"""Runs of one query in the simulated world: drivers that are killed, hang or are zombies, and a broker that dies.

Only Spark's part is imitated: a checkpoint that all runs share, batches with pinned rows, and a `commit` that is called
again by the next run until it has returned. The committer, the client and the broker are the real ones.
"""

from __future__ import annotations

import asyncio
import random as random_module
from typing import Any

import pyarrow as pa

from client_world import ClientWorld
from semel.client.errors import SemelError
from semel.records.columns import write_columns
from semel.sim.power import PowerLost
from semel.spark.committer import Committer, Publication
from semel.spark.staging import Placement, Staged, StagedTopic, StagingArea, StagingWriter
from semel.spark.steps import Step
from semel.spark.succession import NextBatch

TOPIC = "out"
PARTITIONS = 2
TASKS = 2
ROWS = 3
TIMEOUT_MS = 4_000
POWER_SHARE = 0.5
QUERY = "query"
TRANSACTIONAL_ID = f"sink-{QUERY}"
MARKERS = "__semel_pipelines"
CLIENT_SETTINGS: dict[str, Any] = {
    "request_timeout_ms": 1_000,
    "delivery_timeout_ms": 5_000,
    "max_block_ms": 5_000,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "bootstrap_timeout_ms": 2_000,
}


class Killed(BaseException):
    """The driver is no more; nothing of it may have an effect from here on."""


def rows_of(batch_id: int) -> list[bytes]:
    return [b"%d/%d/%d" % (batch_id, task, row) for task in range(TASKS) for row in range(ROWS)]


def staged(batch_id: int) -> list[Staged]:
    """The same in every run: the offsets of a batch are pinned."""
    found = []
    topic = StagedTopic(TOPIC, PARTITIONS, 1 << 20, 0)
    rows = rows_of(batch_id)
    for task in range(TASKS):
        writer = StagingWriter(None, "", 1 << 20)
        values = rows[task * ROWS : (task + 1) * ROWS]
        columns = pa.record_batch({"value": pa.array(values, pa.binary())})
        for batch in write_columns(columns, batch_bytes=1 << 20, default_timestamp_ms=0):
            writer.add(topic, Placement.PINNED, task % PARTITIONS, batch, ROWS)
        found.append(writer.finish())
    return found


class SparkLog:
    """What Spark keeps of the query: batches that were planned, and batches that are done."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.done = 0
        """All before it are."""

    @property
    def is_finished(self) -> bool:
        return self.done == self.batches

    def complete(self, batch_id: int) -> bool:
        """Two runs cannot both write the same entry: the second one fails."""
        if batch_id != self.done:
            return False
        self.done += 1
        return True


class Runs:
    """All runs of the query, one after the other or at the same time."""

    def __init__(
        self,
        world: ClientWorld,
        log: SparkLog,
        *,
        trouble: int,
        committer: type[Committer] = Committer,
    ) -> None:
        self.world = world
        self.log = log
        self.random: random_module.Random = world.random("runs")
        self.trouble = trouble
        """How often something is still to go wrong on purpose."""
        self._committer = committer
        self._count = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._breaking: list[asyncio.Task[None]] = []
        self._is_broker_down = False

    async def until_finished(self) -> None:
        while not self.log.is_finished:
            self._tasks.append(asyncio.create_task(self._run()))
            # The next run begins when this one has ended; or it is thought to be dead, and is not.
            patience_s = self.random.uniform(0.0, 3.0) if self.trouble > 0 and self.random.random() < 0.4 else None
            await asyncio.wait([self._tasks[-1]], timeout=patience_s)
        for task in (*self._tasks, *self._breaking):
            await task

    async def _run(self) -> None:
        self._count += 1
        name = f"run{self._count}"
        committer = self._committer(
            self.world.sim.host(name),
            {"bootstrap_servers": self.world.address, **_connection()},
            {"bootstrap_servers": self.world.address, "transaction_timeout_ms": TIMEOUT_MS, **CLIENT_SETTINGS},
            MARKERS,
            StagingArea(None),
            reached=lambda step, batch_id: self._trouble_at(name, step, batch_id),
            retry_for_s=20.0,
        )
        try:
            while not self.log.is_finished:
                batch_id = self.log.done
                is_new = await committer.commit(self._publication(batch_id))
                await self._trouble_at(name, Step.CLEANED, batch_id)
                self.world.note(f"{name}: batch {batch_id} is committed, {'now' if is_new else 'before'}")
                if not self.log.complete(batch_id):
                    return
        except SemelError as error:
            self.world.note(f"{name}: {type(error).__name__}: {error}")
        except (Killed, PowerLost):
            pass  # closing its connections, a dead driver finds that it is dead

    def _publication(self, batch_id: int) -> Publication:
        previous = None if batch_id == 0 else f"digest {batch_id - 1}"
        succession = NextBatch(QUERY, batch_id, f"digest {batch_id}", previous, TRANSACTIONAL_ID)
        return Publication(staged(batch_id), TRANSACTIONAL_ID, succession)

    async def _trouble_at(self, name: str, step: Step, batch_id: int) -> None:
        if self.trouble <= 0 or self.random.random() > 0.25:
            return
        self.trouble -= 1
        kind = self.random.choice(["kill", "kill", "hang", "hang", "broker", "fail"])
        self.world.note(f"{name}: {kind} at {step} of batch {batch_id}")
        if kind == "kill":
            self.world.sim.kill(name)
            raise Killed
        if kind == "hang":  # also for longer than the transaction may take
            await asyncio.sleep(self.random.choice([0.01, 0.5, 3.0, 9.0]))
        elif kind == "broker":
            self._breaking.append(asyncio.create_task(self._break_broker()))
        else:
            raise SemelError("something else went wrong")

    async def _break_broker(self) -> None:
        if self._is_broker_down:
            return
        self._is_broker_down = True
        await asyncio.sleep(self.random.uniform(0.0, 0.05))
        await self.world.lose_broker(power=self.random.random() < POWER_SHARE, down_s=self.random.uniform(0.0, 2.0))
        self._is_broker_down = False


def _connection() -> dict[str, Any]:
    return {name: value for name, value in CLIENT_SETTINGS.items() if not name.startswith(("delivery", "max_block"))}


async def judge(world: ClientWorld, batches: int) -> None:
    """Each row of each batch once, in order, nothing else, and no transaction left open."""
    await asyncio.sleep(10.0)  # EndTxn is answered when it is decided: its control batches follow
    for partition in range(PARTITIONS):
        logged = await world.logged(TOPIC, partition)
        found = [record.value for record in logged if record.is_committed]
        expected = [
            row for batch_id in range(batches) for row in rows_of(batch_id) if int(row.split(b"/")[1]) == partition
        ]
        assert found == expected, f"partition {partition} holds {found}, expected {expected}"
        assert world.open_transactions(TOPIC, partition) == 0
