"""`publish_each`: the marker of an app id follows one query's batches, and what does not follow is refused by name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import types
from sink_world import FakeCheckpoint, committed_rows

from semel.cli.main import main
from semel.client.errors import BadSetting
from semel.host.api import Host
from semel.spark.adoption import marker_of
from semel.spark.blocking import run_with_host
from semel.spark.foreach_batch import BatchPublisher, publish_each
from semel.spark.marker import Marker, MarkerTopic, batch_key
from semel.spark.sink import SemelBatchWriter
from semel.spark.sink_errors import CheckpointRefused, Overtaken
from semel.spark.sink_options import DEFAULT_MARKER_TOPIC
from semel.spark.succession import NextBatch, NextVersion
from semel.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BASE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "totals"}
SCHEMA = types.StructType([types.StructField("value", types.StringType())])
COMMAND = "semel pipeline adopt CHECKPOINT --address HOST:PORT --app-id totals"
PATIENCE_S = 120


# -- the rule


def batch(number: int, *, query_id: str = "mine", digest: str = "now", previous: str | None = "before") -> NextBatch:
    return NextBatch(query_id, number, digest, previous, "batch-totals", app_id="totals")


def marker(number: int, digest: str, query_id: str = "mine", transactional_id: str = "batch-totals") -> Marker:
    return Marker(number, digest, transactional_id, query_id=query_id)


def test_a_batch_follows_the_marker_of_its_own_query() -> None:
    assert batch(0).key == batch_key("totals")
    assert not batch(0).is_done(None)
    assert not batch(8).is_done(marker(7, "before"))
    assert batch(8).is_done(marker(8, "now"))
    assert batch(8).marker("batch-totals", "run", 3) == Marker(8, "now", "batch-totals", "run", 3, "mine")


@pytest.mark.parametrize(
    ("number", "found", "why"),
    [
        (0, marker(41, "now", "other"), "batch 41 of query other was committed last with this app id"),
        (41, marker(41, "now", "other"), "two queries have one app id"),
        (42, marker(41, "before", "other"), "this query has a new checkpoint"),
        (3, None, "cannot be its first"),
        (8, marker(8, "other"), "with other offsets of its sources"),
        (8, marker(7, "other"), "with other offsets of its sources"),
        (8, marker(9, "unknown"), "batch 9 was committed last, and batch 8 does not follow it"),
        (8, marker(7, "before", "mine", "a-batch-totals"), "transactionalIdPrefix was changed"),
    ],
)
def test_what_does_not_follow_is_refused_by_name_with_the_command(number: int, found: Marker | None, why: str) -> None:
    with pytest.raises(CheckpointRefused) as refused:
        batch(number).is_done(found)
    told = str(refused.value)
    assert why in told
    assert f"batch {number} of query mine is not published as app id 'totals'" in told
    assert told.endswith(f"say so with: {COMMAND})")


@pytest.mark.parametrize(("number", "found"), [(0, 0), (0, 41), (8, 8), (8, 6), (8, 41)])
def test_a_marker_that_names_no_query_is_refused_unless_it_is_of_the_batch_before(number: int, found: int) -> None:
    with pytest.raises(CheckpointRefused, match="by an earlier version of semel or by a batch write") as refused:
        batch(number).is_done(marker(found, "", ""))
    assert COMMAND in str(refused.value)


def test_a_marker_of_an_earlier_version_is_gone_on_with_by_the_next_batch() -> None:
    stored = b'{"format":1,"number":7,"digest":"","transactional_id":"batch-totals","run_id":"r","record_count":2}'
    found = Marker.decode(stored, "batch/totals")
    assert found == Marker(7, "", "batch-totals", "r", 2, query_id="")
    assert not batch(8).is_done(found)
    with pytest.raises(CheckpointRefused, match="transactionalIdPrefix was changed"):
        batch(8).is_done(marker(7, "", "", "a-batch-totals"))


def test_a_run_that_slept_is_told_so() -> None:
    late = NextBatch("mine", 8, "now", "before", "batch-totals", {9: "ninth"}.get, "totals")
    with pytest.raises(Overtaken, match="another run of the query is at batch 9"):
        late.is_done(marker(9, "ninth"))


def test_a_batch_write_does_not_go_on_with_the_marker_of_a_query() -> None:
    with pytest.raises(BadSetting, match="'totals' names the batches of query mine: choose another one"):
        NextVersion("totals", 12).is_done(marker(7, "digest"))


# -- options


def test_the_options_of_a_write_name_the_batch_and_its_checkpoint() -> None:
    own = {"txnAppId": "totals", "txnVersion": "7", "txnCheckpoint": "/c"}
    assert publish_each("totals", BASE).options_of(7, "/c") == {**BASE, **own}
    given = publish_each("totals", {**BASE, "checkpointLocation": "/c"})
    assert given == BatchPublisher("totals", BASE, "/c")
    for name in own:
        with pytest.raises(BadSetting, match="publish_each sets it itself"):
            publish_each("totals", {**BASE, name.upper(): "3"})


def test_where_spark_does_not_tell_the_checkpoint_the_option_is_asked_for() -> None:
    rows: Any = SimpleNamespace(sparkSession=SimpleNamespace())  # as through Spark Connect
    with pytest.raises(BadSetting, match="checkpointLocation is missing"):
        publish_each("totals", BASE)(rows, 0)


# -- the writer, without Spark


class Query:
    """A query whose batches are written by `foreachBatch`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, address: str, topic: str, app_id: str) -> None:
        self._monkeypatch = monkeypatch
        self.checkpoint = FakeCheckpoint(path)
        self.options = {"kafka.bootstrap.servers": address, "topic": topic}
        self._publish = publish_each(app_id, self.options)

    def run(self, batch_id: int, *, query_id: str | None = None) -> None:
        self._monkeypatch.setattr(TaskContext, "_taskContext", None)  # the next line sets it for ever
        context = TaskContext()
        context._partitionId, context._taskAttemptId = 0, batch_id
        context._localProperties = {"sql.streaming.queryId": query_id or self.checkpoint.query_id}
        self.checkpoint.plan(batch_id)
        options = self._publish.options_of(batch_id, str(self.checkpoint.path))
        writer = pickle.loads(pickle.dumps(SemelBatchWriter(SCHEMA, options)))
        rows = pa.record_batch({"value": pa.array([f"{self.checkpoint.path.name} {batch_id}"])})
        writer.commit([pickle.loads(pickle.dumps(writer.write(iter([rows]))))])

    def written(self) -> list[bytes]:
        return [value for _, value in committed_rows(self.options["kafka.bootstrap.servers"], self.options["topic"])]


