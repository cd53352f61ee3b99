"""Runs a pipeline from its file, in an order in which what can be wrong is found as early as it can be.

The file, the broker, the topics, Java, the schemas and the SQL, Spark, the query; and back again at the end.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from semel.spark.object_stores import hadoop_settings
from semel.spark.pipeline.definition import Pipeline, TableSink
from semel.spark.pipeline.embedded import Broker
from semel.spark.pipeline.errors import PipelineError, PipelineRefused
from semel.spark.pipeline.file import MODULE
from semel.spark.pipeline.notes import notes_of, remember
from semel.spark.pipeline.progress import Shown
from semel.spark.pipeline.topics import check_topics

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from semel.spark.pipeline.jvm import SparkJava


def run_pipeline(pipeline: Pipeline, line: Shown, *, only_check: bool = False) -> None:
    """Returns when the pipeline has ended well or was asked to stop. Raises PipelineError otherwise."""
    with _address(pipeline, line.tell) as (address, check):
        check_topics(pipeline, address, line.tell)
        line.tell("starting Java")
        from semel.spark.pipeline.jvm import SparkJava

        java = SparkJava(pipeline)
        schemas = _parsed(pipeline, java)
        if only_check:
            line.tell(f"{pipeline.path} is right, as far as can be told without running it")
            return
        _run(pipeline, address, java, schemas, line, check)


def _parsed(pipeline: Pipeline, java: SparkJava) -> list[StructType | None]:
    """The schemas of the sources. What is wrong with them and with the SQL is told at once."""
    problems: list[str] = []
    schemas: list[StructType | None] = []
    is_alone = len(pipeline.sources) == 1
    for number, source in enumerate(pipeline.sources, 1):
        try:
            schemas.append(java.schema_of(source, "source" if is_alone else f"source[{number}]"))
        except PipelineRefused as error:
            problems += error.problems
    try:
        if pipeline.sql is not None:
            java.check_sql(pipeline.sql)
    except PipelineRefused as error:
        problems += error.problems
    if problems:
        raise PipelineRefused(*problems)
    return schemas


def _run(
    pipeline: Pipeline,
    address: str,
    java: SparkJava,
    schemas: list[StructType | None],
    line: Shown,
    check: Callable[[], None],
) -> None:
    from pyspark import cloudpickle

    from semel.spark.pipeline.plan import Plan
    from semel.spark.pipeline.watch import Stopping, watch

    # What it would print, as JSON, is told by us in words.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    if MODULE in sys.modules:
        cloudpickle.register_pickle_by_value(sys.modules[MODULE])  # type: ignore[no-untyped-call]
    with ExitStack() as stack:
        line.tell(f"schemas and SQL are right; starting Spark (its log: {pipeline.log})")
        spark = java.session()
        stack.callback(spark.stop)
        stopping = Stopping()
        stack.enter_context(stopping.listening())
        line.tell("starting the query")
        query = Plan(spark, pipeline, address, schemas).start()
        remember(pipeline.checkpoint, notes_of(pipeline, address), hadoop_settings(pipeline.spark))
        line.tell(f"{pipeline.name} runs: from {_from(pipeline)} to {_to(pipeline)}, checkpoint {pipeline.checkpoint}")
        watch(query, line, stopping, check)
        line.end()


@contextmanager
def _address(pipeline: Pipeline, tell: Callable[[str], None]) -> Iterator[tuple[str, Callable[[], None]]]:
    """The cluster's address, and a check that it is still there if it is ours."""
    if pipeline.address is not None:
        yield pipeline.address, lambda: None
        return
    broker = Broker(pipeline.broker.data, pipeline.broker.port)

    def check() -> None:
        if broker.has_ended:
            raise PipelineError(f"the embedded broker has ended: {broker.last_words()}")

    address = broker.start()
    try:
        tell(f"no address is given: an embedded broker runs at {address}, its data is in {broker.data}")
        yield address, check
    finally:
        broker.stop()


def _from(pipeline: Pipeline) -> str:
    return ", ".join(source.pattern or ", ".join(source.topics) for source in pipeline.sources)


def _to(pipeline: Pipeline) -> str:
    return f"table {pipeline.sink.table}" if isinstance(pipeline.sink, TableSink) else pipeline.sink.topic
