"""Executors in processes of their own, and one of them killed while it runs a batch: each row once, in order per key.

The other one, and the one that takes the place of the dead one, do again what was lost with it: the task, and the part
of the shuffle that it kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_processes import ProcessFamily, executor_above, kill_now
from cluster_program import Plan
from cluster_world import DriverLauncher, Verdict, judge, numbered_rows, spark_home
from sink_world import committed_rows

from semel.spark.adoption import marker_of
from semel.spark.steps import VARIABLE, Step
from semel.sync import Producer

pytestmark = pytest.mark.spark

PATIENCE_S = 150.0
ROWS = 600
ROWS_OF_A_BATCH = 200
KILLED_IN_BATCH = 1


@pytest.mark.timeout(400)
def test_an_executor_that_is_killed_in_a_batch_loses_and_repeats_nothing(
    address: str, new_topic: Callable[..., str], producer: Producer, tmp_path: Path
) -> None:
    source_topic, sink_topic = new_topic("in", partitions=3), new_topic("out", partitions=3)
    sent = numbered_rows(0, ROWS)
    for key, value in sent:
        producer.send(source_topic, value, key)
    producer.flush()
    sink = {"kafka.bootstrap.servers": address, "topic": sink_topic, "checkpointLocation": str(tmp_path / "checkpoint")}
    paused = tmp_path / "paused"
    plan = Plan(
        master="local-cluster[2,1,1024]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executorEnv." + VARIABLE: f"{Step.STAGED}@{KILLED_IN_BATCH}:pause={paused}",
        },
        source={
            "kafka.bootstrap.servers": address,
            "subscribe": source_topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(ROWS_OF_A_BATCH),
        },
        sink=sink,
    )
    home = spark_home(tmp_path / "home")
    with ProcessFamily() as family:
        driver = DriverLauncher(family, tmp_path).start(plan, SPARK_HOME=str(home))
        driver.wait_for(lambda: paused.exists() and paused.read_text() != "", PATIENCE_S, "a task has staged its rows")
        executors = family.executors()
        victim = executor_above(int(paused.read_text()))
        kill_now(victim)
        # Those who do its work again come to the same place.
        driver.finish(PATIENCE_S, meanwhile=lambda: paused.unlink(missing_ok=True))

    assert len(executors) == 2
    assert victim in executors
    assert judge(sent, committed_rows(address, sink_topic)) == Verdict(0, 0, 0, 0)
    _, marker = marker_of(sink)
    assert marker is not None
    assert marker.number > KILLED_IN_BATCH
    assert list((tmp_path / "checkpoint").glob("sink-staging/*")) == []
    lost = [line for line in driver.log().splitlines() if "ERROR" in line and "Lost executor" in line]
    assert len(lost) == 1, driver.log()[-6000:]
