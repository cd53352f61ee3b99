"""A stream into PostgreSQL by `foreachBatch`, whose driver dies between the database's commit and Spark's own.

This file is also the driver that dies: `python test_interop_postgres.py FOLDER URL CHECKPOINT`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from postgres_server import Postgres, running_postgres

from semel.spark.jdbc import table_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BATCHES = 4
ROWS = 50
DIES_IN_BATCH = 2
PATIENCE_S = 150.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


def run(spark: SparkSession, folder: str, url: str, checkpoint: str, *, dies_in_batch: int | None = None) -> None:
    """Everything that is in the folder, a file a batch, into the table `orders`, to which rows are only added."""
    write = table_writer(url, "orders", query="orders", create=True, checkpoint=checkpoint)

    def write_and_die(rows: DataFrame, batch_id: int) -> None:
        write(rows, batch_id)
        if batch_id == dies_in_batch:
            os.killpg(os.getpgid(0), signal.SIGKILL)  # Java too: nobody is left to write Spark's commit log

    lines = spark.readStream.schema("id long, batch long").option("maxFilesPerTrigger", 1).json(folder)
    writer = lines.writeStream.foreachBatch(write_and_die).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE_S))


def test_a_driver_that_dies_after_the_databases_commit_leaves_each_row_once(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    for batch in range(BATCHES):
        rows = [{"id": batch * ROWS + row, "batch": batch} for row in range(ROWS)]
        path = folder / f"{batch}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (batch, batch))  # Spark reads the oldest first

    with (tmp_path / "driver.log").open("wb") as log:
        dying = subprocess.run(
            [sys.executable, __file__, str(folder), postgres.url, str(checkpoint)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            start_new_session=True,
        )

    assert dying.returncode == -signal.SIGKILL, (tmp_path / "driver.log").read_text()
    assert batches_in(checkpoint / "offsets") == [0, 1, 2]
    assert batches_in(checkpoint / "commits") == [0, 1], "Spark does not know that batch 2 is done"
    assert found(postgres) == [(number, number // ROWS) for number in range(3 * ROWS)], "the database does"

    run(spark, str(folder), postgres.url, str(checkpoint))

    assert batches_in(checkpoint / "commits") == [0, 1, 2, 3]
    assert found(postgres) == [(number, number // ROWS) for number in range(BATCHES * ROWS)]
    assert postgres.ask("select query, batch_id from semel_batches") == [("orders", BATCHES - 1)]


def found(postgres: Postgres) -> list[tuple[Any, ...]]:
    return postgres.ask("select id, batch from orders order by id")


def batches_in(log: Path) -> list[int]:
    return sorted(int(path.name) for path in log.iterdir() if path.name.isdecimal())


def main() -> None:
    import semel.spark

    session = semel.spark.session("dies", "local[1]", spark_ui_enabled=False)
    run(session, *sys.argv[1:4], dies_in_batch=DIES_IN_BATCH)


if __name__ == "__main__":
    main()
