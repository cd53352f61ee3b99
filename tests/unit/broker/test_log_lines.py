"""What a node writes into its log while all is well: topics, leaders, fencing, timeouts, retention, compaction.

Names from outside stand in quotes and are cut, so that nobody forges a line or fills the disk with one."""

from __future__ import annotations

import asyncio
import logging

import pytest
from broker_harness import ROOT, Node, batch_of, simulated
from transaction_harness import ID, OLD, TOPIC, V2, TransactionalProducer, started, with_transactions

from semel.wire.errors import ErrorCode
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState


class Lines:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, *words: str, level: int) -> list[str]:
        """Those of a level that have all these words. The log is empty after it."""
        found = [(record.levelno, record.getMessage()) for record in self._caplog.records]
        return [text for at, text in found if at == level and all(word in text for word in words)]

    def clear(self) -> None:
        self._caplog.clear()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.DEBUG, "semel")
    return Lines(caplog)


@simulated()
async def test_topics_that_are_made_and_deleted_and_who_leads_them(node: Node, lines: Lines) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=2)
    assert lines.of("t", level=logging.INFO) == ["topic 't' is made, partition count 2"]
    assert lines.of("leads", level=logging.DEBUG) == [
        f"t-{index}: this node leads it, leader epoch 0" for index in range(2)
    ]
    lines.clear()
    await node.restart()
    assert lines.of("is made", level=logging.INFO) == []
    assert sorted(lines.of("leads", level=logging.DEBUG)) == [
        f"t-{index}: this node leads it, leader epoch 1" for index in range(2)
    ]
    await (await node.client()).ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert lines.of("deleted", level=logging.INFO) == ["topic 't' is deleted"]


@pytest.mark.parametrize("transactional_id", [ID, "x\n2026-01-01 CRITICAL forged\x1b[31m" + "y" * 30_000])
@simulated()
async def test_a_newer_instance_that_fences_an_older_one(node: Node, lines: Lines, transactional_id: str) -> None:
    client = await with_transactions(node)
    older, newer = (TransactionalProducer(client, V2, transactional_id) for _ in range(2))
    await older.init()
    assert len(lines.of("producer", "epoch 0; every epoch before it is fenced", level=logging.DEBUG)) == 0
    await older.write(b"open")
    await newer.init()
    (told,) = lines.of("aborting the open transaction", level=logging.INFO)
    assert told.endswith(f"of producer {older.producer_id}, epoch 0: a newer instance takes over")
    (fenced,) = lines.of("every epoch before it is fenced", level=logging.DEBUG)
    lines.clear()
    assert await older.write(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await older.commit() == ErrorCode.PRODUCER_FENCED
    refused = lines.of("a producer is fenced", level=logging.DEBUG)
    assert len(refused) == 2
    for line in (told, fenced, *refused):
        assert len(line) < 400
        assert line.isprintable()


@simulated()
async def test_an_instance_that_comes_back_with_its_old_epoch_is_told_of_in_the_log(node: Node, lines: Lines) -> None:
    client = await with_transactions(node)
    older, newer = (TransactionalProducer(client, OLD) for _ in range(2))
    await older.init()
    await newer.init()
    older.versions = V2
    assert await older.init(keeps_identity=True) == ErrorCode.PRODUCER_FENCED
    assert len(lines.of("a producer is fenced", repr(ID), level=logging.DEBUG)) == 1


@simulated()
async def test_a_transaction_whose_time_has_run_out(node: Node, lines: Lines) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2, timeout_ms=1000)
    await producer.write(b"open")
    await asyncio.sleep(30)
    assert lines.of("it took longer than 1000 ms", level=logging.WARNING) == [
        f"aborting the transaction of {ID!r}: it took longer than 1000 ms"
    ]


@simulated(settings={"log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "1000"})
async def test_segments_that_are_removed_and_logs_that_are_compacted(node: Node, lines: Lines) -> None:
    client = await node.client()
    await client.create_topic("old", configs={"retention.ms": "1000", "segment.bytes": "300"})
    compact = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0"}
    await client.create_topic(TOPIC, configs=compact)
    for _ in range(10):
        await client.produce("old", batch_of(b"x" * 100))
        await client.produce(TOPIC, batch_of(b"x" * 100, keys=[b"k"]))
    await asyncio.sleep(10)
    assert lines.of(f"{ROOT}/old-0: removing ", "segments up to offset 10", level=logging.INFO)
    assert lines.of(f"{ROOT}/{TOPIC}-0: compacting what lies before offset", level=logging.DEBUG)
    assert lines.of(f"{ROOT}/{TOPIC}-0: compacted ", "records to", level=logging.INFO)
