"""What docs/pipelines.md shows, run as it stands there: every piece of TOML and Python, with other addresses and paths.

Pieces in sections about clusters are not run but read: there is no such cluster here.
"""

from __future__ import annotations

import re
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pipeline_world import EXAMPLES, PipelineWorld

import semel.spark
from semel.client.admin.values import NewTopic
from semel.client.metadata import TopicPartition
from semel.spark.pipeline.definition import Pipeline
from semel.spark.pipeline.file import Overrides, load_pipeline
from semel.spark.pipeline.interpretation import Interpretation
from semel.spark.pipeline.topics import check_topics
from semel.spark.schema import source_schema
from semel.spark.stream_reader import SemelStreamReader
from semel.sync import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from real_broker import Brokers

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
PATIENCE_S = 120.0
STATEFUL = ("revenue.toml", "paid_orders.toml")
"""Examples that have tests of their own, with restarts: test_pipeline_stateful.py."""


class Piece(NamedTuple):
    section: str
    """The heading of the second level that it is under."""
    language: str
    text: str


def pieces() -> list[Piece]:
    found, section, lines = [], "", iter(PAGE.read_text().splitlines())
    for line in lines:
        if line.startswith("## "):
            section = line.strip("# ")
        elif line.startswith("```"):
            language, inside = line[3:], []
            while (line := next(lines)) != "```":
                inside.append(line)
            found.append(Piece(section, language, "\n".join(inside) + "\n"))
    return [piece for piece in found if piece.language in ("toml", "python")]


def piece_with(text: str) -> Piece:
    (found,) = [piece for piece in pieces() if text in piece.text]
    return found


FIRST = piece_with('topic = "large-orders"')
SENDING = piece_with("semel.sync.Producer(")
READING = piece_with("semel.sync.Consumer(")
FUNCTION = piece_with("def pipeline(df):")
PROGRAM = piece_with("semel.spark.session(")


def is_of_a_cluster(piece: Piece) -> bool:
    return "cluster" in piece.section.lower()


def is_tested_elsewhere(piece: Piece) -> bool:
    return any(piece.text.strip() == (EXAMPLES / name).read_text().partition("\n\n")[2].strip() for name in STATEFUL)


def test_every_piece_of_the_page_is_run_here_or_elsewhere() -> None:
    rest = [piece for piece in pieces() if not (is_of_a_cluster(piece) or is_tested_elsewhere(piece))]
    assert rest == [FIRST, SENDING, READING, FUNCTION, PROGRAM]
    assert sum(map(is_tested_elsewhere, pieces())) == len(STATEFUL)


@pytest.mark.parametrize("piece", filter(is_of_a_cluster, pieces()))
def test_what_is_shown_for_a_cluster_can_be_read(piece: Piece, tmp_path: Path) -> None:
    """ "The pipeline stays as it is": what is shown is put beside the first one."""
    if piece.language == "python":
        compile(piece.text.replace(")...", ")"), str(PAGE), "exec")  # dots: and so on, as elsewhere
        return
    table = {name: value for name, value in tomllib.loads(FIRST.text).items() if name != "broker"}
    told = tomllib.loads(piece.text)
    environ = {name: f"the {name}" for name in re.findall(r"\$\{(\w+)\}", piece.text)}
    pipeline = Interpretation(tmp_path / "orders.toml", environ).pipeline(table | told, None)
    options = pipeline.kafka_options(pipeline.address or "")
    assert all(f"the {name}" in str(options) for name in environ)
    assert pipeline.master == told.get("spark", {}).get("master")


# -- run


@pytest.fixture(scope="module")
def page_address(spark_brokers: Brokers) -> str:
    """A broker where nobody else has topics, as the page uses plain names."""
    return spark_brokers.start(flush="os").address


@pytest.fixture
def world(spark: SparkSession, page_address: str, tmp_path: Path, unique: Callable[[str], str]) -> PipelineWorld:
    return PipelineWorld(spark, page_address, tmp_path, unique)


@pytest.fixture
def here(page_address: str, tmp_path: Path) -> Callable[[str], str]:
    return lambda text: text.replace("localhost:9092", page_address).replace("/data/", f"{tmp_path}/")


def loaded(world: PipelineWorld, name: str, text: str) -> Pipeline:
    """As `semel pipeline run` does it, with the topics made."""
    path = world.root / name
    path.write_text(text)
    pipeline = load_pipeline(path, Overrides(address=world.address, trigger="available-now"))
    check_topics(replace(pipeline, create_topics=True), world.address, lambda _: None)
    return pipeline


class EnoughRead(Exception):
    pass


