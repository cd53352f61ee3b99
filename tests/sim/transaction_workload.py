"""Transactions of both generations on one simulated node, and a history of what was promised, to judge a restart by.

Each transaction writes to two partitions and commits the offset of a group; every second one is aborted. A node that
dies leaves its clients without answers: what they had asked for is then unknown, but never half.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/broker"))

from broker_harness import NO_PAUSE, Node, RawClient, batch_of
from transaction_harness import (
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    check_replay_equals_live,
    coordinator,
    read_committed,
    started,
)

from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop
from semel.wire.errors import ErrorCode
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
PRODUCERS = {"one": V1, "two": V2}
ANSWER_S = 20.0


class NoAnswer(Exception):
    """The node died."""


@dataclass
class Attempt:
    """One transaction: what it writes, what was asked for, and what was promised."""

    producer: str
    number: int
    wants_commit: bool
    is_end_asked: bool = False
    is_end_promised: bool = False

    @property
    def value(self) -> bytes:
        return f"{self.producer} {self.number}".encode()


@dataclass
class History:
    attempts: list[Attempt] = field(default_factory=list)
    plain_promised: list[bytes] = field(default_factory=list)


def new_node(seed: int) -> tuple[SimLoop, Node]:
    """Seed 0 is a world without delays; in the others the wires and the disk take their time."""
    loop = SimLoop(end_s=3600 * 24)
    pauses = {"latency_ms": NO_PAUSE, "flush_latency_ms": NO_PAUSE} if seed == 0 else {}
    return loop, Node(SimWorld(loop, seed, **pauses), SETTINGS)


async def answered(asked: Any) -> Any:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asked
    except (TimeoutError, ConnectionError):
        raise NoAnswer from None


async def succeed(asked: Any) -> None:
    assert await answered(asked) == ErrorCode.NONE


async def commit_offset(producer: TransactionalProducer, offset: int) -> ErrorCode:
    version = 5 if producer.versions is V2 else 3
    if version < 5:
        await succeed(producer.add_offsets(producer.transactional_id))
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    answer = await producer.client.ask(request, version)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed_offset(client: RawClient, group: str) -> int:
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])])
    request.require_stable = True
    answer = await answered(client.ask(request, 7))
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0, "nothing is open any more"
    return int(found.committed_offset)


async def one_transaction(producer: TransactionalProducer, attempt: Attempt) -> None:
    if producer.versions is V1:
        await succeed(producer.add(0, 1))
    for partition in (0, 1):
        await succeed(producer.write(attempt.value, partition=partition))
    await succeed(commit_offset(producer, attempt.number))
    attempt.is_end_asked = True
    await succeed(producer.end(commit=attempt.wants_commit))
    attempt.is_end_promised = True


async def work(node: Node, history: History, rounds: int) -> None:
    """Until it is done, or the node dies."""
    client = await ready_client(node)
    producers = [await answered(started(client, versions, name)) for name, versions in PRODUCERS.items()]
    for number in range(rounds):
        for producer in producers:
            attempt = Attempt(producer.transactional_id, number, wants_commit=number % 2 == 0)
            history.attempts.append(attempt)
            await one_transaction(producer, attempt)
        plain = f"plain {number}".encode()
        answer = await answered(client.produce(TOPIC, batch_of(plain)))
        assert answer.error_code == 0
        history.plain_promised.append(plain)


async def recover(node: Node) -> tuple[RawClient, dict[str, TransactionalProducer]]:
    """After a restart: what was decided is carried out, what was left open is aborted."""
    await asyncio.sleep(1)
    states = {transaction.state for transaction in coordinator(node).transactions()}
    assert not any(state.is_prepared for state in states), "every decision is carried out without anyone asking"
    client = await ready_client(node)
    producers = {name: await started(client, versions, name) for name, versions in PRODUCERS.items()}
    await asyncio.sleep(0.2)
    return client, producers


async def judge(node: Node, history: History) -> None:
    """All that was promised is there, nothing else, nothing twice, nothing half; and all goes on."""
    client, producers = await recover(node)
    for index in (0, 1):
        log = node.broker.topics.partition(TOPIC, index).log
        assert log.last_stable_offset == log.high_watermark == log.end_offset, "nothing hangs"
    seen = [await read_committed(client, index) for index in (0, 1)]
    for values in seen:
        assert len(values) == len(set(values)), "nothing is there twice"
    assert set(history.plain_promised) <= set(seen[0])
    for name in PRODUCERS:
        committed = []
        for attempt in (attempt for attempt in history.attempts if attempt.producer == name):
            visible = [attempt.value in values for values in seen]
            assert visible[0] == visible[1], f"{attempt} is half there"
            if visible[0]:
                assert attempt.is_end_asked, f"{attempt} was never ended"
                assert attempt.wants_commit, f"{attempt} was aborted"
                committed.append(attempt)
            else:
                assert not (attempt.is_end_promised and attempt.wants_commit), f"{attempt} is lost"
        for values in seen:
            mine = [value for value in values if value is not None and value.startswith(name.encode())]
            assert mine == [attempt.value for attempt in committed], "in order"
        offset = await committed_offset(client, name)
        assert offset == (committed[-1].number if committed else -1), "the offset goes with its transaction"
    for name, producer in producers.items():
        await one_transaction(producer, Attempt(name, 1000, wants_commit=True))
    await asyncio.sleep(0.2)
    for index in (0, 1):
        assert [f"{name} 1000".encode() for name in PRODUCERS] == (await read_committed(client, index))[-2:]
    check_replay_equals_live(node)


async def ready_client(node: Node) -> RawClient:
    """A client that has made sure of all topics, as often as the node died in the midst of it."""
    client: RawClient = await answered(node.client())
    for kind in (0, 1):
        answer = await answered(client.ask(FindCoordinatorRequest(key="one", key_type=kind), 2))
        assert answer.error_code == 0
    created = await answered(client.create_topic(TOPIC, 2))
    assert created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return client
