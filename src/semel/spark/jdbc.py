"""Exactly once into a database: for `foreachBatch`, writes a batch and its number in one transaction of the database.

    writer = table_writer("postgresql://localhost/shop", "totals", query="totals", keys=["customer"], create=True)
    stream.writeStream.outputMode("update").foreachBatch(writer).option("checkpointLocation", "...").start()

A batch that is there already is skipped, one that does not follow the last is refused. The rows come to the driver, a
partition at a time, and go through one connection: a transaction has no more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from semel.client.errors import BadSetting
from semel.spark.checkpoint import Checkpoint
from semel.spark.databases import Column, Database, database_for
from semel.spark.places import absolute_uri
from semel.spark.sink_errors import BatchRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCHES_TABLE = "semel_batches"
_CHUNK_ROWS = 1000


def table_writer(
    url: str = "",
    table: str = "",
    *,
    query: str,
    keys: Sequence[str] = (),
    create: bool = False,
    checkpoint: str | None = None,
    batches_table: str = BATCHES_TABLE,
    connect: Callable[[], Any] | None = None,
    dialect: str | None = None,
) -> TableWriter:
    """A function for `foreachBatch`.

    `url` is `postgresql://...` (needs psycopg) or `sqlite:///path`; or `connect` makes a DB-API connection, of the
    `dialect` postgresql or sqlite. `query` names the query in `batches_table`: one name for each query and table. With
    `keys` a row replaces the one with the same keys, else rows are added. `create` makes the table if it is missing.
    With `checkpoint`, the location of the query's checkpoint, batches are known by their offsets too, not by their
    numbers alone.
    """
    if not table or not query:
        raise BadSetting("table_writer needs a table to write to, and a name of the query that does not change")
    if (connect is None) == (not url):
        raise BadSetting("table_writer needs either a url or a function connect that makes a connection")
    uri = None if checkpoint is None else absolute_uri(checkpoint)
    database = database_for(url, connect, dialect)
    return TableWriter(database, table, query, tuple(keys), create, batches_table, uri)


@dataclass(frozen=True)
class TableWriter:
    database: Database
    table: str
    query: str
    keys: tuple[str, ...]
    create: bool
    batches_table: str
    checkpoint_uri: str | None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        columns = [Column(field.name, field.dataType) for field in rows.schema.fields]
        missing = [key for key in self.keys if key not in {column.name for column in columns}]
        if missing:
            names = ", ".join(column.name for column in columns)
            raise BadSetting(f"keys: there is no column {missing[0]!r} among {names}")
        if not self.write(columns, (tuple(row) for row in rows.toLocalIterator()), batch_id):
            # A query with state fails unless its batch is computed, also if nobody needs the rows any more.
            rows.write.format("noop").mode("overwrite").save()

    def write(self, columns: Sequence[Column], rows: Iterator[tuple[Any, ...]], batch_id: int) -> bool:
        """Whether the batch was written; False if it was there. Without Spark."""
        digest = self._digest(batch_id)
        with self.database.transaction() as session:
            session.create_batches(self.batches_table)
            last = session.lock_batch(self.batches_table, self.query)
            if self._is_done(last, batch_id, digest):
                return False
            if self.create:
                session.create_table(self.table, columns, self.keys)
            converted = (session.row(columns, row) for row in rows)
            session.write(self.table, columns, self.keys, iter(lambda: list(islice(converted, _CHUNK_ROWS)), []))
            session.set_batch(self.batches_table, self.query, batch_id, digest)
        return True

    def adopt(self, batch_id: int) -> None:
        """Says that the table holds everything up to a batch: for a checkpoint that was restored, or that another sink
        has used before. -1 says that nothing was written."""
        with self.database.transaction() as session:
            session.create_batches(self.batches_table)
            session.lock_batch(self.batches_table, self.query)
            session.set_batch(self.batches_table, self.query, batch_id, self._digest(batch_id))

    def _digest(self, batch_id: int) -> str:
        if self.checkpoint_uri is None or batch_id < 0:
            return ""
        return Checkpoint(self.checkpoint_uri).digest(batch_id) or ""

    def _is_done(self, last: tuple[int, str], batch_id: int, digest: str) -> bool:
        number, last_digest = last
        if number == batch_id:
            if last_digest and digest and last_digest != digest:
                raise self._refused(f"batch {batch_id} was written before, with other offsets of its sources")
            return True
        if number != batch_id - 1:
            written = "no batch of it was written" if number < 0 else f"batch {number} was written last"
            raise self._refused(f"{written}, and batch {batch_id} does not follow it")
        return False

    def _refused(self, why: str) -> BatchRefused:
        return BatchRefused(f"query {self.query!r} in table {self.batches_table!r}: {why}")
