"""Finds positions: the committed offset, else by `auto.offset.reset`; and checks them when a leader is new.

One task does it, in the background, for as long as some partition needs it: what can be asked in one request is. What
fails for now is tried again for ever; what no retry mends becomes the partition's problem, which poll raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from semel.client.cluster import Cluster
from semel.client.consumer.commits import GroupOffsets
from semel.client.consumer.offsets import EpochEnd, LeaderOffsets, Listed
from semel.client.consumer.positions import NO_OFFSET, Event, PartitionReaders, Phase, Reading
from semel.client.consumer.reset_policy import LATEST
from semel.client.consumer.settings import ConsumerSettings
from semel.client.errors import LogTruncated, NoOffset, RetriableError, SemelError, UnsupportedByBroker
from semel.client.metadata import NO_EPOCH, TopicPartition

logger = logging.getLogger("semel.client")


class PositionResolver:
    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        readings: PartitionReaders,
        leaders: LeaderOffsets,
        group: GroupOffsets | None,
        *,
        placed: Callable[[], None],
        news: Callable[[], None],
        broke: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """`placed` is called when partitions can be fetched that could not before, `news` when poll should look,
        `broke` with a task that has ended: if by an error, it is one of ours."""
        self._cluster = cluster
        self._settings = settings
        self._policy = settings.reset_policy
        self._readings = readings
        self._leaders = leaders
        self._group = group
        self._placed = placed
        self._news = news
        self._broke = broke
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_closed = False

    @property
    def first_phase(self) -> Phase:
        """Where a partition begins: without a group nothing can have been committed."""
        return Phase.RESET_WANTED if self._group is None else Phase.COMMITTED_WANTED

    def kick(self) -> None:
        """Partitions may need a position, or a check of it."""
        self._changed.set()
        if self._task is None and not self._is_closed and self._pending():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="positions of the consumer")
            self._task.add_done_callback(self._broke)

    def cluster_changed(self) -> None:
        for reading in self._readings:
            self.meet_leader(reading)
        self.kick()

    def meet_leader(self, reading: Reading) -> None:
        """A leader of a newer epoch may have cut the log back: the position is checked before it is used (KIP-320)."""
        known = self._cluster.partition(*reading.partition)
        if known is None or known.leader_epoch <= reading.leader_epoch:
            return
        reading.leader_epoch = known.leader_epoch
        is_placed = reading.phase in (Phase.FETCHING, Phase.VALIDATION_WANTED)
        if is_placed and 0 <= reading.fetch_position[1] < known.leader_epoch:
            reading.move(Event.NEW_LEADER)
            reading.calm()

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- the task

    def _pending(self) -> list[Reading]:
        return [
            reading for reading in self._readings if reading.phase is not Phase.FETCHING and reading.problem is None
        ]

    async def _run(self) -> None:
        try:
            failures = 0
            while self._pending():
                self._changed.clear()
                await self._find_committed()
                await self._reset()
                await self._validate()
                self._placed()
                if not self._pending():
                    return
                failures += 1
                await self._pause(self._cluster.backoff_s(failures))
        finally:
            self._task = None

    async def _pause(self, pause_s: float) -> None:
        """A change ends it early: new metadata, a new membership, a seek."""
        try:
            async with asyncio.timeout(pause_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _in(self, phase: Phase) -> dict[TopicPartition, tuple[Reading, int]]:
        """Those in a phase, each with its version: it may have moved on before the answer is there."""
        return {
            reading.partition: (reading, reading.version)
            for reading in self._readings
            if reading.phase is phase and reading.problem is None
        }

    def _fail(self, reading: Reading, problem: SemelError) -> None:
        reading.problem = problem
        self._readings.enqueue(reading)
        self._news()

    # -- the committed offset

    async def _find_committed(self) -> None:
        wanted = self._in(Phase.COMMITTED_WANTED)
        if not wanted or self._group is None:
            return
        try:
            found = await self._group.committed_once(wanted)
        except RetriableError as error:
            logger.info("the committed offsets are not known yet: %s", error)
            return
        except SemelError as error:
            for reading, version in wanted.values():
                if reading.version == version:
                    self._fail(reading, error)
            return
        for partition, (reading, version) in wanted.items():
            if reading.version != version:
                continue
            committed = found.get(partition)
            if committed is not None:
                reading.place(Event.FOUND, committed.offset, committed.leader_epoch)
                reading.leader_epoch = NO_EPOCH
                self.meet_leader(reading)
            elif self._policy.is_none:
                text = f"no offset of {partition} was committed by group {self._settings.group_id!r}"
                self._fail(reading, NoOffset(text, partition=partition))
            else:
                reading.move(Event.NO_OFFSET)

    # -- by policy, or to where seek has pointed

    async def _reset(self) -> None:
        wanted = self._in(Phase.RESET_WANTED)
        targets: dict[TopicPartition, int] = {}
        for partition, (reading, _) in wanted.items():
            if reading.reset_to is not None:
                targets[partition] = reading.reset_to
            elif self._policy.is_none:
                text = f"{partition} has no position, and auto_offset_reset is none"
                self._fail(reading, NoOffset(text, partition=partition))
            else:
                targets[partition] = self._policy.timestamp_ms(self._cluster.host.clock.wall_ms())
        if not targets:
            return
        answered = await self._leaders.listed(targets)
        late = {
            partition: LATEST
            for partition, listed in answered.found.items()
            if listed.offset == NO_OFFSET and targets[partition] >= 0
        }
        if late:  # nothing is as young as that: the end it is
            ends = await self._leaders.listed(late)
            for partition in late:
                del answered.found[partition]
            answered.found |= ends.found
            answered.failed |= ends.failed
        for partition, error in answered.failed.items():
            reading, version = wanted[partition]
            if reading.version == version:
                self._fail(reading, error)
        for partition, listed in answered.found.items():
            reading, version = wanted[partition]
            if reading.version == version:
                self._place(reading, listed)

    def _place(self, reading: Reading, listed: Listed) -> None:
        reading.place(Event.FOUND, max(listed.offset, 0), listed.leader_epoch)
        reading.leader_epoch = listed.asked_epoch
        self.meet_leader(reading)

    # -- a new leader

    async def _validate(self) -> None:
        wanted = self._in(Phase.VALIDATION_WANTED)
        if not wanted:
            return
        epochs = {partition: reading.fetch_position[1] for partition, (reading, _) in wanted.items()}
        answered = await self._leaders.epoch_ends(epochs)
        for partition, error in answered.failed.items():
            reading, version = wanted[partition]
            if reading.version != version:
                continue
            if isinstance(error, UnsupportedByBroker):
                reading.move(Event.VALID)
                self._readings.enqueue(reading)
            else:
                self._fail(reading, error)
        for partition, end in answered.found.items():
            reading, version = wanted[partition]
            if reading.version == version:
                self._judge(reading, epochs[partition], end)

    def _judge(self, reading: Reading, epoch: int, end: EpochEnd) -> None:
        """`end` is where the new leader's log ends the epoch of our last record, or an earlier one if it lacks that."""
        reading.leader_epoch = max(reading.leader_epoch, end.asked_epoch)
        is_known = end.leader_epoch >= 0 and end.end_offset >= 0
        if is_known and end.end_offset >= reading.fetch_position[0]:
            reading.move(Event.VALID)
            self._readings.enqueue(reading)
            return
        position = reading.position
        if is_known and end.end_offset >= position:
            # Only what was not handed out yet is gone, or was written anew.
            reading.place(Event.VALID, position, reading.position_epoch)
            return
        text = (
            f"{reading.partition}: the log was cut back below offset {position}, which was read in leader epoch {epoch}"
            + (f"; the logs diverge at offset {end.end_offset}" if is_known else "")
        )
        if self._policy.is_none:
            problem = LogTruncated(text, partition=reading.partition, offset=position)
            problem.diverging_offset = end.end_offset if is_known else NO_OFFSET
            self._fail(reading, problem)
            return
        logger.warning("%s: going on %s", text, "there" if is_known else "by auto_offset_reset")
        if is_known:
            reading.place(Event.VALID, end.end_offset, end.leader_epoch)
        else:
            reading.unplace(Event.NO_OFFSET)
