"""A cluster of scripted nodes on the simulated network, for what a real broker seldom does: refuse, move, fall silent.

Each node knows the same topics, leaders and coordinators, and answers what it was given a function for. Requests are
kept in the order in which they came. A function may return None: the connection is cut instead of an answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from semel.client.admin.admin import Admin
from semel.host.api import Link
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.wire.apis import API, request_class
from semel.wire.codec import decoder
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_request_header, response_parts
from semel.wire.schema import Request, Response
from semel.wire.spec.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature
from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PORT = 9092

Answer = Callable[[int, Any], Response | None]


class FakeCluster:
    """`topics` has the leader of each partition, `coordinators` the node of each group and transactional id."""

    def __init__(self, world: SimWorld, node_ids: tuple[int, ...]) -> None:
        self.world = world
        self.node_ids = node_ids
        self.controller_id = node_ids[0]
        self.topics: dict[str, list[int]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.unknown_to: dict[int, set[str]] = {}
        """Topics that a node does not know yet."""
        self.coordinators: dict[str, int] = {}
        self.answers: dict[type[Request], Answer] = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._coordinator,
        }
        self.hidden: set[int] = set()
        """Keys of APIs that the nodes do not serve."""
        self.limits: dict[int, int] = {}
        """The newest version of an API that the nodes serve, by key."""
        self.asked: list[tuple[int, int, Request]] = []
        """Node, version and request, without the three above."""

    async def open(self) -> None:
        for node_id in self.node_ids:
            network = self.world.host(f"node{node_id}").network
            await network.listen("0.0.0.0", PORT, functools.partial(self._accept, node_id))

    def _accept(self, node_id: int, link: Link) -> None:
        _FakeConnection(self, node_id, link)

    def admin(self, **settings: Any) -> Admin:
        host = self.world.host("client")
        return Admin(host=host, bootstrap_servers=f"node{self.node_ids[0]}:{PORT}", **settings)

    def nodes_asked(self, request: type[Request]) -> list[int]:
        return [node_id for node_id, _, asked in self.asked if isinstance(asked, request)]

    def requests(self, request: type[Request]) -> list[Any]:
        return [asked for _, _, asked in self.asked if isinstance(asked, request)]

    def versions_asked(self, request: type[Request]) -> list[int]:
        return [version for _, version, asked in self.asked if isinstance(asked, request)]

    # -- what every node answers

    def _versions(self, node_id: int, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=api.key,
                    min_version=api.min_version,
                    max_version=min(api.max_version, self.limits.get(api.key, api.max_version)),
                )
                for api in API.values()
                if api.key not in self.hidden
            ],
            finalized_features=[FinalizedFeature(name="transaction.version", max_version_level=2)],
        )

    def _metadata(self, node_id: int, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=one, host=f"node{one}", port=PORT) for one in self.node_ids],
            cluster_id="fake",
            controller_id=self.controller_id,
            topics=[self._topic(node_id, name) for name in names],
        )

    def _topic(self, node_id: int, name: str) -> MetadataResponseTopic:
        if name not in self.topics or name in self.unknown_to.get(node_id, ()):
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.topic_ids.get(name, name.encode().ljust(16, b"\1")[:16]),
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[leader])
                for index, leader in enumerate(self.topics[name])
            ],
        )

    def _coordinator(self, node_id: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        if key not in self.coordinators:
            found = Coordinator(key=key, node_id=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            found = Coordinator(key=key, node_id=self.coordinators[key], host="", port=PORT)
        return FindCoordinatorResponse(coordinators=[found])


class _FakeConnection:
    """The node's end of a connection: reads requests, answers in order."""

    def __init__(self, cluster: FakeCluster, node_id: int, link: Link) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._link = link
        self._buffer = memoryview(bytearray(1 << 16))
        self._data = bytearray()
        link.start(self)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._data += self._buffer[:count]
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            frame = bytes(self._data[4:end])
            del self._data[:end]
            self._serve(frame)

    def _serve(self, frame: bytes) -> None:
        header = read_request_header(frame)
        request, _ = decoder(request_class(header.api_key), header.api_version)(frame, header.body_position)
        assert isinstance(request, Request)
        if not isinstance(request, ApiVersionsRequest | MetadataRequest | FindCoordinatorRequest):
            self._cluster.asked.append((self._node_id, header.api_version, request))
        response = self._cluster.answers[type(request)](self._node_id, request)
        if response is None:
            self._link.close()
        else:
            self._link.send(response_parts(header.correlation_id, response, header.api_version))  # type: ignore[arg-type]

    def drained(self) -> None:
        pass

    def closed(self, reason: BaseException | None) -> None:
        pass


Scenario = Callable[[FakeCluster], Coroutine[Any, Any, None]]


def faked(*node_ids: int) -> Callable[[Scenario], Callable[[], None]]:
    """Runs `async def test(cluster)` in virtual time, with a cluster of these nodes."""

    def decorate(test: Scenario) -> Callable[[], None]:
        def in_virtual_time() -> None:
            loop = SimLoop(end_s=3600)
            cluster = FakeCluster(SimWorld(loop, 1), node_ids or (1,))

            async def scenario() -> None:
                await cluster.open()
                await test(cluster)

            run(scenario(), loop=loop)

        in_virtual_time.__name__ = test.__name__
        in_virtual_time.__doc__ = test.__doc__
        return in_virtual_time

    return decorate


class InTurn:
    """Answers in order; the last one again and again."""

    def __init__(self, *answers: Answer | Response | None) -> None:
        self._answers = list(answers)

    def __call__(self, node_id: int, request: Any) -> Response | None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(node_id, request) if callable(answer) else answer
