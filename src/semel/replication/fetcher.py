"""Fetches for the followers of this node: one task and one fetch session for each leader.

A request asks for every partition of its leader that wants something, and the leader holds it until there is news
(`replica.fetch.wait.max.ms`). A partition whose flush is under way is left out and comes back when it is flushed; until
then requests are not held, so that it need not wait for the others. What comes while a request is held (a new term, a
log that was cut, the end of a pause) is asked for aside, without a session and over another connection, until the held
one is back.

Bounded: of each leader one answer of `replica.fetch.response.max.bytes` and one of those aside are held while they are
appended; cuts run a few at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import islice

from semel.config import BrokerConfig
from semel.host.api import Clock
from semel.host.complaints import Complaints
from semel.peer.backoff import Backoff
from semel.peer.caller import PeerCaller
from semel.peer.errors import PeerError
from semel.replication.fetch_lane import NO_SESSION_EPOCH, Asked, FetchLane, Key, pair, request_topics
from semel.replication.follower import Follower
from semel.replication.following import Phase
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchRequestTopic, FetchResponse, FetchResponsePartition, ReplicaState
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

logger = logging.getLogger("semel.replication")

_REPLICA_STATE_SINCE = 15
# While a flush is under way others are asked for no later than this.
_WHILE_FLUSHING_S = 0.01
# How long a request aside is held.
_ASIDE_MS = 20
_MOST_ASIDE = 250
_WAIT_FOR_ASIDE_S = 0.05
_FIRST_PAUSE_MS = 20
_CUTS_AT_ONCE = 32
# Answers without records that are looked at before others have their turn.
_EMPTY_AT_ONCE = 64
_LATEST, _EARLIEST = -1, -2
_LEAST_LIST_OFFSETS = 4


def fetch_version(metadata_version: int) -> int:
    """Between brokers the level of the cluster says which form of Fetch is used, not what both of them know."""
    for level, version in ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14)):
        if metadata_version >= level:
            return version
    return 13


def list_offsets_version(metadata_version: int) -> int:
    for level, version in ((29, 11), (25, 10), (21, 9)):
        if metadata_version >= level:
            return version
    return 7


class ReplicaFetchers:
    """`caller` and `caller_aside` have connections of their own: a held request holds up all that is behind it."""

    def __init__(
        self,
        node_id: int,
        caller: PeerCaller,
        caller_aside: PeerCaller,
        broker_epoch: Callable[[], int],
        config: Callable[[], BrokerConfig],
        metadata_version: Callable[[], int],
        clock: Clock,
        random: random_module.Random,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self.node_id = node_id
        self.caller = caller
        self.caller_aside = caller_aside
        self.broker_epoch = broker_epoch
        self.config = config
        self.metadata_version = metadata_version
        self.clock = clock
        self.complaints = Complaints(logger)
        self.cuts = asyncio.Semaphore(_CUTS_AT_ONCE)
        self._random = random
        self._on_broken = on_broken
        self._leaders: dict[int, _Leader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def follow(self, follower: Follower) -> None:
        """Begins to fetch for it; until `unfollow`, or the end of its term."""
        if self._is_closed or follower.is_closed:
            return
        leader = self._leaders.get(follower.leader_id)
        if leader is None:
            leader = self._leaders[follower.leader_id] = _Leader(self, follower.leader_id)
            self.start(leader.run())
        leader.add(follower)

    def unfollow(self, follower: Follower) -> None:
        leader = self._leaders.get(follower.leader_id)
        if leader is not None:
            leader.remove(follower)

    def backoff(self) -> Backoff:
        return Backoff(self._random, _FIRST_PAUSE_MS, self.config().int("replica.fetch.backoff.ms"))

    def gone(self, leader_id: int) -> None:
        """Nobody follows this leader any more."""
        del self._leaders[leader_id]

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_broken(error)

    async def close(self) -> None:
        """Fetches no more. What is appended stays, and its flushes are the followers' own."""
        self._is_closed = True
        for leader in self._leaders.values():
            leader.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Leader:
    """All that this node follows of one leader."""

    def __init__(self, fetchers: ReplicaFetchers, leader_id: int) -> None:
        self._fetchers = fetchers
        self._leader_id = leader_id
        self._lane = FetchLane(leader_id)
        self._has_news = asyncio.Event()
        self._is_held = False
        """The request that is under way may take its time."""
        self._aside: asyncio.Task[None] | None = None
        self._news_aside = asyncio.Event()
        self._looking_up: dict[Key, Follower] = {}
        self._is_looking_up = False
        self._cutting: set[Follower] = set()
        self._pauses: dict[Key, asyncio.TimerHandle] = {}
        self._failures = 0

    def add(self, follower: Follower) -> None:
        key = (follower.topic_id, follower.index)
        before = self._lane.followers.get(key)
        if before is follower:
            return
        if before is not None:
            self.remove(before)
        follower.changed = partial(self._attend, key, follower)
        self._lane.add(key, follower)
        self._attend(key, follower)

    def remove(self, follower: Follower) -> None:
        key = (follower.topic_id, follower.index)
        if self._lane.followers.get(key) is follower:
            follower.changed = _ignore
            self._lane.remove(key, follower)
            self._looking_up.pop(key, None)
            if (pause := self._pauses.pop(key, None)) is not None:
                pause.cancel()
            self._wake()

    def close(self) -> None:
        for pause in self._pauses.values():
            pause.cancel()

    def _wake(self) -> None:
        self._has_news.set()
        self._news_aside.set()

    # -- what each follower needs next

    def _attend(self, key: Key, follower: Follower) -> None:
        """Something has happened to it: see to what it needs."""
        if self._lane.followers.get(key) is not follower:
            return
        match follower.phase:
            case Phase.ENDED:
                self.remove(follower)
                return
            case Phase.CUTTING | Phase.EMPTYING if follower not in self._cutting:
                self._cutting.add(follower)
                self._fetchers.start(self._cut(key, follower))
            case Phase.LOOKING_UP:
                self._looking_up[key] = follower
                if not self._is_looking_up:
                    self._is_looking_up = True
                    self._fetchers.start(self._look_up())
            case Phase.PAUSED if key not in self._pauses:
                pause_s = self._fetchers.backoff().delay_s(follower.failures)
                self._pauses[key] = asyncio.get_running_loop().call_later(pause_s, self._resume, key, follower)
            case _:
                pass
        self._lane.note(key)
        if follower.position is not None:
            self._wake()
            if self._is_held and self._aside is None:
                self._aside = self._fetchers.start(self._fetch_aside())

    def _resume(self, key: Key, follower: Follower) -> None:
        del self._pauses[key]
        follower.resume()
        self._attend(key, follower)

    async def _cut(self, key: Key, follower: Follower) -> None:
        try:
            async with self._fetchers.cuts:
                await follower.cut()
        finally:
            self._cutting.discard(follower)
        if follower.phase not in (Phase.CUTTING, Phase.EMPTYING):
            self._attend(key, follower)

    # -- the session

    async def run(self) -> None:
        lane = self._lane
        while True:
            if not lane.has_any:
                if not lane.followers:
                    self._fetchers.gone(self._leader_id)
                    return
                self._has_news.clear()
                await self._has_news.wait()
                continue
            if self._aside is not None:
                # It ends, now that nothing is held. What it asks for is to go on in the session.
                await asyncio.wait([self._aside], timeout=_WAIT_FOR_ASIDE_S)
            if lane.flushing and not self._has_news.is_set():
                await self._news_or(_WHILE_FLUSHING_S)
            self._has_news.clear()
            try:
                await self._fetch()
            except PeerError as error:
                lane.failed()
                await self._pause(error)

    async def _news_or(self, most_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(most_s, self._has_news.set)
        try:
            await self._has_news.wait()
        finally:
            timer.cancel()

    async def _pause(self, error: object) -> None:
        self._failures += 1
        text = "node %d cannot be followed now: %s"
        self._fetchers.complaints.say(("leader", self._leader_id), logging.WARNING, text, self._leader_id, error)
        await asyncio.sleep(self._fetchers.backoff().delay_s(self._failures))

    async def _fetch(self) -> None:
        fetchers, lane = self._fetchers, self._lane
        config = fetchers.config()
        was_full = lane.epoch == 0
        wanted = lane.ask(config.int("replica.fetch.max.bytes"))
        max_wait_ms = 0
        if wanted.names_all and not lane.flushing:
            max_wait_ms = config.int("replica.fetch.wait.max.ms")
        request = self._request(wanted.topics, max_wait_ms)
        request.session_id = wanted.session_id
        request.session_epoch = wanted.epoch
        request.forgotten_topics_data = wanted.forgotten
        self._is_held = max_wait_ms > 0
        try:
            response = await self._call(fetchers.caller, request)
        finally:
            self._is_held = False
            self._news_aside.set()
        if not lane.answered(response):
            logger.debug("node %d ended our fetch session: error code %d", self._leader_id, response.error_code)
            if was_full:
                await self._pause(f"error code {response.error_code}")
            return
        self._failures = 0
        await self._take(lane.answers(response))

    def _request(self, topics: list[FetchRequestTopic], max_wait_ms: int) -> FetchRequest:
        fetchers = self._fetchers
        config = fetchers.config()
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=config.int("replica.fetch.min.bytes"),
            max_bytes=config.int("replica.fetch.response.max.bytes"),
            topics=topics,
        )
        if fetch_version(fetchers.metadata_version()) >= _REPLICA_STATE_SINCE:
            request.replica_state = ReplicaState(replica_id=fetchers.node_id, replica_epoch=fetchers.broker_epoch())
        else:
            request.replica_id = fetchers.node_id
        return request

    async def _call(self, caller: PeerCaller, request: FetchRequest) -> FetchResponse:
        version = fetch_version(self._fetchers.metadata_version())
        timeout_s = self._fetchers.config().int("replica.socket.timeout.ms") / 1000
        return await caller.call(
            self._leader_id, request, FetchResponse, timeout_s=timeout_s, at_least=version, at_most=version
        )

    async def _take(self, answers: list[tuple[Key, Asked, FetchResponsePartition]]) -> None:
        """Carries out an answer; between partitions others have their turn."""
        for number, (key, (follower, position), answer) in enumerate(answers):
            if self._lane.followers.get(key) is not follower:
                continue
            for _ in follower.take(position, answer):
                await asyncio.sleep(0)
            if follower.position != position:
                self._attend(key, follower)
            if answer.records or number % _EMPTY_AT_ONCE == _EMPTY_AT_ONCE - 1:
                await asyncio.sleep(0)

    # -- aside

    async def _fetch_aside(self) -> None:
        """Asks for what the held request does not know of, until that is back."""
        lane = self._lane
        try:
            while self._is_held:
                asked = dict(islice(lane.newcomers(), _MOST_ASIDE))
                if not asked:
                    self._news_aside.clear()
                    await self._news_aside.wait()
                    continue
                lane.aside = asked
                max_bytes = self._fetchers.config().int("replica.fetch.max.bytes")
                request = self._request(request_topics(asked, max_bytes), _ASIDE_MS)
                request.session_epoch = NO_SESSION_EPOCH
                try:
                    response = await self._call(self._fetchers.caller_aside, request)
                finally:
                    lane.aside = {}
                if response.error_code != ErrorCode.NONE:
                    return
                await self._take(pair(response, asked))
        except PeerError as error:
            logger.debug("nothing could be asked of node %d aside: %s", self._leader_id, error)
        finally:
            self._aside = None
            self._has_news.set()

    # -- where the leader's logs begin and end

    async def _look_up(self) -> None:
        try:
            while self._looking_up:
                asked, self._looking_up = self._looking_up, {}
                try:
                    ends = await self._list_offsets(asked, _LATEST)
                    starts = await self._list_offsets(asked, _EARLIEST)
                except PeerError as error:
                    for follower in asked.values():
                        if follower.phase is Phase.LOOKING_UP:
                            follower.failed(str(error))
                else:
                    for key, follower in asked.items():
                        end_offset, end_code = ends.get(key, (-1, ErrorCode.UNKNOWN_SERVER_ERROR))
                        start_offset, start_code = starts.get(key, (-1, ErrorCode.UNKNOWN_SERVER_ERROR))
                        if end_code or start_code:
                            follower.look_up_refused(end_code or start_code)
                        else:
                            follower.looked_up(start_offset, end_offset)
                for key, follower in asked.items():
                    self._attend(key, follower)
        finally:
            self._is_looking_up = False

    async def _list_offsets(self, asked: dict[Key, Follower], timestamp: int) -> dict[Key, tuple[int, int]]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        ids: dict[str, bytes] = {}
        for (topic_id, index), follower in asked.items():
            ids[follower.topic] = topic_id
            topics.setdefault(follower.topic, []).append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=follower.leader_epoch, timestamp=timestamp
                )
            )
        fetchers = self._fetchers
        request = ListOffsetsRequest(
            replica_id=fetchers.node_id,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        response = await fetchers.caller_aside.call(
            self._leader_id,
            request,
            ListOffsetsResponse,
            timeout_s=fetchers.config().int("replica.socket.timeout.ms") / 1000,
            at_least=_LEAST_LIST_OFFSETS,
            at_most=list_offsets_version(fetchers.metadata_version()),
        )
        return {
            (ids[topic.name], answer.partition_index): (answer.offset, answer.error_code)
            for topic in response.topics
            for answer in topic.partitions
            if topic.name in ids
        }


def _ignore() -> None:
    """Nobody is told."""
