"""The short way for produce requests of a transaction: nobody can tell, and nothing gets in that no marker will end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from broker_harness import Node, simulated
from short_ways import Counted, counted_produces
from transaction_harness import (
    OLD,
    TOPIC,
    V1,
    V2,
    check_replay_equals_live,
    coordinator,
    hold_markers,
    read_all,
    read_committed,
    started,
    with_transactions,
)

from semel.broker.authoriser import AllowAll, Operation, ResourceType
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.sim import link
from semel.wire.errors import ErrorCode

GENERATIONS = pytest.mark.parametrize("versions", [OLD, V1, V2], ids=["old clients", "first", "second"])
FLUSHES = pytest.mark.parametrize("flush_messages", ["1", "9223372036854775807"], ids=["fsync", "page cache"])


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> Counted:
    monkeypatch.setattr(link, "WHOLE_CHUNK_CHANCE", 1)  # a lane serves only what comes whole
    return counted_produces(monkeypatch)


@FLUSHES
@GENERATIONS
@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_producer_does_both_ways_make_the_same_of_it(
    versions: Mapping[str, int], flush_messages: str, seed: int, short_way: Counted
) -> None:
    told: dict[bool, list[Any]] = {}
    for is_open in (True, False):

        @simulated(settings={"log.flush.interval.messages": flush_messages})
        async def tell(node: Node, is_open: bool = is_open) -> None:
            short_way.is_open = is_open
            codes = await _random_walk(node, versions, Random(seed))
            logs = [node.broker.topics.partition(TOPIC, index).log for index in range(2)]
            told[is_open] = [
                codes,
                [log.segments[-1].file.read_at(0, log.size_bytes) for log in logs],
                [(log.end_offset, log.high_watermark, log.last_stable_offset) for log in logs],
                [[*log.producers.entries()] for log in logs],
            ]

        tell()
    assert told[True] == told[False]
    assert ErrorCode.NONE in told[True][0]
    assert short_way.served > 20


async def _random_walk(node: Node, versions: Mapping[str, int], random: Random) -> list[ErrorCode]:
    """Transactions that commit and abort, batches that come twice, too late, or for a partition that is in none, and
    new instances of the producer; what its answers were."""
    client = await with_transactions(node, 2)
    producer = await started(client, versions)
    codes: list[ErrorCode] = []
    last = producer.batch(b"never sent", partition=0)
    producer.sequences.clear()
    for _ in range(40):
        if versions is not V2:
            codes.append(await producer.add(*random.choice([(0,), (1,), (0, 1), (0, 1)])))
        for number in range(random.randint(1, 6)):
            partition = random.randrange(2)
            before = dict(producer.sequences)
            batch = producer.batch(b"a", b"%d" % number, partition=partition)
            result = await producer.send(batch, partition=partition)
            codes.append(ErrorCode(result.error_code))
            if result.error_code:
                producer.sequences = before
            elif random.random() < 0.1:
                codes.append(ErrorCode((await producer.send(batch, partition=partition)).error_code))
            if partition == 0:
                last = batch
        if random.random() < 0.1:
            codes.append(await producer.init())
        else:
            codes.append(await producer.end(commit=random.random() < 0.7))
        if random.random() < 0.2:
            codes.append(ErrorCode((await producer.send(last)).error_code))
        await asyncio.sleep(random.choice([0, 0.1]))
    return codes


@FLUSHES
@GENERATIONS
def test_a_batch_behind_the_end_is_not_written(
    versions: Mapping[str, int], flush_messages: str, short_way: Counted
) -> None:
    """The lane has served its transaction, and the marker is held back: the decision alone ends it."""

    @simulated(settings={"log.flush.interval.messages": flush_messages})
    async def late(node: Node) -> None:
        client = await with_transactions(node)
        producer = await started(client, versions)
        if versions is not V2:
            assert await producer.add(0) == 0
        for number in range(5):
            assert await producer.write(b"%d" % number) == 0
        assert short_way.served >= 3
        may_write = hold_markers(node)
        batch = producer.batch(b"late")
        assert await producer.end(commit=True) == 0
        assert (await producer.send(batch)).error_code != 0
        may_write.set()
        await asyncio.sleep(0.1)
        assert await read_all(client) == await read_committed(client) == [b"%d" % number for number in range(5)]

    late()


class Fickle(AllowAll):
    may_use_id = True

    def authorise(self, principal: str, host: str, operation: Operation, resource: Any, name: str | None) -> bool:
        return self.may_use_id or resource is not ResourceType.TRANSACTIONAL_ID


FICKLE = Fickle()


@FLUSHES
def test_a_transactional_id_that_may_not_be_used_any_more(flush_messages: str, short_way: Counted) -> None:
    @simulated(settings={"log.flush.interval.messages": flush_messages}, authoriser=lambda: FICKLE)
    async def taken_away(node: Node) -> None:
        client = await with_transactions(node)
        producer = await started(client, V1)
        assert await producer.add(0) == 0
        for number in range(4):
            assert await producer.write(b"%d" % number) == 0
        before = short_way.served
        assert before >= 2
        FICKLE.may_use_id = False
        node.broker.generation.raise_it()
        try:
            assert await producer.write(b"no") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        finally:
            FICKLE.may_use_id = True
        assert short_way.served == before

    taken_away()


@simulated(settings={"log.flush.interval.messages": "9223372036854775807"})
async def test_readers_of_what_is_committed_wait_for_the_end_of_what_began_on_a_lane(
    node: Node, short_way: Counted
) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    await producer.transaction(b"first")
    await asyncio.sleep(0.1)
    before = short_way.served
    assert await producer.add(0) == 0
    assert await producer.write(b"second") == 0
    assert short_way.served == before + 1, "also the batch that begins it in its partition"
    assert await read_committed(client) == [b"first"]
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"first", b"second"]


@FLUSHES
def test_a_partition_joins_a_transaction_of_the_second_generation_on_its_lane(
    flush_messages: str, short_way: Counted
) -> None:
    """With fsync the join is begun there, and the longer way waits for it before anything is written."""
    is_durable_at_once = flush_messages != "1"

    @simulated(settings={"log.flush.interval.messages": flush_messages})
    async def joins(node: Node) -> None:
        client = await with_transactions(node, 2)
        producer = await started(client, V2)
        for partition in (0, 1, 0, 1):
            await producer.transaction(b"before", partition=partition)
        await asyncio.sleep(0.1)
        for partition in (0, 1):
            before = short_way.served
            assert await producer.write(b"data", partition=partition) == 0
            assert short_way.served == before + is_durable_at_once
        known = coordinator(node).shards.for_key(producer.transactional_id).state.by_id[producer.transactional_id]
        assert known.partitions == {(TOPIC, 0), (TOPIC, 1)}
        check_replay_equals_live(node)
        assert await read_committed(client) == [b"before"] * 2
        assert await producer.commit() == 0
        await asyncio.sleep(0.1)
        assert await read_committed(client) == [b"before"] * 2 + [b"data"]

    joins()


@pytest.mark.parametrize("damage", ["a bit", "a sequence too late", "an older epoch"])
@simulated(settings={"log.flush.interval.messages": "9223372036854775807"})
async def test_nothing_joins_by_a_batch_that_is_not_taken(node: Node, damage: str, short_way: Counted) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    older = producer.batch(b"older")
    producer.sequences.clear()
    for _ in range(3):
        await producer.transaction(b"before")
    await asyncio.sleep(0.1)
    before = short_way.served
    wrong = producer.batch(b"data")
    if damage == "a bit":
        wrong[-1] ^= 1
    elif damage == "a sequence too late":
        wrong = producer.batch(b"data")
    else:
        wrong = older
    joined = []
    with patch.object(TransactionCoordinator, "joins_at_once", lambda *arguments: joined.append(arguments)):
        assert (await producer.send(wrong)).error_code != 0
    assert short_way.served == before
    assert not joined
