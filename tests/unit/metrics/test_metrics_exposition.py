"""Metrics as text, read again by prometheus-client's own parser."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_families

from semel.metrics.counts_kernel import Times
from semel.metrics.document import page
from semel.metrics.exposition import SAMPLES_AT_ONCE, Measured, exposed, single, text_form
from semel.metrics.node_metrics import BYTES_IN, FLUSH_TIME, LEADERS, LOG_SIZE, NODE_INFO, REQUEST_TIME, SECTIONS

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Pauses:
    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


async def text_of(measured: Iterable[Measured | None], most_series: int = 1000, accept: str = OPENMETRICS) -> str:
    return b"".join(await exposed(measured, text_form(accept), most_series, Pauses())).decode()


def samples_in(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_metric_of_many_samples_is_made_in_steps_and_has_one_head() -> None:
    count = 3 * SAMPLES_AT_ONCE + 7
    measured = [Measured(LOG_SIZE, [(("t", str(index)), index) for index in range(count)]), None, single(LEADERS, 4)]
    pauses = Pauses()
    text = b"".join(await exposed(measured, text_form(OPENMETRICS), 1000, pauses)).decode()
    assert text.count("# TYPE kafka_log_log_size gauge\n") == 1
    assert pauses.count >= 5
    found = samples_in(text)
    assert [found["kafka_log_log_size", (str(index), "t")] for index in range(count)] == list(range(count))
    assert found["kafka_server_replicamanager_leadercount", ()] == 4
    assert text.endswith("# EOF\n")


async def test_series_beyond_the_most_are_left_out_and_counted() -> None:
    text = await text_of([Measured(LOG_SIZE, [(("t", str(index)), 1) for index in range(130)])], most_series=60)
    found = samples_in(text)
    assert sum(name == "kafka_log_log_size" for name, _ in found) == 60
    assert found["semel_metrics_left_out", ("kafka_log_log_size",)] == 70


async def test_all_kinds_of_metrics_are_read_back_as_they_were() -> None:
    times = Times()
    times.observe(150_000)
    times.observe(90_000, 2)
    text = await text_of(
        [
            Measured(NODE_INFO, [(("1", "cluster", "0.1"), 1)]),
            Measured(BYTES_IN, [(("t",), 12)]),
            Measured(FLUSH_TIME, [((), times)]),
        ]
    )
    found = samples_in(text)
    assert found["kafka_server_brokertopicmetrics_bytesin_total", ("t",)] == 12
    assert found["semel_flush_seconds_count", ()] == 3
    assert found["semel_flush_seconds_sum", ()] == pytest.approx(0.00033)
    assert found["semel_flush_seconds_bucket", ("0.0001",)] == 2
    assert found["semel_flush_seconds_bucket", ("+Inf",)] == 3
    assert "semel_node_info{" in text


async def test_a_name_cannot_write_lines_of_its_own() -> None:
    name = 'a"} 1\n# EOF\nforged{x="'
    found = samples_in(await text_of([Measured(BYTES_IN, [((name,), 5), (("\\",), 6)])]))
    assert found["kafka_server_brokertopicmetrics_bytesin_total", (name,)] == 5
    assert found["kafka_server_brokertopicmetrics_bytesin_total", ("\\",)] == 6
    assert not any(name == "forged" for name, _ in found)


async def test_a_reader_of_the_older_format_gets_that() -> None:
    text = await text_of([Measured(BYTES_IN, [(("t",), 12)])], accept="text/plain;version=0.0.4")
    families = {family.name: family for family in older_families(text)}
    assert families["kafka_server_brokertopicmetrics_bytesin"].samples[0].value == 12
    assert "# EOF" not in text


def test_names_are_declared_once_and_every_metric_is_documented() -> None:
    declared = [metric for section in SECTIONS.values() for metric in section]
    assert len({metric.name for metric in declared}) == len(declared)
    text = page()
    assert [metric for metric in declared if f"| `{metric.shown_name}` |" not in text] == []


async def test_histograms_are_made_a_few_at_a_time_because_each_has_many_lines() -> None:
    pauses = Pauses()
    await exposed([Measured(REQUEST_TIME, [((str(n),), Times()) for n in range(10)])], text_form(""), 1000, pauses)
    assert pauses.count == 5
