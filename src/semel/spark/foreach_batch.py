"""For Update mode, which Spark does not allow to sinks in Python, and for more than one write of the same batch.

    totals = publish_each("totals", {"kafka.bootstrap.servers": "localhost:9092", "topic": "totals"})
    stream.groupBy(...).count().writeStream.outputMode("update").foreachBatch(totals).start()

Every batch is one transaction, and a batch that is run again is not published again. Its marker says of which query it
is, and holds the digest of its offsets: a new or restored checkpoint is refused, not taken for what was published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semel.client.errors import BadSetting
from semel.spark.sink_options import batch_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"
_OWN = ("txnappid", "txnversion", "txncheckpoint")
_LOCATION = "checkpointlocation"


def publish_each(app_id: str, options: Mapping[str, str]) -> BatchPublisher:
    """A function for `foreachBatch`; `options` are those of a batch write.

    `app_id` names this write for ever: one for each query, and if a query writes several times in one batch, one for
    each of these. It is never made up, since a name that changes would publish a batch again.

    The query's checkpoint is found by asking Spark. Where that is not possible, as with Spark Connect, the option
    `checkpointLocation` has to say where it is.
    """
    for name in options:
        if name.lower() in _OWN:
            raise BadSetting(f"{name}: publish_each sets it itself, of app_id and the number of the batch")
    location = next((text for name, text in options.items() if name.lower() == _LOCATION), None)
    others = {name: text for name, text in options.items() if name.lower() != _LOCATION}
    publisher = BatchPublisher(app_id, others, location)
    batch_options(publisher.options_of(0, location or "unknown yet"))
    return publisher


@dataclass(frozen=True)
class BatchPublisher:
    app_id: str
    options: dict[str, str] = field(repr=False)  # they may hold a password
    checkpoint: str | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        options = self.options_of(batch_id, self.checkpoint or _checkpoint_of(rows))
        rows.write.format("semel").mode("append").options(**options).save()

    def options_of(self, batch_id: int, checkpoint: str) -> dict[str, str]:
        return {
            **self.options,
            "txnAppId": self.app_id,
            "txnVersion": str(batch_id),
            "txnCheckpoint": checkpoint,
        }


def _checkpoint_of(rows: DataFrame) -> str:
    """Where the query keeps its checkpoint. Spark shows that to programs in Java only, and not to all of these."""
    try:
        session: Any = rows.sparkSession
        query_id = session.sparkContext.getLocalProperty(_QUERY_ID)
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        query = running.get(session._jvm.java.util.UUID.fromString(query_id))
        return str(query.resolvedCheckpointRoot())
    except Exception as error:
        raise BadSetting(
            "checkpointLocation is missing: Spark does not tell here where the query keeps its checkpoint; give it as "
            "an option of publish_each, as of writeStream"
        ) from error
