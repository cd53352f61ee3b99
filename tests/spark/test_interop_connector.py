"""Spark's own Kafka connector on our broker: each reads what the other wrote, and one goes on where the other stopped.

What needs a session with the connector's jars is a function that runs in the process of `Connector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from spark_kafka_jars import Connector, ConnectorFailed, connector_session, skip_reason

from real_broker import RealBroker
from semel.cli.main import main
from semel.spark.adoption import marker_of
from semel.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PATIENCE_S = 120
SCHEMA = "partition int, key binary, value binary, headers array<struct<key:string,value:binary>>"
OTHER = {"semel": "kafka", "kafka": "semel"}
LEVELS = {"semel": "read_committed", "kafka": "read_uncommitted"}
"""What a source reads if it is told nothing."""


class Record(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


RECORDS = [
    Record(0, b"a", b"first", (("trace", b"1"), ("trace", b"2"), ("empty", b""))),
    Record(1, None, b"without a key"),
    Record(1, b"deleted", None),
    Record(0, "schlüssel".encode(), b"\x00\xff", (("nothing", None),)),
    *(Record(number % 2, b"%d" % number, b"value %d" % number) for number in range(50)),
]


@pytest.fixture(scope="module")
def connector() -> Iterator[Connector]:
    reason = skip_reason()
    if reason is not None:
        pytest.skip(reason)
    made = Connector()
    yield made
    made.close()


@pytest.fixture(scope="session")
def address(spark_broker: RealBroker) -> str:
    """Always ours: what the connector does on its makers' broker is known."""
    return spark_broker.address


# -- in the process with the jars


def read(format: str, mode: str, checkpoint: str, options: dict[str, str]) -> list[Record]:
    session = connector_session()
    given = {"startingOffsets": "earliest", "includeHeaders": "true", **options}
    if mode == "batch":
        return records_of(session.read.format(format).options(**given).load())
    found: list[Record] = []
    rows = session.readStream.format(format).options(**given, maxOffsetsPerTrigger="20").load()
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(records_of(batch)))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert len(query.recentProgress) > 1, "it came in several batches"
    return found


def records_of(rows: DataFrame) -> list[Record]:
    """In order of partition and offset."""
    return [
        Record(
            row.partition,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((name, None if value is None else bytes(value)) for name, value in row.headers or ()),
        )
        for row in rows.orderBy("partition", "offset").collect()
    ]


def write(format: str, mode: str, checkpoint: str, options: dict[str, str]) -> None:
    """All of RECORDS; as a stream in several batches."""
    session = connector_session()
    if mode == "batch":
        rows = session.createDataFrame(RECORDS, SCHEMA).coalesce(1)
        rows.write.format(format).mode("append").options(**options).save()
        return
    folder = Path(checkpoint).with_name("in")
    for number, first in enumerate(range(0, len(RECORDS), 20)):
        part = session.createDataFrame(RECORDS[first : first + 20], SCHEMA).coalesce(1)
        part.write.parquet(f"{folder}/{number}")
    rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/*")
    writer = rows.writeStream.format(format).options(**options).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert len(query.recentProgress) > 1, "it went in several batches"


def copy(source: str, sink: str, topics: tuple[str, str], options: dict[str, str]) -> list[int]:
    """From one topic to another, ten offsets a batch, to the end of what is there. The batches that were run."""
    session = connector_session()
    servers = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"]}
    reader = session.readStream.format(source).options(**servers, subscribe=topics[0], startingOffsets="earliest")
    rows = reader.option("maxOffsetsPerTrigger", 10).load().select("key", "value")
    query = rows.writeStream.format(sink).options(**options, topic=topics[1]).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return [progress.batchId for progress in query.recentProgress if progress.numInputRows]


# -- the tests


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic("interop", partitions=2)


def abort(address: str, topic: str) -> None:
    """A transaction that nobody is to see."""
    with Producer(bootstrap_servers=address, transactional_id=f"aborting-{topic}") as producer:
        producer.begin()
        for partition in (0, 1):
            producer.send(topic, b"aborted", partition=partition)
        producer.flush()
        producer.abort()


def sorted_by_place(records: list[Record]) -> list[Record]:
    """Each partition keeps its order."""
    return sorted(records, key=lambda record: record.partition)


@pytest.mark.parametrize("reading", ["batch", "stream"])
@pytest.mark.parametrize("writing", ["batch", "stream"])
@pytest.mark.parametrize("writer", ["semel", "kafka"])
def test_what_one_writes_the_other_reads(
    connector: Connector, address: str, topic: str, tmp_path: Path, writer: str, writing: str, reading: str
) -> None:
    servers = {"kafka.bootstrap.servers": address}
    abort(address, topic)
    connector.run(
        write, writer, writing, str(tmp_path / "writing"), {**servers, "topic": topic, "includeHeaders": "true"}
    )
    abort(address, topic)

    def found(level: str) -> list[Record]:
        told = {} if level == LEVELS[OTHER[writer]] else {"kafka.isolation.level": level}
        place = str(tmp_path / level)
        return connector.run(read, OTHER[writer], reading, place, {**servers, **told, "subscribe": topic})

    assert sorted_by_place(found("read_committed")) == sorted_by_place(RECORDS)
    assert len(found("read_uncommitted")) == len(RECORDS) + 4, "the aborted ones are there, for who asks for them"


def test_a_checkpoint_of_sparks_own_source_and_sink_is_continued_after_it_is_adopted(
    connector: Connector,
    address: str,
    new_topic: Callable[..., str],
    producer: Producer,
    checkpoint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics = new_topic("from", partitions=2), new_topic("to", partitions=1)
    options = {"kafka.bootstrap.servers": address, "checkpointLocation": checkpoint}

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.send(topics[0], b"%d" % number, partition=number % 2)
        producer.flush()

    def written() -> list[int]:
        given = {"kafka.bootstrap.servers": address, "subscribe": topics[1]}
        return [int(record.value or b"") for record in connector.run(read, "semel", "batch", "", given)]

    send(0, 25)
    assert connector.run(copy, "kafka", "kafka", topics, options) == [0, 1, 2]
    assert sorted(written()) == list(range(25))

    send(25, 25)
    with pytest.raises(ConnectorFailed, match="the batches before were written by another sink") as refused:
        connector.run(copy, "semel", "semel", topics, options)
    assert "semel pipeline adopt" in str(refused.value)
    assert sorted(written()) == list(range(25)), "nothing was written"

    assert main(["pipeline", "adopt", checkpoint, "--address", address, "--yes"]) == 0
    assert "Batches up to 2 count as published: by another sink, or another cluster." in capsys.readouterr().out
    assert connector.run(copy, "semel", "semel", topics, options) == [3, 4, 5]
    assert sorted(written()) == list(range(50)), "each record once, over the change"
    marker = marker_of(options)[1]
    assert marker is not None
    assert marker.number == 5

    send(50, 10)
    assert connector.run(copy, "kafka", "semel", topics, options) == [6], "Spark's own source goes on from ours, too"
    assert sorted(written()) == list(range(60))
