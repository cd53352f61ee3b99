"""A batch of a stream as Spark runs it, without Spark: two tasks write, then the commit. This process can be killed.

Arguments: address, checkpoint, query, topic, batch, and the session's settings as JSON.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types

from semel.spark.sink import SemelStreamWriter

SCHEMA = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.StringType())]
)
TASKS, ROWS, ROW_BYTES = 2, 800, 1000


def rows_of(batch_id: int, task: int) -> list[tuple[str, str]]:
    """More than goes into a message."""
    return [(f"key-{row % 7}", f"{batch_id}/{task}/{row}".ljust(ROW_BYTES, ".")) for row in range(ROWS)]


def main() -> None:
    address, checkpoint, query_id, topic, batch_id, conf = sys.argv[1:]
    options = {"kafka.bootstrap.servers": address, "topic": topic, "checkpointlocation": checkpoint}
    messages = []
    for number in range(TASKS):
        context = TaskContext()
        context._partitionId = number
        context._taskAttemptId = number
        context._localProperties = {
            **json.loads(conf),
            "sql.streaming.queryId": query_id,
            "streaming.sql.batchId": batch_id,
        }
        TaskContext._taskContext = context
        keys, values = zip(*rows_of(int(batch_id), number), strict=True)
        rows = pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})
        messages.append(SemelStreamWriter(SCHEMA, options).write(iter([rows])))
    SemelStreamWriter(SCHEMA, options).commit(messages, int(batch_id))
    print("committed")


if __name__ == "__main__":
    main()
