"""A batch read: offset ranges are fixed when the query is planned, and read by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from semel.client.errors import BadSetting
from semel.spark.planning import OffsetRange, ranges_between, split
from semel.spark.schema import check_schema
from semel.spark.source_options import batch_options
from semel.spark.topic_offsets import TopicOffsets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class SemelBatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = batch_options(options)
        check_schema(schema, self._options.include_headers)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = TopicOffsets(options)
        try:
            places = cluster.partitions()
            starts = cluster.resolved(options.starting, places)
            ends = cluster.resolved(options.ending, places)
        finally:
            cluster.close()
        for place, start in starts.items():
            if start > ends[place]:
                raise BadSetting(f"{place}: the start, offset {start}, lies behind the end, offset {ends[place]}")
        return [*split(ranges_between(starts, ends), options.min_partitions, options.max_records_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark makes up a partition without a value when there is nothing to read."""
        if not isinstance(partition, OffsetRange):
            return iter(())
        from semel.spark.reading import read_range

        return read_range(partition, self._options)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}
