"""Builds what Spark runs: sources become views, SQL or a function makes rows of them, rows become a write.

Records that cannot be read are part of the same write, with the dead-letter topic as their topic, and so of the same
transaction. For that the source is read a second time, over the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from semel.spark.pipeline.decoding import Decoded
from semel.spark.pipeline.definition import AVAILABLE_NOW, ONLY_SOURCE, Pipeline, TableSink, TopicSink
from semel.spark.pipeline.encoding import records_of, without_places
from semel.spark.pipeline.errors import PipelineRefused
from semel.spark.pipeline.file import told_with_line
from semel.spark.pipeline.progress import SET_ASIDE, WRITTEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType


class Plan:
    """Raises PipelineRefused if the SQL, the function or the columns do not fit together."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, address: str, schemas: Sequence[StructType | None]
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._address = address
        decoded = [self._decoded(number, schema) for number, schema in enumerate(schemas)]
        stops = pipeline.dead_letter_topic is None
        frames = [source.good(stops=stops) for source in decoded]
        rows = self._transformed(frames)
        if not rows.isStreaming:
            raise PipelineRefused(f"{pipeline.path}: {self._place}: the rows do not come from a source")
        self.output = self._records(rows, decoded)

    @property
    def _place(self) -> str:
        return "sql" if self._pipeline.function is None else "pipeline"

    def _decoded(self, number: int, schema: StructType | None) -> Decoded:
        from pyspark.sql.types import StructType

        source = self._pipeline.sources[number]
        reader = self._spark.readStream.format("semel")
        raw = reader.options(**source.read_options(self._pipeline, self._address)).load()
        return Decoded(source, raw, schema or StructType(), number)

    def _transformed(self, frames: Sequence[DataFrame]) -> DataFrame:
        pipeline = self._pipeline
        views = [source.view for source in pipeline.sources]
        try:
            if pipeline.function is not None:
                return self._called(frames, views)
            for view, frame in zip(views, frames, strict=True):
                frame.createOrReplaceTempView(view)
            if len(frames) == 1:
                frames[0].createOrReplaceTempView(ONLY_SOURCE)
            if pipeline.sql is not None:
                return self._spark.sql(pipeline.sql)
            if len(frames) == 1:
                return frames[0]
        except (AnalysisException, ParseException) as error:
            raise PipelineRefused(f"{pipeline.path}: {self._place}: {first_lines(error)}") from error
        raise PipelineRefused(f"{pipeline.path}: sql: is missing: with several sources it says what becomes of them")

    def _called(self, frames: Sequence[DataFrame], views: Sequence[str]) -> DataFrame:
        from pyspark.sql import DataFrame

        function: Any = self._pipeline.function
        try:
            rows = function(frames[0]) if len(frames) == 1 else function(**dict(zip(views, frames, strict=True)))
        except PySparkException:
            raise
        except Exception as error:
            raise PipelineRefused(told_with_line(self._pipeline.path, error)) from error
        if not isinstance(rows, DataFrame):
            kind = type(rows).__name__
            raise PipelineRefused(f"{self._pipeline.path}: pipeline: returned {kind}; expected is a DataFrame")
        return rows

    def _records(self, rows: DataFrame, decoded: Sequence[Decoded]) -> DataFrame:
        pipeline, count = self._pipeline, F.count(F.lit(1)).alias("rows")
        if isinstance(pipeline.sink, TableSink):
            return without_places(rows).observe(WRITTEN, count)
        try:
            records = records_of(rows, pipeline.sink).observe(WRITTEN, count)
        except PipelineRefused as error:
            raise PipelineRefused(*(f"{pipeline.path}: {problem}" for problem in error.problems)) from None
        except AnalysisException as error:
            raise PipelineRefused(f"{pipeline.path}: sink: {first_lines(error)}") from error
        if pipeline.dead_letter_topic is None:
            return records
        records = records.withColumn("topic", F.lit(pipeline.sink.topic))
        for number, source in enumerate(decoded):
            bad = source.bad()
            if bad is not None:
                aside = bad.withColumn("topic", F.lit(pipeline.dead_letter_topic))
                aside = aside.observe(f"{SET_ASIDE}.{number}", count)
                records = records.unionByName(aside, allowMissingColumns=True)
        return records

    def start(self) -> StreamingQuery:
        pipeline = self._pipeline
        writer = self.output.writeStream.queryName(pipeline.name).outputMode("append")
        writer = writer.option("checkpointLocation", pipeline.checkpoint)
        if pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=pipeline.trigger)
        try:
            return self._directed(writer).start()
        except AnalysisException as error:
            raise PipelineRefused(f"{pipeline.path}: {self._place}: {first_lines(error)}") from error

    def _directed(self, writer: DataStreamWriter) -> DataStreamWriter:
        pipeline = self._pipeline
        if isinstance(pipeline.sink, TopicSink):
            return writer.format("semel").options(**pipeline.sink.write_options(pipeline, self._address))
        from semel.spark.pipeline.table import writer_of

        return writer.foreachBatch(writer_of(pipeline, pipeline.sink))


def first_lines(error: PySparkException) -> str:
    """What Spark says, without its stack and without the plan."""
    lines = str(error).splitlines()
    kept = []
    for line in lines:
        if line.startswith(("'", "+-", "JVM stacktrace", "\tat ", "== ")) and "SQL" not in line:
            break
        kept.append(line)
    return "\n".join(kept).strip()
