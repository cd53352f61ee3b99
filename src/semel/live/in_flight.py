"""What becomes of records when one of several requests under way fails, with idempotence and without.

A proxy makes one request of a real producer fail, always the same one: either the cluster never gets it and it is
refused in the cluster's place, or the cluster carries it out and the answer is lost. Then the partition is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic
from semel.client.cluster import Cluster
from semel.client.errors import error_for
from semel.client.producer.producer import Producer
from semel.live.proxy import HOST, Exchange, Proxy
from semel.live.written import Place, values_of
from semel.records.build import build_batch
from semel.wire.errors import ErrorCode
from semel.wire.schema import Response
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

T = TypeVar("T")

REFUSED, ANSWER_LOST = "refused", "answer lost"
WINDOW = 5
"""How many batches of a producer brokers remember in each partition, and so how many requests may be under way."""
_PRODUCE = 0
_GATHER_S = 2.0
_LAST_VERSION_BY_NAME = 12


class Case(NamedTuple):
    is_idempotent: bool
    in_flight: int
    failure: str


CASES = (
    Case(False, WINDOW, REFUSED),
    Case(False, 1, REFUSED),
    Case(True, WINDOW, REFUSED),
    Case(False, WINDOW, ANSWER_LOST),
    Case(True, WINDOW, ANSWER_LOST),
)


class Outcome(NamedTuple):
    case: Case
    sent: Sequence[int]
    log: Sequence[int]
    requests: int
    """How many produce requests it took; one for each record would have been enough."""

    @property
    def verdict(self) -> str:
        if sorted(set(self.log)) != sorted(self.sent):
            return "lost"
        if len(self.log) != len(self.sent):
            return "doubled"
        return "in order" if list(self.log) == list(self.sent) else "out of order"

    def as_json(self) -> dict[str, Any]:
        return {
            "idempotence": self.case.is_idempotent,
            "in_flight": self.case.in_flight,
            "failure": self.case.failure,
            "sent": list(self.sent),
            "log": list(self.log),
            "requests": self.requests,
            "verdict": self.verdict,
        }


class FailingOnce:
    """An Observer that makes the second produce request of a run fail, once all that may be under way have come.

    The first one goes through: a broker takes any sequence from a producer that it does not know yet.
    """

    def __init__(self, case: Case) -> None:
        self.requests = 0
        self._case = case
        self._gathered = asyncio.Event()
        self._victim: Exchange | None = None

    async def asked(self, exchange: Exchange) -> Awaitable[Response] | None:
        if exchange.key != _PRODUCE:
            return None
        self.requests += 1
        if self.requests > self._case.in_flight:
            self._gathered.set()
        if self.requests != 2:
            return None
        if self._case.failure == REFUSED:
            return self._refusal(exchange)
        self._victim = exchange
        return None

    async def answered(self, exchange: Exchange, frame: bytes) -> None:
        if exchange is self._victim:
            await self._all_under_way()
            raise ConnectionResetError("the answer is lost")

    def lost(self, exchange: Exchange) -> None:
        """That is what this is about."""

    async def _all_under_way(self) -> None:
        """Until the producer has sent as many requests as it may."""
        try:
            await asyncio.wait_for(self._gathered.wait(), _GATHER_S)
        except TimeoutError:
            pass  # one request at a time: no other one comes before this is answered

    async def _refusal(self, exchange: Exchange) -> Response:
        await self._all_under_way()
        refused = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, error_code=ErrorCode.NOT_ENOUGH_REPLICAS, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in exchange.request().topic_data
        ]
        return ProduceResponse(responses=refused)


async def outcome_of(case: Case, cluster: Cluster, settings: Mapping[str, Any], topic: str) -> Outcome:
    """Sends seven records, one in each request, to a partition that is empty before."""
    observer = FailingOnce(case)
    sent = list(range(WINDOW + 2))
    await cluster.topic(topic, 10.0)
    leader = cluster.view.nodes[cluster.leader_of(topic, 0)]
    async with Proxy(observer) as proxy:
        behind = {
            **settings,
            "bootstrap_servers": f"{HOST}:{await proxy.port_for(leader.host, leader.port)}",
            "enable_idempotence": case.is_idempotent,
            "acks": "all",
            "max_in_flight_requests_per_connection": case.in_flight,
            "batch_size": 1,
        }
        async with Producer(**behind) as producer:
            await producer.send_and_wait(topic, b"0", partition=0)
            deliveries = [await producer.send(topic, b"%d" % number, partition=0) for number in sent[1:]]
            for delivery in deliveries:
                await delivery
    log = [int(value) for value in await values_of(cluster, Place(topic, 0))]
    return Outcome(case, sent, log, observer.requests)


# -- the window


class WindowOutcome(NamedTuple):
    batches: int
    answer: str
    log: Sequence[int]

    def as_json(self) -> dict[str, Any]:
        return {"batches": self.batches, "answer_to_the_first_again": self.answer, "log": list(self.log)}


async def window_outcome(cluster: Cluster, topic: str) -> WindowOutcome:
    """Writes one batch more than a broker remembers, and then the first of them again, as if its answer was lost: a
    producer with six requests under way would do that."""
    await cluster.topic(topic, 10.0)
    identity = await cluster.call_any(InitProducerIdRequest(transaction_timeout_ms=60_000), InitProducerIdResponse)
    if identity.error_code != ErrorCode.NONE:
        raise error_for(identity.error_code, "asking for a producer id")
    numbers = [*range(WINDOW + 1), 0]
    code = ErrorCode.NONE
    for number in numbers:
        code = await _produce(cluster, topic, number, identity.producer_id, identity.producer_epoch)
    log = [int(value) for value in await values_of(cluster, Place(topic, 0))]
    return WindowOutcome(WINDOW + 1, ErrorCode(code).name, log)


async def _produce(cluster: Cluster, topic: str, number: int, producer_id: int, epoch: int) -> ErrorCode:
    batch = build_batch(
        [b"%d" % number],
        base_timestamp_ms=cluster.host.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=number,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    leader_id = cluster.leader_of(topic, 0)
    answer = await cluster.call(leader_id, request, ProduceResponse, at_most=_LAST_VERSION_BY_NAME)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


# -- topics of its own


async def in_topic(admin: Admin, name: str, work: Callable[[str], Awaitable[T]]) -> T:
    """Runs `work(name)` with a topic that is removed afterwards."""
    await admin.create_topics([NewTopic(name, partitions=1)])
    try:
        return await work(name)
    finally:
        await admin.delete_topics([name])
