"""Rows that a query makes become records: key and value as bytes, in the format of the sink's topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, StringType

from semel.spark.pipeline.avro_schema import parse_schema
from semel.spark.pipeline.avro_writing import Encoder
from semel.spark.pipeline.decoding import PLACES
from semel.spark.pipeline.definition import TopicSink
from semel.spark.pipeline.errors import PipelineRefused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_RAW = ("key", "value", "headers", "partition", "timestamp")


def records_of(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """With the columns of a write but for `topic`. Raises PipelineRefused if the rows do not fit the sink."""
    if sink.format == "raw":
        return _raw(rows)
    rows = without_places(rows)
    names = rows.columns
    if sink.key is not None and sink.key not in names:
        raise PipelineRefused(f"sink.key: there is no column {sink.key!r}; the columns are: {', '.join(names)}")
    value = _json(rows) if sink.format == "json" else _avro(rows, sink.schema or "")
    key = F.lit(None).cast("binary") if sink.key is None else F.col(f"`{sink.key}`").cast("string").cast("binary")
    return rows.select(key.alias("key"), value.alias("value"))


def without_places(rows: DataFrame) -> DataFrame:
    """Where a record comes from is no part of what is written, unless the query gives it a name of its own."""
    return rows.drop(*(f"_{name}" for name in PLACES))


def _raw(rows: DataFrame) -> DataFrame:
    names = ", ".join(rows.columns)
    if "value" not in rows.columns:
        raise PipelineRefused(
            f"sink: raw rows need a column 'value'; the columns are: {names}; or set sink.format, say to json"
        )
    for name in ("key", "value"):
        if name in rows.columns and not isinstance(rows.schema[name].dataType, StringType | BinaryType):
            kind = rows.schema[name].dataType.simpleString()
            raise PipelineRefused(f"sink: the column {name!r} is {kind}; of raw rows it must be string or binary")
    kept = [
        F.col(name).cast("binary").alias(name) if name in ("key", "value") else F.col(name)
        for name in _RAW
        if name in rows.columns
    ]
    return rows.select(*kept)


def _json(rows: DataFrame) -> Column:
    return F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).cast("binary")


def _avro(rows: DataFrame, schema: str) -> Column:
    record = parse_schema(schema)
    missing = [field.name for field in record.fields if field.name not in rows.columns]
    if missing:
        raise PipelineRefused(
            f"sink.schema: there is no column {missing[0]!r}; the columns are: {', '.join(rows.columns)}"
        )
    encoder = Encoder(record)

    def encode(values: pa.Array) -> pa.Array:
        return encoder.encode(values.to_pylist())

    fields = [F.col(f"`{field.name}`").cast(field.node.sql).alias(field.name) for field in record.fields]
    column: Column = arrow_udf(encode, BinaryType())(F.struct(*fields))  # type: ignore[call-overload]
    return column
