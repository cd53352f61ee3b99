"""Values of records become columns, and records whose value cannot be read are told apart.

A record is bad if its value is not all of one JSON object or Avro value of the schema, or leaves a column empty that
is NOT NULL. Each record has its columns, where it comes from (`_topic`, `_offset`, ...), and `_problem`, null if good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from semel.spark.encoding import REASON_HEADER
from semel.spark.pipeline.avro_reading import Decoder
from semel.spark.pipeline.avro_schema import parse_schema
from semel.spark.pipeline.definition import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SOURCE_TOPIC_HEADER = "semel.dead-letter.source-topic"
SOURCE_PARTITION_HEADER = "semel.dead-letter.source-partition"
SOURCE_OFFSET_HEADER = "semel.dead-letter.source-offset"
STOPPED = "semel: a record cannot be read: "
"""How the error of a task begins that a bad record has stopped."""

PLACES = ("key", "topic", "partition", "offset", "timestamp", "headers")
_CORRUPT = "_corrupt"
_PROBLEM = "_problem"
_SHOWN_BYTES = 200
_HEADERS = "array<struct<key:string,value:binary>>"


class Decoded:
    """The records of one source. `schema` is that of the columns in SQL's types."""

    def __init__(self, source: Source, raw: DataFrame, schema: StructType, number: int) -> None:
        self._source = source
        self._raw = raw
        self._schema = schema
        self._number = number

    def good(self, *, stops: bool) -> DataFrame:
        """The columns of good records. A bad one stops the query, or is left out for `bad` to find."""
        if self._source.format == "raw":
            return self._with_watermark(self._raw)
        judged = self._judged("read")
        if stops:
            place = F.format_string("topic %s, partition %d, offset %d: ", "_topic", "_partition", "_offset")
            told = F.concat(F.lit(STOPPED), place, _PROBLEM, F.lit("; its value is "), _shown(F.col("_value")))
            passes = F.when(F.col(_PROBLEM).isNull(), F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))
        else:
            passes = F.col(_PROBLEM).isNull()
        columns = [F.col("_row").getField(field.name).alias(field.name) for field in self._schema.fields]
        kept = [column for column in judged.columns if column not in ("_row", "_value", _PROBLEM)]
        # Nor is a condition of the query moved down to this one, where it could be asked first and hide a bad record.
        passed = self._observed(judged.filter(passes), "passed")
        return self._with_watermark(passed.select(*columns, *kept))

    def bad(self) -> DataFrame | None:
        """Bad records as they came, with headers that say where from and why; None if there cannot be any."""
        if self._source.format == "raw":
            return None
        told = F.array(
            _header(SOURCE_TOPIC_HEADER, F.col("_topic")),
            _header(SOURCE_PARTITION_HEADER, F.col("_partition")),
            _header(SOURCE_OFFSET_HEADER, F.col("_offset")),
            _header(REASON_HEADER, F.col(_PROBLEM)),
        )
        headers = F.concat(F.coalesce(F.col("_headers"), F.array().cast(_HEADERS)), told)
        bad = self._judged("judged").filter(F.col(_PROBLEM).isNotNull())
        return bad.select(F.col("_key").alias("key"), F.col("_value").alias("value"), headers.alias("headers"))

    def _judged(self, purpose: str) -> DataFrame:
        places = [F.col(name).alias(f"_{name}") for name in PLACES if name in self._raw.columns]
        parsed = self._json() if self._source.format == "json" else self._avro()
        read = self._raw.select(*places, F.col("value").alias("_value"), parsed.alias("_parsed"))
        # Spark moves no filter below what it observes: so values are not parsed a second time, for the filter.
        read = self._observed(read, purpose)
        row = F.col("_parsed.row") if self._source.format == "avro" else F.get(F.col("_parsed.row"), F.lit(0))
        problem = self._problem(row)
        return read.withColumns({"_row": row, _PROBLEM: problem}).drop("_parsed")

    def _observed(self, frame: DataFrame, purpose: str) -> DataFrame:
        return frame.observe(f"{purpose}-{self._number}", F.count(F.lit(1)).alias("rows"))

    def _json(self) -> Column:
        """As the only element of a list within an object: alone, what follows the first object would be overlooked."""
        fields = [StructField(field.name, field.dataType) for field in self._schema.fields]
        whole = StructType([StructField("row", ArrayType(StructType(fields))), StructField(_CORRUPT, StringType())])
        text = F.concat(F.lit('{"row":['), F.col("value").cast("string"), F.lit("]}"))
        return F.from_json(text, whole, {"columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"})

    def _avro(self) -> Column:
        decoder = Decoder(parse_schema(self._source.schema or ""))

        def decode(values: pa.Array) -> pa.Array:
            return decoder.decode(values.to_pylist())

        result = StructType([StructField("row", self._schema), StructField("error", StringType())])
        # Its kind is known by its hints.
        column: Column = arrow_udf(decode, result)(F.col("value"))  # type: ignore[call-overload]
        return column

    def _problem(self, row: Column) -> Column:
        value, parsed = F.col("_value"), F.col("_parsed")
        if self._source.format == "avro":
            problem = F.when(value.isNull(), F.lit(None)).otherwise(parsed.getField("error"))
        else:
            problem = (
                F.when(value.isNull(), F.lit(None))
                .when(~F.is_valid_utf8(value), F.lit("it is not UTF-8"))
                .when(
                    parsed.getField(_CORRUPT).isNotNull()
                    | (F.coalesce(F.size(parsed.getField("row")), F.lit(0)) != 1)
                    | row.isNull(),
                    F.lit("it is not one JSON object of the schema"),
                )
            )
        for field in self._schema.fields:
            if not field.nullable:
                absent = F.lit(f"{field.name} is missing, and the schema says NOT NULL")
                problem = F.when(problem.isNull() & row.getField(field.name).isNull(), absent).otherwise(problem)
        return problem.cast("string")

    def _with_watermark(self, frame: DataFrame) -> DataFrame:
        watermark = self._source.watermark
        return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _shown(value: Column) -> Column:
    text = F.make_valid_utf8(F.substring(value, 1, _SHOWN_BYTES).cast("string"))
    return F.coalesce(text, F.lit("null"))
