"""Batches into a database, each once: SQLite, and a real PostgreSQL that the test starts in a directory of its own."""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from postgres_server import Postgres, running_postgres
from pyspark.sql import types
from sink_world import FakeCheckpoint

from semel.client.errors import BadSetting
from semel.spark.databases import Column
from semel.spark.jdbc import TableWriter, table_writer
from semel.spark.pipeline.table import marker_in
from semel.spark.sink_errors import BatchRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = [Column("name", types.StringType()), Column("amount", types.LongType())]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@dataclass
class World:
    """A database under test: how writers reach it, and how the test looks into it."""

    arguments: dict[str, Any]
    ask: Callable[[str], list[tuple[Any, ...]]]

    def writer(self, table: str, query: str | None = None, **options: Any) -> TableWriter:
        return table_writer(**{"table": table, "query": query or table, "create": True, **self.arguments, **options})


@pytest.fixture(params=["sqlite", "postgresql", "postgresql by a driver without copy"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "sqlite":
        path = tmp_path / "data.sqlite"

        def ask_sqlite(statement: str) -> list[tuple[Any, ...]]:
            with sqlite3.connect(path) as connection:
                return connection.execute(statement).fetchall()

        return World({"url": f"sqlite:///{path}"}, ask_sqlite)
    server: Postgres = request.getfixturevalue("postgres")
    if request.param == "postgresql":
        return World({"url": server.url}, server.ask)
    return World({"connect": lambda: connect_without_copy(server.url), "dialect": "postgresql"}, server.ask)


def connect_without_copy(url: str) -> Any:
    """As a driver that has no more than the DB-API asks for."""
    import psycopg

    class PlainCursor(psycopg.Cursor[Any]):
        copy = None

    return psycopg.connect(url, cursor_factory=PlainCursor)


@pytest.fixture
def table(unique: Callable[[str], str]) -> str:
    return unique("table")


def rows_of(world: World, table: str) -> list[tuple[str, int]]:
    return sorted((str(name), int(amount)) for name, amount in world.ask(f'select name, amount from "{table}"'))


# -- batches


def test_batches_are_added_and_a_batch_that_is_there_is_skipped(world: World, table: str) -> None:
    writer = world.writer(table)
    assert writer.write(COLUMNS, iter([("a", 1), ("b", 2)]), 0)
    assert writer.write(COLUMNS, iter([("a", 3)]), 1)
    assert not writer.write(COLUMNS, iter([("a", 3)]), 1)
    assert rows_of(world, table) == [("a", 1), ("a", 3), ("b", 2)]


def test_a_batch_that_does_not_follow_is_refused_and_can_be_adopted(world: World, table: str) -> None:
    writer = world.writer(table)
    with pytest.raises(BatchRefused, match="no batch of it was written"):
        writer.write(COLUMNS, iter([("a", 1)]), 5)
    writer.adopt(4)
    assert writer.write(COLUMNS, iter([("a", 1)]), 5)
    for batch_id in (3, 7):
        with pytest.raises(BatchRefused, match="batch 5 was written last"):
            writer.write(COLUMNS, iter([("lost", 1)]), batch_id)
    writer.adopt(-1)
    assert writer.write(COLUMNS, iter([("b", 2)]), 0)
    assert rows_of(world, table) == [("a", 1), ("b", 2)]


def test_with_keys_the_last_row_of_each_stays(world: World, table: str) -> None:
    writer = world.writer(table, keys=["name"])
    writer.write(COLUMNS, iter([("a", 1), ("b", 2), ("a", 3)]), 0)
    writer.write(COLUMNS, iter([("b", 5), ("c", 6)]), 1)
    assert rows_of(world, table) == [("a", 3), ("b", 5), ("c", 6)]


def test_keys_that_are_all_columns_are_allowed(world: World, table: str) -> None:
    writer = world.writer(table, keys=["name", "amount"])
    writer.write(COLUMNS, iter([("a", 1), ("a", 1), ("a", 2)]), 0)
    assert rows_of(world, table) == [("a", 1), ("a", 2)]


def test_a_failure_in_the_middle_leaves_nothing_of_the_batch(world: World, table: str) -> None:
    writer = world.writer(table)
    writer.write(COLUMNS, iter([("a", 1)]), 0)

    def failing() -> Iterator[tuple[Any, ...]]:
        yield from (("lost", number) for number in range(2500))
        raise RuntimeError("the task failed")

    with pytest.raises(RuntimeError, match="the task failed"):
        writer.write(COLUMNS, failing(), 1)
    assert rows_of(world, table) == [("a", 1)]
    assert writer.write(COLUMNS, iter([("b", 2)]), 1)
    assert rows_of(world, table) == [("a", 1), ("b", 2)]


def test_many_rows_go_through_in_chunks(world: World, table: str) -> None:
    rows = [(f"name {number}", number) for number in range(3500)]
    world.writer(table).write(COLUMNS, iter(rows), 0)
    assert rows_of(world, table) == sorted(rows)


def test_of_two_drivers_with_the_same_batch_one_writes_it(world: World, table: str) -> None:
    writer = world.writer(table)
    writer.write(COLUMNS, iter([("a", 0)]), 0)
    outcomes: list[Any] = []
    ready = threading.Barrier(3)

    def slow(name: str) -> Iterator[tuple[Any, ...]]:
        for number in range(20):
            time.sleep(0.005)
            yield name, number

    def run(name: str) -> None:
        ready.wait()
        outcomes.append(world.writer(table).write(COLUMNS, slow(name), 1))

    drivers = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for driver in drivers:
        driver.start()
    ready.wait()
    for driver in drivers:
        driver.join()
    assert sorted(outcomes) == [False, True]
    assert len(rows_of(world, table)) == 21


def test_two_drivers_may_begin_at_once_with_an_empty_database(world: World, table: str) -> None:
    outcomes: list[Any] = []
    ready = threading.Barrier(2)

    def run() -> None:
        ready.wait()
        outcomes.append(world.writer(table, batches_table=f"batches_{table}").write(COLUMNS, iter([("a", 1)]), 0))

    drivers = [threading.Thread(target=run) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert sorted(outcomes) == [False, True]


def test_queries_do_not_wait_for_each_other(world: World, table: str, unique: Callable[[str], str]) -> None:
    if world.writer(table).database.dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    one, two = world.writer(table, unique("one")), world.writer(table, unique("two"))
    for writer in (one, two):
        writer.write(COLUMNS, iter([("a", 0)]), 0)

    def rows() -> Iterator[tuple[Any, ...]]:
        yield "one", 1
        assert two.write(COLUMNS, iter([("two", 2)]), 1), "while the other one has not ended"

    assert one.write(COLUMNS, rows(), 1)
    assert len(rows_of(world, table)) == 4


def test_who_looks_waits_for_nobody_and_changes_nothing(world: World, table: str) -> None:
    writer = world.writer(table)
    assert marker_in(writer) is None
    assert world.ask("select * from semel_batches where query = '" + table + "'") == []
    writer.write(COLUMNS, iter([("a", 1)]), 0)
    seen = []

    def rows() -> Iterator[tuple[str, int]]:
        yield ("b", 2)
        seen.append(marker_in(writer))

    if "sqlite" not in str(world.arguments.get("url")):  # which has one transaction at a time
        writer.write(COLUMNS, rows(), 1)
        assert [marker.number for marker in seen if marker is not None] == [0]
    found = marker_in(writer)
    assert found is not None
    assert found.number == len(seen)


def test_queries_have_entries_of_their_own(world: World, table: str) -> None:
    for query in ("one", "two"):
        assert world.writer(table, f"{query} {table}").write(COLUMNS, iter([(query, 1)]), 0)
    assert rows_of(world, table) == [("one", 1), ("two", 1)]


def test_with_a_checkpoint_another_batch_of_the_same_number_is_refused(
    world: World, table: str, tmp_path: Path
) -> None:
    checkpoint = FakeCheckpoint(tmp_path / "checkpoint")
    checkpoint.plan(0)
    writer = world.writer(table, checkpoint=str(checkpoint.path))
    assert writer.write(COLUMNS, iter([("a", 1)]), 0)
    assert not writer.write(COLUMNS, iter([("a", 1)]), 0)
    checkpoint.plan(0, "other offsets")
    with pytest.raises(BatchRefused, match="other offsets"):
        writer.write(COLUMNS, iter([("a", 1)]), 0)


def test_values_of_all_kinds_arrive(world: World, table: str) -> None:
    naive = datetime(2026, 3, 1, 12, 30, 15, 250_000)
    kinds: list[tuple[str, Any, Any]] = [
        ("flag", types.BooleanType(), True),
        ("small", types.ShortType(), -3),
        ("ratio", types.DoubleType(), 0.5),
        ("price", types.DecimalType(10, 2), Decimal("12.30")),
        ("data", types.BinaryType(), bytearray(b"\x00\xff")),
        ("day", types.DateType(), date(2026, 3, 1)),
        ("at", types.TimestampType(), naive),
        ("local", types.TimestampNTZType(), naive),
        ("parts", types.ArrayType(types.LongType()), [1, 2]),
        ('odd "name"', types.StringType(), "tab\there\\ \n'quoted'"),
        ("nothing", types.StringType(), None),
    ]
    columns = [Column(name, kind) for name, kind, _ in kinds]
    world.writer(table).write(columns, iter([tuple(value for _, _, value in kinds)]), 0)
    (row,) = world.ask(f'select * from "{table}"')
    found = dict(zip([name for name, _, _ in kinds], row, strict=True))
    at = naive.astimezone(UTC)
    if world.writer(table).database.dialect == "postgresql":
        expected = {"data": b"\x00\xff", "at": at, "parts": [1, 2]}
    else:  # SQLite has neither times nor decimals nor lists: they are texts
        expected = {
            "data": b"\x00\xff",
            "at": at.isoformat(" "),
            "parts": "[1,2]",
            "price": "12.30",
            "day": "2026-03-01",
            "local": naive.isoformat(" "),
        }
    assert found == {name: value for name, _, value in kinds} | expected


def test_a_connection_that_commits_every_statement_is_told_not_to(postgres: Postgres, table: str) -> None:
    import psycopg

    connections = {"connect": lambda: psycopg.connect(postgres.url, autocommit=True), "dialect": "postgresql"}
    writer = table_writer(table=table, query=table, create=True, **connections)
    writer.write(COLUMNS, iter([("a", 1)]), 0)

    def failing() -> Iterator[tuple[Any, ...]]:
        yield "lost", 1
        raise RuntimeError("the task failed")

    with pytest.raises(RuntimeError, match="the task failed"):
        writer.write(COLUMNS, failing(), 1)
    assert postgres.ask(f'select name from "{table}"') == [("a",)]
    with_keys = table_writer(table=f"{table} totals", query=table, keys=["name"], create=True, **connections)
    assert with_keys.write(COLUMNS, iter([("a", 1), ("a", 2)]), 1)
    assert postgres.ask(f'select * from "{table} totals"') == [("a", 2)]


def test_a_database_that_dies_before_the_commit_has_nothing_of_the_batch(postgres: Postgres, table: str) -> None:
    writer = table_writer(postgres.url, table, query=table, create=True)
    writer.write(COLUMNS, iter([("a", 1)]), 0)

    def dying() -> Iterator[tuple[Any, ...]]:
        yield from (("lost", number) for number in range(1500))
        postgres.stop(signal.SIGQUIT)  # immediate: as after a crash
        yield "lost", -1

    with pytest.raises(Exception, match=r"connection|server|terminat"):
        writer.write(COLUMNS, dying(), 1)
    postgres.start()
    assert writer.write(COLUMNS, iter([("b", 2)]), 1)
    assert sorted(postgres.ask(f'select name from "{table}"')) == [("a",), ("b",)]


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"url": "mysql://x", "table": "t", "query": "q"}, "mysql"),
        ({"url": "sqlite:///x", "table": "", "query": "q"}, "needs a table"),
        ({"table": "t", "query": "q"}, "either a url or"),
        ({"table": "t", "query": "q", "connect": lambda: None, "dialect": "oracle"}, "oracle"),
    ],
)
def test_a_writer_that_cannot_work_is_refused_at_once(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        table_writer(**arguments)


def test_without_psycopg_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadSetting, match=r"PostgreSQL needs psycopg: .*psycopg.*; pip install 'semel\[postgres\]'"):
        table_writer("postgresql://nobody@nowhere/x", "t", query="q").write(COLUMNS, iter(()), 0)


