"""For Update mode, which Spark does not allow to sinks in Python, and for more than one write of the same batch.

    totals = publish_each("totals", {"kafka.bootstrap.servers": "localhost:9092", "topic": "totals"})
    stream.groupBy(...).count().writeStream.outputMode("update").foreachBatch(totals).start()

Every batch is one transaction, and a batch that is run again is not published again: its number is the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.client.errors import BadSetting
from semel.spark.sink_options import batch_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def publish_each(app_id: str, options: Mapping[str, str]) -> BatchPublisher:
    """A function for `foreachBatch`; `options` are those of a batch write.

    `app_id` names this write for ever: one for each query, and if a query writes several times in one batch, one for
    each of these. It is never made up, since a name that changes would publish a batch again.
    """
    for name in options:
        if name.lower() in ("txnappid", "txnversion"):
            raise BadSetting(f"{name}: publish_each sets it itself, of app_id and the number of the batch")
    publisher = BatchPublisher(app_id, dict(options))
    batch_options(publisher.options_of(0))
    return publisher


@dataclass(frozen=True)
class BatchPublisher:
    app_id: str
    options: dict[str, str]

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        rows.write.format("semel").mode("append").options(**self.options_of(batch_id)).save()

    def options_of(self, batch_id: int) -> dict[str, str]:
        return {**self.options, "txnAppId": self.app_id, "txnVersion": str(batch_id)}
