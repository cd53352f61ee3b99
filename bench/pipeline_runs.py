"""One run of a pipeline over a topic: until everything that is there is through, in batches of a given size.

`semel` is ours, exactly once; `spark` is Spark's own connector, at least once; `spark, deduplicated` is the same with
dropDuplicatesWithinWatermark, which takes out what was produced twice, and not what the sink writes twice.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

import pyarrow
from process_times import cpu_seconds

import semel
import semel.sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

SEMEL, SPARK, DEDUPLICATED = "semel", "spark", "spark, deduplicated"
WAYS = (SEMEL, SPARK, DEDUPLICATED)
PARTITIONS = 2
_FORMATS = {SEMEL: "semel", SPARK: "kafka", DEDUPLICATED: "kafka"}


def committed_reader(address: str, *topics: str) -> semel.sync.Consumer:
    """Reads all partitions of the topics from their beginning, committed records only."""
    consumer = semel.sync.Consumer(
        bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([semel.TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)])
    return consumer


class Run(NamedTuple):
    """Seconds are those of the batches that had rows, as Spark reports them; start and end of the query are not in."""

    rows: int
    batches: tuple[float, ...]
    seconds: float
    cpu_s: float


class Stage:
    """A session and a broker, and topics in it."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        self._spark = spark
        self._address = address

    def create(self, *topics: str) -> None:
        with semel.sync.Admin(bootstrap_servers=self._address) as admin:
            admin.create_topics(
                [semel.NewTopic(topic, partitions=PARTITIONS, replication_factor=1) for topic in topics]
            )

    def delete(self, *topics: str) -> None:
        with semel.sync.Admin(bootstrap_servers=self._address) as admin:
            admin.delete_topics(list(topics))

    def fill(self, topic: str, count: int, size: int, first: int = 0) -> None:
        """Values begin with their number, and so does the key."""
        rest = b"." * (size - 12)
        with semel.sync.Producer(bootstrap_servers=self._address, batch_size=256 << 10) as producer:
            for start in range(first, first + count, 50_000):
                numbers = range(start, min(start + 50_000, first + count))
                keys = pyarrow.array([b"%d" % number for number in numbers], pyarrow.binary())
                values = pyarrow.array([b"%012d%b" % (number, rest) for number in numbers], pyarrow.binary())
                producer.send_columns(topic, pyarrow.table({"key": keys, "value": values}))

    def run(self, way: str, source: str | None, sink: str | None, batch_rows: int) -> Run:
        """Source None: rows that Spark makes. Sink None: rows are thrown away."""
        directory = tempfile.mkdtemp(prefix="semel-bench-")
        before_s = cpu_seconds(os.getpid())
        try:
            rows = self._made(batch_rows) if source is None else self._read(way, source, batch_rows)
            writer = self._written(way, rows, sink).option("checkpointLocation", f"{directory}/checkpoint")
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            progress = [batch for batch in query.recentProgress if batch["numInputRows"]]
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        seconds = tuple(batch["durationMs"]["triggerExecution"] / 1000 for batch in progress)
        count = sum(batch["numInputRows"] for batch in progress)
        return Run(count, seconds, sum(seconds), cpu_seconds(os.getpid()) - before_s)

    def start(self, way: str, source: str, sink: str, directory: str) -> StreamingQuery:
        """One that goes on until it is stopped, batch after batch without a pause."""
        rows = self._read(way, source, 10_000_000)
        return self._written(way, rows, sink).option("checkpointLocation", f"{directory}/{way}").start()

    def _made(self, count: int) -> DataFrame:
        made = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count)
        rows = made.option("numPartitions", PARTITIONS).load()
        return rows.selectExpr("cast(value as string) as key", "rpad(cast(value as string), 100, '.') as value")

    def _read(self, way: str, source: str, batch_rows: int) -> DataFrame:
        reader = self._spark.readStream.format(_FORMATS[way]).option("kafka.bootstrap.servers", self._address)
        rows = reader.option("subscribe", source).option("startingOffsets", "earliest")
        rows = rows.option("kafka.isolation.level", "read_committed")
        loaded = rows.option("maxOffsetsPerTrigger", batch_rows).load()
        if way == DEDUPLICATED:
            loaded = loaded.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["key"])
        return loaded.selectExpr("key", "value")

    def _written(self, way: str, rows: DataFrame, sink: str | None) -> DataStreamWriter:
        if sink is None:
            return rows.writeStream.format("noop")
        writer = rows.writeStream.format(_FORMATS[way]).option("kafka.bootstrap.servers", self._address)
        return writer.option("topic", sink)

    def count(self, topic: str) -> int:
        """Committed records, by reading them."""
        found = 0
        with committed_reader(self._address, topic) as consumer:
            partitions = sorted(consumer.assignment())
            ends = consumer.end_offsets(partitions)
            deadline = time.monotonic() + 60
            while any(consumer.position(one) < ends[one] for one in partitions) and time.monotonic() < deadline:
                found += consumer.poll_columns(timeout_ms=200).num_rows
        return found
