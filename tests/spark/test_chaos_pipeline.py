"""Misfortunes in a row on a real pipeline: what a reader of committed data finds is the input, transformed, once each.

Two drivers serve all tests here, one after the other: each takes many seconds to start. `make chaos` runs more of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import chaos_misfortunes as misfortunes
import pytest
from chaos_misfortunes import BROKER_SETTINGS, Chaos
from chaos_world import ChaosWorld, Verdict

from apache_kafka import ApacheKafka, skip_reason
from real_broker import Brokers
from semel.spark.steps import COMMIT_STEPS, Step

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


STOPS_WITHIN_BATCHES, MOST_STOPS = 2, 10


@pytest.fixture(scope="module", params=["semel", pytest.param("kafka", marks=pytest.mark.kafka)])
def chaos(
    request: pytest.FixtureRequest, spark_brokers: Brokers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chaos]:
    """On a broker of its own, since that is killed too: ours, and Apache Kafka when it is asked for."""
    kafka: ApacheKafka | None = None
    if request.param == "kafka":
        reason = skip_reason()
        if reason is not None:
            pytest.skip(reason)
        kafka = ApacheKafka(tmp_path_factory.mktemp("chaos-kafka"), settings=BROKER_SETTINGS).start()
    made = Chaos(kafka or spark_brokers.start(settings=BROKER_SETTINGS), tmp_path_factory.mktemp("chaos"))
    yield made
    made.close()
    if kafka is not None:
        kafka.reap()


def check(verdict: Verdict) -> None:
    assert verdict.is_exactly_once, verdict
    assert verdict.records > 0
    assert verdict.marker == verdict.batches - 1
    assert verdict.staged_files == []


def test_a_plain_writer_repeats_records_under_the_same_misfortunes(chaos: Chaos) -> None:
    chaos.begin(ChaosWorld(chaos.broker, chaos.root / "plain", "plain", delivery="at-least-once"))
    misfortunes.kill_all_workers(chaos)
    stops = [misfortunes.stop_after_output(chaos)]
    while sum(stops) < STOPS_WITHIN_BATCHES and len(stops) < MOST_STOPS:
        stops.append(misfortunes.stop_after_output(chaos))
    verdict = chaos.finish()
    chaos.tell(f"at least once: {verdict}")
    assert verdict.lost == 0
    assert verdict.wrong == 0
    assert verdict.duplicated > 0, f"the harness would not notice; stops within a batch: {stops}"


def test_each_record_is_there_once_whatever_befalls_the_pipeline(chaos: Chaos) -> None:
    chaos.begin(ChaosWorld(chaos.broker, chaos.root / "once", "once"))
    misfortunes.stop_after_output(chaos)
    misfortunes.kill_all_workers(chaos)
    misfortunes.kill_worker(chaos)
    for step in COMMIT_STEPS:
        misfortunes.kill_commit(chaos, step)
    assert "another commit has taken over" in misfortunes.zombie_driver(chaos, Step.MARKER_READ)
    misfortunes.damage_staged_file(chaos)
    misfortunes.stop_in_commit(chaos, Step.MARKED, is_overtaken=True)
    misfortunes.kill_broker(chaos, Step.HALF_PUBLISHED)
    misfortunes.kill_broker(chaos, Step.MARKED, away_s=1.0)
    assert "kafka.transaction.timeout.ms" in misfortunes.outlast_the_transaction(chaos, Step.MARKED)
    misfortunes.kill_driver(chaos, Step.ENDED, is_last=True)
    verdict = chaos.finish()
    chaos.tell(f"exactly once: {verdict}")
    check(verdict)
