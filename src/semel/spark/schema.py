"""The columns of a read: those of Spark's own Kafka source, for Spark and for Arrow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from semel.client.errors import BadSetting

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_UNIT = "us"

_HEADER = StructType().add("key", StringType()).add("value", BinaryType())


def source_schema(include_headers: bool) -> StructType:
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    return schema.add("headers", ArrayType(_HEADER)) if include_headers else schema


def check_schema(given: StructType, include_headers: bool) -> None:
    """Spark passes on a schema that a program sets; the columns of a read are not to be chosen."""
    expected = source_schema(include_headers)
    if given != expected:
        raise BadSetting(
            f"the columns of a read are always {expected.simpleString()}: leave .schema(...) out and select from them"
        )


@cache
def arrow_schema(include_headers: bool) -> pa.Schema:
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp(TIMESTAMP_UNIT, tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", pair))))
    return pa.schema(fields)


_POLLED_NAMES = {"timestampType": "timestamp_type"}


def as_source_columns(polled: pa.RecordBatch, include_headers: bool) -> pa.RecordBatch:
    """The columns of a poll in the order and by the names of the source; no bytes are copied."""
    import pyarrow as pa

    schema = arrow_schema(include_headers)
    columns = [polled.column(_POLLED_NAMES.get(name, name)) for name in schema.names]
    if include_headers:
        columns[-1] = _null_where_empty(columns[-1], schema.field("headers").type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _null_where_empty(headers: pa.ListArray, kind: pa.DataType) -> pa.ListArray:
    """Spark's own source has no list at all for a record without headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=kind, mask=is_empty)
