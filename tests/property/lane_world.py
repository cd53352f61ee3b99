"""The real sender between a naive broker and a network at a test's mercy: requests are delivered late, answers lost.

A connection that the client has given up may still deliver what was sent over it, in order, at any later time: the
worst that TCP and a slow broker can do together. Time passes only when the test says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from scripted_answers import Logs, Sent, sent_in
from semel.client.errors import BadRecord
from semel.client.producer.accumulator import Accumulator
from semel.client.producer.batch import Delivery, Identity
from semel.client.producer.sender import Sender
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import load
from semel.rpc.connection import Disconnected
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop
from semel.wire.errors import ErrorCode
from semel.wire.schema import Response
from semel.wire.spec.init_producer_id import InitProducerIdResponse
from semel.wire.spec.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC = "t"
VERSION = 9
SETTINGS: dict[str, Any] = {
    "linger_ms": 0,
    "batch_size": 1,
    "request_timeout_ms": 20_000,
    "delivery_timeout_ms": 20_000,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 100,
}


class FakeLink:
    unsent_bytes = 0


class FakeConnection:
    """Carries produce requests of one batch each. `sent` is under way, `answered` has an answer that is on its way."""

    throttled_until_s = 0.0
    link = FakeLink()

    def __init__(self) -> None:
        self.is_alive = True
        self.sent: deque[tuple[Sent, asyncio.Future[ProduceResponse]]] = deque()
        self.answered: deque[tuple[ProduceResponse, asyncio.Future[ProduceResponse]]] = deque()
        self.all: list[Sent] = []

    def version_of(self, request: Any, **limits: int) -> int:
        return VERSION

    def send(
        self, request: ProduceRequest, version: int, response: type[Response], timeout_s: float
    ) -> asyncio.Future[Any]:
        (batch,) = sent_in(request, {}, VERSION)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((batch, future))
        self.all.append(batch)
        return future


class FakeNodes:
    def __init__(self, world: LaneWorld) -> None:
        self._world = world
        self.connected: Any = None
        self.ended: Any = None

    def connection(self, node_id: int) -> FakeConnection:
        return self._world.connections[-1]


class FakeCluster:
    """All that the sender and the producer's identity need of a cluster."""

    def __init__(self, world: LaneWorld) -> None:
        self.changed: list[Any] = []
        self.topics: dict[str, Any] = {}
        self.nodes = FakeNodes(world)
        self._world = world

    def leader_of(self, topic: str, partition: int) -> int:
        return 1

    def stale(self) -> None:
        pass

    def why_out_of_reach(self, topic: str, partition: int) -> str | None:
        return None

    def watch(self, topics: Any) -> None:
        pass

    def backoff_s(self, failures: int) -> float:
        return 0.1

    async def call_any(self, request: Any, response: Any) -> InitProducerIdResponse:
        self._world.producer_ids += 1
        epoch = self._world.first_epoch if self._world.producer_ids == 1 else 0
        return InitProducerIdResponse(producer_id=self._world.producer_ids, producer_epoch=epoch)


class LaneWorld:
    """`is_lenient`: the broker takes any sequence of a producer that it does not know, as Kafka 4 does."""

    def __init__(
        self, loop: SimLoop, *, first_sequence: int = 0, first_epoch: int = 0, is_lenient: bool = False
    ) -> None:
        self.loop = loop
        self.first_epoch = first_epoch
        self.producer_ids = 0
        self.logs = Logs()
        self.logs.is_lenient = is_lenient
        self.connections = [FakeConnection()]
        self.deliveries: list[Delivery] = []
        settings = load(ProducerSettings, SETTINGS)
        self.accumulator = Accumulator(settings)
        self.lane = self.accumulator.lane(TOPIC, 0)
        cluster: Any = FakeCluster(self)
        self.sender = Sender(SimWorld(loop, 1).host("client"), cluster, self.accumulator, settings, None)
        if first_sequence:  # as after very many records
            self.lane.identity = Identity(1, first_epoch)
            self.lane.next_sequence = first_sequence

    # -- the program

    async def send(self) -> None:
        value = b"%d" % len(self.deliveries)
        size = self.accumulator.record_bytes(None, value, None)
        assert self.accumulator.take_room(size)
        batch = self.accumulator.open_batch(self.lane, size, self.loop)
        batch.append(None, value, 0, None, size)
        self.deliveries.append(Delivery(batch, 0))
        self.sender.wake()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)
        assert len(self.lane.in_flight) <= 5

    # -- the network and the broker

    def _open(self, index: int) -> FakeConnection:
        """The newest connection, or an older one that still has something under way."""
        choices = [self.connections[-1], *[old for old in self.connections[:-1] if old.sent]]
        return choices[index % len(choices)]

    async def deliver(self, index: int, code: int = ErrorCode.NONE, *, writes: bool = True) -> None:
        """The oldest request of a connection reaches the broker; with a code it is answered so, written or not."""
        connection = self._open(index)
        if not connection.sent:
            return
        batch, future = connection.sent.popleft()
        told, offset = self.logs.append(batch) if writes else (code, -1)
        if told == ErrorCode.NONE and code != ErrorCode.NONE:
            told, offset = code, -1
        connection.answered.append((_answer(told, offset), future))

    async def answer(self) -> None:
        """The oldest answer on the newest connection arrives."""
        connection = self.connections[-1]
        if connection.answered:
            response, future = connection.answered.popleft()
            future.set_result(response)
            await self.settle()

    async def lose(self) -> None:
        """The client gives its connection up, and makes another one."""
        lost = self.connections[-1]
        lost.is_alive = False
        self.connections.append(FakeConnection())
        for _, future in (*lost.answered, *lost.sent):
            future.set_exception(Disconnected("lost"))
        lost.answered.clear()
        await self.settle()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.settle()

    async def finish(self) -> None:
        """Nothing goes wrong any more, until everything has its fate; what is late arrives then."""
        for _ in range(400):
            await self.wait(0.2)
            while self.connections[-1].sent:
                await self.deliver(0)
            while self.connections[-1].answered:
                await self.answer()
            if not self.accumulator.unfinished:
                break
        for connection in self.connections:
            while connection.sent:
                self.logs.append(connection.sent.popleft()[0])
        await self.sender.close()

    # -- the judgement

    def check(self) -> None:
        assert not self.accumulator.unfinished, "everything has its fate"
        assert self.accumulator.used_bytes == 0
        log = [int(value or b"") for value in self.logs(TOPIC)]
        assert len(set(log)) == len(log), f"written twice: {log}"
        told = [number for number in log if self.deliveries[number].exception() is None]
        assert told == sorted(told), f"out of order: {log}"
        # What a producer id that was given up has under way cannot be kept from coming late, but it was told as failed.
        assert log == sorted(log) or self.producer_ids > 1, f"out of order: {log}"
        for number, delivery in enumerate(self.deliveries):
            error = delivery.exception()
            if error is None:
                assert number in log, f"{number} was lost"
                offset = delivery.result().offset
                assert offset == log.index(number), f"{number} is at {log.index(number)}, not {offset}"
            elif "it was not written" in str(error) or (isinstance(error, BadRecord) and not delivery._batch.in_doubt):
                assert number not in log, f"{number} is there: {error}"
        names: dict[tuple[int, int, int], bytes] = {}
        for connection in self.connections:
            for batch in connection.all:
                assert names.setdefault(batch.name, batch.payload) == batch.payload, f"{batch.name} names two batches"


def _answer(code: int, offset: int) -> ProduceResponse:
    result = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
    return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[result])])
