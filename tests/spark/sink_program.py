"""A driver of its own, so that it can be killed: a stream of files into a topic. Arguments: folder and options."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession


def main() -> None:
    folder, options = sys.argv[1], json.loads(sys.argv[2])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1).json(folder)
    query = rows.writeStream.format("semel").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
