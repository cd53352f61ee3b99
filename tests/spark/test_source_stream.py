"""Streaming reads with real Spark on our broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from real_broker import Brokers
from semel.client.admin.values import NewTopic
from semel.sync import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

PATIENCE_S = 120


class Query:
    """A streaming query that keeps its rows, batch by batch, as (partition, offset)."""

    def __init__(self, spark: SparkSession, address: str, checkpoint: str) -> None:
        self._spark = spark
        self._address = address
        self._checkpoint = checkpoint
        self.batches: list[list[tuple[int, int]]] = []
        self.running: StreamingQuery | None = None

    def start(self, topic: str, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("semel").option("kafka.bootstrap.servers", self._address)
        stream = reader.option("subscribe", topic).options(**options).load()
        writer = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", self._checkpoint)
        self.running = writer.trigger(**trigger).start()
        return self.running

    def _keep(self, rows: DataFrame, batch_id: int) -> None:
        self.batches.append(sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect()))

    def run(self, topic: str, **options: Any) -> StreamingQuery:
        """All that is available now, to its end."""
        query = self.start(topic, {"availableNow": True}, **options)
        assert query.awaitTermination(PATIENCE_S)
        return query

    @property
    def rows(self) -> list[tuple[int, int]]:
        return [row for batch in self.batches for row in batch]

    def until(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.rows) < count and time.monotonic() < deadline:
            assert self.running is not None
            if self.running.exception() is not None:
                raise AssertionError(str(self.running.exception()))
            time.sleep(0.05)


@pytest.fixture
def query(spark: SparkSession, address: str, checkpoint: str) -> Iterator[Query]:
    made = Query(spark, address, checkpoint)
    yield made
    if made.running is not None:
        made.running.stop()


def write(producer: Producer, topic: str, *counts: int) -> None:
    for partition, count in enumerate(counts):
        for _ in range(count):
            producer.send(topic, b"v", partition=partition)
    producer.flush()


def test_every_record_is_read_once_over_limits_and_restarts(
    address: str, query: Query, new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=2)
    write(producer, topic, 30, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "16", "kafka.group.id": f"group-{topic}"}

    done = query.run(topic, **options)

    assert [len(batch) for batch in query.batches] == [16, 16, 8]
    first = done.recentProgress[0].sources[0]
    assert json.loads(first.endOffset) == {topic: {"0": 12, "1": 4}}
    assert json.loads(first.latestOffset) == {topic: {"0": 30, "1": 10}}
    with Admin(bootstrap_servers=address) as admin:
        lag = admin.group_lag(f"group-{topic}")[f"group-{topic}"]
    assert {place.partition: partition.lag for place, partition in lag.items()} == {0: 0, 1: 0}

    query.run(topic, **options)  # nothing new: no batch
    assert len(query.batches) == 3
    write(producer, topic, 5)
    query.run(topic, **options)
    assert query.batches[3:] == [[(0, offset) for offset in range(30, 35)]]
    assert sorted(query.rows) == [*((0, offset) for offset in range(35)), *((1, offset) for offset in range(10))]


def test_a_running_query_sees_new_records_and_new_partitions(
    address: str, query: Query, new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    write(producer, topic, 3)
    running = query.start(topic, {"processingTime": "100 milliseconds"})
    deadline = time.monotonic() + PATIENCE_S
    while not query.batches and time.monotonic() < deadline:  # the batch that pins the start
        time.sleep(0.05)

    write(producer, topic, 2)
    query.until(2)
    with Admin(bootstrap_servers=address) as admin:
        admin.create_partitions({topic: 2})
    write(producer, topic, 1, 3)
    query.until(6)
    running.stop()

    assert query.batches[0] == []
    assert query.rows == [(0, 3), (0, 4), *sorted([(0, 5), (1, 0), (1, 1), (1, 2)], key=query.rows.index)]
    assert running.exception() is None


def test_a_pinned_start_holds_over_a_restart(query: Query, new_topic: Callable[..., str], producer: Producer) -> None:
    topic = new_topic(partitions=1)
    write(producer, topic, 3)
    query.run(topic)
    write(producer, topic, 4)
    query.run(topic)

    assert query.batches == [[], [(0, offset) for offset in range(3, 7)]]


def test_a_trigger_that_runs_once_reads_from_the_earliest_offset(
    query: Query, new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    write(producer, topic, 3)
    done = query.start(topic, {"once": True}, startingOffsets="earliest")
    assert done.awaitTermination(PATIENCE_S)

    assert query.rows == [(0, 0), (0, 1), (0, 2)]


def test_a_checkpoint_in_the_writing_of_sparks_own_source_is_continued(
    query: Query, checkpoint: str, new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=2)
    write(producer, topic, 3, 4)
    query.run(topic, startingOffsets="earliest")
    offsets = Path(checkpoint) / "offsets" / "0"
    *lines, last = offsets.read_text().splitlines()
    assert json.loads(last) == {topic: {"0": 3, "1": 4}}
    offsets.write_text("\n".join([*lines, json.dumps({topic: {"1": 4, "0": 3}}, separators=(",", ":"))]))
    for crc in offsets.parent.glob(".*.crc"):
        crc.unlink()

    write(producer, topic, 1, 1)
    query.run(topic)

    assert sorted(query.rows) == [*((0, offset) for offset in range(4)), *((1, offset) for offset in range(5))]


def test_a_loss_fails_the_query_with_a_sentence_or_is_passed_over(
    address: str, query: Query, new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    write(producer, topic, 5)
    query.run(topic, startingOffsets="earliest")
    with Admin(bootstrap_servers=address) as admin:
        admin.delete_topics(topic)
        admin.create_topics(NewTopic(topic, 1, 1))
    write(producer, topic, 3)

    failing = query.start(topic, {"availableNow": True})
    with pytest.raises(Exception, match="it was read up to offset 5, and ends at 3 now"):
        failing.awaitTermination(PATIENCE_S)
    query.run(topic, failOnDataLoss="false")
    write(producer, topic, 2)
    query.run(topic)

    assert query.rows == [*((0, offset) for offset in range(5)), (0, 3), (0, 4)]


def test_a_broker_that_is_killed_and_started_again_is_read_on(
    spark: SparkSession, brokers: Brokers, checkpoint: str
) -> None:
    broker = brokers.start(flush="os")
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics(NewTopic("t", 1, 1))
    query = Query(spark, broker.address, checkpoint)
    with Producer(bootstrap_servers=broker.address) as producer:
        write(producer, "t", 2)
        running = query.start("t", {"processingTime": "100 milliseconds"}, startingOffsets="earliest")
        query.until(2)
        broker.kill()
        broker.start()
        write(producer, "t", 3)
    query.until(5)
    running.stop()

    assert query.rows == [(0, offset) for offset in range(5)]
    assert running.exception() is None
