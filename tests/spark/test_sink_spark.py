"""The sink in Spark itself: streams and batch writes, restarts, tasks and commits that fail, checkpoints that lie."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import pytest
from sink_world import committed_rows, wait_for_markers

from semel.client.metadata import TopicPartition
from semel.client.values import Message
from semel.records.partitioning import partition_of_key
from semel.spark.adoption import marker_of
from semel.spark.foreach_batch import publish_each
from semel.sync import Consumer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "key string, value string"


class Lines:
    """A stream of files, each of which becomes a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._count = 0
        self.rows: list[tuple[bytes, bytes]] = []
        folder.mkdir()

    def add(self, count: int = 20) -> None:
        rows = [(f"key-{row % 5}", f"{self._count}/{row}") for row in range(count)]
        text = "\n".join(json.dumps({"key": key, "value": value}) for key, value in rows)
        path = self._folder / f"{self._count:03d}.json"
        path.with_suffix(".new").write_text(text)
        os.utime(path.with_suffix(".new"), (self._count, self._count))  # Spark reads the oldest first
        path.with_suffix(".new").rename(path)
        self._count += 1
        self.rows += [(key.encode(), value.encode()) for key, value in rows]

    def stream(self) -> DataFrame:
        reader = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder / "*.json"))


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path / "in")


@pytest.fixture
def options(address: str, new_topic: Callable[..., str], checkpoint: str) -> dict[str, str]:
    topic = new_topic("out", partitions=3)
    return {"kafka.bootstrap.servers": address, "topic": topic, "checkpointLocation": checkpoint}


def run(rows: DataFrame, options: dict[str, str]) -> None:
    """Everything that is there; raises what the query failed of."""
    query = rows.writeStream.format("semel").options(**options).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def batch_write(rows: DataFrame, options: dict[str, str], **more: str) -> None:
    given = {name: value for name, value in options.items() if name != "checkpointLocation"}
    rows.write.format("semel").mode("append").options(**given, **more).save()


