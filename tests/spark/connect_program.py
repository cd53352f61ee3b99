"""A client of Spark Connect, without a Java of its own: reads, writes, and streams from a topic to another one.

Arguments: the server's address, the broker's, the topics in and out, and a checkpoint. Prints what it saw, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    remote, address, source_topic, sink_topic, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote(remote).getOrCreate()
    broker = {"kafka.bootstrap.servers": address}
    told: dict[str, Any] = {"client": type(spark).__module__}
    rows = spark.createDataFrame([("a", "written 1"), ("b", "written 2")], "key string, value string")
    rows.write.format("semel").mode("append").options(**broker, topic=source_topic).save()
    told["first run"] = stream_all(spark, broker, source_topic, sink_topic, checkpoint)
    more = spark.createDataFrame([("a", "written 3")], "key string, value string")
    more.write.format("semel").mode("append").options(**broker, topic=source_topic).save()
    told["second run"] = stream_all(spark, broker, source_topic, sink_topic, checkpoint)
    told["refused"] = refusal(spark, broker, sink_topic)
    told["semel was imported"] = "semel" in sys.modules
    spark = own_session(remote)
    read = spark.read.format("semel").options(**broker, subscribe=sink_topic).load()
    told["read"] = sorted(row.value for row in read.selectExpr("CAST(value AS STRING) AS value").collect())
    told["columns"] = read.columns
    spark.stop()
    print(json.dumps(told))


def stream_all(spark: SparkSession, broker: dict[str, str], source: str, sink: str, checkpoint: str) -> int:
    """Rows that a run up to the end of the topic has read."""
    stream = spark.readStream.format("semel").options(**broker, subscribe=source, startingOffsets="earliest").load()
    query = (
        changed(stream)
        .writeStream.format("semel")
        .options(**broker, topic=sink, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return sum(source["numInputRows"] for progress in query.recentProgress for source in progress["sources"])


def changed(stream: DataFrame) -> DataFrame:
    return stream.selectExpr("key", "upper(CAST(value AS STRING)) AS value")


def own_session(remote: str) -> SparkSession:
    import semel.spark

    return semel.spark.session("connect", spark_remote=remote)


def refusal(spark: SparkSession, broker: dict[str, str], topic: str) -> str:
    """What a person is told who has misspelt an option."""
    try:
        spark.read.format("semel").options(**broker, subscribe=topic, startingOffset="earliest").load().collect()
    except Exception as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
