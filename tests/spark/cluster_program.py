"""A driver of its own, so that it can be killed: from a topic through a shuffle into another one.

Its argument is a file with a `Plan` in JSON. The shuffle is there to be lost with an executor. It goes by
partition of the source, each of which is read by one task: so the rows of a partition, and of a key, stay in order.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import semel.spark


@dataclass(frozen=True)
class Plan:
    master: str
    source: dict[str, str]
    sink: dict[str, str]
    conf: dict[str, str] = field(default_factory=dict)
    is_available_now: bool = True
    """Ends when all is done that was there at its start; otherwise it runs until it is killed."""


def main() -> None:
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text()))
    spark = semel.spark.session("cluster test", plan.master, log_level="WARN", **plan.conf)
    rows = spark.readStream.format("semel").options(**plan.source).load()
    rows = rows.repartition(2, "partition").selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    writer = rows.writeStream.format("semel").options(**plan.sink)
    if plan.is_available_now:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