@pytest.fixture
def app_id(unique: Callable[[str], str]) -> str:
    return unique("totals")


@pytest.fixture
def new_query(
    address: str, new_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app_id: str
) -> Callable[[str], Query]:
    topic = new_topic(partitions=1)
    return lambda name: Query(monkeypatch, tmp_path / name, address, topic, app_id)


def test_a_new_checkpoint_with_the_same_app_id_is_refused_until_it_is_adopted(
    new_query: Callable[[str], Query], address: str, app_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = new_query("old"), new_query("new")
    for batch_id in (0, 1, 1, 2):
        old.run(batch_id)
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=f"batch 2 of query {old.checkpoint.query_id} was committed last"):
            new.run(0)
    assert new.written() == [b"old 0", b"old 1", b"old 2"]

    command = ["pipeline", "adopt", str(new.checkpoint.path), "--address", address, "--app-id", app_id]
    assert main(["pipeline", "status", *command[2:], "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["fits"], status["marker"]["number"]) == (False, 2)
    assert main([*command, "--yes"]) == 0
    told = capsys.readouterr().out
    assert f"The marker of app id {app_id} is: batch 2 of another query, {old.checkpoint.query_id}." in told
    assert "batches from 0 on make of the same records will be written again" in told
    new.run(0)
    new.run(1)
    assert new.written() == [b"old 0", b"old 1", b"old 2", b"new 0", b"new 1"]
    options = {**new.options, "checkpointLocation": str(new.checkpoint.path)}
    query_id, found = marker_of(options, app_id)
    assert (query_id, found and (found.number, found.query_id)) == (new.checkpoint.query_id, (1, query_id))
    assert marker_of(options) == (query_id, None), "the marker of the sink itself is another one"


async def made_as_it_should_be(host: Host, address: str) -> None:
    """The topic of markers, before something is sent there that would make it by itself."""
    async with MarkerTopic(host, {"bootstrap_servers": address}, DEFAULT_MARKER_TOPIC) as markers:
        await markers.ensure()


def test_a_marker_of_an_earlier_version_is_adopted_where_it_does_not_follow(
    new_query: Callable[[str], Query], address: str, app_id: str, producer: Producer
) -> None:
    query = new_query("query")
    run_with_host(lambda host: made_as_it_should_be(host, address))
    stored = b'{"format":1,"number":1,"digest":"","transactional_id":"batch-%s","run_id":"","record_count":1}'
    producer.send(DEFAULT_MARKER_TOPIC, stored % app_id.encode(), batch_key(app_id).encode(), partition=0).result()
    for batch_id in (0, 1):
        with pytest.raises(CheckpointRefused, match="by an earlier version of semel"):
            query.run(batch_id)
    target = [str(query.checkpoint.path), "--address", address, "--app-id", app_id]
    assert main(["pipeline", "adopt", *target, "--batch", "1", "--yes"]) == 0
    query.run(1)
    query.run(2)
    assert query.written() == [b"query 2"]


def test_another_query_than_that_of_the_checkpoint_is_refused(new_query: Callable[[str], Query]) -> None:
    query = new_query("query")
    with pytest.raises(CheckpointRefused, match="txnCheckpoint of the write is not where Spark keeps its checkpoint"):
        query.run(0, query_id="another")
    assert query.written() == []


def test_an_app_id_is_not_for_the_file_of_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "orders.toml", "--app-id", "totals"]) == 2
    assert "--app-id is for a checkpoint of a program of your own" in capsys.readouterr().err


