"""A damaged replica: others lead it, what is left is kept aside, and it is copied anew; unless it is the last one."""

from __future__ import annotations

import pytest
from cluster_harness import CLIENTS_PORT, ROOT, Cluster, ClusterNode, in_a_cluster, until

from semel.broker.damaged_replicas import Step, next_step
from semel.controller.controller import NewTopic
from semel.controller.image import LOST_DIRECTORY, PartitionState
from semel.log.log import Log
from semel.records.build import build_batch
from semel.replication.partition import Partition
from semel.sim.clock import WALL_START_MS
from semel.wire.errors import ErrorCode

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.bytes": "1000",
}
RECORDS = 30
HERE, THERE = bytes([7] * 16), bytes([8] * 16)


@pytest.mark.parametrize(
    ("isr", "elr", "directory", "is_damaged", "step"),
    [
        ((1, 2), (), HERE, True, Step.TELL_LOST),
        ((1,), (2,), HERE, True, Step.TELL_LOST),
        ((1,), (), HERE, True, Step.WAIT),
        ((2, 3), (), LOST_DIRECTORY, True, Step.BEGIN_ANEW),
        ((1, 2), (), LOST_DIRECTORY, True, Step.WAIT),
        ((2,), (1,), LOST_DIRECTORY, True, Step.WAIT),
        ((2, 3), (), LOST_DIRECTORY, False, Step.TELL_HERE),
        ((2, 3), (), HERE, False, Step.FORGET),
    ],
)
def test_what_is_next_for_a_replica(
    isr: tuple[int, ...], elr: tuple[int, ...], directory: bytes, is_damaged: bool, step: Step
) -> None:
    state = PartitionState((1, 2, 3), isr, 1, 0, 0, elr=elr, directories=(directory, THERE, THERE))
    assert next_step(state, 1, is_damaged=is_damaged) is step
    assert next_step(None, 1, is_damaged=is_damaged) is Step.FORGET
    assert next_step(state, 4, is_damaged=is_damaged) is Step.FORGET


class Story:
    """One partition with records in several segments, and its leader."""

    def __init__(self, cluster: Cluster, topic: str = "t") -> None:
        self.cluster = cluster
        self.topic = topic

    async def begin(self, replicas: int = 3) -> None:
        channel = self.cluster.brokers[0].broker.quorum_part
        assert channel is not None
        await channel.channel.create_topics([NewTopic(self.topic, 1, replicas)])
        await self.cluster.same_metadata()
        await until(lambda: len(self.state.isr) == replicas)
        await self.write(RECORDS)

    @property
    def state(self) -> PartitionState:
        return self.cluster.controller.broker.image.topics[self.topic].partitions[0]

    def node(self, node_id: int) -> ClusterNode:
        return next(node for node in self.cluster.brokers if node.node_id == node_id)

    @property
    def leader(self) -> ClusterNode:
        return self.node(self.state.leader)

    @property
    def partition(self) -> Partition:
        return self.leader.broker.topics.partition(self.topic, 0)

    def log(self, node: ClusterNode) -> Log:
        return node.broker.topics.log(self.topic, 0)

    async def write(self, count: int) -> None:
        for number in range(count):
            partition = self.partition
            batch = build_batch([b"%d" % number * 20], base_timestamp_ms=WALL_START_MS)
            appended = partition.append(partition.validate(batch), -1)
            committed = partition.when_committed(appended.last_offset)
            if committed is not None:
                await committed

    def directory(self) -> str:
        return f"{ROOT}/{self.topic}-0"

    def flip(self, node: ClusterNode) -> None:
        """A bit of a record in the first segment."""
        node.disk.flip_bit(f"{self.directory()}/{0:020d}.log", 80, 0)

    async def until_whole(self) -> None:
        """Everybody is in sync, and holds the same batches."""
        await until(lambda: set(self.state.isr) == set(self.state.replicas), within_s=120)
        await until(lambda: len({self.log(node).end_offset for node in self.cluster.brokers}) == 1)
        contents = {self.content(node) for node in self.cluster.brokers}
        assert len(contents) == 1

    def content(self, node: ClusterNode) -> bytes:
        log = self.log(node)
        return b"".join(node.disk.content_of(segment.path) or b"" for segment in log.segments)

    async def fetch(self, node: ClusterNode, offset: int = 0) -> int:
        """The error code of a reader's fetch."""
        client = await node.client(CLIENTS_PORT)
        return (await client.fetch(self.topic, offset)).error_code

    def kept_aside(self, node: ClusterNode) -> list[str]:
        return [name for name in node.disk.list_dir(ROOT) if name.endswith("-stray")]


@in_a_cluster(brokers=3, settings=SETTINGS)
async def test_a_leader_that_finds_damage_at_a_start_hands_over_and_copies_anew(cluster: Cluster) -> None:
    story = Story(cluster)
    await story.begin()
    damaged = story.leader
    before = story.state.leader_epoch
    await damaged.kill()
    await until(lambda: story.state.leader != damaged.node_id)
    damaged.disk.remove(f"{story.directory()}/{0:020d}.log")
    damaged.disk.sync_dir_now(story.directory())
    await damaged.start()
    await story.write(3)
    await story.until_whole()
    assert story.kept_aside(damaged)
    assert story.state.leader_epoch > before


@in_a_cluster(brokers=3, settings={**SETTINGS, "leader.imbalance.check.interval.seconds": "1"})
async def test_a_leader_that_cannot_read_a_record_resigns_and_its_readers_go_on(cluster: Cluster) -> None:
    story = Story(cluster)
    await story.begin()
    damaged = story.leader
    await damaged.stop()
    await damaged.start()
    await until(lambda: len(story.state.isr) == 3 and story.state.leader == damaged.node_id)
    story.flip(damaged)
    assert await story.fetch(damaged) == ErrorCode.CORRUPT_MESSAGE
    await until(lambda: story.state.leader != damaged.node_id)
    assert await story.fetch(story.leader) == ErrorCode.NONE
    await story.write(3)
    await story.until_whole()
    assert story.kept_aside(damaged)
    assert story.state.directory_of(damaged.node_id) != LOST_DIRECTORY


@in_a_cluster(brokers=3, settings=SETTINGS)
async def test_the_last_replica_is_kept_as_it_is(cluster: Cluster) -> None:
    story = Story(cluster)
    await story.begin(replicas=1)
    damaged = story.leader
    await damaged.stop()
    damaged.disk.remove(f"{story.directory()}/{0:020d}.log")
    damaged.disk.sync_dir_now(story.directory())
    await damaged.start()
    await cluster.same_metadata()
    assert story.state.leader == damaged.node_id
    assert not story.kept_aside(damaged)
    assert await story.fetch(damaged) == ErrorCode.KAFKA_STORAGE_ERROR


@in_a_cluster(brokers=3, settings=SETTINGS)
async def test_a_follower_whose_files_are_gone_is_copied_anew(cluster: Cluster) -> None:
    story = Story(cluster)
    await story.begin()
    follower = next(node for node in cluster.brokers if node is not story.leader)
    await follower.stop()
    for name in follower.disk.list_dir(story.directory()):
        follower.disk.remove(f"{story.directory()}/{name}")
    follower.disk.sync_dir_now(story.directory())
    await follower.start()
    await story.until_whole()
    assert story.kept_aside(follower)