def messages_of(address: str, topic: str) -> list[Message]:
    wait_for_markers(address)
    with Consumer(bootstrap_servers=address, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        found: list[Message] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for messages in consumer.poll(timeout_ms=1000).values():
                found += messages
    return found


def staged_files(options: dict[str, str]) -> list[str]:
    return sorted(path.name for path in (Path(options["checkpointLocation"]) / "sink-staging").glob("*"))


# -- streams


def test_every_row_of_a_stream_is_there_once_in_order_through_restarts(
    address: str, lines: Lines, options: dict[str, str]
) -> None:
    for _ in range(2):
        for _ in range(2):
            lines.add()
        run(lines.stream(), options)
    found = committed_rows(address, options["topic"])
    assert sorted(found) == sorted(lines.rows)
    for key in {key for key, _ in lines.rows}:
        assert [row for row in found if row[0] == key] == [row for row in lines.rows if row[0] == key]
    _, marker = marker_of(options)
    assert marker is not None
    assert marker.number == 3
    assert marker.record_count == 20


def test_large_batches_are_staged_in_files_and_cleaned_up(
    spark: SparkSession, address: str, lines: Lines, options: dict[str, str]
) -> None:
    lines.add(4000)
    large = lines.stream().selectExpr("key", "concat(value, repeat('x', 1000)) as value")
    seen: list[str] = []
    dead = Path(options["checkpointLocation"]) / "sink-staging" / "dead-run-0-77"
    dead.parent.mkdir(parents=True)
    dead.write_bytes(b"of a run that died")
    query = large.writeStream.format("semel").options(**options).trigger(availableNow=True).start()
    while query.isActive:
        seen += staged_files(options)
    query.awaitTermination(120)
    assert any(name.startswith(query.runId) for name in seen), "there was a file while it ran"
    assert staged_files(options) == []
    assert len(messages_of(address, options["topic"])) == 4000


def test_a_failing_task_leaves_no_record_behind(spark: SparkSession, address: str, options: dict[str, str]) -> None:
    rows = spark.range(0, 1000, 1, 4).selectExpr(
        "if(id = 900, raise_error('this row is bad'), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="this row is bad"):
        batch_write(rows, options)
    assert messages_of(address, options["topic"]) == []


def test_delivery_at_least_once_writes_from_tasks(
    address: str, lines: Lines, options: dict[str, str], spark: SparkSession
) -> None:
    lines.add()
    run(lines.stream(), {**options, "delivery": "at-least-once"})
    batch_write(spark.createDataFrame([("k", "batch")], SCHEMA), {**options, "delivery": "at-least-once"})
    found = committed_rows(address, options["topic"])
    assert sorted(found) == sorted([*lines.rows, (b"k", b"batch")])
    assert marker_of(options)[1] is None


# -- columns


def test_all_columns_are_written(
    spark: SparkSession, address: str, options: dict[str, str], new_topic: Callable[..., str]
) -> None:
    one, two = new_topic("one", partitions=3), new_topic("two", partitions=2)
    at = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    schema = (
        "key binary, value binary, topic string, partition int, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>, ignored string"
    )
    data: list[tuple[Any, ...]] = [
        (b"a", b"1", one, 2, at, [("h", b"x"), ("h", None)], "?"),
        (b"b", None, two, None, at + timedelta(hours=1), None, "?"),
        (None, b"3", two, 1, at, [], None),
    ]
    del options["topic"]
    batch_write(spark.createDataFrame(data, schema), options)
    (first,) = messages_of(address, one)
    assert first[:7] == (one, 2, 0, int(at.timestamp() * 1000), 0, b"a", b"1")
    assert first.headers == (("h", b"x"), ("h", None))
    found = {message.key: message for message in messages_of(address, two)}
    assert found[b"b"].partition == partition_of_key(b"b", 2)
    assert found[b"b"].value is None
    assert found[b"b"].timestamp_ms == int(at.timestamp() * 1000) + 3_600_000
    assert (found[None].partition, found[None].value, found[None].headers) == (1, b"3", ())


def test_a_record_that_the_topic_would_refuse_goes_to_the_dead_letter_topic_in_the_same_transaction(
    spark: SparkSession, address: str, lines: Lines, options: dict[str, str], new_topic: Callable[..., str]
) -> None:
    small = new_topic("small", partitions=1, **{"max.message.bytes": 2000})
    dead = new_topic("dead", partitions=1)
    lines.add(10)
    rows = lines.stream().selectExpr("key", "if(value = '0/3', repeat('x', 3000), value) as value")
    run(rows, {**options, "topic": small, "deadLetterTopic": dead})
    assert len(messages_of(address, small)) == 9
    (letter,) = messages_of(address, dead)
    assert (letter.key, letter.value) == (b"key-3", b"x" * 3000)
    headers = dict(letter.headers)
    assert headers["semel.dead-letter.topic"] == small.encode()
    assert b"max.message.bytes is 2000" in (headers["semel.dead-letter.reason"] or b"")


def test_without_a_dead_letter_topic_the_query_fails_and_names_the_record(
    address: str, lines: Lines, options: dict[str, str], new_topic: Callable[..., str]
) -> None:
    from pyspark.errors import StreamingQueryException

    small = new_topic("small", partitions=1, **{"max.message.bytes": 2000})
    lines.add(10)
    rows = lines.stream().selectExpr("key", "if(value = '0/3', repeat('x', 3000), value) as value")
    with pytest.raises(StreamingQueryException) as failed:
        run(rows, {**options, "topic": small})
    assert "key 'key-3'" in str(failed.value)
    assert "max.message.bytes is 2000" in str(failed.value)
    assert messages_of(address, small) == []


# -- batch writes


def test_a_version_that_was_written_is_not_written_again(
    spark: SparkSession, address: str, options: dict[str, str], unique: Callable[[str], str]
) -> None:
    app_id = unique("app")
    for version, value in ((1, "first"), (1, "again"), (0, "older"), (2, "second")):
        rows = spark.createDataFrame([("k", value)], SCHEMA)
        batch_write(rows, options, txnAppId=app_id, txnVersion=str(version))
    assert [message.value for message in messages_of(address, options["topic"])] == [b"first", b"second"]


def test_a_large_batch_write_is_one_transaction_and_leaves_no_files(
    spark: SparkSession, address: str, options: dict[str, str], tmp_path: Path
) -> None:
    digits = "array_join(transform(sequence(1, 12), part -> sha2(concat(id, '-', part), 256)), '') as value"
    rows = spark.range(0, 6000, 1, 3).selectExpr("cast(id as string) as key", digits)
    batch_write(rows, options, stagingLocation=str(tmp_path / "staging"), **{"kafka.compression.type": "lz4"})
    batch_write(rows, options)  # on one machine a temporary directory will do
    found = messages_of(address, options["topic"])
    assert sorted(int(message.key) for message in found) == sorted([*range(6000), *range(6000)])
    assert list((tmp_path / "staging").iterdir()) == [], "there was something, and it is gone"
    assert list(Path(gettempdir()).glob("semel-sink-staging-*")) == []


def test_update_mode_by_foreach_batch_publishes_each_batch_once(
    spark: SparkSession, address: str, lines: Lines, options: dict[str, str], unique: Callable[[str], str]
) -> None:
    given = {name: value for name, value in options.items() if name != "checkpointLocation"}
    publish = publish_each(unique("totals"), given)
    fails = [True]

    def publish_and_die(rows: DataFrame, batch_id: int) -> None:
        publish(rows, batch_id)
        if batch_id == 1 and fails:
            fails.clear()
            raise RuntimeError("the driver dies after the commit")

    def run_totals() -> None:
        totals = lines.stream().groupBy("key").count().selectExpr("key", "cast(count as string) as value")
        query = (
            totals.writeStream.outputMode("update")
            .foreachBatch(publish_and_die)
            .option("checkpointLocation", options["checkpointLocation"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    lines.add(10)
    lines.add(5)
    with pytest.raises(Exception, match="the driver dies"):
        run_totals()
    run_totals()
    found = messages_of(address, options["topic"])
    assert sorted((message.key, message.value) for message in found) == sorted(
        [(f"key-{key}".encode(), count) for key in range(5) for count in (b"2", b"3")]
    )


# -- what is refused


@pytest.fixture
def refused(lines: Lines, options: dict[str, str]) -> Iterator[Callable[..., str]]:
    def refuse(select: list[str], **changes: str | None) -> str:
        lines.add(1)
        given = {name: value for name, value in {**options, **changes}.items() if value is not None}
        with pytest.raises(Exception) as failed:
            run(lines.stream().selectExpr(*select), given)
        return str(failed.value)

    return refuse


def test_what_is_wrong_is_told_at_the_start(refused: Callable[..., str]) -> None:
    assert "column 'value' is int; it must be string or binary" in refused(["1 as value"])
    assert "there is no column 'value'" in refused(["key"])
    assert "set the option topic" in refused(["value"], topic=None)
    assert "the nearest known option is partitioner" in refused(["value"], partitoner="murmur2")
    assert "exactly-once, at-least-once" in refused(["value"], delivery="often")
