"""The group coordinator of a node: finds the shard of a group, asks it, and answers when what it said is durable.

Every answer, also one that only reads, waits until all that it may depend on is committed. What the log refuses becomes
an error of a coordinator: look for it again, or come back later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from random import Random

from semel.config import BrokerConfig
from semel.coordinator.errors import coordinator_error
from semel.coordinator.group.classic import Caller
from semel.coordinator.group.cluster import ClusterImage
from semel.coordinator.group.consumer_group import JOINING
from semel.coordinator.group.group_memory import GroupMemory
from semel.coordinator.group.group_shard import GroupShard
from semel.coordinator.group.offsets import Committer, OffsetToCommit, Place
from semel.coordinator.group.state import CommittedOffset, GroupState
from semel.coordinator.shard import Shard
from semel.coordinator.shards import Shards
from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.coordinator.work import Steps, WorkQueue
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.log.types import Epoch, Offset, ProducerId
from semel.replication.partition import Partition
from semel.rpc.budget import MemoryBudget
from semel.wire.errors import ErrorCode
from semel.wire.spec.consumer_group_describe import DescribedConsumerGroup
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from semel.wire.spec.describe_groups import DescribedGroup
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupResponse
from semel.wire.spec.leave_group import LeavingMember, LeavingMemberResult
from semel.wire.spec.list_groups import ListedGroup
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger("semel.groups")

# How many groups are cleaned before the loop has its turn.
_GROUPS_AT_ONCE = 20


class GroupCoordinator:
    def __init__(
        self,
        partition: Callable[[str, int], Partition],
        count: Callable[[str], int],
        image: Callable[[], ClusterImage],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        random: Random,
        budget: MemoryBudget,
        *,
        work: WorkQueue | None = None,
        newest_connection: Callable[[], int] = lambda: 0,
    ) -> None:
        self.shards: Shards[GroupState] = Shards(
            OFFSETS_TOPIC,
            partition,
            count,
            GroupState,
            clock,
            self,
            config().int("offsets.topic.compression.codec"),
            work=work,
            newest_connection=newest_connection,
        )
        # The version of the topics that KIP-848 groups compare theirs with; each start begins anew.
        self.version = 1
        self._image = image
        self._config = config
        self._memory = GroupMemory(budget, config)
        self._clock = clock
        self._random = random
        self._sides: dict[int, GroupShard] = {}
        # Topics that were deleted while a shard was still being read, by its term.
        self._deleted: dict[Partition, set[str]] = {}
        self._cleaning: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        return self._image()

    def start(self) -> None:
        """Loads every shard, so that members who died with the last start are noticed, and begins to clean."""
        self.shards.load_all()
        self._cleaning = asyncio.ensure_future(self._clean_now_and_then())

    async def close(self) -> None:
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.wait([self._cleaning])
        for side in self._sides.values():
            for _ in side.unload():
                pass
        self._sides.clear()
        await self.shards.close()

    # -- for metrics

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The groups that are coordinated here, each with how many members it has. Others may be served meanwhile."""
        for side in self._open_sides():
            classic, modern = side.rebalance.groups, side.shard.state.consumer
            for group_id in side.group_ids():
                group = modern.get(group_id) or classic.get(group_id)
                yield group_id, 0 if group is None else len(group.members)

    def committed(self) -> Iterator[tuple[str, str, int, Offset]]:
        """Group, topic, partition and offset of all that is committed. Others may be served meanwhile."""
        for side in self._open_sides():
            for group_id, offsets in list(side.shard.state.offsets.items()):
                for (topic, index), one in list(offsets.items()):
                    yield group_id, topic, index, one.offset

    # -- shards come and go

    def prepare(self, shard: Shard[GroupState]) -> Steps:
        side = GroupShard(shard, self._config, self._clock, self._random, self, self._memory)
        yield from side.load()
        self._sides[shard.partition.index] = side

    def begin(self, shard: Shard[GroupState]) -> Steps:
        index = shard.partition.index
        side = self._sides[index]
        with _logged("offsets of deleted topics stay"):
            side.topics_deleted(self._deleted.pop(shard.partition, ()))
        return self._forget_gone_topics(side)

    def _forget_gone_topics(self, side: GroupShard) -> Steps:
        """An earlier coordinator was told of a deletion, and lost its term before that was committed. Every topic that
        it took a commit for is in the image here, which is newer, unless it is deleted."""
        gone: set[str] = set()
        state = side.shard.state
        group_ids = dict.fromkeys(
            group_id for groups in (state.offsets, *state.pending.values()) for group_id in groups
        )
        for number, group_id in enumerate(group_ids):
            topics = self._image().topics
            gone.update(topic for topic in side.offsets.topics_of(group_id) if topic not in topics)
            if number % _GROUPS_AT_ONCE == 0:
                yield None
                if not side.shard.is_current:
                    return
        with _logged("offsets of deleted topics stay"):
            side.topics_deleted({topic for topic in gone if topic not in self._image().topics})

    def let_go(self, shard: Shard[GroupState]) -> Steps:
        return self._sides.pop(shard.partition.index).unload()

    def _of(self, group_id: str) -> GroupShard:
        """Where a group lives; Refused when that is not here or not yet."""
        return self._sides[self.shards.for_key(group_id).partition.index]

    def shard_of(self, group_id: str) -> Shard[GroupState]:
        """Raises Refused, in the words of a coordinator, when the group is not coordinated here or not yet."""
        with _as_coordinator():
            return self.shards.for_key(group_id)

    # -- what happens in the cluster

    def topics_changed(self, deleted: Collection[str] = ()) -> None:
        """Topics came, went or got more partitions: members of KIP-848 groups learn it with their next heartbeat."""
        self.version += 1
        if not deleted:
            return
        loading = self.shards.loading()
        self._deleted = {partition: self._deleted.get(partition, set()) | set(deleted) for partition in loading}
        if OFFSETS_TOPIC in deleted:
            return
        for side in self._open_sides():
            with _logged("offsets of deleted topics stay"):
                side.topics_deleted(deleted)

    def _open_sides(self) -> list[GroupShard]:
        return [side for side in self._sides.values() if side.shard.is_current]

    async def _clean_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config().int("offsets.retention.check.interval.ms") / 1000)
            for side in self._open_sides():
                side.forget_connections()
                for number, group_id in enumerate(side.group_ids()):
                    if not side.shard.is_current:
                        break
                    with _logged("expired offsets stay until the next check"):
                        side.clean(group_id)
                    if number % _GROUPS_AT_ONCE == 0:
                        await asyncio.sleep(0)

    # -- the classic protocol

    async def join(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        with _as_coordinator():
            _check_group_id(request.group_id)
            side = self._of(request.group_id)
            side.make_way_for_classic(request.group_id)
            response = await side.classic.join(request, caller)
            await side.shard.committed()
            return response

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        with _as_coordinator():
            _check_group_id(request.group_id)
            side = self._of(request.group_id)
            response = await side.classic.sync(request)
            await side.shard.committed()
            return response

    async def heartbeat(self, request: HeartbeatRequest) -> None:
        with _as_coordinator():
            _check_group_id(request.group_id)
            side = self._of(request.group_id)
            side.classic.heartbeat(request)
            await side.shard.committed()

    async def leave(self, group_id: str, members: list[LeavingMember]) -> list[LeavingMemberResult]:
        with _as_coordinator():
            _check_group_id(group_id)
            side = self._of(group_id)
            results = side.classic.leave(group_id, members)
            await side.shard.committed()
            return results

    # -- KIP-848

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        with _as_coordinator():
            await self._of(request.group_id).consumer.prepare(request, caller.version)
            side = self._of(request.group_id)
            if request.member_epoch == JOINING:
                side.make_way_for_consumer(request.group_id)
            response = side.consumer.heartbeat(request, caller)
            await side.shard.committed()
            return response

    async def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        with _as_coordinator():
            side = self._of(group_id)
            described = side.consumer.described(group_id)
            await side.shard.committed()
            return described

    # -- groups of any kind

    async def describe(self, group_id: str) -> DescribedGroup:
        with _as_coordinator():
            side = self._of(group_id)
            described = side.described(group_id)
            await side.shard.committed()
            return described

    async def list(self) -> list[ListedGroup]:
        """All groups that live here; Refused while some of them are being loaded."""
        if self.shards.is_loading:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        with _as_coordinator():
            sides = self._open_sides()
            listed = [one for side in sides for one in side.listed()]
            for side in sides:
                await side.shard.committed()
            return listed

    async def delete(self, group_id: str) -> None:
        with _as_coordinator():
            side = self._of(group_id)
            side.delete(group_id)
            await side.shard.committed()

    # -- offsets

    async def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Iterable[OffsetToCommit],
        retention_ms: int = -1,
        *,
        connection: int | None = None,
    ) -> dict[Place, ErrorCode]:
        """`connection` is the number of the one that the request came over."""
        with _as_coordinator(too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
            side = self._of(group_id)
            if connection is not None:
                side.check_connection(group_id, committer.member_id, connection)
            codes = side.offsets.commit(group_id, committer, offsets, retention_ms)
            await self._committed_in_time(side)
            return codes

    async def commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        producer_id: ProducerId,
        producer_epoch: Epoch,
        offsets: Iterable[tuple[str, int, int, int, str | None]],
    ) -> dict[Place, ErrorCode]:
        """Offsets that count when the transaction of this producer is committed. An old client gives generation -1 and
        no member id. Raises Refused when none of them is accepted."""
        with _as_coordinator(too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
            side = self._of(group_id)
            committer = Committer(member_id, generation, instance_id)
            wanted = [OffsetToCommit(*one) for one in offsets]
            codes = side.offsets.commit_in_transaction(group_id, committer, (producer_id, producer_epoch), wanted)
            await self._committed_in_time(side)
            return codes

    async def _committed_in_time(self, side: GroupShard) -> None:
        """Raises Refused when a commit is not durable in time. It may become so later: the client commits again, which
        is harmless, instead of waiting for a disk that hangs."""
        commit = side.shard.when_committed()
        if commit is None:
            return
        timeout_s = self._config().int("offsets.commit.timeout.ms") / 1000
        timer = asyncio.get_running_loop().call_later(timeout_s, _give_up, commit, timeout_s)
        try:
            await commit
        finally:
            timer.cancel()

    async def fetch_offsets(
        self,
        group_id: str,
        places: Collection[Place] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[Place, CommittedOffset | ErrorCode | None]:
        """None for a partition without an offset; `places` of None stands for all that have one."""
        with _as_coordinator():
            side = self._of(group_id)
            side.offsets.check_fetcher(group_id, member_id, member_epoch)
            found = side.offsets.fetch(group_id, places, require_stable=require_stable)
            await side.shard.committed()
            return found

    async def delete_offsets(self, group_id: str, places: Iterable[Place]) -> dict[Place, ErrorCode]:
        with _as_coordinator():
            _check_group_id(group_id)
            side = self._of(group_id)
            codes = side.delete_offsets(group_id, places)
            await side.shard.committed()
            return codes


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group has a name")


def _give_up(commit: asyncio.Future[None], timeout_s: float) -> None:
    if not commit.done():
        text = f"the commit is not durable after {timeout_s:g} s (offsets.commit.timeout.ms)"
        commit.set_exception(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))


@contextmanager
def _as_coordinator(too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> Iterator[None]:
    """Turns refusals of the log into what a coordinator says."""
    try:
        yield
    except Refused as refusal:
        code = coordinator_error(refusal.code)
        if refusal.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            code = too_large
        if code == refusal.code:
            raise
        raise Refused(code, refusal.text) from refusal


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """For what nobody waits for."""
    try:
        yield
    except Refused as refusal:
        logger.warning("%s: %s", what, refusal)