# -- with Spark


@pytest.mark.spark
def test_a_stream_in_update_mode_keeps_a_table_of_totals(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    folder, path = tmp_path / "in", tmp_path / "totals.sqlite"
    folder.mkdir()
    checkpoint = str(tmp_path / "checkpoint")
    writer = table_writer(f"sqlite:///{path}", "totals", query="totals", keys=["name"], create=True)
    fails = [True]

    def sometimes(rows: Any, batch_id: int) -> None:
        writer(rows, batch_id)
        if batch_id == 1 and fails:
            fails.clear()
            raise RuntimeError("the driver dies after the commit")

    def run() -> None:
        lines = spark.readStream.schema("name string, amount long").json(str(folder))
        totals = lines.groupBy("name").agg(F.sum("amount").alias("amount"))
        query = (
            totals.writeStream.outputMode("update")
            .foreachBatch(sometimes)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    (folder / "0.json").write_text('{"name":"a","amount":1}\n{"name":"b","amount":2}\n')
    run()
    (folder / "1.json").write_text('{"name":"a","amount":10}\n')
    with pytest.raises(Exception, match="the driver dies"):
        run()
    run()
    with sqlite3.connect(path) as connection:
        assert sorted(connection.execute("select name, amount from totals")) == [("a", 11), ("b", 2)]
        assert connection.execute("select query, batch_id from semel_batches").fetchall() == [("totals", 1)]