# -- with Spark


@pytest.mark.spark
def test_a_stream_with_a_new_checkpoint_and_an_old_app_id_fails_and_writes_nothing(
    spark: SparkSession,
    address: str,
    new_topic: Callable[..., str],
    app_id: str,
    producer: Producer,
    tmp_path: Path,
) -> None:
    from pyspark.errors import StreamingQueryException

    source, sink = new_topic("in", partitions=1), new_topic("out", partitions=1)

    def run(checkpoint: str, **options: str) -> None:
        rows = spark.readStream.format("semel").option("subscribe", source).option("startingOffsets", "earliest")
        rows = rows.option("kafka.bootstrap.servers", address)
        write: Callable[[DataFrame, int], None] = publish_each(
            app_id, {"kafka.bootstrap.servers": address, "topic": sink, **options}
        )
        writer = rows.load().select("value").writeStream.foreachBatch(write).trigger(availableNow=True)
        assert writer.option("checkpointLocation", checkpoint).start().awaitTermination(PATIENCE_S)

    def written() -> list[bytes]:
        return [value for _, value in committed_rows(address, sink)]

    producer.send(source, b"0").result()
    run(str(tmp_path / "first"))
    producer.send(source, b"1").result()
    run(str(tmp_path / "first"), checkpointLocation=str(tmp_path / "first"))
    for _ in range(2):
        with pytest.raises(StreamingQueryException) as refused:
            run(str(tmp_path / "second"))
        assert "this query has a new checkpoint" in str(refused.value)
        assert f"semel pipeline adopt CHECKPOINT --address HOST:PORT --app-id {app_id}" in str(refused.value)
    assert written() == [b"0", b"1"]
    assert main(["pipeline", "adopt", str(tmp_path / "second"), "--address", address, "--app-id", app_id, "--yes"]) == 0
    run(str(tmp_path / "second"))
    assert written() == [b"0", b"1", b"0", b"1"]
