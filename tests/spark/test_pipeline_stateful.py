"""Queries that keep state, stopped in the middle of batches: windows over time, a join of two streams, exactly once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_world import PipelineWorld
from sink_world import committed_rows

from semel.spark.pipeline.definition import Pipeline
from semel.sync import Producer

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
STOPS = 3


@pytest.fixture
def world(spark: SparkSession, address: str, tmp_path: Path, unique: Callable[[str], str]) -> PipelineWorld:
    return PipelineWorld(spark, address, tmp_path, unique)


def stepwise(pipeline: Pipeline, offsets: int) -> Pipeline:
    """So that there are many batches."""
    limit = {"maxOffsetsPerTrigger": str(offsets)}
    return replace(pipeline, sources=tuple(replace(source, options=limit) for source in pipeline.sources))


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def run_with_stops(world: PipelineWorld, pipeline: Pipeline) -> None:
    """The last run goes to the end; those before are stopped when a batch or two are done and another has begun."""
    for number in range(STOPS):
        world.stop_early(pipeline, after_batches=1 + number % 2)
    world.run(pipeline)


def test_every_window_is_written_once_and_whole(world: PipelineWorld) -> None:
    pipeline = stepwise(world.example("revenue.toml"), 12)
    expected: dict[tuple[str, str], list[float]] = defaultdict(list)
    (source,) = pipeline.sources
    for number in range(72):
        order = {"id": number, "customer": f"c{number % 3}", "amount": float(number), "ordered_at": at(number * 5)}
        world.send(source, order, partition=number % 2)
        expected[at(number * 5 // 60 * 60), order["customer"]].append(order["amount"])

    run_with_stops(world, pipeline)
    world.send(source, {"id": 99, "customer": "late", "amount": 0, "ordered_at": at(86_400)})
    world.run(pipeline)
    # An event that is too late belongs to a window that was written: it is left out.
    world.send(source, {"id": 100, "customer": "c0", "amount": 1e9, "ordered_at": at(0)})
    world.run(pipeline)

    windows = [
        {"minute": minute, "customer": customer, "revenue": sum(amounts), "orders": len(amounts)}
        for (minute, customer), amounts in expected.items()
    ]
    assert by_name(world.results(pipeline), "minute", "customer") == by_name(windows, "minute", "customer")


def test_every_pair_of_two_streams_is_written_once(world: PipelineWorld) -> None:
    pipeline = stepwise(world.example("paid_orders.toml"), 10)
    orders, payments = pipeline.sources
    minute = 60
    for number in range(40):
        order = {"id": number, "amount": number * 1.5, "ordered_at": at(number * minute)}
        world.send(orders, order, partition=number % 2)
        if number % 4 == 0:
            continue  # this one is not paid
        paid_after_s = 61 * minute if number % 5 == 0 else 5 * minute
        payment = {"order_id": number, "method": "card", "paid_at": at(number * minute + paid_after_s)}
        world.send(payments, payment, partition=number % 2)

    run_with_stops(world, pipeline)

    paid = [number for number in range(40) if number % 4 and number % 5]
    pairs: list[dict[str, Any]] = [{"id": number, "amount": number * 1.5, "method": "card"} for number in paid]
    assert by_name(world.results(pipeline), "id") == pairs


def by_name(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in names))


def test_state_of_ones_own_in_python_is_kept_exactly_once(
    spark: SparkSession, address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """What it needs beside Spark, pandas and protobuf, comes with the extra `spark`."""
    from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

    def count(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        import pandas as pd

        total = (state.get[0] if state.exists else 0) + sum(len(part) for part in parts)
        state.update((total,))
        yield pd.DataFrame({"key": [key[0]], "value": [str(total)]})

    source, sink = new_topic("in", partitions=1), new_topic("out", partitions=1)
    for number in range(2):
        with Producer(bootstrap_servers=address) as producer:
            for _ in range(3):
                producer.send(source, b"x", key=b"k")
        read = spark.readStream.format("semel").option("kafka.bootstrap.servers", address)
        rows = read.option("subscribe", source).option("startingOffsets", "earliest").load()
        counted = rows.selectExpr("string(key) as key").groupBy("key")
        out = counted.applyInPandasWithState(
            count, "key string, value string", "total int", "append", GroupStateTimeout.NoTimeout
        )
        write = out.writeStream.format("semel").option("kafka.bootstrap.servers", address).option("topic", sink)
        query = write.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

        assert committed_rows(address, sink)[-1] == (b"k", str(3 * (number + 1)).encode())
