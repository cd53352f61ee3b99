"""A node that leads and follows as the metadata say, without sockets and without a controller: records are told to it,
followers are played, and the controller answers as the test wants."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from semel.broker.authoriser import AllowAll
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.broker.fetch_sessions import FetchSessions
from semel.broker.handlers import fetch
from semel.broker.leading import Leading
from semel.broker.node_info import NodeInfo
from semel.broker.parked_fetch import ParkedFetch
from semel.broker.read_failures import ReadFailures
from semel.broker.replica_sessions import ReplicaSession
from semel.broker.topics import Topics
from semel.config import BrokerConfig, ListenerKind
from semel.controller.image import MetadataImage, PartitionState
from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.log.store import LogStore
from semel.metrics.node_counts import IsrCounts
from semel.records.build import build_batch
from semel.replication.partition import Partition
from semel.replication.term_kernel import Generation
from semel.rpc.slices import Slices
from semel.sim.clock import WALL_START_MS
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from semel.wire.spec.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    ForgottenTopic,
    ReplicaState,
)
from semel.wire.spec.metadata_records import (
    BrokerEndpoint,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

HERE, B, C = 1, 2, 3
EPOCHS = {HERE: 101, B: 102, C: 103}
ID, OTHER_ID = b"\x07" * 16, b"\x08" * 16


@dataclass
class FakeFollower:
    """A term of following that does nothing but note what is asked of it."""

    topic: str
    index: int
    log: Log
    leader_id: int
    leader_epoch: int
    group_commit: GroupCommit
    is_closed: bool = False
    ended: list[str] = field(default_factory=list)

    def resign(self) -> None:
        self.is_closed = True
        self.ended.append("resigned")

    def abandon(self) -> None:
        self.group_commit.stop()
        self.is_closed = True
        self.ended.append("abandoned")

    async def close(self) -> None:
        self.abandon()


class FakeFollowers:
    def __init__(self) -> None:
        self.begun: list[FakeFollower] = []

    def begin(
        self, topic: str, topic_id: bytes, index: int, log: Log, state: PartitionState, group_commit: GroupCommit
    ) -> FakeFollower:
        self.begun.append(FakeFollower(topic, index, log, state.leader, state.leader_epoch, group_commit))
        return self.begun[-1]

    def end(self, term: Any) -> None:
        assert not term.is_closed
        term.ended.append("not fetched for any more")

    @property
    def open(self) -> list[FakeFollower]:
        return [one for one in self.begun if not one.is_closed]


class FakeController:
    """Notes what is asked, and answers with a code for each partition; with None nothing is answered until `go`."""

    def __init__(self, world: ReplicaWorld) -> None:
        self.world = world
        self.asked: list[AlterPartitionRequest] = []
        self.codes: list[ErrorCode | Exception] = []
        self.go = asyncio.Event()
        self.go.set()
        self.tells_metadata = False

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        await self.go.wait()
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if isinstance(code, Exception):
            raise code
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                answer = AlterPartitionResponsePartition(partition_index=one.partition_index, error_code=code)
                if not code:
                    answer.leader_id, answer.leader_epoch = HERE, one.leader_epoch
                    answer.isr = [member.broker_id for member in one.new_isr_with_epochs]
                    answer.partition_epoch = one.partition_epoch + 1
                answers.append(answer)
            topics.append(AlterPartitionResponseTopic(topic_id=topic.topic_id, partitions=answers))
        return AlterPartitionResponse(topics=topics)

    def isrs(self) -> list[list[tuple[int, ...]]]:
        """For each request the ISR of each partition."""
        return [[tuple(one.new_isr) for topic in request.topics for one in topic.partitions] for request in self.asked]


class ReplicaWorld:
    def __init__(
        self, loop: SimLoop, settings: Mapping[str, str], *, node_id: int = HERE, sim: SimWorld | None = None
    ) -> None:
        self.sim = sim or SimWorld(loop, 1, flush_latency_ms=(1.0, 1.0))
        self.node_id = node_id
        self.host_name = "here" if node_id == HERE else f"node{node_id}"
        self.host = self.sim.host(self.host_name)
        self.settings = settings
        self.begin()

    def make_followers(self) -> Any:
        return FakeFollowers()

    def make_controller(self) -> Any:
        return FakeController(self)

    def begin(self) -> None:
        """A start: what was in memory is gone, the disk stays."""
        self.host = self.sim.host(self.host_name)
        self.config = BrokerConfig({"log.dir": "/data", "node.id": str(self.node_id), **self.settings})
        self.node = NodeInfo(self.node_id, self.config, broker_epoch=EPOCHS[self.node_id])
        self.image = MetadataImage()
        self.broken: list[BaseException] = []
        self.cluster = ClusterView(lambda: self.image, lambda: 0)
        self.store = LogStore(self.host, "/data", self.config, self.broken.append)
        self.store.open()
        self.controller = self.make_controller()
        self.followers = self.make_followers()
        self.leading = Leading(
            self.node, self.cluster, self.host.clock, self.controller.alter_partition, self.broken.append, IsrCounts()
        )
        self.slices = Slices(self.host.clock)
        self.topics = Topics(
            self.node,
            self.cluster,
            self.store,
            self.host.clock,
            self.broken.append,
            Generation(),
            leading=self.leading,
            followers=self.followers,
        )
        self.leading.start(self.topics.online)
        self.sessions = FetchSessions(self.host.random, 10)
        self.replica_sessions = FetchSessions(self.host.random, 10, ReplicaSession)
        self.tell(*[self.registered(node_id) for node_id in EPOCHS])

    async def end(self) -> None:
        self.topics.stop_opening()
        await self.leading.close()
        await self.topics.close()
        await self.store.close()
        assert not self.broken

    # -- the metadata

    def registered(self, node_id: int, *, fenced: bool = False, broker_epoch: int | None = None) -> MetadataRecord:
        return RegisterBrokerRecord(
            broker_id=node_id,
            broker_epoch=broker_epoch or EPOCHS[node_id],
            end_points=[BrokerEndpoint(name="IN", host=f"node{node_id}", port=9092)],
            fenced=fenced,
        )

    def tell(self, *records: MetadataRecord) -> None:
        for record in records:
            self.image.replay(record)
        self.topics.apply(records)

    def make(
        self,
        name: str = "t",
        topic_id: bytes = ID,
        *,
        partitions: int = 1,
        leader: int = HERE,
        replicas: tuple[int, ...] = (HERE, B, C),
        isr: tuple[int, ...] = (HERE, B, C),
    ) -> None:
        made = [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ]
        self.tell(TopicRecord(name=name, topic_id=topic_id), *made)

    def change(self, index: int = 0, *, topic_id: bytes = ID, **what: Any) -> None:
        self.tell(PartitionChangeRecord(partition_id=index, topic_id=topic_id, **what))

    # -- what is led

    def led(self, index: int = 0, topic: str = "t") -> Partition:
        return self.topics.partition(topic, index)

    def refusal(self, index: int = 0, topic: str = "t") -> ErrorCode:
        try:
            self.topics.partition(topic, index)
        except Refused as refusal:
            return ErrorCode(refusal.code)
        raise AssertionError("it is led here")

    def append(self, *values: bytes, index: int = 0, topic: str = "t", acks: int = -1) -> int:
        """The last offset."""
        partition = self.led(index, topic)
        batch = build_batch(list(values), base_timestamp_ms=WALL_START_MS)
        return partition.append(partition.validate(batch), acks).last_offset

    # -- followers

    listeners: ClassVar = {"IN": ListenerKind.BROKERS, "OUT": ListenerKind.CLIENTS}

    def context(self, version: int, *, listener: str = "IN") -> RequestContext:
        connection = cast(Any, SimpleNamespace(listener=listener, principal="User:node", host="127.0.0.1"))
        return RequestContext(connection, version, "follower", AllowAll())

    def ask(
        self, request: FetchRequest, version: int = 17, *, listener: str = "IN"
    ) -> FetchResponse | asyncio.Future[FetchResponse]:
        """An answer that comes at once, or is waited for."""
        answer = fetch.handle(
            request,
            self.context(version, listener=listener),
            node=self.node,
            listeners=self.listeners,
            cluster=self.cluster,
            topics=self.topics,
            fetch_sessions=self.sessions,
            replica_sessions=self.replica_sessions,
            read_failures=ReadFailures(),
            clock=self.host.clock,
            slices=self.slices,
        )
        if isinstance(answer, Coroutine):
            return asyncio.ensure_future(answer)
        if not isinstance(answer, ParkedFetch):
            return answer
        waiting: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        answer.begin(cast(Any, waiting.set_result), waiting.set_exception)
        return waiting


class PlayedFollower:
    """A follower with one session for all its partitions, as Kafka's fetcher has it."""

    def __init__(self, world: ReplicaWorld, node_id: int, *, broker_epoch: int | None = None) -> None:
        self.world = world
        self.node_id = node_id
        self.broker_epoch = EPOCHS[node_id] if broker_epoch is None else broker_epoch
        self.session_id = self.session_epoch = 0

    def send(
        self,
        offsets: Mapping[int, int] | None = None,
        *,
        epoch: int = 0,
        last_epoch: int = -1,
        log_start: int = 0,
        wait_ms: int = 500,
        forget: tuple[int, ...] = (),
        topic_id: bytes = ID,
    ) -> FetchResponse | asyncio.Future[FetchResponse]:
        wanted = [
            FetchRequestPartition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=1 << 20,
            )
            for index, offset in (offsets or {}).items()
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=self.broker_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchRequestTopic(topic_id=topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=forget)] if forget else [],
        )
        return self.world.ask(request)

    async def fetch(self, offsets: Mapping[int, int] | None = None, **options: Any) -> dict[int, Any]:
        """What is told of each partition; records are counted, and let go."""
        answer = self.send(offsets, **options)
        return self.told(answer if isinstance(answer, FetchResponse) else await answer)

    def told(self, response: FetchResponse) -> dict[int, FetchResponsePartition]:
        assert not response.error_code, ErrorCode(response.error_code).name
        self.session_id, self.session_epoch = response.session_id, self.session_epoch + 1
        found = {one.partition_index: one for topic in response.responses for one in topic.partitions}
        for one in found.values():
            if isinstance(one.records, FileRange):
                one.records.release()
        return found


Test = Callable[..., Coroutine[Any, Any, None]]


def replicated(**settings: str) -> Callable[[Test], Callable[[], None]]:
    """Runs `async def test(world)` in virtual time."""

    def decorate(test: Test) -> Callable[[], None]:
        @functools.wraps(test)
        def in_virtual_time() -> None:
            loop = SimLoop(end_s=3600 * 24)

            async def scenario() -> None:
                world = ReplicaWorld(loop, {name.replace("_", "."): value for name, value in settings.items()})
                await test(world)
                await world.end()

            run(scenario(), loop=loop)

        del in_virtual_time.__wrapped__  # type: ignore[attr-defined]
        return in_virtual_time

    return decorate
