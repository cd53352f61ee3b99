"""A group coordinator in virtual time, on partitions in memory: its requests without a wire, its faults at will.

`check_replay` is the test of tests: what the coordinator holds is what its log makes, and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any, cast

from semel.config import BrokerConfig
from semel.coordinator.group.classic import Caller
from semel.coordinator.group.classic_group import ClassicGroup
from semel.coordinator.group.classic_states import ClassicState
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.group.group_memory import bytes_of_protocols, bytes_of_topics
from semel.coordinator.group.group_shard import GroupShard
from semel.coordinator.group.offsets import Committer, OffsetToCommit
from semel.coordinator.group.state import GroupState
from semel.coordinator.shard import replay_batch
from semel.log.errors import Refused
from semel.log.log import Appended
from semel.records.batch import BatchHeader, read_header, set_base_offset
from semel.records.control import ControlType, control_batch
from semel.records.read import Record, read_records
from semel.replication.partition import Partition
from semel.rpc.budget import MemoryBudget, Owner
from semel.sim.clock import SimClock
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from semel.wire.spec.leave_group import LeavingMember, LeavingMemberResult
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    """The metadata of a classic consumer, version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class MemoryLog:
    """One segment that is the whole log."""

    def __init__(self) -> None:
        self.entries: list[tuple[BatchHeader, bytes]] = []
        self.end_offset = 0

    @property
    def segments(self) -> list[MemoryLog]:
        return [self] if self.entries else []

    @property
    def size_bytes(self) -> int:
        return sum(len(batch) for _, batch in self.entries)

    @property
    def file(self) -> MemoryLog:
        return self

    def pin(self) -> None:
        """Memory stays readable."""

    def unpin(self) -> None: ...

    def is_warm(self, position: int, length: int) -> bool:
        return True

    def batches(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        for header, batch in self.entries:
            yield 0, header, memoryview(batch)


class MemoryPartition:
    def __init__(self, index: int, clock: SimClock) -> None:
        self.index = index
        self.leader_epoch = 0
        self.is_closed = False
        self.log = MemoryLog()
        self.refuses: ErrorCode | None = None
        self.is_held = False
        self._clock = clock
        self._waiting: list[asyncio.Future[None]] = []

    def append_prepared(self, batch: bytearray) -> Appended:
        if self.refuses is not None:
            raise Refused(self.refuses, "the log refuses")
        set_base_offset(batch, self.log.end_offset)
        header = read_header(batch)
        self.log.entries.append((header, bytes(batch)))
        self.log.end_offset = header.next_offset
        return Appended(header.base_offset, header.last_offset)

    def append_marker(
        self, kind: ControlType, producer_id: int, epoch: int, coordinator_epoch: int, *, bumps_epoch: bool
    ) -> Appended:
        return self.append_prepared(
            control_batch(
                kind,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=self._clock.wall_ms(),
            )
        )

    def when_committed(self, offset: int, timeout_ms: int | None = None) -> asyncio.Future[None] | None:
        if not self.is_held:
            return None
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    def let_go(self) -> None:
        self.is_held = False
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()


class Topic:
    def __init__(self, topic_id: bytes, count: int) -> None:
        self.topic_id = topic_id
        self.partitions = range(count)


class Image:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        self.settings: dict[str, dict[str, str]] = {}

    def group_settings(self, group_id: str) -> dict[str, str]:
        return self.settings.get(group_id, {})


class World:
    def __init__(self, loop: SimLoop, settings: Mapping[str, str]) -> None:
        self.clock = SimClock(loop)
        self.image = Image()
        # For which offsets are committed in tests that say nothing of topics: it has no partitions to be assigned.
        self.image.topics["t"] = Topic(b"t" * 16, 0)
        self.config = BrokerConfig(
            {"group.initial.rebalance.delay.ms": str(DELAY_MS), "offsets.topic.num.partitions": "2", **settings}
        )
        self.partitions = [MemoryPartition(index, self.clock) for index in range(2)]
        self._starts = 0
        self.budget = MemoryBudget(256 << 20)
        self.groups = self._new_coordinator()

    def _new_coordinator(self) -> GroupCoordinator:
        self._starts += 1
        return GroupCoordinator(
            lambda topic, index: cast(Partition, self.partitions[index]),
            lambda topic: len(self.partitions),
            lambda: self.image,
            lambda: self.config,
            self.clock,
            Random(self._starts),
            self.budget,
        )

    # -- the cluster

    def create_topic(self, name: str, partitions: int) -> bytes:
        topic_id = (name.encode() + bytes(16))[:15] + bytes([len(self.image.names) + 1])
        self.image.topics[name] = Topic(topic_id, partitions)
        self.image.names[topic_id] = name
        self.groups.topics_changed()
        return topic_id

    def add_partitions(self, name: str, partitions: int) -> None:
        self.image.topics[name] = Topic(self.image.topics[name].topic_id, partitions)
        self.groups.topics_changed()

    def delete_topic(self, name: str) -> None:
        del self.image.names[self.image.topics.pop(name).topic_id]
        self.groups.topics_changed([name])

    async def restart(self) -> None:
        """The coordinator dies; another one begins with what is in the log."""
        await self.groups.close()
        self.groups = self._new_coordinator()
        self.groups.start()

    # -- looking inside

    def side(self, group_id: str = GROUP) -> GroupShard:
        return self.groups._of(group_id)

    def classic(self, group_id: str = GROUP) -> ClassicGroup:
        return self.side(group_id).rebalance.groups[group_id]

    def partition_of(self, group_id: str = GROUP) -> MemoryPartition:
        return cast(MemoryPartition, self.side(group_id).shard.partition)

    def check_counts(self) -> None:
        """What members take of the memory is what those that are there have brought."""
        sides = self.groups._sides.values()
        classic = [group for side in sides for group in side.rebalance.groups.values()]
        consumer = [group for side in sides for group in side.shard.state.consumer.values()]
        for group in classic:
            known = [bytes_of_protocols(member.protocols) for member in group.members.values()]
            assert group.metadata_bytes == sum(known)
        for other in consumer:
            assert other.metadata_bytes == sum(bytes_of_topics(member.topics) for member in dict.values(other.members))
        assert self.budget.bytes_of(Owner.GROUP) == sum(group.metadata_bytes for group in (*classic, *consumer))

    def check_replay(self) -> None:
        """Live state equals replayed state; a classic group at rest is what its record says."""
        for partition in self.partitions:
            side = self.groups._sides.get(partition.index)
            if side is None:
                continue
            replayed = GroupState()
            for _, header, batch in partition.log.batches():
                replay_batch(replayed, header, batch)
            assert side.shard.state == replayed
            compacted = _compacted(partition.log)
            if compacted is not None:
                assert compacted == replayed
            for group in side.rebalance.groups.values():
                at_rest = group.state in (ClassicState.STABLE, ClassicState.EMPTY)
                if at_rest and (group.members or group.group_id in replayed.classic):
                    assert group.as_record(group.since_ms) == replayed.classic[group.group_id]
            assert set(replayed.classic) <= set(side.rebalance.groups)

    # -- the classic protocol

    async def join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client: str = "client",
    ) -> JoinGroupResponse:
        named = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in named.items()],
        )
        return await self.groups.join(request, Caller(client, "/127.0.0.1", version))

    async def member_id(self, **options: Any) -> str:
        """The id that a new member is given before it may join (KIP-394)."""
        response = await self.join(**options)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    async def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        **options: Any,
    ) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
            **options,
        )
        return await self.groups.sync(request)

    async def heartbeat(self, member_id: str, generation: int, **options: Any) -> None:
        request = HeartbeatRequest(
            **{"group_id": GROUP, "member_id": member_id, "generation_id": generation, **options}
        )
        await self.groups.heartbeat(request)

    async def leave(self, *member_ids: str, group_id: str = GROUP) -> list[LeavingMemberResult]:
        return await self.groups.leave(group_id, [LeavingMember(member_id=one) for one in member_ids])

    async def stable(self, count: int = 2, **options: Any) -> tuple[int, list[str]]:
        """A stable group of so many members: its generation, and their ids with the leader first."""
        ids = [await self.member_id(**options) for _ in range(count)]
        joins = [asyncio.ensure_future(self.join(one, **options)) for one in ids]
        responses = await asyncio.gather(*joins)
        leader = responses[0].leader
        ordered = [leader, *(one for one in ids if one != leader)]
        generation = responses[0].generation_id
        await self.assign(generation, ordered, group_id=options.get("group_id", GROUP))
        return generation, ordered

    async def assign(self, generation: int, ids: list[str], *, group_id: str = GROUP) -> list[SyncGroupResponse]:
        """The first of them, the leader, gives each member its own id as its assignment."""
        plan = {one: one.encode() for one in ids}
        syncs = [self.sync(one, generation, plan if one == ids[0] else None, group_id=group_id) for one in ids]
        return await asyncio.gather(*syncs)

    # -- KIP-848

    async def beat(self, member_id: str, epoch: int, **options: Any) -> ConsumerGroupHeartbeatResponse:
        owned = options.pop("owned", None)
        caller = Caller("client", "/127.0.0.1", options.pop("version", 1))
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **options}
        )
        if owned is not None:
            request.topic_partitions = [
                OwnedTopicPartitions(topic_id=topic_id, partitions=list(indexes)) for topic_id, indexes in owned.items()
            ]
        return await self.groups.consumer_heartbeat(request, caller)

    async def enter(self, member_id: str, *topics: str, **options: Any) -> ConsumerGroupHeartbeatResponse:
        """Joins a KIP-848 group."""
        names: list[str] | None = list(topics)
        return await self.beat(
            member_id,
            0,
            **{"subscribed_topic_names": names, "rebalance_timeout_ms": REBALANCE_MS, "owned": {}, **options},
        )

    # -- offsets

    async def commit(
        self, offset: int, *, topic: str = "t", partition: int = 0, metadata: str | None = "", **options: Any
    ) -> ErrorCode:
        group_id = options.pop("group_id", GROUP)
        retention_ms = options.pop("retention_ms", -1)
        place = OffsetToCommit(topic, partition, offset, -1, metadata)
        codes = await self.groups.commit(group_id, Committer(**options), [place], retention_ms)
        return codes[topic, partition]

    async def fetched(self, topic: str = "t", partition: int = 0, *, group_id: str = GROUP, **options: Any) -> Any:
        """The committed offset, an error code, or None."""
        found = await self.groups.fetch_offsets(group_id, [(topic, partition)], **{"require_stable": False, **options})
        value = found[topic, partition]
        return value if value is None or isinstance(value, ErrorCode) else value.offset


