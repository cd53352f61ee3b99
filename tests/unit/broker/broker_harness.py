"""A whole broker on a simulated host, and a raw client for it: requests go out as frames, answers come back in order.

`@simulated` runs a test in virtual time and hands it a Node. A test that leaves a file range pinned on a node that
still runs has found a leak, and fails.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar, cast

from semel.broker.authoriser import Authoriser
from semel.broker.broker import Broker
from semel.broker.handlers import HANDLERS
from semel.config import BrokerConfig
from semel.host.api import Host, Link
from semel.records.batch import BatchHeader, whole_batches
from semel.records.build import build_batch
from semel.records.read import read_records
from semel.sim.clock import WALL_START_MS
from semel.sim.disk import SimDisk
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.wire.apis import response_class
from semel.wire.frame import read_response, request_bytes
from semel.wire.schema import Request, Response
from semel.wire.spec.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from semel.wire.spec.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

BROKER = "broker"
PORT = 9092
ROOT = "/data"
NOW_MS = WALL_START_MS
NO_PAUSE = (0.0, 0.0)

R = TypeVar("R", bound=Response)


class Node:
    """One broker of a simulated world: it can be stopped, killed and robbed of its power, and started again."""

    def __init__(self, world: SimWorld, settings: Mapping[str, str], authoriser: Authoriser | None = None) -> None:
        self.world = world
        self.settings = dict(settings)
        self.authoriser = authoriser
        self.broken: list[BaseException] = []
        self._broker: Broker | None = None
        self._clients = 0

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def disk(self) -> SimDisk:
        return self.world.disk(BROKER)

    def host(self) -> Host:
        return self.world.host(BROKER)

    async def start(self) -> Broker:
        config = BrokerConfig(
            {"log.dir": ROOT, "listeners": f"PLAINTEXT://127.0.0.1:{PORT}", "node.id": "1", **self.settings}
        )
        self._broker = Broker(self.host(), config, self.broken.append, self.authoriser)
        await self._broker.start()
        return self._broker

    async def stop(self) -> None:
        await self.broker.stop()
        self.check_pins()
        self._broker = None
        # As when the process ends: the next start finds the same disk.
        self.world.kill(BROKER)

    async def restart(self) -> Broker:
        await self.stop()
        return await self.start()

    async def killed_and_started(self) -> Broker:
        self.world.kill(BROKER)
        return await self.start()

    async def power_cut_and_started(self) -> Broker:
        self.world.lose_power(BROKER)
        return await self.start()

    def set_clock(self, by_ms: int) -> None:
        """Forwards or, with a negative number, backwards: its wall clock, for this start and those that follow."""
        self.world.clocks[BROKER].jump_wall(by_ms)

    def hold_flushes(self, for_ms: float = 60_000) -> None:
        self.disk.flush_latency_ms = (for_ms, for_ms)

    def let_flushes_go(self) -> None:
        self.disk.flush_latency_ms = NO_PAUSE

    def flushes(self, name: str) -> int:
        """How many times a file whose path contains `name` was flushed."""
        return sum(call.kind == "flush" and name in call.path for call in self.disk.log)

    async def client(self) -> RawClient:
        self._clients += 1
        link = await self.world.host(f"client{self._clients}").network.connect(BROKER, PORT)
        return RawClient(link)

    def check_pins(self) -> None:
        pinned = [
            segment.file.path
            for log in self.broker.store.logs.values()
            for segment in log.segments
            if cast(Any, segment.file).pins
        ]
        assert not pinned, f"still pinned: {pinned}"


class RawClient:
    """A client's end of a connection. It knows frames and messages, and nothing of how clients behave."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.is_closed = asyncio.Event()
        self._buffer = memoryview(bytearray(1 << 16))
        self._data = bytearray()
        self._correlation_id = 0
        self._asked: deque[tuple[int, type[Response], int, asyncio.Future[Any]]] = deque()
        self.frames: deque[bytes] = deque()
        link.start(self)

    # -- the Receiver of its link

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
            if not self._asked:
                self.frames.append(frame)
                continue
            correlation_id, cls, version, future = self._asked.popleft()
            answered_id, response = read_response(cls, version, frame)
            assert answered_id == correlation_id, "answers come in the order of the requests"
            if not future.done():
                future.set_result(response)

    def drained(self) -> None:
        pass

    def closed(self, reason: BaseException | None) -> None:
        self.is_closed.set()
        for _, _, _, future in self._asked:
            if not future.done():
                future.set_exception(ConnectionError("closed by the broker"))
        self._asked.clear()

    # -- asking

    def send(self, request: Request, version: int | None = None, *, is_answered: bool = True) -> asyncio.Future[Any]:
        """Sends without waiting; the future is the answer."""
        version = HANDLERS[request.api_key].max_version if version is None else version
        self._correlation_id += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if is_answered:
            cls = response_class(request.api_key)
            self._asked.append((self._correlation_id, cls, version, future))
        self.link.send([request_bytes(request, version, self._correlation_id, "raw")])
        return future

    async def ask(self, request: Request, version: int | None = None) -> Any:
        return await self.send(request, version)

    def close(self) -> None:
        self.link.close()

    # -- what most tests need

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str | None] | None = None
    ) -> CreatableTopicResult:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        response = await self.ask(CreateTopicsRequest(topics=[topic]))
        return cast(CreatableTopicResult, response.topics[0])

    async def produce(
        self, topic: str, batch: bytes | bytearray | None, *, partition: int = 0, acks: int = -1, version: int = 12
    ) -> PartitionProduceResponse:
        response = await self.ask(produce_request(topic, batch, partition=partition, acks=acks), version)
        return cast(PartitionProduceResponse, response.responses[0].partition_responses[0])

    async def fetch(self, topic: str, offset: int = 0, **options: Any) -> FetchResponsePartition:
        response = await self.ask(fetch_request({(topic, 0): offset}, **options), 12)
        assert response.error_code == 0
        return partition_of(response, topic)

    async def values(self, topic: str, offset: int = 0) -> list[bytes | None]:
        """The values that can be read now."""
        return values_in(await self.fetch(topic, offset))

    async def producer_id(self) -> int:
        response = await self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
        assert response.error_code == 0
        return cast(int, response.producer_id)


