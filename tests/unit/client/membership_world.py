"""Members of a group in virtual time, each with an Owner that only notes what it is told, and a coordinator that does
what a script says, for what ours never does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from client_world import ClientWorld
from semel.client.cluster import Cluster
from semel.client.consumer.membership import new_membership
from semel.client.consumer.membership.protocol import read_subscription
from semel.client.consumer.settings import ConsumerSettings
from semel.client.coordinators import Coordinators
from semel.client.metadata import TopicPartition
from semel.client.settings import load
from semel.host.api import Host, Link
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.wire.apis import API, request_class
from semel.wire.codec import decoder
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_request_header, response_parts
from semel.wire.schema import Request, Response
from semel.wire.spec.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
)
from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.heartbeat import HeartbeatRequest, HeartbeatResponse
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from semel.wire.spec.leave_group import LeaveGroupRequest, LeaveGroupResponse
from semel.wire.spec.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "group"
BROKER = "broker"
PORT = 9092


def partitions(text: str) -> frozenset[TopicPartition]:
    """`t-0 t-1`"""
    return frozenset(TopicPartition(one.rpartition("-")[0], int(one.rpartition("-")[2])) for one in text.split())


def spoken(given: Iterable[TopicPartition]) -> str:
    return " ".join(map(str, sorted(given)))


class NotingOwner:
    """Stands for a consumer. `during` has something to await inside a callback, by the callback's name."""

    def __init__(self, *topics: str) -> None:
        self.topics = frozenset(topics)
        self.broker_pattern: str | None = None
        self.holds: set[TopicPartition] = set()
        self.told: list[str] = []
        self.during: dict[str, Callable[[], Awaitable[None]]] = {}
        self.is_inside = False
        self.calls_outside: list[str] = []
        self.wakes = 0

    def subscription(self) -> frozenset[str]:
        return self.topics

    def pattern(self) -> str | None:
        return self.broker_pattern

    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self.holds)

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions
        try:
            await self._call("revoke", partitions)
        finally:
            self.holds -= partitions

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions
        try:
            await self._call("lose", partitions)
        finally:
            self.holds -= partitions

    async def assign(self, partitions: frozenset[TopicPartition]) -> None:
        assert not self.holds & partitions, "only what is new"
        self.holds |= partitions
        await self._call("assign", partitions)

    def unsettled(self) -> None:
        self.wakes += 1

    async def _call(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        if not self.is_inside:
            self.calls_outside.append(name)
        self.told.append(f"{name} {spoken(partitions)}".strip())
        if name in self.during:
            await self.during[name]()

    def taken_notes(self) -> list[str]:
        """What it was told since it was last asked."""
        notes, self.told = self.told, []
        return notes


class Member:
    """A membership with its cluster. The program polls when the test says so, or by itself after `keep_polling`."""

    def __init__(self, host: Host, address: str, *topics: str, **settings: Any) -> None:
        self.owner = NotingOwner(*topics)
        given = {"bootstrap_servers": address, "group_id": GROUP, **settings}
        self.settings = load(ConsumerSettings, given)
        self.cluster = Cluster(host, self.settings)
        self.membership = new_membership(self.cluster, Coordinators(self.cluster), self.settings, self.owner)
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> Member:
        await self.cluster.start()
        self.cluster.watch(self.owner.topics)
        await self.cluster.refresh()
        self.membership.subscription_changed()
        return self

    async def poll(self, timeout_s: float = 600.0, *, wait: bool = True) -> bool:
        """Whether it settled in time."""
        self.membership.polled()
        self.owner.is_inside = True
        try:
            async with asyncio.timeout(timeout_s):
                await self.membership.reconcile(wait=wait)
        except TimeoutError:
            return False
        finally:
            self.owner.is_inside = False
            self.membership.returned()
        return True

    def keep_polling(self, every_s: float = 0.05) -> None:
        async def polling() -> None:
            while True:
                if not self.membership.is_settled():
                    await self.poll()
                else:
                    self.membership.polled()
                    self.membership.returned()
                await asyncio.sleep(every_s)

        self._polling = asyncio.get_running_loop().create_task(polling())

    async def stop_polling(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
            self._polling = None

    async def leave(self) -> None:
        await self.stop_polling()
        self.owner.is_inside = True
        try:
            await self.membership.leave()
        finally:
            self.owner.is_inside = False

    async def die(self) -> None:
        """Ends without a word to the coordinator."""
        await self.stop_polling()
        await self.membership.close()
        await self.cluster.close()

    async def close(self) -> None:
        await self.leave()
        await self.die()
        assert self.owner.calls_outside == []

    @property
    def holds(self) -> str:
        return spoken(self.owner.holds)


Test = Callable[..., Coroutine[Any, Any, None]]


def on_our_broker(**world_options: Any) -> Callable[[Test], Callable[..., None]]:
    """Runs `async def test(world, ...)` against our broker in virtual time."""

    def decorate(test: Test) -> Callable[..., None]:
        def in_virtual_time(**arguments: Any) -> None:
            ClientWorld(1, **world_options).run(lambda world: test(world, **arguments))

        return _as_test(test, in_virtual_time)

    return decorate


def _as_test(test: Test, runner: Callable[..., None]) -> Callable[..., None]:
    runner.__name__ = test.__name__
    runner.__doc__ = test.__doc__
    signature = inspect.signature(test)
    runner.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:]
    )
    return runner


