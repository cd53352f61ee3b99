"""What a pipeline reads and writes: JSON, Avro and raw values, records that cannot be read, with real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_world import PipelineWorld

from semel.client.admin.values import ConfigResource
from semel.spark.pipeline.avro_schema import parse_schema
from semel.spark.pipeline.avro_writing import Encoder
from semel.spark.pipeline.definition import TopicSink
from semel.spark.pipeline.errors import PipelineRefused
from semel.spark.pipeline.failure import cause_of
from semel.spark.pipeline.progress import read_progress
from semel.sync import Admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS = {"topics": "orders", "format": "json", "schema": "id BIGINT NOT NULL, name STRING, n STRUCT<x: INT>"}

RAW_SINK = {"topic": "out", "format": "raw"}
KEY_SINK = {"topic": "out", "key": "key"}
BAD_JSON = {
    b"": "it is not one JSON object of the schema",
    b"junk": "it is not one JSON object of the schema",
    b"null": "it is not one JSON object of the schema",
    b'"text"': "it is not one JSON object of the schema",
    b'[{"id":1}]': "it is not one JSON object of the schema",
    b'{"id":1': "it is not one JSON object of the schema",
    b'{"id":1} and more': "it is not one JSON object of the schema",
    b'{"id":1}{"id":2}': "it is not one JSON object of the schema",
    b'{"id":1},{"id":2}': "it is not one JSON object of the schema",
    b"{'id':1}": "it is not one JSON object of the schema",
    b'{"id":"one"}': "it is not one JSON object of the schema",
    b'{"id":1,"n":{"x":"y"}}': "it is not one JSON object of the schema",
    b'{"id":1,"name":"\xff"}': "it is not UTF-8",
    b'{"name":"a"}': "id is missing, and the schema says NOT NULL",
    b'{"id":null}': "id is missing, and the schema says NOT NULL",
}


@pytest.fixture
def world(spark: SparkSession, address: str, tmp_path: Path, unique: Callable[[str], str]) -> PipelineWorld:
    return PipelineWorld(spark, address, tmp_path, unique)


def test_json_goes_through_sql_and_comes_out_as_json_with_its_key(world: PipelineWorld) -> None:
    pipeline = world.pipeline(
        sql="SELECT id, upper(name) AS name, n.x, CAST(_key AS STRING) AS k, _offset AS at FROM input WHERE id > 1",
        source=ORDERS,
        sink={"topic": "out", "key": "id"},
    )
    world.send(pipeline.sources[0], {"id": 1}, {"id": 2, "name": "b", "n": {"x": 5}, "more": 0}, {"id": 3}, key=b"K")

    (progress,) = world.run(pipeline)

    assert isinstance(pipeline.sink, TopicSink)
    assert [(message.key, json.loads(message.value or b"")) for message in world.read(pipeline.sink.topic)] == [
        (b"2", {"id": 2, "name": "B", "x": 5, "k": "K", "at": 1}),
        (b"3", {"id": 3, "name": None, "x": None, "k": "K", "at": 2}),
    ]
    shown = read_progress(progress, world.scans)
    assert (shown.rows_in, shown.rows_out, shown.rows_set_aside, shown.lag) == (3, 2, 0, 0)


def test_what_the_source_adds_is_not_written_unless_it_is_renamed(world: PipelineWorld) -> None:
    pipeline = world.pipeline(source=ORDERS, sink={"topic": "out"})
    world.send(pipeline.sources[0], {"id": 1, "name": "a"})

    world.run(pipeline)

    assert world.results(pipeline) == [{"id": 1, "name": "a", "n": None}]


def test_every_kind_of_bad_json_goes_to_the_dead_letter_topic_with_its_place_and_reason(world: PipelineWorld) -> None:
    pipeline = world.pipeline(sql="SELECT id FROM input", source=ORDERS, sink={"topic": "out"}, dead_letter_topic="bad")
    world.send(pipeline.sources[0], {"id": 7}, *BAD_JSON, {"id": 8}, key=b"K", partition=1, headers=[("own", b"h")])

    (progress,) = world.run(pipeline)

    assert world.results(pipeline) == [{"id": 7}, {"id": 8}]
    letters = world.read(pipeline.dead_letter_topic or "")
    topic = pipeline.sources[0].topics[0].encode()
    found = {message.value: dict(message.headers) for message in letters}
    assert len(letters) == len(found) == len(BAD_JSON)
    for place, (value, reason) in enumerate(BAD_JSON.items(), 1):
        assert found[value] == {
            "own": b"h",
            "semel.dead-letter.source-topic": topic,
            "semel.dead-letter.source-partition": b"1",
            "semel.dead-letter.source-offset": str(place).encode(),
            "semel.dead-letter.reason": reason.encode(),
        }
    assert {message.key for message in letters} == {b"K"}
    shown = read_progress(progress, world.scans)
    assert (shown.rows_in, shown.rows_out, shown.rows_set_aside) == (17, 2, 15)


def test_a_bad_record_stops_the_pipeline_if_there_is_no_dead_letter_topic(world: PipelineWorld) -> None:
    # The query uses no column of it: the record is judged all the same.
    pipeline = world.pipeline(sql="SELECT 'x' AS value FROM input", source=ORDERS, sink={"topic": "out"})
    world.send(pipeline.sources[0], {"id": 1}, b"junk")

    with pytest.raises(Exception, match="a record cannot be read") as caught:
        world.run(pipeline)

    assert cause_of(str(caught.value)) == (
        f"a record cannot be read: topic {pipeline.sources[0].topics[0]}, partition 0, offset 1: "
        "it is not one JSON object of the schema; its value is junk"
    )
    assert world.results(pipeline) == []


@pytest.mark.parametrize("condition", ["id > 0", "name = 'a' AND n.x = 1", "_offset < 0", "id IS NOT NULL"])
def test_no_condition_of_the_query_hides_a_bad_record(world: PipelineWorld, condition: str) -> None:
    pipeline = world.pipeline(sql=f"SELECT id FROM input WHERE {condition}", source=ORDERS, sink={"topic": "out"})
    # Unless it is told to, Spark optimizes a stream only when it runs.
    world.spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    try:
        plan = world.plan(pipeline).output._jdf.queryExecution().optimizedPlan().toString()
    finally:
        world.spark.conf.unset("spark.sql.streaming.unsupportedOperationCheck")
    (filters,) = (line for line in plan.splitlines() if "raise_error" in line)

    assert filters.strip(" +-~").startswith("Filter CASE WHEN"), "it is judged alone, before any condition is asked"
    assert condition.split()[0] not in filters.split("raise_error")[1].split(")")[-1]


def test_a_record_without_a_value_has_no_columns_and_is_bad_only_if_one_is_needed(world: PipelineWorld) -> None:
    source = {**ORDERS, "schema": "id BIGINT"}
    pipeline = world.pipeline(sql="SELECT id, _offset AS at FROM input", source=source, sink={"topic": "out"})
    world.send(pipeline.sources[0], None)

    world.run(pipeline)

    assert world.results(pipeline) == [{"id": None, "at": 0}]


def test_dead_letters_also_get_what_the_sink_topic_refuses(world: PipelineWorld) -> None:
    pipeline = world.pipeline(
        sql="SELECT id, repeat('x', CAST(id AS INT)) AS x FROM input",
        source=ORDERS,
        sink={"topic": "out"},
        dead_letter_topic="bad",
    )
    assert isinstance(pipeline.sink, TopicSink)
    with Admin(bootstrap_servers=world.address) as admin:
        admin.alter_configs(ConfigResource.topic(pipeline.sink.topic), set={"max.message.bytes": 1000})
    world.send(pipeline.sources[0], {"id": 3}, {"id": 5000}, b"junk")

    world.run(pipeline)

    assert world.results(pipeline) == [{"id": 3, "x": "xxx"}]
    assert len(world.read(pipeline.dead_letter_topic or "")) == 2


def test_raw_values_pass_as_bytes_with_headers_and_time(world: PipelineWorld) -> None:
    source = {"topics": "in", "options": {"includeHeaders": True}}
    pipeline = world.pipeline(source=source, sink={"topic": "out"})
    world.send(pipeline.sources[0], b"\x00\xff", key=b"\x01", headers=[("h", b"v")], timestamp_ms=1_700_000_000_000)

    world.run(pipeline)

    assert isinstance(pipeline.sink, TopicSink)
    (message,) = world.read(pipeline.sink.topic)
    assert (message.key, message.value, message.headers) == (b"\x01", b"\x00\xff", (("h", b"v"),))
    assert message.timestamp_ms == 1_700_000_000_000


def test_a_function_makes_the_rows_with_python_of_its_own(world: PipelineWorld) -> None:
    def pipeline(df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        reverse = F.udf(lambda value: bytes(reversed(value)), "binary", useArrow=False)
        return df.select("key", reverse("value").alias("value"))

    made = world.pipeline(function=pipeline, source={"topics": "in"}, sink={"topic": "out"})
    world.send(made.sources[0], b"abc")

    world.run(made)

    assert isinstance(made.sink, TopicSink)
    assert [message.value for message in world.read(made.sink.topic)] == [b"cba"]


def test_an_error_in_the_function_is_told(world: PipelineWorld) -> None:
    def broken(df: DataFrame) -> DataFrame:
        raise KeyError("nothing")

    made = world.pipeline(function=broken, source={"topics": "in"}, sink={"topic": "out"})
    with pytest.raises(PipelineRefused, match=r"some\.toml: KeyError: 'nothing'"):
        world.start(made)
    made = world.pipeline(function=lambda df: 7, source={"topics": "in"}, sink={"topic": "out"})
    with pytest.raises(PipelineRefused, match="pipeline: returned int; expected is a DataFrame"):
        world.start(made)


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
            {"name": "inner", "type": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "double"}]}},
        ],
    }
)
ORDER: dict[str, Any] = {
    "id": 12,
    "name": "a",
    "at": datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC),
    "day": date(2024, 5, 6),
    "price": Decimal("12.34"),
    "tags": ["x", "y"],
    "counts": {"a": 1},
    "color": "BLUE",
    "inner": {"x": 1.5},
}


def test_avro_goes_in_and_out_with_all_its_types(world: PipelineWorld) -> None:
    source = {"topics": "in", "format": "avro", "schema": AVRO}
    sink = {"topic": "out", "format": "avro", "schema": AVRO, "key": "id"}
    pipeline = world.pipeline(sql="SELECT * FROM input", source=source, sink=sink)
    value = Encoder(parse_schema(AVRO)).value(ORDER)
    world.send(pipeline.sources[0], value, Encoder(parse_schema(AVRO)).value({**ORDER, "name": None, "tags": []}))

    world.run(pipeline)

    assert isinstance(pipeline.sink, TopicSink)
    first, second = world.read(pipeline.sink.topic)
    assert (first.key, first.value) == (b"12", value)
    assert second.value != value


def test_avro_columns_have_their_sql_types(world: PipelineWorld) -> None:
    source = {"topics": "in", "format": "avro", "schema": AVRO}
    columns = "at + INTERVAL 1 SECOND AS at, day, price * 2 AS price, tags[1] AS tag, counts['a'] AS a, inner.x"
    pipeline = world.pipeline(sql=f"SELECT {columns} FROM input", source=source, sink={"topic": "out"})
    world.send(pipeline.sources[0], Encoder(parse_schema(AVRO)).value(ORDER))

    world.run(pipeline)

    (row,) = world.results(pipeline)
    assert row == {"at": "2024-05-06T07:08:10.123Z", "day": "2024-05-06", "price": 24.68, "tag": "y", "a": 1, "x": 1.5}


def test_bad_avro_is_set_aside_with_what_is_wrong_with_it(world: PipelineWorld) -> None:
    source = {"topics": "in", "format": "avro", "schema": AVRO}
    pipeline = world.pipeline(source=source, sink={"topic": "out"}, dead_letter_topic="bad")
    good = Encoder(parse_schema(AVRO)).value(ORDER)
    world.send(pipeline.sources[0], good[:-3], good, good + b"\0")

    world.run(pipeline)

    assert len(world.results(pipeline)) == 1
    reasons = [
        dict(message.headers)["semel.dead-letter.reason"] for message in world.read(pipeline.dead_letter_topic or "")
    ]
    assert reasons == [
        f"the value ends too early: at byte {len(good) - 8} more is expected".encode(),
        b"1 bytes are left after the value",
    ]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"sql": "SELECT nme FROM input"}, r"sql: \[UNRESOLVED_COLUMN.*`nme`"),
        ({"sql": "SELECT 1 AS a FROM orders_2"}, r"sql: \[TABLE_OR_VIEW_NOT_FOUND\].*`orders_2`"),
        ({"sql": "SELECT 1 AS value"}, "sql: the rows do not come from a source"),
        ({"sql": "SELECT id FROM input", "sink": KEY_SINK}, "sink.key: there is no column 'key'; the columns are: id"),
        (
            {"sql": "SELECT id FROM input", "sink": RAW_SINK},
            "sink: raw rows need a column 'value'; the columns are: id",
        ),
        ({"sql": "SELECT id AS value FROM input", "sink": RAW_SINK}, "sink: the column 'value' is bigint"),
        ({"sql": "SELECT id, count(*) FROM input GROUP BY id"}, "sql: .*output mode: append.*without watermark"),
    ],
)
def test_sql_that_does_not_fit_is_told_before_anything_runs(
    world: PipelineWorld, table: dict[str, Any], problem: str
) -> None:
    pipeline = world.pipeline(**{"source": ORDERS, "sink": {"topic": "out"}, **table})

    with pytest.raises(PipelineRefused, match=f"(?is){problem}") as caught:
        world.start(pipeline)
    assert "JVM stacktrace" not in str(caught.value)
    assert "+-" not in str(caught.value)


def test_a_table_gets_each_row_once_over_restarts(world: PipelineWorld) -> None:
    import sqlite3

    file = world.root / "shop.db"
    sink = {"table": "orders", "url": f"sqlite:///{file}", "keys": "id", "create": True}
    source = {**ORDERS, "options": {"maxOffsetsPerTrigger": 2}}
    pipeline = world.pipeline(sql="SELECT id, name FROM input", source=source, sink=sink)
    world.send(pipeline.sources[0], *({"id": number, "name": "a"} for number in range(5)))

    first = world.run(pipeline)
    world.send(pipeline.sources[0], {"id": 1, "name": "b"})
    world.run(pipeline)

    with sqlite3.connect(file) as database:
        assert database.execute("SELECT id, name FROM orders ORDER BY id").fetchall() == [
            (0, "a"), (1, "b"), (2, "a"), (3, "a"), (4, "a"),
        ]  # fmt: skip
    assert [read_progress(progress, {}).rows_out for progress in first] == [2, 2, 1]
