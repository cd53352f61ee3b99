"""The data source `semel` as Spark sees it: which class reads and which writes.

Spark makes it on the driver for every read and write, and sends it to workers pickled. Nothing is imported, opened or
asked of a broker before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from semel.client.errors import BadSetting

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class SemelDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "semel"

    def schema(self) -> StructType:
        """Asked for reads only; so what is wrong with their options is told by `load`, before anything runs."""
        from semel.spark.schema import source_schema
        from semel.spark.source_options import options_of_any_read

        return source_schema(options_of_any_read(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from semel.spark.batch_reader import SemelBatchReader

        return SemelBatchReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from semel.spark.stream_reader import SemelStreamReader

        return SemelStreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from semel.spark.sink import SemelBatchWriter

        if overwrite:
            raise BadSetting('a topic cannot be overwritten: write with mode("append")')
        return SemelBatchWriter(schema, self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Complete mode adds all rows of every batch to the topic, as it does with Spark's own sink."""
        from semel.spark.sink import SemelStreamWriter

        return SemelStreamWriter(schema, self.options)