def batch_of(*values: bytes, producer_id: int = -1, epoch: int = 0, sequence: int = 0, **options: Any) -> bytearray:
    if producer_id >= 0:
        options |= {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return build_batch(list(values), base_timestamp_ms=options.pop("timestamp_ms", NOW_MS), **options)


def produce_request(
    topic: str, batch: bytes | bytearray | None, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=None if batch is None else memoryview(batch))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch_request(
    offsets: Mapping[tuple[str | bytes, int], int],
    *,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
    **options: Any,
) -> FetchRequest:
    """Reads partitions from offsets; topics are given by name, or by id from version 13 on."""
    topics: dict[str | bytes, list[FetchRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(
            FetchRequestPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
        )
    wanted = [
        FetchRequestTopic(topic_id=topic, partitions=partitions)
        if isinstance(topic, bytes)
        else FetchRequestTopic(topic=topic, partitions=partitions)
        for topic, partitions in topics.items()
    ]
    return FetchRequest(topics=wanted, **{"max_wait_ms": 0, "min_bytes": 1, **options})


def partition_of(response: FetchResponse, topic: str | bytes, index: int = 0) -> FetchResponsePartition:
    for found in response.responses:
        if topic in (found.topic, found.topic_id):
            for partition in found.partitions:
                if partition.partition_index == index:
                    return partition
    raise AssertionError(f"{topic!r}-{index} is not in the answer")


def headers_in(partition: FetchResponsePartition) -> list[BatchHeader]:
    return [header for _, header in whole_batches(cast(Any, partition.records) or b"")]


def values_in(partition: FetchResponsePartition) -> list[bytes | None]:
    """The values of the whole batches in an answer."""
    assert partition.error_code == 0, partition.error_code
    data = bytes(cast(Any, partition.records) or b"")
    return [
        record.value
        for position, header in whole_batches(data)
        for record in read_records(data[position : position + header.size_bytes], header)
    ]


Test = Callable[..., Coroutine[Any, Any, None]]


def simulated(
    *,
    settings: Mapping[str, str] | None = None,
    authoriser: Callable[[], Authoriser] | None = None,
    seed: int = 1,
    starts: bool = True,
) -> Callable[[Test], Callable[..., None]]:
    """Runs `async def test(node, ...)` in virtual time, with a broker that runs already unless `starts` is false."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def in_virtual_time(**arguments: Any) -> None:
            loop = SimLoop(end_s=3600 * 24 * 365)
            world = SimWorld(loop, seed, latency_ms=NO_PAUSE, flush_latency_ms=NO_PAUSE)
            node = Node(world, settings or {}, authoriser() if authoriser is not None else None)

            async def scenario() -> None:
                if starts:
                    await node.start()
                await test(node, **arguments)
                if node._broker is not None and not node.disk.dead:
                    node.let_flushes_go()
                    await asyncio.sleep(61)  # a flush that was held back has its file pinned
                    node.check_pins()

            run(scenario(), loop=loop)

        signature = inspect.signature(test)
        kept = list(signature.parameters.values())[1:]
        in_virtual_time.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return in_virtual_time

    return decorate