# -- a coordinator that does what a script says

Answer = Response | None | asyncio.Future[Any]


class ScriptedGroup:
    """One node. A group of one: whoever joins leads, and is given what its own assignment says.

    `script` has answers by request, taken before the usual one: an error code, a response, None to cut the
    connection, a number of seconds to wait before the usual one, seconds and one of the others, or a function of the
    request that returns any of these.
    """

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.topics: dict[str, int] = {"t": 2}
        self.topic_ids: dict[str, bytes] = {}
        self.script: dict[type[Request], list[Any]] = {}
        self.asked: list[Request] = []
        self.asked_s: list[float] = []
        self.versions: dict[type[Request], tuple[int, int]] = {}
        self.protocol: str | None = None
        self.generation = 0
        self.epoch = 0
        self.target: list[str] | None = None
        self.hidden: set[int] = set()
        self.connections = 0

    def new_member(self, *topics: str, **settings: Any) -> Member:
        return Member(self.world.host(f"client{self.connections}"), f"{BROKER}:{PORT}", *topics, **settings)

    async def open(self) -> None:
        await self.world.host(BROKER).network.listen("0.0.0.0", PORT, self._accept)

    def _accept(self, link: Link) -> None:
        self.connections += 1
        _ScriptedConnection(self, link)

    def requests(self, cls: type[Request]) -> list[Any]:
        return [one for one in self.asked if isinstance(one, cls)]

    def times(self, cls: type[Request]) -> list[float]:
        return [at for one, at in zip(self.asked, self.asked_s, strict=True) if isinstance(one, cls)]

    async def answer(self, request: Request) -> Response | None:
        if not isinstance(request, ApiVersionsRequest | MetadataRequest | FindCoordinatorRequest):
            self.asked.append(request)
            self.asked_s.append(asyncio.get_running_loop().time())
        script = self.script.get(type(request))
        step = script.pop(0) if script else 0.0
        if callable(step):
            step = step(request)
        if isinstance(step, tuple):
            delay_s, step = step
            await asyncio.sleep(delay_s)
        if isinstance(step, float):
            await asyncio.sleep(step)
            return self.usual(request)
        if isinstance(step, int):
            return _refusal(request, step)
        assert step is None or isinstance(step, Response)
        return step

    def usual(self, request: Request) -> Response:
        usual: dict[type[Request], Callable[[Any], Response]] = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._coordinator,
            JoinGroupRequest: self.joined,
            SyncGroupRequest: self._synced,
            HeartbeatRequest: lambda _: HeartbeatResponse(),
            LeaveGroupRequest: lambda _: LeaveGroupResponse(),
            ConsumerGroupHeartbeatRequest: self._beaten,
        }
        return usual[type(request)](request)

    def _versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        keys = [
            ApiVersion(
                api_key=api.key,
                min_version=api.min_version,
                max_version=self.versions.get(request_class(api.key), (0, api.max_version))[1],
            )
            for api in API.values()
            if api.key not in self.hidden
        ]
        return ApiVersionsResponse(api_keys=keys)

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids.get(name, name.encode().ljust(16, b"\1"))

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = {self.topic_id(name): name for name in self.topics}
        if request.topics is None:
            wanted = list(self.topics)
        else:
            wanted = [topic.name or names.get(topic.topic_id, "?") for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=BROKER, port=PORT)],
            cluster_id="scripted",
            controller_id=1,
            topics=[self._topic(name) for name in wanted],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.topic_id(name),
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1])
                for index in range(self.topics[name])
            ],
        )

    def _coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=1, host=BROKER, port=PORT)])

    def joined(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="member")
        self.generation += 1
        chosen = next((one for one in request.protocols if one.name == self.protocol), request.protocols[0])
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocol or chosen.name,
            leader=request.member_id,
            member_id=request.member_id,
            members=[JoinGroupResponseMember(member_id=request.member_id, metadata=chosen.metadata)],
        )

    def _synced(self, request: SyncGroupRequest) -> SyncGroupResponse:
        given = {one.member_id: bytes(one.assignment) for one in request.assignments}
        return SyncGroupResponse(
            protocol_type="consumer", protocol_name=request.protocol_name, assignment=given.get(request.member_id, b"")
        )

    def _beaten(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """KIP-848: `target`, if it is set, is assigned in the next answer; a member that joins gets all there is."""
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        assignment = None
        if request.member_epoch == 0 and self.target is None:
            self.target = [f"{name}-{index}" for name in sorted(self.topics) for index in range(self.topics[name])]
        if self.target is not None:
            self.epoch += 1
            topics: dict[str, list[int]] = {}
            for name, index in sorted(partitions(" ".join(self.target))):
                topics.setdefault(name, []).append(index)
            assignment = MemberAssignment(
                topic_partitions=[
                    AssignedTopicPartitions(topic_id=self.topic_id(name), partitions=indexes)
                    for name, indexes in topics.items()
                ]
            )
            self.target = None
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=self.epoch, heartbeat_interval_ms=5000, assignment=assignment
        )


