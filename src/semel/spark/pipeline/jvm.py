"""Starts Spark's Java, and asks its parser about SQL and schemas before any session is made: seconds sooner.

Its output, Spark's log and that of the workers go to a file, so that the terminal keeps to what a person needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semel.spark.java import NoJava
from semel.spark.pipeline.avro_schema import parse_schema
from semel.spark.pipeline.definition import Pipeline, Source
from semel.spark.pipeline.errors import PipelineError, PipelineRefused
from semel.spark.spark_session import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_KEPT_LOG_BYTES = 10 << 20
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "WARN",
    # A commit that waits for its cluster cannot be interrupted: then it is left to end with Java.
    "spark.sql.streaming.stopTimeout": "5s",
}


class SparkJava:
    """The Java that will run the pipeline; `session` makes the session in it."""

    def __init__(self, pipeline: Pipeline) -> None:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        try:
            self._settings = prepare(pipeline.name, pipeline.master, {**_DEFAULTS, **pipeline.spark}, os.environ)
        except NoJava as error:
            raise PipelineError(str(error)) from None
        _share_directory(pipeline, os.environ)
        conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
        log = _opened_log(pipeline.log)
        try:
            with log:
                # In a session of its own: Ctrl-C is for us, and Java ends when our end of its stdin is closed.
                streams = {"stdout": log, "stderr": log, "start_new_session": True}
                gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise PipelineError(f"Java does not start: {error}; see {pipeline.log}") from error
        SparkContext._ensure_initialized(gateway=gateway)
        self._jvm: Any = gateway.jvm
        self._path = pipeline.path

    def check_sql(self, sql: str) -> None:
        """Raises PipelineRefused unless it is a query."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            self._jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser().parseQuery(sql)
        except Py4JJavaError as error:
            raise PipelineRefused(f"{self._path}: sql: {_message(error)}") from None

    def schema_of(self, source: Source, place: str) -> StructType | None:
        from py4j.protocol import Py4JJavaError
        from pyspark.sql.types import StructType

        if source.format == "raw" or source.schema is None:
            return None
        text = parse_schema(source.schema).columns if source.format == "avro" else source.schema
        try:
            told = self._jvm.org.apache.spark.sql.types.StructType.fromDDL(text).json()
        except Py4JJavaError as error:
            raise PipelineRefused(f"{self._path}: {place}.schema: {_message(error)}") from None
        schema = StructType.fromJson(json.loads(told))
        own = [name for name in schema.fieldNames() if name.startswith("_") and name[1:] in _TAKEN]
        if own:
            raise PipelineRefused(f"{self._path}: {place}.schema: the column {own[0]!r} is what the source itself adds")
        return schema

    def session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for name, value in self._settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


_TAKEN = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "row", "problem", "parsed", "corrupt")


def _message(error: Any) -> str:
    """The parser's own words, with the place in the text that it marks."""
    return str(error.java_exception.getMessage()).strip()


def _share_directory(pipeline: Pipeline, environ: MutableMapping[str, str]) -> None:
    """A Python file may import its neighbours, in the workers too."""
    if pipeline.function is not None:
        parts = [str(pipeline.path.resolve().parent), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, parts))


def _opened_log(path: Path) -> Any:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _KEPT_LOG_BYTES:
            os.replace(path, path.with_name(f"{path.name}.1"))
        return path.open("ab")
    except OSError as error:
        raise PipelineError(f"Spark's log cannot be written to {path}: {error.strerror}") from error
