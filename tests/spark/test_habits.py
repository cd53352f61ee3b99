"""What a program with format("kafka") is used to: threads, sessions, writes without a mode, a session's checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_world import committed_rows

from semel.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = [(b"a", b"1"), (b"b", b"2")]
_ROOT = "spark.sql.streaming.checkpointLocation"


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register()


@pytest.fixture
def options(address: str, new_topic: Callable[..., str]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": address, "topic": new_topic("out", partitions=1)}


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Where the session keeps checkpoints."""
    spark.conf.set(_ROOT, str(tmp_path / "checkpoints"))
    yield tmp_path / "checkpoints"
    spark.conf.unset(_ROOT)


def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(k.decode(), v.decode()) for k, v in ROWS], "key string, value string")


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    folder.mkdir(exist_ok=True)
    text = "\n".join(json.dumps({"key": k.decode(), "value": v.decode()}) for k, v in ROWS)
    (folder / f"{len(list(folder.iterdir()))}.json").write_text(text)
    return spark.readStream.schema("key string, value string").json(str(folder))


def run(made: DataFrame, options: dict[str, str], *, name: str = "", mode: str = "append") -> None:
    writer = made.writeStream.format("semel").outputMode(mode).options(**options).trigger(availableNow=True)
    query = (writer.queryName(name) if name else writer).start()
    assert query.awaitTermination(120)


def test_a_write_without_a_mode_appends_as_sparks_own_sink_does(
    spark: SparkSession, address: str, options: dict[str, str]
) -> None:
    rows(spark).write.format("semel").options(**options).save()
    rows(spark).write.options(**options).save(format="semel")

    assert committed_rows(address, options["topic"]) == ROWS * 2


def test_a_write_that_overwrites_is_refused_all_the_same(spark: SparkSession, options: dict[str, str]) -> None:
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        rows(spark).write.mode("overwrite").format("semel").options(**options).save()


def test_writes_of_other_formats_keep_their_mode(spark: SparkSession, tmp_path: Path) -> None:
    rows(spark).write.format("json").save(str(tmp_path / "there"))
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        rows(spark).write.format("json").save(str(tmp_path / "there"))


@pytest.mark.parametrize("is_new_session", [False, True])
def test_new_threads_write_batches_and_streams(
    spark: SparkSession, address: str, options: dict[str, str], tmp_path: Path, is_new_session: bool
) -> None:
    session = spark.newSession() if is_new_session else spark
    given = rows(session)
    lines = stream(session, tmp_path / "in")
    checkpoint = str(tmp_path / "checkpoint")
    works: list[Callable[[], object]] = [
        lambda: given.write.format("semel").options(**options).save(),
        lambda: run(lines, {**options, "checkpointLocation": checkpoint}),
    ]
    for work in works:
        with ThreadPoolExecutor(1) as thread:  # a thread that has done nothing yet
            thread.submit(work).result()

    assert committed_rows(address, options["topic"]) == ROWS * 2


@pytest.mark.parametrize("name", ["", "totals"])
def test_the_sessions_directory_for_checkpoints_is_enough(
    spark: SparkSession, address: str, options: dict[str, str], tmp_path: Path, root: Path, name: str
) -> None:
    run(stream(spark, tmp_path / "in"), options, name=name)
    if name:
        run(stream(spark, tmp_path / "in"), options, name=name)

    assert committed_rows(address, options["topic"]) == ROWS * (2 if name else 1)
    assert (root / name).is_dir()


def test_large_batches_are_staged_below_the_sessions_directory_and_cleaned_up(
    spark: SparkSession, address: str, options: dict[str, str], tmp_path: Path, root: Path
) -> None:
    made = stream(spark, tmp_path / "in").selectExpr("key", "repeat(sha2(value, 512), 8000) as value")
    run(made.limit(1), {**options, "kafka.compression.type": "none", "kafka.max.request.size": "4000000"})

    assert [len(value) for _, value in committed_rows(address, options["topic"])] == [128 * 8000]
    staged = root / "sink-staging"
    assert staged.is_dir(), "the batch was too large for a message"
    assert [path for path in staged.rglob("*") if path.is_file()] == []


def test_complete_mode_adds_all_rows_of_every_batch(
    spark: SparkSession, address: str, options: dict[str, str], tmp_path: Path
) -> None:
    given = {**options, "checkpointLocation": str(tmp_path / "checkpoint")}
    for _ in range(2):
        lines = stream(spark, tmp_path / "in")
        totals = lines.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
        run(totals, given, mode="complete")

    found = committed_rows(address, options["topic"])
    assert sorted(found) == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b"2")]


def test_a_stream_without_any_checkpoint_is_refused_by_spark(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="checkpointLocation must be specified"):
        run(stream(spark, tmp_path / "in"), options)
