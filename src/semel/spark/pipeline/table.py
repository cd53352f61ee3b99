"""Rows of a pipeline into a table, exactly once: a batch and its number are one transaction of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.client.errors import BadSetting
from semel.spark.jdbc import table_writer
from semel.spark.marker import Marker
from semel.spark.pipeline.errors import PipelineRefused

if TYPE_CHECKING:
    from semel.spark.jdbc import TableWriter
    from semel.spark.pipeline.definition import Pipeline, TableSink


def marker_in(writer: TableWriter) -> Marker | None:
    """Which batch the database holds, as a marker."""
    with writer.database.transaction() as session:
        session.create_batches(writer.batches_table)
        found = session.last_batch(writer.batches_table, writer.query)
    return None if found is None else Marker(*found, f"{writer.query!r} in table {writer.batches_table}")


def writer_of(pipeline: Pipeline, sink: TableSink) -> TableWriter:
    try:
        return table_writer(
            sink.url,
            sink.table,
            query=pipeline.name,
            keys=sink.keys,
            create=sink.create,
            checkpoint=pipeline.checkpoint,
        )
    except BadSetting as error:
        raise PipelineRefused(f"{pipeline.path}: sink: {error}") from error