def _refusal(request: Request, code: int) -> Response:
    answers: dict[type[Request], Callable[[], Response]] = {
        JoinGroupRequest: lambda: JoinGroupResponse(error_code=code, protocol_name=""),
        SyncGroupRequest: lambda: SyncGroupResponse(error_code=code),
        HeartbeatRequest: lambda: HeartbeatResponse(error_code=code),
        LeaveGroupRequest: lambda: LeaveGroupResponse(error_code=code),
        ConsumerGroupHeartbeatRequest: lambda: ConsumerGroupHeartbeatResponse(
            error_code=code, error_message="so it is"
        ),
        FindCoordinatorRequest: lambda: FindCoordinatorResponse(
            coordinators=[Coordinator(key=GROUP, error_code=code, node_id=-1)]
        ),
    }
    return answers[type(request)]()


class _ScriptedConnection:
    """The node's end of a connection: one request after the other, answered in order, as Kafka does."""

    def __init__(self, group: ScriptedGroup, link: Link) -> None:
        self._group = group
        self._link = link
        self._buffer = memoryview(bytearray(1 << 16))
        self._data = bytearray()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._serve())
        link.start(self)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._data += self._buffer[:count]
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            self._frames.put_nowait(bytes(self._data[4:end]))
            del self._data[:end]

    async def _serve(self) -> None:
        while True:
            frame = await self._frames.get()
            header = read_request_header(frame)
            request, _ = decoder(request_class(header.api_key), header.api_version)(frame, header.body_position)
            response = await self._group.answer(request)  # type: ignore[arg-type]
            if response is None:
                self._link.close()
                return
            self._link.send(response_parts(header.correlation_id, response, header.api_version))  # type: ignore[arg-type]

    def drained(self) -> None:
        pass

    def closed(self, reason: BaseException | None) -> None:
        self._task.cancel()


def scripted(test: Test) -> Callable[..., None]:
    """Runs `async def test(group, ...)` in virtual time."""

    def in_virtual_time(**arguments: Any) -> None:
        loop = SimLoop(end_s=3600 * 24)
        group = ScriptedGroup(SimWorld(loop, 1))

        async def scenario() -> None:
            await group.open()
            await test(group, **arguments)

        run(scenario(), loop=loop)

    return _as_test(test, in_virtual_time)


def subscription_in(request: JoinGroupRequest, protocol: str) -> Any:
    (metadata,) = [one.metadata for one in request.protocols if one.name == protocol]
    return read_subscription(metadata)


def owned_in(request: ConsumerGroupHeartbeatRequest, group: ScriptedGroup) -> str | None:
    """What a heartbeat says is owned, None if it does not say."""
    if request.topic_partitions is None:
        return None
    names = {group.topic_id(name): name for name in [*group.topics, "gone"]}
    return spoken(
        TopicPartition(names[topic.topic_id], index) for topic in request.topic_partitions for index in topic.partitions
    )