@pytest.mark.spark
def test_the_first_pipeline_does_what_the_page_says_and_its_group_shows_its_lag(
    world: PipelineWorld, here: Callable[[str], str]
) -> None:
    without_broker, _, broker = FIRST.text.partition("[broker]\n")
    assert broker == "port = 9092\n", "where the other pieces expect it; here there is one already"
    pipeline = loaded(world, "orders.toml", without_broker)
    exec(here(SENDING.text), {})
    (progress,) = world.run(pipeline)
    assert progress["numInputRows"] == 6, "three records; read twice, as there is a dead-letter topic"

    printed: list[tuple[Any, ...]] = []

    def keep(*values: Any) -> None:
        printed.append(values)
        raise EnoughRead

    with pytest.raises(EnoughRead):
        exec(here(READING.text), {"semel": semel, "print": keep})
    (comment,) = re.findall(r"print\(.*\)  # (.*)", READING.text)
    assert " ".join(map(repr, printed[0])) == comment
    assert [message.value for message in world.read("orders-bad")] == [b"not an order"]

    group = "semel-spark-orders"
    assert f"`{group}`" in PAGE.read_text()
    with Admin(bootstrap_servers=world.address) as admin:
        lag = admin.group_lag(group)[group]
        assert {place: part.lag for place, part in lag.items()} == {TopicPartition("orders", 0): 0}
        world.send(pipeline.sources[0], {"id": 3}, {"id": 4})
        assert admin.group_lag(group)[group][TopicPartition("orders", 0)].lag == 2


@pytest.mark.spark
def test_the_file_with_a_function_does_what_the_page_says(world: PipelineWorld) -> None:
    pipeline = loaded(world, "shout.py", FUNCTION.text)
    world.send(pipeline.sources[0], b"hello", key=b"k")
    world.run(pipeline)
    assert [(message.key, message.value) for message in world.read("shouting")] == [(b"k", b"HELLO")]


@pytest.mark.spark
def test_the_program_does_what_the_page_says(
    world: PipelineWorld, here: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semel.spark, "session", lambda name: world.spark, raising=False)
    with Admin(bootstrap_servers=world.address) as admin:
        for topic in {"orders", "shouted"} - set(admin.list_topics()):
            admin.create_topics(NewTopic(topic, 1, 1))
    with Producer(bootstrap_servers=world.address) as producer:
        producer.send("orders", b"quiet", b"k")
    found: list[tuple[bytes | None, bytes | None]] = []

    def stop_when_written() -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not found and time.monotonic() < deadline_s:
            found.extend((message.key, message.value) for message in world.read("shouted"))
            time.sleep(0.2)
        for query in world.spark.streams.active:
            query.stop()

    watching = threading.Thread(target=stop_when_written, daemon=True)
    watching.start()
    exec(here(PROGRAM.text), {})  # until the query ends, which it does not by itself
    watching.join(PATIENCE_S)
    assert (b"k", b"QUIET") in found


@pytest.mark.spark
def test_a_new_thread_finds_the_format_after_what_the_page_says(world: PipelineWorld, tmp_path: Path) -> None:
    (call,) = re.findall(r"call `(spark\.createDataFrame\(.*?\))` in the new one first", PAGE.read_text())
    outcomes: dict[str, str] = {}

    def start(before: str) -> None:
        rows = world.spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
        options = {"kafka.bootstrap.servers": world.address, "topic": "t", "checkpointLocation": str(tmp_path)}
        exec(before, {"spark": world.spark})
        try:
            rows.writeStream.format("semel").options(**options).start().stop()
            outcomes[before] = "started"
        except Exception as error:
            outcomes[before] = str(error)

    for before in ("", call):
        thread = threading.Thread(target=start, args=(before,))
        thread.start()
        thread.join(PATIENCE_S)
    assert "DATA_SOURCE_NOT_FOUND" in outcomes[""]
    assert outcomes[call] == "started"


# -- what the page says of the start


def ranges(options: dict[str, str], end: dict[str, Any]) -> list[tuple[int, int]]:
    """Of a batch 0 that is run again, in a new process, up to the end that the checkpoint holds."""
    reader = SemelStreamReader(source_schema(include_headers=False), options)
    try:
        planned: list[Any] = reader.partitions(reader.initialOffset(), end)
        return [(part.start, part.end) for part in planned]
    finally:
        reader.stop()


@pytest.fixture
def started(address: str, new_topic: Callable[..., str], producer: Producer) -> tuple[dict[str, str], dict[str, Any]]:
    """Options of a query whose batch 0 was planned over ten records, and interrupted."""
    topic = new_topic(partitions=1)
    for _ in range(10):
        producer.send(topic, b"x")
    producer.flush()
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    return options, {topic: {"0": 10}}


def test_what_retention_takes_before_batch_0_is_run_again_is_not_reported(
    address: str, started: tuple[dict[str, str], dict[str, Any]]
) -> None:
    options, end = started
    assert ranges(options, end) == [(0, 10)]
    with Admin(bootstrap_servers=address) as admin:
        admin.delete_records({TopicPartition(options["subscribe"], 0): 4})
    assert ranges(options, end) == [(4, 10)]
    assert "are not reported as lost" in PAGE.read_text()


def test_another_start_before_batch_0_is_done_skips_records(started: tuple[dict[str, str], dict[str, Any]]) -> None:
    options, end = started
    assert ranges({**options, "startingOffsets": "latest"}, end) == []
    assert "`startingOffsets` must not be changed before batch 0 is" in PAGE.read_text()
