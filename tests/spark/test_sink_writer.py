"""The writers that Spark uses, without Spark: what they do in a task, in `commit` and in `abort`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import types
from sink_world import FakeCheckpoint, committed_rows

from semel.client.errors import BadSetting
from semel.spark import sink, staging
from semel.spark.adoption import marker_of
from semel.spark.sink import SemelBatchWriter, SemelStreamWriter, StagedMessage, WrittenMessage
from semel.spark.sink_errors import CheckpointRefused, StagedDataLost

SCHEMA = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.StringType())]
)
RUN = "6f2c0b1e-run"


class Task:
    """What a task knows of itself. Each gets an attempt id of its own."""

    attempts = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], number: int = 0) -> None:
        Task.attempts += 1
        context = TaskContext()
        context._partitionId = number
        context._taskAttemptId = Task.attempts
        context._localProperties = properties
        monkeypatch.setattr(TaskContext, "_taskContext", context)


class World:
    """One streaming query."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checkpoint: FakeCheckpoint, options: dict[str, str]) -> None:
        self._monkeypatch = monkeypatch
        self.checkpoint = checkpoint
        self.options = options
        self.folder = checkpoint.path / "sink-staging"

    def writer(self) -> SemelStreamWriter:
        """As Spark hands it to tasks."""
        writer: SemelStreamWriter = pickle.loads(pickle.dumps(SemelStreamWriter(SCHEMA, self.options)))
        return writer

    def write(self, batch_id: int, rows: list[tuple[str, str]], *, number: int = 0, query_id: str | None = None) -> Any:
        properties = {
            "sql.streaming.queryId": query_id or self.checkpoint.query_id,
            "spark.jobGroup.id": RUN,
            "streaming.sql.batchId": str(batch_id),
        }
        Task(self._monkeypatch, properties, number)
        message = self.writer().write(iter([batch_of(rows)] if rows else []))
        return pickle.loads(pickle.dumps(message))

    def staged_files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*"))


def batch_of(rows: list[tuple[str, str]]) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array([row[0] for row in rows]), "value": pa.array([row[1] for row in rows])})


def large(count: int = 1000) -> list[tuple[str, str]]:
    return [(f"key-{number}", f"{number}".zfill(1000)) for number in range(count)]


