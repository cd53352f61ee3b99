"""What the console knows of the cluster: shared answers, and samples over time. Every question is bounded: a large
cluster is looked at in turns, and more seldom.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ListedGroup, PartitionLag, TransactionDescription
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import OffsetSpec
from semel.client.errors import SemelError, UnknownGroup
from semel.client.metadata import Topic, TopicPartition
from semel.console.cached import Cached
from semel.console.samples import Series, SeriesByName
from semel.views.cluster import look_at
from semel.views.cluster_info import cluster_info
from semel.views.stuck import why_stuck
from semel.views.transaction_log import TransactionHistory
from semel.views.transactions import known

logger = logging.getLogger("semel.console")

MAX_PARTITIONS = 1000
"""So many are asked for their ends at once; where there are more, in turns."""
_MAX_GROUPS = 100
_MAX_HELD = 100
_MAX_DESCRIBED = 500
_SAMPLE_S = 3.0
_SMOOTHED = 4
"""Rates are those of so many rounds: what programs write comes in bursts."""
_REST = 10
"""A round of samples that took a second is followed by a pause of so many."""
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")

Lag = Mapping[TopicPartition, PartitionLag]


class Turns:
    """Goes through many names, some at a time, and begins again."""

    def __init__(self) -> None:
        self._last = ""

    def next(self, names: Iterable[str], count: int) -> list[str]:
        ordered = sorted(names)
        later = [name for name in ordered if name > self._last]
        chosen = (later + ordered)[: min(count, len(ordered))]
        self._last = chosen[-1] if chosen else ""
        return chosen


class Watch:
    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.topics = Cached(self._topics, 2.0)
        self.view = Cached(lambda: look_at(admin), 2.0)
        self.info = Cached(lambda: cluster_info(admin), 10.0)
        self.sizes = Cached(self._sizes, 15.0)
        self.groups = Cached(self._groups, 2.0)
        self.open_transactions = Cached(self._open_transactions, 0.8)
        self.held = Cached(self._held, 0.8)
        self.all_transactions = Cached(self._all_transactions, 2.0)
        self.history = TransactionHistory()
        self.history_problem: str | None = None
        self._follow = Cached(self._follow_history, 0.8)
        self.rate = Series()
        """Records a second, of all topics but the internal ones."""
        self.is_rate_partial = False
        self.topic_ends = SeriesByName()
        self.group_lags = SeriesByName()
        self.lags: dict[str, Lag] = {}
        """As last sampled, by group."""
        self._suspects: set[TopicPartition] = set()
        self._topic_turns, self._group_turns = Turns(), Turns()
        self._ends: deque[tuple[float, dict[TopicPartition, int]]] = deque(maxlen=_SMOOTHED)
        self._wanted_groups: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._sample_on())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for cached in self._all_cached():
            await cached.close()

    def forget(self) -> None:
        """Something was changed: what is known is asked anew."""
        for cached in self._all_cached():
            cached.forget()

    def _all_cached(self) -> list[Cached[Any]]:
        return [
            self.topics,
            self.view,
            self.info,
            self.sizes,
            self.groups,
            self.open_transactions,
            self.held,
            self.all_transactions,
            self._follow,
        ]

    async def follow_history(self) -> None:
        """Brings `history` up to date; without the right to read it, `history_problem` says so."""
        await self._follow.get()

    def want_group(self, group_id: str) -> None:
        """Somebody looks at it: it is sampled in every round for a while."""
        self._wanted_groups[group_id] = time.monotonic() + 60

    # -- what is asked

    async def _topics(self) -> dict[str, Topic]:
        return await self.admin.list_topics(include_internal=True)

    async def _groups(self) -> dict[str, ListedGroup]:
        return await self.admin.list_groups()

    async def _sizes(self) -> dict[str, int]:
        """Bytes of each topic, on all nodes."""
        sizes: dict[str, int] = {}
        for directories in (await self.admin.describe_log_dirs()).values():
            for directory in directories.values():
                for place, replica in directory.replicas.items():
                    sizes[place.topic] = sizes.get(place.topic, 0) + replica.size_bytes
        return sizes

    async def _all_transactions(self) -> dict[str, Any]:
        return dict(await self.admin.list_transactions())

    async def _open_transactions(self) -> dict[str, TransactionDescription]:
        listed = await self.admin.list_transactions(states=_OPEN)
        return await known(self.admin, list(listed)[:_MAX_DESCRIBED])

    async def _held(self) -> list[dict[str, Any]]:
        """Partitions that an open transaction holds back, those with the oldest first."""
        transactions = await self.open_transactions.get()
        topics = await self.topics.get()
        places = {place for one in transactions.values() for place in one.partitions} | self._suspects
        asked = sorted(
            place
            for place in places
            if place.topic in topics
            and not topics[place.topic].is_internal
            and place.partition in topics[place.topic].partitions
            and topics[place.topic].partitions[place.partition].leader_id >= 0
        )[:_MAX_HELD]
        if not asked:
            return []
        documents = await why_stuck(self.admin, asked, now_ms=now_ms())
        held = [one for one in documents if one["transactions"]]
        self._suspects &= {place for place, one in zip(asked, documents, strict=True) if one["transactions"]}
        return sorted(held, key=lambda one: -(one["transactions"][0]["age_ms"] or 1 << 60))

    async def _follow_history(self) -> bool:
        try:
            await self.history.follow(self.admin)
        except SemelError as error:
            self.history_problem = str(error)
            return False
        self.history_problem = None
        return True

    # -- samples

    async def _sample_on(self) -> None:
        while True:
            began_s = time.monotonic()
            for sample in (self._sample_ends, self._sample_lags):
                try:
                    await sample()
                except SemelError as error:
                    logger.info("%s: %s", sample.__name__.strip("_"), error)
            await asyncio.sleep(max(_SAMPLE_S, _REST * (time.monotonic() - began_s)))

    async def _sample_ends(self) -> None:
        """How fast topics grow, and which partitions readers of committed records cannot read to the end."""
        topics = {name: topic for name, topic in (await self.topics.get()).items() if not topic.is_internal}
        chosen: list[TopicPartition] = []
        for name in self._topic_turns.next(topics, MAX_PARTITIONS):
            chosen += [
                TopicPartition(name, one.number) for one in topics[name].partitions.values() if one.leader_id >= 0
            ]
            if len(chosen) >= MAX_PARTITIONS:
                break
        self.is_rate_partial = sum(len(topic.partitions) for topic in topics.values()) > MAX_PARTITIONS
        if not chosen:
            return
        wanted = dict.fromkeys(chosen, OffsetSpec.LATEST)
        stable = await self._offsets(wanted, "read_committed")
        ends = await self._offsets(wanted, "read_uncommitted")
        now_s = time.monotonic()
        for at_s, before in list(self._ends)[:1]:
            both = [place for place in ends if place in before]
            if now_s > at_s and len(both) * 2 > len(ends):
                written = sum(max(ends[place] - before[place], 0) for place in both)
                self.rate.add(now_ms(), written / (now_s - at_s))
        self._ends.append((now_s, ends))
        totals: dict[str, int] = {}
        for place, end in ends.items():
            totals[place.topic] = totals.get(place.topic, 0) + end
            if stable.get(place, end) < end:
                self._suspects.add(place)
        for name, total in totals.items():
            self.topic_ends.add(name, now_ms(), total)
        self.topic_ends.keep(lambda name: name in topics)

    async def _offsets(self, wanted: Mapping[TopicPartition, int], isolation_level: str) -> dict[TopicPartition, int]:
        try:
            found = await self.admin.list_offsets(wanted, isolation_level=isolation_level)
        except AdminErrors as errors:
            found = dict(errors.results)  # a topic was deleted meanwhile, or has no leader
        return {place: one.offset for place, one in found.items()}

    async def _sample_lags(self) -> None:
        groups = await self.groups.get()
        now_s = time.monotonic()
        self._wanted_groups = {name: until for name, until in self._wanted_groups.items() if until > now_s}
        names = [name for name in self._wanted_groups if name in groups]
        names += [name for name in self._group_turns.next(groups, _MAX_GROUPS) if name not in names]
        for name, lag in (await self._lags(names)).items():
            self.take_lag(name, lag)
        self.group_lags.keep(lambda name: name in groups)
        self.lags = {name: lag for name, lag in self.lags.items() if name in groups}

    def take_lag(self, group_id: str, lag: Lag) -> None:
        self.lags[group_id] = lag
        self.group_lags.add(group_id, now_ms(), sum(one.lag or 0 for one in lag.values()))

    async def _lags(self, names: list[str]) -> Mapping[str, Lag]:
        if not names:
            return {}
        try:
            return await self.admin.group_lag(names)
        except (AdminErrors, UnknownGroup):
            found: dict[str, Lag] = {}
            for name in names:
                try:
                    found |= await self.admin.group_lag([name])
                except (AdminErrors, UnknownGroup):
                    continue
            return found


def now_ms() -> int:
    return round(time.time() * 1000)
