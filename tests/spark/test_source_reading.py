"""What a task reads of one offset range: on a real broker, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from real_broker import Brokers
from semel.client.admin.values import NewTopic
from semel.client.errors import Disconnected, TimedOut
from semel.client.metadata import TopicPartition
from semel.spark import reading
from semel.spark.consumer_cache import ConsumerCache
from semel.spark.data_loss import DataLost
from semel.spark.planning import OffsetRange
from semel.spark.reading import MOST_BYTES, MOST_ROWS, read_range
from semel.spark.schema import arrow_schema
from semel.spark.source_options import SourceOptions, batch_options
from semel.sync import Admin, Consumer, Producer

Row = tuple[int, bytes]


@pytest.fixture
def cache() -> Iterator[ConsumerCache]:
    made = ConsumerCache()
    yield made
    made.close()


@pytest.fixture
def options(address: str) -> Callable[..., SourceOptions]:
    def make(**given: Any) -> SourceOptions:
        kafka = {f"kafka.{name}": value for name, value in given.pop("kafka", {}).items()}
        return batch_options({"kafka.bootstrap.servers": address, "subscribe": "any", **kafka, **given})

    return make


@pytest.fixture
def read(options: Callable[..., SourceOptions], cache: ConsumerCache) -> Callable[..., list[Row]]:
    """Offsets and values of a range of partition 0."""

    def read(topic: str, start: int, end: int, **given: Any) -> list[Row]:
        return rows_of(read_range(OffsetRange(topic, 0, start, end), options(**given), cache=cache))

    return read


def rows_of(batches: Iterator[Any]) -> list[Row]:
    return [
        (offset, value)
        for batch in batches
        for offset, value in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]


def write(producer: Producer, topic: str, count: int, size: int = 0) -> list[Row]:
    """All of them in one batch, if they fit."""
    values = [b"%d" % number + b"." * size for number in range(count)]
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush()
    return list(enumerate(values))


# -- the range


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_range_may_begin_and_end_inside_of_a_batch(
    address: str, read: Callable[..., list[Row]], new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic(partitions=1)
    with Producer(bootstrap_servers=address, linger_ms=200, compression_type=codec) as producer:
        written = write(producer, topic, 100)

    assert read(topic, 13, 57) == written[13:57]
    assert read(topic, 0, 100) == written
    assert read(topic, 99, 100) == written[99:]


def test_the_ranges_of_one_partition_join_without_a_gap(
    address: str, read: Callable[..., list[Row]], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=1)
    with Producer(bootstrap_servers=address, linger_ms=5, batch_size=300) as producer:
        written = write(producer, topic, 500)

    bounds = [0, 1, 7, 200, 201, 350, 500]
    parts = [read(topic, start, end) for start, end in pairwise(bounds)]

    assert [row for part in parts for row in part] == written


def test_a_worker_that_has_read_sets_apart_what_it_has_loaded(
    read: Callable[..., list[Row]], new_topic: Callable[..., str], producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[str] = []
    monkeypatch.setattr(reading, "settle", settled.append)
    topic = new_topic(partitions=1)
    write(producer, topic, 3)
    assert len(read(topic, 0, 3)) == 3
    assert settled == ["read"]


def test_columns_are_exactly_those_that_spark_expects(
    options: Callable[..., SourceOptions], cache: ConsumerCache, new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    producer.send(topic, b"v", b"k", headers=[("h", b"x")])
    producer.send(topic, b"w")
    producer.flush()

    for with_headers in (False, True):
        given = options(includeHeaders=str(with_headers).lower())
        (batch,) = read_range(OffsetRange(topic, 0, 0, 2), given, cache=cache)
        batch.validate(full=True)
        assert batch.schema == arrow_schema(with_headers)
        assert batch.column("topic").to_pylist() == [topic, topic]
        assert batch.column("partition").to_pylist() == [0, 0]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}], None]


def test_batches_for_spark_are_neither_long_nor_heavy(
    address: str, options: Callable[..., SourceOptions], cache: ConsumerCache, new_topic: Callable[..., str]
) -> None:
    many, heavy = new_topic(partitions=1), new_topic(partitions=1)
    with Producer(bootstrap_servers=address, batch_size=900_000, compression_type="zstd", linger_ms=50) as producer:
        write(producer, many, 100_000)
        written = write(producer, heavy, 300, size=100_000)

    batches = list(read_range(OffsetRange(many, 0, 0, 100_000), options(), cache=cache))
    assert sum(batch.num_rows for batch in batches) == 100_000
    assert max(batch.num_rows for batch in batches) <= MOST_ROWS

    batches = list(read_range(OffsetRange(heavy, 0, 0, 300), options(), cache=cache))
    assert max(batch.nbytes for batch in batches) <= MOST_BYTES
    assert rows_of(iter(batches)) == written


# -- transactions


@pytest.fixture
def transactions(address: str, new_topic: Callable[..., str], unique: Callable[[str], str]) -> str:
    """Offsets 0-2 committed, 3 a marker, 4-6 aborted, 7 a marker, 8-10 committed, 11 a marker."""
    topic = new_topic(partitions=1)
    with Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        for ends in ("commit", "abort", "commit"):
            producer.begin()
            for number in range(3):
                producer.send(topic, b"%s %d" % (ends.encode(), number), partition=0)
            producer.flush()  # an abort would take back what was not sent yet
            getattr(producer, ends)()
    return topic


def test_records_that_were_aborted_are_left_out_and_end_no_range_early(
    read: Callable[..., list[Row]], transactions: str
) -> None:
    offsets = [offset for offset, _ in read(transactions, 0, 12)]

    assert offsets == [0, 1, 2, 8, 9, 10]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 4, [0, 1, 2]),
        (3, 8, []),
        (4, 7, []),
        (5, 9, [8]),
        (7, 8, []),
        (2, 5, [2]),
        (10, 12, [10]),
        (11, 12, []),
    ],
)
def test_a_range_ends_at_its_end_whatever_lies_there(
    read: Callable[..., list[Row]], transactions: str, start: int, end: int, expected: list[int]
) -> None:
    assert [offset for offset, _ in read(transactions, start, end)] == expected


def test_who_asks_for_it_sees_what_was_aborted_too(read: Callable[..., list[Row]], transactions: str) -> None:
    offsets = [offset for offset, _ in read(transactions, 0, 12, kafka={"isolation.level": "read_uncommitted"})]

    assert offsets == [0, 1, 2, 4, 5, 6, 8, 9, 10]


# -- losses


def test_records_deleted_before_they_were_read_fail_the_task(
    address: str, read: Callable[..., list[Row]], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    written = write(producer, topic, 20)
    with Admin(bootstrap_servers=address) as admin:
        admin.delete_records({TopicPartition(topic, 0): 12})

    with pytest.raises(DataLost, match=rf"{topic}-0: offsets 5 to 11 were deleted .* begins at 12 .*failOnDataLoss"):
        read(topic, 5, 20)
    assert read(topic, 5, 20, failOnDataLoss="false") == written[12:]
    assert read(topic, 5, 10, failOnDataLoss="false") == []
    assert read(topic, 12, 20) == written[12:]


def test_a_log_that_was_cut_before_the_range_fails_the_task_at_once(
    read: Callable[..., list[Row]], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    write(producer, topic, 3)

    with pytest.raises(DataLost, match="does not hold offset 10 any more"):
        read(topic, 10, 20)
    assert read(topic, 10, 20, failOnDataLoss="false") == []


def test_a_log_that_was_cut_inside_of_the_range_fails_the_task_after_a_while(
    read: Callable[..., list[Row]], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    written = write(producer, topic, 3)
    quick = {"kafkaConsumer.pollTimeoutMs": "1500"}

    with pytest.raises(DataLost, match="the log ends at offset 3 now; offsets from 3 on are missing"):
        read(topic, 0, 5, **quick)
    assert read(topic, 0, 5, failOnDataLoss="false", **quick) == written


def test_a_topic_that_was_deleted_fails_the_task(
    address: str, read: Callable[..., list[Row]], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    write(producer, topic, 3)
    with Admin(bootstrap_servers=address) as admin:
        admin.delete_topics(topic)

    with pytest.raises(DataLost, match="the partition does not exist any more"):
        read(topic, 0, 3, **{"kafkaConsumer.pollTimeoutMs": "1500"})


def test_an_open_transaction_is_waited_for_but_not_for_ever(
    address: str, read: Callable[..., list[Row]], new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = new_topic(partitions=1)
    with Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        producer.begin()
        producer.send(topic, b"v", partition=0)
        producer.flush()
        with pytest.raises(TimedOut, match="a transaction that is open since offset 0 holds back what follows"):
            read(topic, 0, 1, **{"kafkaConsumer.pollTimeoutMs": "1200"})
        producer.abort()


# -- connections


class CountingConnect:
    def __init__(self) -> None:
        self.made: list[Consumer] = []

    def __call__(self, **settings: Any) -> Consumer:
        self.made.append(Consumer(**settings))
        return self.made[-1]

    def is_open(self, number: int) -> bool:
        return self.made[number]._is_open


def test_one_connection_serves_range_after_range(
    options: Callable[..., SourceOptions], new_topic: Callable[..., str], producer: Producer
) -> None:
    first, second = new_topic(partitions=1), new_topic(partitions=1)
    written = {topic: write(producer, topic, 20) for topic in (first, second)}
    connect = CountingConnect()
    cache = ConsumerCache(connect)
    given = options()

    for topic, start, end in [(first, 0, 5), (first, 5, 9), (second, 3, 20), (first, 9, 20), (first, 0, 20)]:
        found = rows_of(read_range(OffsetRange(topic, 0, start, end), given, cache=cache))
        assert found == written[topic][start:end]

    assert len(connect.made) == 1
    rows_of(read_range(OffsetRange(first, 0, 0, 5), options(kafka={"client.id": "other"}), cache=cache))
    assert len(connect.made) == 2
    cache.close()
    assert not connect.is_open(0)


def test_a_connection_that_nobody_wants_is_closed(
    options: Callable[..., SourceOptions], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    write(producer, topic, 5)
    connect = CountingConnect()
    cache = ConsumerCache(connect, idle_s=0.05)

    rows_of(read_range(OffsetRange(topic, 0, 0, 5), options(), cache=cache))

    deadline = time.monotonic() + 30
    while connect.is_open(0) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not connect.is_open(0)
    assert len(rows_of(read_range(OffsetRange(topic, 0, 0, 5), options(), cache=cache))) == 5
    cache.close()


def test_a_read_that_is_left_early_leaves_no_connection_behind(
    options: Callable[..., SourceOptions], new_topic: Callable[..., str], producer: Producer
) -> None:
    topic = new_topic(partitions=1)
    written = write(producer, topic, 5)
    connect = CountingConnect()
    cache = ConsumerCache(connect)

    reading = read_range(OffsetRange(topic, 0, 0, 5), options(), cache=cache)
    next(reading)
    reading.close()  # type: ignore[attr-defined]

    assert not connect.is_open(0)
    assert rows_of(read_range(OffsetRange(topic, 0, 0, 5), options(), cache=cache)) == written
    cache.close()


def test_a_cluster_that_does_not_answer_is_told_when_the_time_is_over(cache: ConsumerCache) -> None:
    options = batch_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.bootstrap.timeout.ms": "50",
            "kafkaConsumer.pollTimeoutMs": "400",
            "subscribe": "t",
        }
    )

    with pytest.raises(Disconnected):
        rows_of(read_range(OffsetRange("t", 0, 0, 5), options, cache=cache))


def test_a_broker_that_is_killed_in_the_middle_costs_no_record_and_doubles_none(
    brokers: Brokers, cache: ConsumerCache
) -> None:
    broker = brokers.start(flush="os")
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics(NewTopic("t", partitions=1, replication_factor=1))
    with Producer(bootstrap_servers=broker.address, linger_ms=5) as producer:
        written = write(producer, "t", 3000, size=500)
    options = batch_options(
        {
            "kafka.bootstrap.servers": broker.address,
            "subscribe": "t",
            "kafka.max.partition.fetch.bytes": "50000",
        }
    )

    found = []
    for number, batch in enumerate(read_range(OffsetRange("t", 0, 0, 3000), options, cache=cache)):
        found += rows_of(iter([batch]))
        if number in (1, 5):
            broker.kill()
            broker.start()

    assert number > 5
    assert found == written
