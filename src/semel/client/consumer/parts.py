"""The consumer's parts, how they are joined, and what takes several of them: start, subscribe, seek, commit, close."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from semel.client.cluster import Cluster
from semel.client.consumer.alone import Alone
from semel.client.consumer.assignment import Assignment
from semel.client.consumer.auto_commit import AutoCommit, note_committed, positions
from semel.client.consumer.commits import GroupOffsets
from semel.client.consumer.decoding import Decoder
from semel.client.consumer.fetcher import Fetcher
from semel.client.consumer.membership import Membership, new_membership
from semel.client.consumer.offset_lookups import OffsetLookups
from semel.client.consumer.offsets import LeaderOffsets
from semel.client.consumer.polling import Polling
from semel.client.consumer.position_resolver import PositionResolver
from semel.client.consumer.positions import Event, PartitionReaders, Phase, Reading
from semel.client.consumer.record_queue import RecordQueue
from semel.client.consumer.settings import CONSUMER, ConsumerSettings
from semel.client.consumer.subscription import Subscription
from semel.client.consumer.wakeup import Wakeup
from semel.client.coordinators import Coordinators
from semel.client.errors import Closed, IllegalState, RetriableError, SemelError, TimedOut, error_for
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity, OffsetAndMetadata
from semel.host.api import Host
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.client")

_HOPELESS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
_BEATS_PER_POLL_INTERVAL = 4
_MOST_COMMITS = 1000


class Parts:
    def __init__(self, settings: ConsumerSettings, host: Host | None) -> None:
        self.is_started = False
        self._own_host: Host | None = None
        if host is None:
            from semel.host.real import real_host

            host = self._own_host = real_host()
        self._settings = settings
        self._cluster = Cluster(host, settings, allow_auto_create=settings.allow_auto_create_topics)
        self._coordinators = Coordinators(self._cluster)
        self.readings = PartitionReaders()
        self.wakeup = Wakeup()
        self.subscription = Subscription(
            broker_resolves=settings.group_protocol == CONSUMER and settings.group_id is not None,
            excludes_internal=settings.exclude_internal_topics,
        )
        leaders = LeaderOffsets(self._cluster, settings)
        self.offset_lookups = OffsetLookups(self._cluster, settings, leaders)
        self._group: GroupOffsets | None = None
        self._auto_commit: AutoCommit | None = None
        if settings.group_id is not None:
            self._group = GroupOffsets(
                self._cluster,
                self._coordinators,
                settings,
                identity=self.identity,
                shares=lambda: self.subscription.is_subscribed,
                refused=self._commit_refused,
            )
            if settings.auto_commits:
                self._auto_commit = AutoCommit(settings, self.readings, self._group)
        self._position_resolver = PositionResolver(
            self._cluster,
            settings,
            self.readings,
            leaders,
            self._group,
            placed=self._positions_found,
            news=self.wakeup.wake,
            broke=self._task_ended,
        )
        self.fetcher = Fetcher(
            self._cluster,
            settings,
            self.readings,
            news=self.wakeup.wake,
            unplaced=self._position_resolver.kick,
            broke=self._task_ended,
        )
        self.record_queue = RecordQueue(
            self.readings, Decoder(settings), has_room=self.fetcher.kick, raised=self._problem_was_raised
        )
        self.polling = Polling(
            self.fetcher,
            self.record_queue,
            self.wakeup,
            self._auto_commit,
            problem=self._problem,
            pulse_s=_pulse_s(settings),
        )
        self._assignment = Assignment(
            self._cluster,
            self.subscription,
            self.readings,
            self._position_resolver,
            before_revoking=self._commit_before_revoking,
            changed=self._assignment_changed,
            look=self.polling.look,
        )
        self._membership: Membership | None = None
        self._broken: BaseException | None = None
        self._topic_problem: SemelError | None = None
        self._topic_problem_is_told = False
        self._commits: set[asyncio.Task[None]] = set()
        self._cluster.changed.append(self._cluster_changed)

    # -- life

    async def start(self) -> None:
        if self.polling.is_closed:
            raise Closed("the consumer was closed: make a new one")
        if self.is_started:
            return
        self._watch()
        try:
            await self._cluster.start()
        except BaseException:
            await self.close(0)
            raise
        self.is_started = True
        if self.subscription.is_subscribed:
            self._join()
        self._position_resolver.kick()
        self.fetcher.kick()

    async def close(self, timeout_s: float, *, leave_unfinished: bool = False) -> None:
        if self.polling.is_closed:
            return
        self._assignment.refuse_listener("close")
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        if leave_unfinished:
            self._take_back()
        try:
            await self.polling.close(deadline_s)
            if self.is_started:
                await self._finish(deadline_s)
        finally:
            await self._give_back()

    async def _finish(self, deadline_s: float) -> None:
        """Commits and leaves, as far as time allows."""
        try:
            async with asyncio.timeout_at(deadline_s):
                if self._commits:
                    await asyncio.wait(list(self._commits))
                if self._membership is not None and self.subscription.is_subscribed:
                    await self._membership.leave(reason="the consumer is being closed")
                else:
                    await self._commit_before_revoking()
        except TimeoutError:
            logger.warning("the consumer was closed before it could commit and leave its group: its time was over")
        except SemelError as error:
            logger.warning("closing the consumer: %s", error)

    async def _give_back(self) -> None:
        for task in self._commits:
            task.cancel()
        await asyncio.gather(*self._commits, return_exceptions=True)
        if self._auto_commit is not None:
            await self._auto_commit.close()
        await self._position_resolver.close()
        await self.fetcher.close()
        if self._membership is not None:
            await self._membership.close()
        self.readings.remove(self.readings.partitions)
        await self._cluster.close()
        if self._own_host is not None:
            self._own_host.close()

    def _take_back(self) -> None:
        """What was handed out last may not be finished: positions go back to before it."""
        for reading in self.readings:
            offset = self.record_queue.unfinished.get(reading, reading.finished_position)
            if reading.has_position and offset < reading.position:
                reading.place(Event.SEEK, offset, reading.offset_epoch)

    # -- what is read

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None, listener: Any) -> None:
        self._check_open()
        before = self.subscription.names
        self.subscription.subscribe(topics, pattern, listener)
        if self.is_started:
            held = {reading.partition.topic for reading in self.readings}
            self._cluster.unwatch(before - self.subscription.names - held)
            self._watch()
            self._join()

    def _watch(self) -> None:
        self._cluster.watch_all(self.subscription.needs_all_topics)
        self._cluster.watch(self.subscription.names | {reading.partition.topic for reading in self.readings})

    def _join(self) -> None:
        self.subscription.resolve(self._cluster.topics)
        if self._membership is None:
            if self._settings.group_id is None:
                self._membership = Alone(self._cluster, self._assignment)
            else:
                self._membership = new_membership(self._cluster, self._coordinators, self._settings, self._assignment)
            self.polling.membership = self._membership
        self._membership.subscription_changed()

    async def unsubscribe(self) -> None:
        self._check_open()
        self._assignment.refuse_listener("unsubscribe")
        self.polling.refuse_inside("unsubscribe")
        was_subscribed = self.subscription.is_subscribed
        names = self.subscription.names | {reading.partition.topic for reading in self.readings}
        try:
            if was_subscribed and self._membership is not None:
                await self._membership.leave(reason="the consumer has unsubscribed")
            elif self.is_started:
                await self._commit_before_revoking()
        finally:
            self.readings.remove(self.readings.partitions)
            self.subscription.clear()
            self._cluster.unwatch(names)
            self._cluster.watch_all(False)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        wanted = list(dict.fromkeys(partitions))
        self.subscription.assign()
        if self._auto_commit is not None and self.is_started:
            self._auto_commit.begin()
        held = self.readings.partitions
        self.readings.remove(held.difference(wanted))
        self.readings.add(wanted, self._position_resolver.first_phase)
        if not wanted:
            self.subscription.clear()
        if self.is_started:
            self._cluster.unwatch({one.topic for one in held} - {one.topic for one in wanted})
            self._watch()
            self._position_resolver.kick()
            self.fetcher.kick()
        self.polling.look()

    # -- positions

    def seek(self, reading: Reading, place: OffsetAndMetadata) -> None:
        reading.place(Event.SEEK, place.offset, place.leader_epoch)
        reading.leader_epoch = -1
        self._position_resolver.meet_leader(reading)
        self._positions_found()
        if self.is_started:
            self._position_resolver.kick()

    def seek_to_end(self, readings: Iterable[Reading], end: int) -> None:
        for reading in readings:
            reading.unplace(Event.SEEK_END, end)
        if self.is_started:
            self._position_resolver.kick()

    async def position(self, reading: Reading) -> int:
        """Waits until it is known."""
        self._check_started()
        deadline_s = asyncio.get_running_loop().time() + self._settings.api_timeout_s
        while True:
            if self.readings.get(reading.partition) is not reading:
                raise IllegalState(f"{reading.partition} is not assigned to this consumer any more")
            if reading.problem is not None:
                raise reading.problem.with_traceback(None)
            if reading.has_position and reading.phase in (Phase.FETCHING, Phase.VALIDATION_WANTED):
                return reading.position
            if asyncio.get_running_loop().time() >= deadline_s:
                raise TimedOut(f"the position in {reading.partition} was not found in time")
            await self.wakeup.wait(deadline_s)

    # -- commits

    def disable_auto_commit(self) -> None:
        """Whoever calls this commits by itself. Nothing may have been handed out yet."""
        self._auto_commit = self.polling.auto_commit = None

    @property
    def auto_commits(self) -> bool:
        return self._auto_commit is not None

    def group(self) -> GroupOffsets:
        if self._group is None:
            raise IllegalState("there are no committed offsets without a group: set group_id")
        self._check_started()
        return self._group

    def identity(self) -> GroupIdentity:
        if self._membership is None or not self.subscription.is_subscribed:
            return GroupIdentity(self._settings.group_id or "")
        identity = self._membership.identity
        return identity._replace(is_outside=not identity.member_id)

    def handed_out(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the program stands in each partition."""
        return positions(self.readings, also_committed=True)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await self._commit(self.group(), offsets)

    async def _commit(self, group: GroupOffsets, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await group.commit(offsets, self._settings.api_timeout_s)
        note_committed(self.readings, offsets)

    def commit_soon(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_complete: Callable[[Mapping[TopicPartition, OffsetAndMetadata], SemelError | None], object] | None,
    ) -> None:
        group = self.group()
        if len(self._commits) >= _MOST_COMMITS:
            raise RetriableError(f"{len(self._commits)} commits wait for the group's coordinator already")

        async def run() -> None:
            problem: SemelError | None = None
            try:
                await self._commit(group, offsets)
            except SemelError as error:
                problem = error
                if on_complete is None:
                    logger.warning("a commit in the background failed: %s", error)
            if on_complete is not None:
                on_complete(offsets, problem)

        self._own(run())

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="commit")
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def _commit_before_revoking(self) -> None:
        if self._auto_commit is not None:
            await self._auto_commit.now(positions(self.readings))

    def _commit_refused(self, code: int) -> None:
        if self._membership is not None and self.subscription.is_subscribed:
            self._membership.commit_refused(code)

    # -- what the parts tell each other

    def _cluster_changed(self) -> None:
        if self.subscription.resolve(self._cluster.topics) and self._membership is not None:
            self._membership.subscription_changed()
        self._find_topic_problem()
        self._position_resolver.cluster_changed()
        self.fetcher.cluster_changed()

    def _positions_found(self) -> None:
        self.fetcher.kick()
        self.wakeup.wake()

    def _assignment_changed(self) -> None:
        self._position_resolver.kick()
        self.fetcher.kick()
        self.polling.look()

    def _problem_was_raised(self, reading: Reading) -> None:
        self.fetcher.later(reading)
        self._position_resolver.kick()

    def _find_topic_problem(self) -> None:
        self._topic_problem = None
        names = self.subscription.names | {reading.partition.topic for reading in self.readings}
        for name in sorted(names):
            topic = self._cluster.topics.get(name)
            if topic is not None and topic.error_code in _HOPELESS:
                self._topic_problem = error_for(topic.error_code, f"reading topic {name!r}")
                self._topic_problem_is_told = False
                self.wakeup.wake()
                return

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """What a task of ours has not expected would otherwise be a consumer that silently reads nothing."""
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()
            self.wakeup.wake()

    def _problem(self) -> BaseException | None:
        """Raised once if there is something else to read, by every poll if not."""
        if self._broken is not None:
            return self._broken
        if self._topic_problem is None or (self._topic_problem_is_told and len(self.readings)):
            return None
        self._topic_problem_is_told = True
        return self._topic_problem

    def _check_open(self) -> None:
        if self.polling.is_closed:
            raise Closed("the consumer was closed")

    def _check_started(self) -> None:
        self._check_open()
        if not self.is_started:
            raise IllegalState("the consumer was not started: use `async with`, or await start()")


def _pulse_s(settings: ConsumerSettings) -> float | None:
    if settings.group_id is None:
        return None
    pulse_ms = settings.max_poll_interval_ms / _BEATS_PER_POLL_INTERVAL
    return (min(pulse_ms, settings.auto_commit_interval_ms) if settings.auto_commits else pulse_ms) / 1000