@pytest.fixture
def world(address: str, new_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    checkpoint = FakeCheckpoint(tmp_path / "checkpoint")
    options = {
        "kafka.bootstrap.servers": address,
        "topic": new_topic(partitions=2),
        "checkpointlocation": str(checkpoint.path),
    }
    return World(monkeypatch, checkpoint, options)


def test_small_tasks_go_inline_and_large_ones_into_files_named_by_run_batch_and_attempt(world: World) -> None:
    world.checkpoint.plan(0)
    small = world.write(0, [("a", "1")])
    big = world.write(0, large(), number=1)
    assert small.staged.file is None
    assert world.staged_files() == [f"{RUN}-0-{Task.attempts}"]
    assert (big.query_id, big.run_id) == (world.checkpoint.query_id, RUN)
    world.writer().commit([small, big], 0)
    assert world.staged_files() == []
    found = committed_rows(world.options["kafka.bootstrap.servers"], world.options["topic"])
    assert sorted(found) == sorted((key.encode(), value.encode()) for key, value in [("a", "1"), *large()])


def test_a_commit_that_is_called_again_changes_nothing(world: World) -> None:
    world.checkpoint.plan(0)
    for _ in range(2):
        world.writer().commit([world.write(0, [("a", "1")])], 0)
    assert committed_rows(world.options["kafka.bootstrap.servers"], world.options["topic"]) == [(b"a", b"1")]


def test_a_batch_without_tasks_moves_the_marker(world: World) -> None:
    world.checkpoint.plan(0)
    world.writer().commit([], 0)
    _, marker = marker_of(world.options)
    assert marker is not None
    assert marker.number == 0


def test_abort_removes_what_was_staged_and_speaks_to_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.checkpoint.plan(0)
    message = world.write(0, large())
    writer = world.writer()
    assert len(world.staged_files()) == 1

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("abort must not touch a transaction")

    monkeypatch.setattr(sink, "run_with_host", refuse)
    writer.abort([message, None], 0)
    writer.abort([message, None], 0)
    assert world.staged_files() == []


def test_a_task_whose_message_is_missing_is_noticed(world: World) -> None:
    world.checkpoint.plan(0)
    with pytest.raises(StagedDataLost, match="1 of 2 tasks"):
        world.writer().commit([world.write(0, [("a", "1")]), None], 0)


def test_a_checkpoint_of_another_query_is_noticed(world: World) -> None:
    world.checkpoint.plan(0)
    message = world.write(0, [("a", "1")], query_id="another")
    with pytest.raises(CheckpointRefused, match="another does not use the checkpoint"):
        world.writer().commit([message], 0)


def test_a_checkpoint_without_the_batch_is_noticed(world: World) -> None:
    with pytest.raises(CheckpointRefused, match="no offsets of batch 0"):
        world.writer().commit([world.write(0, [("a", "1")])], 0)


def test_a_place_that_is_no_checkpoint_is_refused_at_the_start(world: World, tmp_path: Path) -> None:
    for location in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(BadSetting, match="no checkpoint of a query"):
            SemelStreamWriter(SCHEMA, {**world.options, "checkpointlocation": str(location)})


def test_another_place_for_staged_files_is_divided_by_query(world: World, tmp_path: Path) -> None:
    world.options["staginglocation"] = str(tmp_path / "staging")
    world.checkpoint.plan(0)
    message = world.write(0, large())
    assert len(list((tmp_path / "staging" / world.checkpoint.query_id).iterdir())) == 1
    world.writer().commit([message], 0)
    assert list((tmp_path / "staging" / world.checkpoint.query_id).iterdir()) == []


def test_a_task_that_fails_leaves_no_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Task(monkeypatch, {"streaming.sql.batchId": "0"})

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(20):
            yield batch_of(large())
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        world.writer().write(rows())
    assert world.staged_files() == []


# -- batch writes


def batch_writer(world: World, **options: str) -> SemelBatchWriter:
    given = {name: value for name, value in world.options.items() if name != "checkpointlocation"}
    return SemelBatchWriter(SCHEMA, {**given, **options})


def test_a_batch_write_stages_where_driver_and_tasks_both_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = batch_writer(world)
    Task(monkeypatch, {"spark.master": "local[2]"})
    message = writer.write(iter([batch_of(large())]))
    assert isinstance(message, StagedMessage)
    assert message.staged.file is not None
    writer.commit([message])
    found = committed_rows(world.options["kafka.bootstrap.servers"], world.options["topic"])
    assert len(found) == 1000


ELSEWHERE = {"spark.master": "spark://elsewhere:7077", "spark.sql.warehouse.dir": "file:/tmp/warehouse"}


def test_where_no_directory_is_shared_messages_hold_what_is_staged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = batch_writer(world)
    Task(monkeypatch, ELSEWHERE)
    message = writer.write(iter([batch_of(large())]))
    assert isinstance(message, StagedMessage)
    assert message.staged.file is None
    writer.commit([message])
    assert len(committed_rows(world.options["kafka.bootstrap.servers"], world.options["topic"])) == 1000
    monkeypatch.setattr(staging, "_MOST_INLINE_BYTES", 100_000)
    with pytest.raises(BadSetting, match="set stagingLocation"):
        writer.write(iter([batch_of(large())]))
    writer.abort([message, None])


@pytest.mark.parametrize(
    ("conf", "place"),
    [
        ({"spark.sql.streaming.checkpointLocation": "s3a://lake/checkpoints"}, "s3://lake/checkpoints"),
        ({"spark.sql.warehouse.dir": "hdfs://name/warehouse"}, "hdfs://name/warehouse"),
    ],
)
def test_a_store_that_the_session_has_is_a_place_to_stage_in(
    world: World, monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], place: str
) -> None:
    Task(monkeypatch, {**ELSEWHERE, **conf})
    message = batch_writer(world).write(iter([batch_of([("a", "1")])]))
    assert isinstance(message, StagedMessage)
    assert message.area_uri is not None
    assert message.area_uri.startswith(f"{place}/semel-sink-staging-")


def test_at_least_once_writes_in_the_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Task(monkeypatch, {})
    writer = batch_writer(world, delivery="at-least-once", partitioner="roundrobin")
    for _ in range(2):  # a task that is run again
        assert writer.write(iter([batch_of([("a", "1"), ("b", "2")])])) == WrittenMessage(2)
    found = committed_rows(world.options["kafka.bootstrap.servers"], world.options["topic"])
    assert sorted(found) == [(b"a", b"1"), (b"a", b"1"), (b"b", b"2"), (b"b", b"2")]
    writer.commit([])
    writer.abort([])


def test_every_worker_of_a_batch_sets_apart_what_it_has_loaded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has each of them search its whole memory for garbage before it gets its next piece of work."""
    settled: list[str] = []
    monkeypatch.setattr(sink, "settle", settled.append)
    world.checkpoint.plan(0)
    written = world.write(0, [("k", "v")])
    assert settled == ["plan", "write"]
    world.writer().commit([written], 0)
    assert settled == ["plan", "write", "plan", "commit"]
