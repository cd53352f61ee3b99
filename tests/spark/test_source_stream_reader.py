"""How far a stream goes batch by batch, and which ranges its tasks read: on a real broker, without Spark."""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from semel.client.admin.values import NewTopic
from semel.client.errors import BadSetting, UnknownTopic
from semel.client.metadata import TopicPartition
from semel.spark.data_loss import DataLost
from semel.spark.schema import source_schema
from semel.spark.stream_reader import BEGUN_WITHOUT_PARTITIONS, SemelStreamReader
from semel.sync import Admin, Producer

Offset = dict[str, Any]


class Stream:
    """What Spark does with a reader, batch by batch."""

    def __init__(self, reader: SemelStreamReader, offset: Offset | None = None) -> None:
        self.reader = reader
        self.offset = reader.initialOffset() if offset is None else offset

    def next(self, limit: ReadLimit | None = None) -> list[tuple[str, int, int, int]] | None:
        """Topic, partition, start and end of what the next batch reads; None if there is no batch."""
        asked = self.reader.getDefaultReadLimit() if limit is None else limit
        # As Spark does: offsets travel as texts, and are compared as such.
        start = json.loads(json.dumps(self.offset))
        reached = json.loads(json.dumps(self.reader.latestOffset(start, asked)))
        if json.dumps(reached) == json.dumps(self.offset):
            return None
        ranges = self.reader.partitions(start, reached)
        self.offset = reached
        return [(r.topic, r.partition, r.start, r.end) for r in ranges]  # type: ignore[attr-defined]


@pytest.fixture
def admin(address: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=address) as made:
        yield made


