"""Pipelines in the session of the tests: defined as in a file, run to the end of what is there, and their results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sink_world import wait_for_markers

from semel.client.admin.values import NewTopic
from semel.client.values import Message
from semel.spark.pipeline.definition import Pipeline, Source, TopicSink
from semel.spark.pipeline.file import Overrides, load_pipeline
from semel.spark.pipeline.interpretation import Interpretation
from semel.spark.pipeline.plan import Plan
from semel.spark.pipeline.watch import scans_of
from semel.sync import Admin, Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
RUN_TIMEOUT_S = 180.0


@dataclass
class PipelineWorld:
    """Topics get names of their own, so that tests do not meet; views keep theirs."""

    spark: SparkSession
    address: str
    root: Path
    unique: Callable[[str], str]

    def pipeline(self, *, function: Callable[..., Any] | None = None, **table: Any) -> Pipeline:
        given = {"address": self.address, "trigger": "available-now", "name": self.unique("pipeline"), **table}
        return self.renamed(Interpretation(self.root / "some.toml", {}).pipeline(given, function))

    def example(self, name: str) -> Pipeline:
        loaded = load_pipeline(EXAMPLES / name, Overrides(address=self.address, trigger="available-now"), {})
        return self.renamed(replace(loaded, name=self.unique("pipeline")))

    def renamed(self, pipeline: Pipeline) -> Pipeline:
        names: dict[str, str] = {}

        def own(topic: str) -> str:
            return names.setdefault(topic, self.unique(topic))

        sink = pipeline.sink
        made = replace(
            pipeline,
            checkpoint=str(self.root / f"{pipeline.name}.checkpoint"),
            sources=tuple(replace(one, topics=tuple(map(own, one.topics))) for one in pipeline.sources),
            sink=replace(sink, topic=own(sink.topic)) if isinstance(sink, TopicSink) else sink,
            dead_letter_topic=None if pipeline.dead_letter_topic is None else own(pipeline.dead_letter_topic),
        )
        with Admin(bootstrap_servers=self.address) as admin:
            admin.create_topics([NewTopic(topic, partitions=2, replication_factor=1) for topic in names.values()])
        return made

    def send(self, source: Source, *values: Any, **rest: Any) -> None:
        """To the source's topic; what is no bytes becomes JSON."""
        with Producer(bootstrap_servers=self.address) as producer:
            for value in values:
                plain = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
                producer.send(source.topics[0], plain, **{"partition": 0, **rest})

    def plan(self, pipeline: Pipeline) -> Plan:
        return Plan(self.spark, pipeline, self.address, [self._schema(one) for one in pipeline.sources])

    def start(self, pipeline: Pipeline) -> StreamingQuery:
        return self.plan(pipeline).start()

    def _schema(self, source: Source) -> StructType | None:
        from pyspark.sql.types import _parse_datatype_string

        from semel.spark.pipeline.avro_schema import parse_schema

        if source.schema is None:
            return None
        columns = parse_schema(source.schema).columns if source.format == "avro" else source.schema
        return _parse_datatype_string(columns)  # type: ignore[return-value]

    def run(self, pipeline: Pipeline) -> list[dict[str, Any]]:
        """To the end of what is there; the progress of its batches. Raises what the query raised."""
        query = self.start(pipeline)
        ended = query.awaitTermination(RUN_TIMEOUT_S)
        assert ended, f"the query was not done after {RUN_TIMEOUT_S} s: {query.status}"
        self.scans = scans_of(query)
        return [
            progress if isinstance(progress, dict) else json.loads(progress.json) for progress in query.recentProgress
        ]

    def stop_early(self, pipeline: Pipeline, *, after_batches: int) -> None:
        """Runs it, and stops it while a batch after those is under way, or when nothing is left to do."""
        query = self.start(pipeline)
        deadline_s = time.monotonic() + RUN_TIMEOUT_S
        while query.isActive and len(query.recentProgress) < after_batches:
            assert time.monotonic() < deadline_s, "no batch was done in time"
            time.sleep(0.05)
        query.stop()
        failure = query.exception()
        assert failure is None, failure

    def read(self, topic: str) -> list[Message]:
        """All that is committed, in order of partition and offset."""
        wait_for_markers(self.address)
        with Consumer(bootstrap_servers=self.address, isolation_level="read_committed") as consumer:
            return list(_all_of(consumer, topic))

    def results(self, pipeline: Pipeline) -> list[Any]:
        assert isinstance(pipeline.sink, TopicSink)
        return [json.loads(message.value or b"null") for message in self.read(pipeline.sink.topic)]


def _all_of(consumer: Consumer, topic: str) -> Iterator[Message]:
    from semel.client.metadata import TopicPartition

    for number in sorted(consumer.partitions_for_topic(topic) or ()):
        place = TopicPartition(topic, number)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for messages in consumer.poll(timeout_ms=1000).values():
                yield from messages
