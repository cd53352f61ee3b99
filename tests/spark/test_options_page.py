"""docs/from-spark-kafka.md has every option of Spark's connector, and what it says of each is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from semel.client.errors import BadSetting
from semel.spark import sink_options, source_options

PAGE = Path(__file__).parents[2] / "docs" / "from-spark-kafka.md"
ADDRESS = {"kafka.bootstrap.servers": "localhost:9092"}
SUBSCRIBED = {**ADDRESS, "subscribe": "orders"}
BY_PARTITION = '{"orders":{"0":1}}'

# Those of the guide to Spark 4.3's connector, each with a value.
OF_STREAMS = {
    "kafka.isolation.level": "read_uncommitted",
    "kafka.group.id": "g",
    "startingOffsets": BY_PARTITION,
    "startingTimestamp": "1000",
    "startingOffsetsByTimestamp": BY_PARTITION,
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "kafkaConsumer.pollTimeoutMs": "1000",
    "fetchOffset.numRetries": "5",
    "fetchOffset.retryIntervalMs": "10",
    "partition.metadata.cache.ttl.ms": "1000",
    "maxOffsetsPerTrigger": "10",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "15m",
    "minPartitions": "4",
    "maxRecordsPerPartition": "10",
    "groupIdPrefix": "p",
    "includeHeaders": "true",
}
OF_BATCHES = {"endingOffsets": BY_PARTITION, "endingTimestamp": "1000", "endingOffsetsByTimestamp": BY_PARTITION}
STRATEGIES = {"subscribe": "a,b", "subscribePattern": "a.*", "assign": '{"orders":[0]}'}
OF_THE_SINK = {"topic": "t", "checkpointLocation": "/c", "includeHeaders": "true"}
REFUSED = {"useDeprecatedOffsetFetching": "true"}
OTHERS = {"kafka.bootstrap.servers", "kafka.*"}


def rows() -> dict[str, str]:
    table = PAGE.read_text().partition("## All options\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \| (.*) \|$", table, re.MULTILINE)
    return {name: text for names, text in found for name in re.findall(r"`([^`]+)`", names)}


def test_every_option_of_sparks_connector_is_on_the_page_and_no_other() -> None:
    of_sessions = {name for name in rows() if name.startswith("spark.")}
    known = OTHERS | {*OF_STREAMS, *OF_BATCHES, *STRATEGIES, *OF_THE_SINK, *REFUSED}

    assert rows().keys() - of_sessions == known


@pytest.mark.parametrize("name", [*OF_STREAMS, *OF_BATCHES])
def test_what_the_page_says_is_the_same_is_taken(name: str) -> None:
    assert not rows()[name].startswith("refused")
    read = source_options.batch_options({**SUBSCRIBED, **OF_STREAMS, **OF_BATCHES})
    assert read.poll_timeout_ms == 1000
    alone = {**SUBSCRIBED, name: {**OF_STREAMS, **OF_BATCHES}[name]}
    (source_options.batch_options if name in OF_BATCHES else source_options.stream_options)(alone)


def test_strategies_and_options_of_the_sink_are_taken() -> None:
    for name, value in STRATEGIES.items():
        source_options.stream_options({**ADDRESS, name: value})
    sink_options.stream_options({**ADDRESS, **OF_THE_SINK})


def test_defaults_that_the_page_names_are_those_of_the_code() -> None:
    read = source_options.stream_options(SUBSCRIBED)

    assert read.isolation_level == "read_committed"
    assert f"`{read.isolation_level}`" in rows()["kafka.isolation.level"]
    assert f"`{read.fetch_retry_ms}`" in rows()["fetchOffset.retryIntervalMs"]
    assert f"`{source_options.DEFAULT_GROUP_PREFIX}`" in rows()["groupIdPrefix"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_page_says_is_refused_is_refused_by_name(name: str) -> None:
    assert rows()[name].startswith("refused")
    with pytest.raises(BadSetting, match=name):
        source_options.stream_options({**SUBSCRIBED, name: REFUSED[name]})
