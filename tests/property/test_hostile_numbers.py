"""Extreme numbers in every field of every request: a handler answers, or refuses; nothing else ever comes out of it.

Requests are well formed and name things that exist as often as not, so that they get far into the handlers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "broker"))
from broker_harness import Node, batch_of, simulated

from semel.broker.handlers import HANDLERS
from semel.wire.apis import API, request_class
from semel.wire.frame import request_bytes
from semel.wire.schema import BOOL, BYTES, RECORDS, STRING, UUID, FieldLayout, Kind, Struct, layout
from semel.wire.spec.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel.wire.spec.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

SEED = int(os.environ.get("SEMEL_HOSTILE_SEED", "21"))
SAMPLES = 200 * int(os.environ.get("SEMEL_HOSTILE_FACTOR", "1"))
TOPICS = ("t", "u", "never-made", "", "a\nb", "__consumer_offsets", "__transaction_state")
NAMES = ("g", "m", "tx", "t", "", "x" * 300, "a\nb\x1b[31m", "consumer", "range", "uniform", "1", "-1", "9" * 30)
SETTINGS = ("retention.ms", "max.message.bytes", "cleanup.policy", "max.connections", "num.partitions", "no.such")
USUAL = {
    "topic": ("t",),
    "group_id": ("g", "free"),
    "member_id": ("",),
    "transactional_id": ("tx",),
    "name": ("t",),
    "key": ("g",),
}
SENSIBLE = (0, 1, 2, 3)


class Extremes:
    """Values for fields: mostly the least and the greatest that fit, otherwise ones that exist."""

    def __init__(self, random: Random, topic_id: bytes) -> None:
        self.random = random
        self.topic_id = topic_id

    def struct(self, cls: type[Struct], version: int, flexible: bool) -> Any:
        shape = layout(cls, version, flexible)
        values = {entry.name: self.value(entry, version, flexible) for entry in (*shape.plain, *shape.tagged)}
        return cls(**values)

    def value(self, entry: FieldLayout, version: int, flexible: bool) -> Any:
        random = self.random
        if entry.is_nullable and random.random() < 0.15:
            return None
        if entry.is_array:
            return [self.element(entry, version, flexible) for _ in range(random.choice((0, 1, 1, 1, 2)))]
        return self.element(entry, version, flexible)

    def element(self, entry: FieldLayout, version: int, flexible: bool) -> Any:
        random = self.random
        if entry.struct is not None:
            return self.struct(entry.struct, version, flexible)
        kind = entry.kind
        assert kind is not None
        if kind is STRING:
            return self.text(entry.name)
        if kind is RECORDS:
            return memoryview(batch_of(b"a", b"b"))
        if kind is BYTES:
            return random.choice((b"", b"\0" * 40, random.randbytes(20)))
        if kind is UUID:
            return random.choice((self.topic_id, bytes(16), b"\xff" * 16))
        if kind is BOOL:
            return random.random() < 0.5
        if kind.code == "d":
            return random.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
        return self.integer(entry.name, kind)

    def text(self, name: str) -> str:
        random = self.random
        if random.random() < 0.7:  # what gets furthest
            for part, usual in USUAL.items():
                if part in name:
                    return random.choice(usual)
        if "topic" in name:
            return random.choice(TOPICS)
        if name == "value":
            return random.choice(("1", "-1", "9" * 25, "delete", "", "1e999"))
        return random.choice(SETTINGS + TOPICS + NAMES)

    def integer(self, name: str, kind: Kind) -> int:
        random = self.random
        if name == "producer_id" and random.random() < 0.6:
            return random.choice((-1, 0, 1, 2, 1000))
        if ("generation" in name or "epoch" in name) and random.random() < 0.6:
            return random.choice((-1, 0))
        if name == "acks":
            return random.choice((-1, 1, 1, kind.lowest, kind.highest))
        if name in ("count", "num_partitions") and random.random() < 0.8:
            return random.choice((-1, 0, 1, 2, 20_001, kind.lowest, kind.highest))
        if random.random() < 0.45:
            return random.choice(SENSIBLE)
        return random.choice((kind.lowest, kind.lowest + 1, -2, -1, kind.highest - 1, kind.highest))


async def failures_of(node: Node, monkeypatch: pytest.MonkeyPatch, frames: list[bytes]) -> list[BaseException]:
    """What handlers ended with, besides answers and refusals."""
    found: list[BaseException] = []
    server = node.broker.server
    failed = server.failed

    def note(connection: Any, error: BaseException) -> None:
        found.append(error)
        failed(connection, error)

    monkeypatch.setattr(server, "failed", note)
    for frame in frames:
        client = await node.client()
        client.link.send([frame])
        await asyncio.sleep(0.05)
        client.close()
    await asyncio.sleep(60)
    return found


async def filled(node: Node) -> bytes:
    client = await node.client()
    for name in ("t", "u"):
        await client.create_topic(name, partitions=2)
        await client.produce(name, batch_of(b"a"))
    for key_type in (0, 1):  # which makes the internal topics
        await client.ask(FindCoordinatorRequest(key="g", key_type=key_type), 3)
    await asyncio.sleep(5)
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert (await client.ask(join, 3)).error_code == 0
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    assert (await client.ask(request, 4)).error_code == 0
    return node.broker.image.topics["t"].topic_id


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: API[key].name)
@simulated(settings={"log.flush.interval.messages": "1000"})
async def test_extreme_numbers_are_answered_or_refused(node: Node, monkeypatch: pytest.MonkeyPatch, key: int) -> None:
    topic_id = await filled(node)
    random = Random(f"{SEED} {key}")
    served, cls = HANDLERS[key], request_class(key)
    frames = []
    for number in range(SAMPLES):
        version = random.randint(served.min_version, served.max_version)
        request = Extremes(random, topic_id).struct(cls, version, version >= cls.flexible_from)
        frames.append(request_bytes(request, version, number, random.choice(("raw", None, "a\nb"))))
    found = await failures_of(node, monkeypatch, frames)
    assert not found, f"{len(found)} of {SAMPLES}, the first: {found[0]!r}"
    assert not node.broken


@pytest.mark.parametrize(("retention_ms", "code"), [((1 << 63) - 1, 0), (-2, 42), (-(1 << 63), 42), (1000, 0), (-1, 0)])
@pytest.mark.parametrize("version", [2, 3, 4])
@simulated()
async def test_offsets_may_be_kept_for_ever_and_not_for_less_than_no_time(
    node: Node, retention_ms: int, code: int, version: int
) -> None:
    await filled(node)
    client = await node.client()
    request = OffsetCommitRequest(
        group_id="free",
        generation_id_or_member_epoch=-1,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            )
        ],
    )
    response = await client.ask(request, version)
    assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(("count", "codes"), [(9001, (37, 39)), (20_001, (44,))])  # more than one request may make
@simulated()
async def test_a_wrong_assignment_of_many_partitions_is_refused(
    node: Node, count: int, codes: tuple[int, ...], version: int
) -> None:
    await filled(node)
    client = await node.client()
    wrong = CreatePartitionsTopic(name="t", count=count, assignments=[CreatePartitionsAssignment(broker_ids=[1])])
    response = await client.ask(CreatePartitionsRequest(topics=[wrong], timeout_ms=1000), version)
    assert response.results[0].error_code in codes


@simulated()
async def test_a_refusal_that_quotes_the_longest_name_fits_into_its_answer(node: Node) -> None:
    client = await node.client()
    name = "\x1b" * 32_000
    response = await client.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=1), 7
    )
    assert response.topics[0].error_code == 17
    assert 0 < len(response.topics[0].error_message) < 1200
