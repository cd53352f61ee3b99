"""Batch reads with real Spark on our broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from semel.client.metadata import TopicPartition
from semel.sync import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def read(spark: SparkSession, address: str) -> Callable[..., DataFrame]:
    """A batch read; options by their names, Kafka's own in `kafka`."""

    def load(topic: str | None = None, *, kafka: dict[str, str] | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("semel").option("kafka.bootstrap.servers", address)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name, value)
        for name, value in (kafka or {}).items():
            reader = reader.option(f"kafka.{name}", value)
        return reader.load()

    return load


def places(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect())


def test_every_column_holds_what_was_written(
    read: Callable[..., DataFrame], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=2)
    headers = [("h", b"1"), ("n", None)]
    producer.send(topic, b"value", b"key", partition=1, timestamp_ms=1_700_000_000_123, headers=headers)
    producer.send(topic, None, None, partition=1, timestamp_ms=1_700_000_000_124)
    producer.flush()

    rows = read(topic, includeHeaders="true").orderBy("offset").collect()

    first, second = (row.asDict(recursive=True) for row in rows)
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert {name: first[name] for name in first if name != "timestamp"} == {
        "key": bytearray(b"key"),
        "value": bytearray(b"value"),
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": bytearray(b"1")}, {"key": "n", "value": None}],
    }
    assert (second["key"], second["value"], second["offset"], second["headers"]) == (None, None, 1, None)


def test_ranges_are_those_that_were_asked_for(
    read: Callable[..., DataFrame], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=2)
    for number in range(20):
        producer.send(topic, b"v", partition=number % 2, timestamp_ms=1000 * (number // 2))
    producer.flush()
    every = [(partition, offset) for partition in range(2) for offset in range(10)]

    assert places(read(topic)) == every
    by_offset = {
        "startingOffsets": json.dumps({topic: {"0": 3, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 5, "1": -1}}),
    }
    assert places(read(topic, **by_offset)) == [(0, 3), (0, 4), *every[10:]]
    by_time = {"startingTimestamp": "2000", "endingTimestamp": "4000"}
    assert places(read(topic, **by_time)) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert places(read(assign=json.dumps({topic: [1]}), minPartitions="4")) == every[10:]


def test_what_was_aborted_is_not_read_however_the_range_is_cut(
    address: str, read: Callable[..., DataFrame], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=1)
    committed = []
    with Producer(bootstrap_servers=address, transactional_id=topic) as producer:
        for number in range(12):
            producer.begin()
            for part in range(5):
                producer.send(topic, b"%d-%d" % (number, part), partition=0)
            producer.flush()
            if number % 3 == 1:
                producer.abort()
            else:
                producer.commit()
                committed += [f"{number}-{part}" for part in range(5)]

    for tasks in ("1", "7", "40"):
        rows = read(topic, minPartitions=tasks).orderBy("offset").collect()
        assert [row.value.decode() for row in rows] == committed


def test_a_topic_without_records_gives_no_rows(read: Callable[..., DataFrame], new_topic: Callable[..., str]) -> None:
    assert read(new_topic()).collect() == []


def test_the_range_is_fixed_when_the_query_is_planned(
    read: Callable[..., DataFrame], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    producer.send_and_wait(topic, b"v")
    rows = read(topic).cache()

    assert rows.count() == 1
    producer.send_and_wait(topic, b"v")
    assert rows.count() == 1
    assert read(topic).count() == 2


def test_spark_may_take_fewer_rows_than_there_are(
    read: Callable[..., DataFrame], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    for _ in range(5000):
        producer.send(topic, b"." * 1000)
    producer.flush()

    assert len(read(topic).take(3)) == 3
    assert read(topic).where("offset >= 4990").count() == 10


def test_registering_it_works_too(
    spark: SparkSession, read: Callable[..., DataFrame], new_topic: Callable[..., str], producer: Producer
) -> None:
    from semel.spark.data_source import SemelDataSource

    topic = new_topic(partitions=1)
    producer.send_and_wait(topic, b"v")
    spark.dataSource.register(SemelDataSource)

    assert read(topic).count() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t", "startingOfset": "earliest"}, "nearest known option is startingOffsets"),
        ({}, "exactly one of subscribe, subscribePattern, assign"),
        ({"subscribe": "t", "kafka.ssl.truststore.type": "JKS"}, "stores of Java"),
        ({"subscribe": "t", "topic": "u"}, "it is an option of the sink"),
    ],
)
def test_a_wrong_option_is_told_by_load(spark: SparkSession, address: str, options: dict[str, str], words: str) -> None:
    reader = spark.read.format("semel").option("kafka.bootstrap.servers", address).options(**options)

    with pytest.raises(Exception, match=words):
        reader.load()


def test_a_topic_that_does_not_exist_is_named(read: Callable[..., DataFrame], unique: Callable[[str], str]) -> None:
    missing = unique("missing")

    with pytest.raises(Exception, match=f"describing topic '{missing}'"):
        read(missing).collect()


def test_what_a_task_misses_is_told_to_the_program(
    address: str, read: Callable[..., DataFrame], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    for _ in range(5):
        producer.send(topic, b"v")
    producer.flush()
    with Admin(bootstrap_servers=address) as admin:
        admin.delete_records({TopicPartition(topic, 0): 3})
    start = json.dumps({topic: {"0": 0}})

    with pytest.raises(Exception, match=f"{topic}-0: offsets 0 to 2 were deleted before they were read"):
        read(topic, startingOffsets=start).collect()
    assert places(read(topic, startingOffsets=start, failOnDataLoss="false")) == [(0, 3), (0, 4)]


def test_columns_of_the_programs_own_are_refused(spark: SparkSession, address: str) -> None:
    reader = spark.read.format("semel").schema("value string").option("kafka.bootstrap.servers", address)

    with pytest.raises(Exception, match="the columns of a read are always"):
        reader.option("subscribe", "t").load().collect()