def _compacted(log: MemoryLog) -> GroupState | None:
    """What is left when only the newest record of each key is kept, and no tombstones; None with transactions, whose
    records compaction does not judge by their keys alone."""
    newest: dict[bytes, Record] = {}
    for _, header, batch in log.batches():
        if header.is_transactional:
            return None
        for record in read_records(batch, header):
            newest.pop(record.key or b"", None)
            newest[record.key or b""] = record
    state = GroupState()
    for record in newest.values():
        if record.value is not None:
            state.replay(record, -1)
    return state


def refused(error: Any) -> ErrorCode:
    """The code of what pytest.raises(Refused) caught."""
    return cast(ErrorCode, error.value.code)


Test = Callable[..., Coroutine[Any, Any, None]]


def in_world(**settings: str) -> Callable[[Test], Callable[..., None]]:
    """Runs `async def test(world, ...)` in virtual time, then checks replay. Settings have _ for dots."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def in_virtual_time(**arguments: Any) -> None:
            run_in_world(lambda world: test(world, **arguments), settings)

        signature = inspect.signature(test)
        kept = list(signature.parameters.values())[1:]
        in_virtual_time.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return in_virtual_time

    return decorate


def run_in_world(scenario: Callable[[World], Coroutine[Any, Any, None]], settings: Mapping[str, str]) -> None:
    loop = SimLoop(end_s=3600 * 24 * 365)
    named = {name.replace("_", "."): value for name, value in settings.items()}

    async def checked() -> None:
        world = World(loop, named)
        world.groups.start()
        await scenario(world)
        world.check_replay()
        world.check_counts()
        await world.groups.close()
        assert world.budget.used_bytes == 0

    run(checked(), loop=loop)