class Clock:
    """Stands still unless it is set."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stream(address: str, clock: Clock) -> Iterator[Callable[..., Stream]]:
    made: list[SemelStreamReader] = []

    def open_stream(topic: str | None = None, offset: Offset | None = None, **options: Any) -> Stream:
        kafka = {f"kafka.{name}": value for name, value in options.pop("kafka", {}).items()}
        given = {"kafka.bootstrap.servers": address, "fetchOffset.retryIntervalMs": "10", **kafka, **options}
        if topic is not None:
            given["subscribe"] = topic
        made.append(SemelStreamReader(source_schema(False), given, clock_ms=clock))
        return Stream(made[-1], offset)

    yield open_stream
    for reader in made:
        reader.stop()


@pytest.fixture
def fill(producer: Producer) -> Callable[..., None]:
    """Writes so many records to partitions 0, 1, ..."""

    def fill(topic: str, *counts: int, timestamp_ms: int | None = None) -> None:
        for partition, count in enumerate(counts):
            for _ in range(count):
                producer.send(topic, b"v", partition=partition, timestamp_ms=timestamp_ms)
        producer.flush()

    return fill


# -- the start


def test_from_the_earliest_offset_everything_is_read_by_the_first_batch(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 3, 5)
    reading = stream(topic, startingOffsets="earliest")

    assert reading.next() == [(topic, 0, 0, 3), (topic, 1, 0, 5)]
    assert reading.offset == {topic: {"0": 3, "1": 5}}
    assert reading.next() is None
    fill(topic, 1)
    assert reading.next() == [(topic, 0, 3, 4)]


def test_a_latest_start_is_pinned_by_a_batch_without_records(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 3, 5)
    reading = stream(topic)

    assert reading.next() == []
    assert reading.offset == {topic: {"0": 3, "1": 5}}
    assert reading.next() is None
    fill(topic, 1, 1)
    assert reading.next() == [(topic, 0, 3, 4), (topic, 1, 5, 6)]


def test_records_that_come_while_the_pinning_batch_is_run_again_are_not_lost(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 3)
    first = stream(topic)
    first.next()
    fill(topic, 4)

    again = stream(topic)  # the driver was killed before the batch was done: its end is in the checkpoint
    assert again.reader.partitions(again.reader.initialOffset(), first.offset) == []
    again.offset = first.offset

    assert again.next() == [(topic, 0, 3, 7)]


def test_a_start_by_time_is_pinned_too(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    for timestamp_ms in (1000, 2000, 3000):
        fill(topic, 2, 1, timestamp_ms=timestamp_ms)

    reading = stream(topic, startingTimestamp="2000")
    assert reading.next() == []
    assert reading.offset == {topic: {"0": 2, "1": 1}}
    assert reading.next() == [(topic, 0, 2, 6), (topic, 1, 1, 3)]

    by_partition = json.dumps({topic: {"0": 3000, "1": 1000}})
    reading = stream(topic, startingOffsetsByTimestamp=by_partition)
    reading.next()
    assert reading.offset == {topic: {"0": 4, "1": 0}}


def test_a_time_after_all_records_is_an_error_or_the_end(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 2, 1, timestamp_ms=1000)

    with pytest.raises(BadSetting, match=rf"startingTimestamp: {topic}-0, {topic}-1 has no record as young as 5000 ms"):
        stream(topic, startingTimestamp="5000").next()
    reading = stream(topic, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    reading.next()
    assert reading.offset == {topic: {"0": 2, "1": 1}}


def test_offsets_given_by_partition_are_where_it_starts(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 3, 5)

    reading = stream(topic, startingOffsets=json.dumps({topic: {"0": 2, "1": -2}}))
    assert reading.next() == [(topic, 0, 2, 3), (topic, 1, 0, 5)]

    reading = stream(topic, startingOffsets=json.dumps({topic: {"0": 2, "1": -1}}))
    assert reading.next() == []
    assert reading.next() == [(topic, 0, 2, 3)]


@pytest.mark.parametrize(
    ("given", "word"), [([0], "-1 is read but not given"), ([0, 1, 2], "-2 is given but not read")]
)
def test_offsets_must_be_given_for_every_partition(
    stream: Callable[..., Stream], new_topic: Callable[..., str], given: list[int], word: str
) -> None:
    topic = new_topic(partitions=2)

    with pytest.raises(BadSetting, match=f"startingOffsets: {topic}{word}"):
        stream(topic, startingOffsets=json.dumps({topic: {str(number): 0 for number in given}})).next()


@pytest.mark.parametrize("start", ["earliest", '{"TOPIC":{"0":1,"1":-2}}'])
def test_a_first_batch_that_is_run_again_reads_the_same_ranges(
    stream: Callable[..., Stream],
    new_topic: Callable[..., str],
    fill: Callable[..., None],
    admin: Admin,
    start: str,
) -> None:
    topic = new_topic(partitions=2)
    start = start.replace("TOPIC", topic)
    fill(topic, 3, 5)
    first = stream(topic, startingOffsets=start)
    ranges = first.next()
    fill(topic, 1, 1)
    admin.create_partitions({topic: 3})

    again = stream(topic, startingOffsets=start).reader
    planned = again.partitions(again.initialOffset(), first.offset)

    assert [(r.topic, r.partition, r.start, r.end) for r in planned] == ranges  # type: ignore[attr-defined]


# -- what is read


def test_a_topic_that_does_not_exist_is_named(stream: Callable[..., Stream], unique: Callable[[str], str]) -> None:
    missing = unique("missing")

    with pytest.raises(UnknownTopic, match=missing):
        stream(missing).next()
    with pytest.raises(UnknownTopic, match=missing):
        stream(assign=json.dumps({missing: [0]})).next()


def test_only_assigned_partitions_are_read(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=3)
    fill(topic, 1, 2, 3)

    assert stream(assign=json.dumps({topic: [2, 0]}), startingOffsets="earliest").next() == [
        (topic, 0, 0, 1),
        (topic, 2, 0, 3),
    ]
    with pytest.raises(UnknownTopic, match=f"assign: there is no {topic}-7"):
        stream(assign=json.dumps({topic: [7]})).next()


def test_new_partitions_are_read_from_their_first_record(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None], admin: Admin
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 3)
    reading = stream(topic)
    reading.next()

    admin.create_partitions({topic: 3})
    fill(topic, 0, 2, 4)

    assert reading.next() == [(topic, 1, 0, 2), (topic, 2, 0, 4)]
    assert reading.offset == {topic: {"0": 3, "1": 2, "2": 4}}


def test_topics_that_come_to_match_a_pattern_are_read_from_their_first_record(
    stream: Callable[..., Stream], unique: Callable[[str], str], fill: Callable[..., None], admin: Admin
) -> None:
    name = unique("pattern")
    reading = stream(subscribePattern=f"{name}-[ab]")
    assert reading.next() == []
    assert reading.offset == BEGUN_WITHOUT_PARTITIONS
    assert reading.next() is None

    admin.create_topics([NewTopic(f"{name}-{letter}", 1, 1) for letter in "abc"])
    for letter in "abc":
        fill(f"{name}-{letter}", 2)

    assert reading.next() == [(f"{name}-a", 0, 0, 2), (f"{name}-b", 0, 0, 2)]


def test_records_of_open_transactions_are_not_read_yet(
    address: str, stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 2)
    committed = stream(topic, startingOffsets="earliest")
    everything = stream(topic, startingOffsets="earliest", kafka={"isolation.level": "read_uncommitted"})
    with Producer(bootstrap_servers=address, transactional_id=topic) as producer:
        producer.begin()
        producer.send(topic, b"v", partition=0)
        producer.flush()

        assert committed.next() == [(topic, 0, 0, 2)]
        assert everything.next() == [(topic, 0, 0, 3)]
        producer.commit()

    deadline = time.monotonic() + 10
    while (found := committed.next()) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == [(topic, 0, 2, 4)]


# -- how much


def test_a_limit_is_shared_by_the_partitions_and_ignored_when_spark_wants_everything(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 30, 10)
    reading = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")

    assert reading.reader.getDefaultReadLimit() == ReadMaxRows(8)
    assert reading.next() == [(topic, 0, 0, 6), (topic, 1, 0, 2)]
    assert reading.reader.reportLatestOffset() == {topic: {"0": 30, "1": 10}}
    assert reading.next(ReadAllAvailable()) == [(topic, 0, 6, 30), (topic, 1, 2, 10)]


def test_a_batch_waits_for_the_least_number_of_records_but_not_for_ever(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None], clock: Clock
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 1)
    reading = stream(topic, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1h")

    assert reading.reader.getDefaultReadLimit() == ReadMinRows(5)
    assert reading.next() == [(topic, 0, 0, 1)]  # the first one does not wait
    fill(topic, 4)
    assert reading.next() is None
    fill(topic, 1)
    assert reading.next() == [(topic, 0, 1, 6)]
    fill(topic, 1)
    assert reading.next() is None
    clock.now_ms += 3_600_000
    assert reading.next() == [(topic, 0, 6, 7)]


def test_the_least_and_the_greatest_number_hold_together(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=1)
    reading = stream(topic, startingOffsets="earliest", minOffsetsPerTrigger="3", maxOffsetsPerTrigger="4")
    fill(topic, 9)

    assert [reading.next() for _ in range(3)] == [[(topic, 0, 0, 4)], [(topic, 0, 4, 8)], None]


def test_a_run_of_what_is_available_now_ends_there_in_spite_of_new_records(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None], admin: Admin
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 7)
    reading = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4")
    reading.reader.prepareForTriggerAvailableNow()
    fill(topic, 100)
    admin.create_partitions({topic: 2})
    fill(topic, 0, 5)

    # The rest is read although it is less than the least number: nothing more will come in this run.
    assert [reading.next() for _ in range(3)] == [[(topic, 0, 0, 4)], [(topic, 0, 4, 7)], None]

    later = stream(topic, offset=reading.offset)
    later.reader.prepareForTriggerAvailableNow()
    assert later.next() == [(topic, 0, 7, 107), (topic, 1, 0, 5)]
    assert later.next() is None


def test_many_tasks_share_a_partition_if_asked_for(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 10)

    assert stream(topic, startingOffsets="earliest", minPartitions="2").next() == [(topic, 0, 0, 5), (topic, 0, 5, 10)]
    parts = stream(topic, startingOffsets="earliest", maxRecordsPerPartition="4").next()
    assert parts == [(topic, 0, 0, 3), (topic, 0, 3, 6), (topic, 0, 6, 10)]


def test_an_offset_of_sparks_own_source_is_continued_and_not_changed_for_nothing(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 3, 5)
    in_another_order = {topic: {"1": 5, "0": 3}}
    reading = stream(topic, offset=in_another_order)

    assert reading.next() is None
    fill(topic, 1)
    assert reading.next() == [(topic, 0, 3, 4)]


# -- losses


def test_a_log_that_ends_before_what_was_read_is_told(
    stream: Callable[..., Stream],
    new_topic: Callable[..., str],
    fill: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 3)
    offset = {topic: {"0": 10}}

    with pytest.raises(DataLost, match=f"{topic}-0: it was read up to offset 10, and ends at 3 now"):
        stream(topic, offset=offset).next()

    careless = stream(topic, offset=offset, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "semel.spark"):
        assert careless.next() == []
    assert "data was lost" in caplog.text
    fill(topic, 2)
    assert careless.next() == [(topic, 0, 3, 5)]


def test_partitions_that_are_gone_are_told(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None], admin: Admin
) -> None:
    first, second = new_topic("first", partitions=1), new_topic("second", partitions=1)
    fill(first, 3)
    fill(second, 3)
    topics = f"{first},{second}"
    strict, careless, all_gone = (
        stream(topics, startingOffsets="earliest"),
        stream(topics, startingOffsets="earliest", failOnDataLoss="false"),
        stream(second, startingOffsets="earliest", failOnDataLoss="false"),
    )
    for reading in (strict, careless, all_gone):
        reading.next()

    admin.delete_topics(second)
    fill(first, 1)

    with pytest.raises(DataLost, match=f"{second}-0: the partitions do not exist any more"):
        strict.next()
    assert careless.next() == [(first, 0, 3, 4)]
    assert careless.offset == {first: {"0": 4}}
    assert all_gone.next() == []
    assert all_gone.offset == BEGUN_WITHOUT_PARTITIONS
    bounded = stream(second, offset=all_gone.offset, failOnDataLoss="false")
    bounded.reader.prepareForTriggerAvailableNow()
    assert bounded.next() is None

    admin.create_topics(NewTopic(second, 1, 1))
    fill(second, 2)
    assert careless.next() == [(second, 0, 0, 2)]
    assert all_gone.next() == [(second, 0, 0, 2)]


@pytest.mark.parametrize("count", [2, 3, 4], ids=["shorter", "as long", "longer"])
def test_a_topic_that_was_created_again_is_told_and_read_from_its_beginning(
    stream: Callable[..., Stream],
    new_topic: Callable[..., str],
    fill: Callable[..., None],
    admin: Admin,
    count: int,
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 3)
    strict = stream(topic, startingOffsets="earliest")
    careless = stream(topic, startingOffsets="earliest", failOnDataLoss="false")
    for reading in (strict, careless):
        reading.next()

    admin.delete_topics(topic)
    admin.create_topics(NewTopic(topic, 1, 1))
    fill(topic, count)

    with pytest.raises(DataLost, match=f"{topic}-0: the topic was deleted and created again"):
        strict.next()
    found: list[int] = []
    for _ in range(4):
        found += [offset for _, _, start, end in careless.next() or [] for offset in range(start, end)]
    assert found == list(range(count))
    fill(topic, 5 - count)
    found += [offset for _, _, start, end in careless.next() or [] for offset in range(start, end)]
    assert found == list(range(5))


def test_a_new_partition_whose_first_records_are_gone_is_told(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None], admin: Admin
) -> None:
    topic = new_topic(partitions=1)
    strict, careless = stream(topic), stream(topic, failOnDataLoss="false")
    for reading in (strict, careless):
        reading.next()
    admin.create_partitions({topic: 2})
    fill(topic, 0, 5)
    admin.delete_records({TopicPartition(topic, 1): 2})

    with pytest.raises(DataLost, match=f"{topic}-1 is new, but its first 2 records are gone already"):
        strict.next()
    assert careless.next() == [(topic, 1, 2, 5)]


def test_a_log_whose_beginning_was_deleted_before_the_query_began_is_no_loss(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None], admin: Admin
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 5)
    admin.delete_records({TopicPartition(topic, 0): 2})

    assert stream(topic, startingOffsets="earliest").next() == [(topic, 0, 2, 5)]


# -- the rest


def test_the_group_sees_what_is_done_even_if_no_batch_follows(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None], admin: Admin
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 3, 5)
    reading = stream(topic, startingOffsets="earliest", groupIdPrefix="etl")
    reading.next()
    assert admin.list_group_offsets(f"etl-{topic}")[f"etl-{topic}"] == {}

    assert reading.next() is None  # Spark asks again when the batch is done

    lag = admin.group_lag(f"etl-{topic}")[f"etl-{topic}"]
    assert {place.partition: partition.lag for place, partition in lag.items()} == {0: 0, 1: 0}
    fill(topic, 2)
    reading.reader.commit({topic: {"0": 4, "1": 5}})
    lag = admin.group_lag(f"etl-{topic}")[f"etl-{topic}"]
    assert {place.partition: partition.lag for place, partition in lag.items()} == {0: 1, 1: 0}


def test_a_reader_is_sent_to_tasks_without_its_connections(
    stream: Callable[..., Stream], new_topic: Callable[..., str], fill: Callable[..., None]
) -> None:
    topic = new_topic(partitions=1)
    fill(topic, 3)
    reading = stream(topic, startingOffsets="earliest")
    reading.next()

    sent = pickle.dumps(reading.reader)
    received = pickle.loads(sent)
    (range_,) = reading.reader.partitions({}, reading.offset)

    assert sum(batch.num_rows for batch in received.read(range_)) == 3
    assert len(sent) < 2000


def test_a_schema_of_the_programs_own_is_refused(address: str) -> None:
    with pytest.raises(BadSetting, match=r"leave \.schema"):
        SemelStreamReader(source_schema(True), {"kafka.bootstrap.servers": address, "subscribe": "t"})
