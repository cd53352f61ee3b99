"""The group's offsets at a coordinator that follows a script: what is tried again, and for whom the codes are meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from consumer_world import at

from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.cluster import Cluster
from semel.client.consumer.commits import GroupOffsets
from semel.client.consumer.settings import ConsumerSettings
from semel.client.coordinators import Coordinators
from semel.client.errors import CommitFailed, FencedInstance, NotAuthorised, SemelError, TimedOut
from semel.client.settings import load
from semel.client.values import GroupIdentity, OffsetAndMetadata
from semel.wire.errors import ErrorCode
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from semel.wire.spec.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


class World:
    """Group offsets that speak for a member; `codes` are answered first, one after the other, then all is well."""

    def __init__(self, cluster: ScriptedCluster, **settings: Any) -> None:
        self.cluster = cluster
        self.identity = GroupIdentity("g", 3, "member")
        self.refused: list[int] = []
        self.codes: list[int] = []
        self.stored: dict[int, int] = {}
        given = {"bootstrap_servers": cluster.address, "group_id": "g", **settings}
        self.settings = load(ConsumerSettings, given)
        self.client = Cluster(cluster.host(), self.settings)
        self.on_refusal: Callable[[], None] = lambda: None
        self.offsets = GroupOffsets(
            self.client,
            Coordinators(self.client),
            self.settings,
            identity=lambda: self.identity,
            shares=lambda: True,
            refused=self._refused,
        )
        cluster.topic("t")
        cluster.rules[OffsetCommitRequest] = self._commit
        cluster.rules[OffsetFetchRequest] = self._fetch

    async def __aenter__(self) -> World:
        self.client.watch(["t"])
        await self.client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    def _refused(self, code: int) -> None:
        self.refused.append(code)
        self.on_refusal()

    def _commit(self, asked: Asked) -> OffsetCommitResponse:
        code = self.codes.pop(0) if self.codes else 0
        (topic,) = asked.body.topics
        (part,) = topic.partitions
        if not code:
            self.stored[part.partition_index] = part.committed_offset
        answered = OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[answered])]
        )

    def _fetch(self, asked: Asked) -> OffsetFetchResponse:
        code = self.codes.pop(0) if self.codes else 0
        offset = self.stored.get(0, -1)
        if asked.version < 8:
            old = OffsetFetchResponsePartition(partition_index=0, committed_offset=offset)
            topics = [OffsetFetchResponseTopic(name="t", partitions=[old])]
            return OffsetFetchResponse(error_code=code, topics=[] if code else topics)
        assert asked.body.require_stable
        (group,) = asked.body.groups
        (topic,) = group.topics
        part = OffsetFetchResponseGroupPartition(partition_index=0, committed_offset=offset, metadata="m")
        found = OffsetFetchResponseGroupTopic(name=topic.name, topic_id=topic.topic_id, partitions=[part])
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", error_code=code, topics=[] if code else [found])]
        )

    async def commit(self, offset: int, timeout_s: float = 60) -> None:
        await self.offsets.commit({at("t-0"): OffsetAndMetadata(offset)}, timeout_s)

    async def committed(self, timeout_s: float = 60) -> int | None:
        found = await self.offsets.committed([at("t-0")], timeout_s)
        return found[at("t-0")].offset if found else None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
@scripted(nodes=2)
async def test_what_may_pass_is_tried_again(cluster: ScriptedCluster, code: int) -> None:
    async with World(cluster) as world:
        world.codes = [code] * 3
        await world.commit(7)
        assert world.stored == {0: 7}
        world.codes = [code] * 3
        assert await world.committed() == 7
        assert world.refused == []
        is_moved = code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert (len(cluster.all(FindCoordinatorRequest)) > 1) == is_moved


@scripted()
async def test_trying_again_ends_with_the_time_allowed_and_the_last_reason(cluster: ScriptedCluster) -> None:
    async with World(cluster) as world:
        world.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(TimedOut, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await world.commit(7, timeout_s=5)
        assert asyncio.get_running_loop().time() - began_s <= 5
        with pytest.raises(TimedOut, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await world.committed(timeout_s=5)


@pytest.mark.parametrize(
    ("code", "kind", "is_told"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailed, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailed, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, CommitFailed, True),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstance, True),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, NotAuthorised, False),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, SemelError, False),
    ],
)
@scripted()
async def test_what_does_not_pass_is_raised_and_the_membership_hears_what_is_its_own(
    cluster: ScriptedCluster, code: int, kind: type[SemelError], is_told: bool
) -> None:
    async with World(cluster) as world:
        world.codes = [code]
        with pytest.raises(kind) as caught:
            await world.commit(7)
        assert caught.value.code == code
        assert world.refused == ([code] if is_told else [])
        assert world.stored == {}


@scripted()
async def test_a_member_whose_epoch_has_moved_on_commits_with_the_new_one(cluster: ScriptedCluster) -> None:
    """KIP-848."""
    async with World(cluster, group_protocol="consumer") as world:
        world.codes = [ErrorCode.STALE_MEMBER_EPOCH]

        def heartbeat() -> None:
            world.identity = world.identity._replace(generation_id=4)

        world.on_refusal = heartbeat
        await world.commit(7)
        epochs = [asked.body.generation_id_or_member_epoch for asked in cluster.all(OffsetCommitRequest)]
        assert epochs == [3, 4]
        world.codes = [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID]
        assert await world.committed() == 7
        (group,) = cluster.all(OffsetFetchRequest)[-1].body.groups
        assert (group.member_id, group.member_epoch) == ("member", 4)


@scripted()
async def test_a_member_that_turns_out_to_be_none_fails_at_once(cluster: ScriptedCluster) -> None:
    async with World(cluster, group_protocol="consumer") as world:
        world.codes = [ErrorCode.STALE_MEMBER_EPOCH] * 100

        def put_out() -> None:
            world.identity = GroupIdentity("g")

        world.on_refusal = put_out
        with pytest.raises(CommitFailed, match="not a member"):
            await world.commit(7)
        assert len(cluster.all(OffsetCommitRequest)) == 1


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9, 10])
@scripted()
async def test_old_brokers_commit_too(cluster: ScriptedCluster, version: int) -> None:
    cluster.limits = {8: (2, version), 9: (1, version)}
    async with World(cluster) as world:
        await world.commit(7)
        assert await world.committed() == 7
        assert [asked.version for asked in cluster.all(OffsetCommitRequest)] == [version]
        topic = cluster.all(OffsetCommitRequest)[0].body.topics[0]
        assert bool(topic.name) == (version < 10)


@scripted()
async def test_commits_wait_for_each_other(cluster: ScriptedCluster) -> None:
    """A retried one never overwrites a later one."""
    async with World(cluster) as world:
        world.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
        await asyncio.gather(world.commit(1), world.commit(2), world.commit(3))
        offsets = [asked.body.topics[0].partitions[0].committed_offset for asked in cluster.all(OffsetCommitRequest)]
        assert offsets == [1, 1, 1, 1, 2, 3]
        assert world.stored == {0: 3}
