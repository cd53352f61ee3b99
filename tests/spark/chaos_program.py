"""A driver of its own, so that it can be killed: from a topic through SQL to a topic, both with format("semel").

Reads commands from its standard input, one JSON object a line, and tells on its standard output what became of them:
`start` (options of read and write, trigger) begins a query, `stop` ends it, the end of the input ends the program.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import semel.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HEAVY_KEY = "key-3"
HEAVY_CHARACTERS = 20_000
"""So that the task of the last partition stages in a file, while others send what they have inside their message."""

_telling = threading.Lock()


def transformed(rows: DataFrame) -> DataFrame:
    """`chaos_world.transformed` says the same in Python."""
    texts = rows.selectExpr("cast(key as string) as key", "cast(value as string) as text")
    kept = texts.where("not endswith(text, '7')")
    padding = f"repeat('x', if(key = '{HEAVY_KEY}', {HEAVY_CHARACTERS}, 10))"
    return kept.selectExpr("key", f"concat(reverse(text), ' ', {padding}) as value")


def tell(event: str, **facts: Any) -> None:
    with _telling:
        print(json.dumps({"event": event, **facts}), flush=True)


def start(spark: SparkSession, command: dict[str, Any]) -> StreamingQuery:
    rows = transformed(spark.readStream.format("semel").options(**command["read"]).load())
    writer = rows.writeStream.format("semel").options(**command["write"])
    query = (writer.trigger(availableNow=True) if command["is_bounded"] else writer).start()
    tell("started", run=str(query.runId))
    threading.Thread(target=watch, args=(query,), daemon=True).start()
    return query


def watch(query: StreamingQuery) -> None:
    error = None
    try:
        query.awaitTermination()
    except Exception as failure:
        error = str(failure)
    tell("ended", run=str(query.runId), error=error)


def stop(query: StreamingQuery) -> None:
    """What it ends with is told by `watch`."""
    try:
        query.stop()
    except Exception as failure:
        print(f"the query did not stop: {failure}", file=sys.stderr, flush=True)


def main() -> None:
    spark = semel.spark.session("chaos", sys.argv[1], spark_ui_enabled=False)
    tell("ready", semel=semel.spark.__file__)
    query: StreamingQuery | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "start":
            try:
                query = start(spark, command)
            except Exception as failure:
                tell("started", run="")
                tell("ended", run="", error=str(failure))
        elif query is not None:
            # It may wait for a commit that is held: more commands must get through meanwhile.
            threading.Thread(target=stop, args=(query,), daemon=True).start()
    spark.stop()


if __name__ == "__main__":
    main()
