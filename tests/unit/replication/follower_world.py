"""A leader's node without sockets, and a node that follows it: every request and answer goes through its bytes.

The leader is made of real partitions; its fetch sessions are as simple as they can be.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from leader_world import LEADER, Assigned, B, FakeContext

from semel.config import BrokerConfig, TopicConfig, topic_config
from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.log.recovery import load_log
from semel.records.batch import read_header
from semel.records.build import build_batch
from semel.records.control import ControlType
from semel.replication.fetcher import ReplicaFetchers
from semel.replication.follower import Follower
from semel.replication.partition import FollowerFetch, Partition
from semel.sim.clock import WALL_START_MS, SimClock
from semel.sim.disk import SimDisk
from semel.wire.codec import decode, encode
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from semel.wire.spec.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

BROKER_EPOCH = 7
LATEST, EARLIEST = -1, -2


def topic_id(index: int = 0) -> bytes:
    return bytes(15) + bytes([index + 1])


def config_of(**overrides: object) -> TopicConfig:
    texts = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    return topic_config({"flush.messages": "1", "index.interval.bytes": "100", **texts}, BrokerConfig({}))


def open_log(disk: SimDisk, directory: str, config: TopicConfig, start_offset: int = 0) -> Log:
    disk.make_dirs("/data")
    log, _ = load_log(
        disk,
        directory,
        config,
        recovery_point=0,
        start_offset=start_offset,
        now_ms=WALL_START_MS,
        was_clean=False,
    )
    return log


class Session:
    def __init__(self) -> None:
        self.epoch = 1
        self.wanted: dict[tuple[bytes, int], FetchRequestPartition] = {}
        self.told: dict[tuple[bytes, int], tuple[int, int]] = {}


class FakeLeader:
    """Also the PeerCaller of those who follow it."""

    def __init__(self) -> None:
        self.context = FakeContext()
        self.partitions: dict[tuple[bytes, int], Partition] = {}
        self.sessions: dict[int, Session] = {}
        self.requests: list[FetchRequest] = []
        self.look_ups: list[ListOffsetsRequest] = []
        self.in_flight = 0
        self.failure: Exception | None = None
        self.gives_sessions = True
        self.refuses: dict[tuple[bytes, int], ErrorCode] = {}
        self.delay_s = 0.001
        self.flushes: dict[Log, GroupCommit] = {}
        self._news = asyncio.Event()

    def flushes_of(self, log: Log) -> GroupCommit:
        """They pass from term to term with the log."""
        return self.flushes.setdefault(log, GroupCommit(log, fail))

    def lead(self, key: tuple[bytes, int], log: Log, leader_epoch: int) -> Partition:
        before = self.partitions.get(key)
        if before is not None:
            before.resign()
        clock = SimClock(asyncio.get_running_loop())
        partition = Partition(
            f"topic{key[0][-1]}",
            *key,
            log,
            leader_epoch,
            clock,
            fail,
            group_commit=self.flushes_of(log),
            context=self.context,
            assignment=Assigned((LEADER, B), (LEADER, B)),
        )
        partition.watch_end(self, self._news.set)
        self.partitions[key] = partition
        self._news.set()
        return partition

    async def call(
        self, node_id: int, request: Any, response: Any, *, timeout_s: float, at_least: int = 0, at_most: int
    ) -> Any:
        await asyncio.sleep(self.delay_s)
        if self.failure is not None:
            raise self.failure
        asked = decode(type(request), at_most, memoryview(encoded(request, at_most)))
        if isinstance(asked, ListOffsetsRequest):
            self.look_ups.append(asked)
            answer: Any = self._list_offsets(asked)
        else:
            self.requests.append(asked)
            self.in_flight += 1
            try:
                answer = await self._fetch(asked)
            finally:
                self.in_flight -= 1
        await asyncio.sleep(self.delay_s)
        if self.failure is not None:
            raise self.failure
        return decode(response, at_most, memoryview(encoded(answer, at_most)))

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        if request.session_epoch == -1:
            session, session_id = Session(), 0
        elif request.session_epoch == 0:
            self.sessions.pop(request.session_id, None)
            session, session_id = Session(), len(self.requests) if self.gives_sessions else 0
            if session_id:
                self.sessions[session_id] = session
        else:
            session_id = request.session_id
            known = self.sessions.get(session_id)
            if known is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if known.epoch != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session, known.epoch = known, known.epoch + 1
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.wanted.pop((topic.topic_id, index), None)
        for wanted in request.topics:
            for one in wanted.partitions:
                session.wanted[wanted.topic_id, one.partition] = one
        until = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        counts = True
        while True:
            self._news.clear()
            found, is_enough = self._read(request, session, counts)
            counts = False
            left = until - asyncio.get_running_loop().time()
            if is_enough or left <= 1e-9:
                for topic in found:
                    for one in topic.partitions:
                        key = (topic.topic_id, one.partition_index)
                        session.told[key] = (one.high_watermark, one.log_start_offset)
                return FetchResponse(session_id=session_id, responses=found)
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                pass

    def _read(self, request: FetchRequest, session: Session, counts: bool) -> tuple[list[FetchResponseTopic], bool]:
        state = request.replica_state
        node_id, epoch = (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
        found: dict[bytes, list[FetchResponsePartition]] = {}
        is_enough, left = False, request.max_bytes
        for key, wanted in session.wanted.items():
            answer = self._read_one(key, wanted, node_id, epoch, left, counts)
            left -= len(answer.records or b"")
            told = (answer.high_watermark, answer.log_start_offset)
            has_news = bool(answer.error_code or answer.records or answer.diverging_epoch)
            is_enough = is_enough or has_news
            if has_news or session.told.get(key) != told or request.session_epoch <= 0:
                found.setdefault(key[0], []).append(answer)
        return [FetchResponseTopic(topic_id=name, partitions=answers) for name, answers in found.items()], is_enough

    def _read_one(
        self, key: tuple[bytes, int], wanted: FetchRequestPartition, node_id: int, epoch: int, left: int, counts: bool
    ) -> FetchResponsePartition:
        answer = FetchResponsePartition(partition_index=key[1], records=b"")
        try:
            if key in self.refuses:
                raise Refused(self.refuses[key], "as the test wants it")
            if key not in self.partitions:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is none")
            asked = FollowerFetch(
                node_id,
                epoch,
                wanted.current_leader_epoch,
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.log_start_offset,
                min(wanted.partition_max_bytes, max(left, 0)),
            )
            fetched = self.partitions[key].fetch_as_replica(asked, at_least_one=True, counts=counts, warmed=True)
        except Refused as refusal:
            answer.error_code, answer.high_watermark = refusal.code, -1
            return answer
        answer.high_watermark = fetched.high_watermark
        answer.last_stable_offset = fetched.last_stable_offset
        answer.log_start_offset = fetched.log_start_offset
        if fetched.diverging is not None:
            answer.diverging_epoch = EpochEndOffset(epoch=fetched.diverging[0], end_offset=fetched.diverging[1])
        if isinstance(fetched.records, FileRange):
            answer.records = fetched.records.read()
            fetched.records.release()
        return answer

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics: list[ListOffsetsTopicResponse] = []
        for topic in request.topics:
            answers: list[ListOffsetsPartitionResponse] = []
            for one in topic.partitions:
                partition = self.partitions[topic_id(int(topic.name[5:]) - 1), one.partition_index]
                answer = ListOffsetsPartitionResponse(partition_index=one.partition_index)
                if one.current_leader_epoch != partition.leader_epoch:
                    answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
                elif one.timestamp == LATEST:
                    answer.offset = partition.log.end_offset
                else:
                    assert one.timestamp == EARLIEST
                    answer.offset = partition.log.start_offset
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)


def fail(error: BaseException) -> None:
    raise AssertionError from error


def encoded(message: Any, version: int) -> bytes:
    return encode(message, version)


class FollowerWorld:
    """The following node, and what it follows. A flush takes `flush_ms` there."""

    def __init__(self, *, flush_ms: float = 2, metadata_version: int = 27, **settings: str) -> None:
        self.leader = FakeLeader()
        self.leader_disk = SimDisk(1, flush_latency_ms=(1, 1))
        self.disk = SimDisk(2, flush_latency_ms=(flush_ms, flush_ms))
        self.broken: list[BaseException] = []
        self.clock = SimClock(asyncio.get_running_loop())
        self.config = BrokerConfig(dict(settings))
        self.fetchers = ReplicaFetchers(
            B,
            self.leader,
            self.leader,
            lambda: BROKER_EPOCH,
            lambda: self.config,
            lambda: metadata_version,
            self.clock,
            random.Random(3),
            self.broken.append,
        )
        self.followers: dict[int, Follower] = {}

    def lead(self, number: int = 0, *, leader_epoch: int = 0, log: Log | None = None, **overrides: object) -> Partition:
        if log is None:
            log = open_log(self.leader_disk, f"/data/topic{number + 1}-0-{leader_epoch}", config_of(**overrides))
        return self.leader.lead((topic_id(number), 0), log, leader_epoch)

    def follow(
        self, number: int = 0, *, leader_epoch: int = 0, log: Log | None = None, **overrides: object
    ) -> Follower:
        before = self.followers.get(number)
        if log is None:
            log = before.log if before is not None else self.open(number, **overrides)
        if before is not None:
            before.resign()
        follower = self.followers[number] = Follower(
            f"topic{number + 1}",
            topic_id(number),
            0,
            log,
            LEADER,
            leader_epoch,
            self.clock,
            self.broken.append,
            group_commit=self.leader.flushes_of(log),
        )
        self.fetchers.follow(follower)
        return follower

    def open(self, number: int = 0, **overrides: object) -> Log:
        return open_log(self.disk, f"/data/topic{number + 1}-0", config_of(**overrides))

    async def caught_up(self, number: int = 0, most_s: float = 10) -> Follower:
        """Waits until the follower has all, and the leader knows."""
        follower, partition = self.followers[number], self.leader.partitions[topic_id(number), 0]
        until = asyncio.get_running_loop().time() + most_s
        while not (
            follower.log.end_offset == partition.log.end_offset
            and partition.log.high_watermark == partition.log.end_offset
        ):
            assert not self.broken, self.broken
            assert asyncio.get_running_loop().time() < until, f"{follower!r} {follower.phase} {follower.problem}"
            await asyncio.sleep(0.0005)
        return follower

    async def close(self) -> None:
        await self.fetchers.close()
        for follower in self.followers.values():
            await follower.close()
        assert not self.broken, self.broken


def append(partition: Partition, *values: bytes, **producer: Any) -> int:
    """Appends a batch, and returns its last offset."""
    return append_to(partition.log, *values, leader_epoch=partition.leader_epoch, told=partition.appended, **producer)


def append_to(
    log: Log,
    *values: bytes,
    leader_epoch: int,
    told: Any = lambda: None,
    producer: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> int:
    batch = build_batch(
        list(values),
        base_timestamp_ms=WALL_START_MS,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=sequence,
        transactional=transactional,
    )
    appended = log.append(batch, read_header(batch), leader_epoch, WALL_START_MS)
    told()
    return appended.last_offset


def mark(partition: Partition, kind: ControlType, producer: int) -> None:
    partition.append_marker(kind, producer, 0, 1, bumps_epoch=False)
