"""Options of a read: forms, defaults, contradictions and refusals. Nothing is connected."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.spark.offsets import EARLIEST, LATEST
from semel.spark.source_options import (
    ByOffset,
    ByTime,
    End,
    NoMatch,
    Partitions,
    Pattern,
    SourceOptions,
    Topics,
    batch_options,
    options_of_any_read,
    stream_options,
)

HERE = {"kafka.bootstrap.servers": "localhost:9092"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def stream(**options: Any) -> SourceOptions:
    return stream_options({**HERE, "subscribe": "a", **options})


def batch(**options: Any) -> SourceOptions:
    return batch_options({**HERE, "subscribe": "a", **options})


def test_topics_partitions_and_patterns_say_what_is_read() -> None:
    assert stream_options({**HERE, "subscribe": " a, b ,"}).strategy == Topics(frozenset({"a", "b"}))
    assert stream_options({**HERE, "assign": '{"a":[0,1]}'}).strategy == Partitions(frozenset({A0, A1}))
    pattern = stream_options({**HERE, "subscribePattern": "order.*"}).strategy
    assert isinstance(pattern, Pattern)
    assert pattern.regex.search("orders-eu")


@pytest.mark.parametrize(
    ("options", "given"), [({}, "none"), ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign")]
)
def test_exactly_one_of_them_is_needed(options: dict[str, str], given: str) -> None:
    with pytest.raises(BadSetting, match=rf"exactly one of subscribe, subscribePattern, assign .* given: {given}$"):
        stream_options({**HERE, **options})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", " , "),
        ("subscribePattern", " "),
        ("subscribePattern", "("),
        ("assign", "a"),
        ("assign", '{"a":0}'),
        ("assign", '{"a":["0"]}'),
        ("assign", '{"a":[true]}'),
        ("assign", "{}"),
        ("assign", '{"a":[-1]}'),
    ],
)
def test_one_that_cannot_be_read_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"^{name}: "):
        stream_options({**HERE, name: value})


def test_a_stream_begins_at_the_latest_and_a_batch_at_the_earliest_offset() -> None:
    assert stream().starting == End(LATEST)
    assert (batch().starting, batch().ending) == (End(EARLIEST), End(LATEST))


def test_offsets_are_words_or_by_partition() -> None:
    assert stream(startingOffsets=" Earliest ").starting == End(EARLIEST)
    offsets = {A0: 23, A1: EARLIEST}
    assert stream(startingOffsets='{"a":{"0":23,"1":-2}}').starting == ByOffset("startingOffsets", offsets)


@pytest.mark.parametrize(
    "value", ["soon", "[]", '{"a":3}', '{"a":{"x":1}}', '{"a":{"0":"1"}}', '{"a":{"0":-3}}', '{"a":{"0":1.5}}']
)
def test_offsets_that_cannot_be_read_are_refused_with_an_example(value: str) -> None:
    with pytest.raises(BadSetting, match=r'^startingOffsets: .*\{"topicA":\{"0":23,"1":-1\}'):
        stream(startingOffsets=value)


def test_times_go_before_offsets_and_one_time_before_those_by_partition() -> None:
    by_partition = '{"a":{"0":1000}}'
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": by_partition}

    assert stream(**given).starting == ByTime("startingOffsetsByTimestamp", {A0: 1000}, NoMatch.ERROR)
    assert stream(**given, startingTimestamp="5").starting == ByTime("startingTimestamp", 5, NoMatch.ERROR)


def test_a_time_without_a_record_is_an_error_at_the_start_and_the_latest_offset_at_the_end() -> None:
    assert batch(endingTimestamp="5").ending == ByTime("endingTimestamp", 5, NoMatch.LATEST)
    assert stream(startingTimestamp="5", startingOffsetsByTimestampStrategy="Latest").starting == ByTime(
        "startingTimestamp", 5, NoMatch.LATEST
    )
    with pytest.raises(BadSetting, match=r"^startingOffsetsByTimestampStrategy: 'maybe'"):
        stream(startingOffsetsByTimestampStrategy="maybe")


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"a":{"0":5,"1":-2}}'}, False),
        ({"startingOffsets": '{"a":{"0":5,"1":-1}}'}, True),
        ({"startingOffsets": "latest"}, True),
        ({}, True),
        ({"startingTimestamp": "5"}, True),
    ],
)
def test_only_a_start_that_could_move_is_pinned(options: dict[str, str], moves: bool) -> None:
    assert stream(**options).start_moves is moves


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(BadSetting, match=f"^{name}: a stream has no end"):
        stream(**{name: "latest"})


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"a":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"a":{"0":-2}}'},
    ],
)
def test_a_batch_that_could_hold_nothing_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadSetting, match="is empty: give another"):
        batch(**options)


def test_committed_records_are_read_unless_asked_otherwise() -> None:
    assert stream().isolation_level == "read_committed"
    assert stream(**{"kafka.isolation.level": "read_uncommitted"}).isolation_level == "read_uncommitted"


def test_readers_join_no_group_and_begin_nowhere_by_themselves() -> None:
    settings = stream(**{"kafka.group.id": "etl"}).consumer

    assert "group_id" not in settings
    assert settings["auto_offset_reset"] == "none"
    assert settings["allow_auto_create_topics"] is False


@pytest.mark.parametrize(
    ("options", "group"),
    [
        ({}, "semel-spark-a"),
        ({"groupIdPrefix": "etl"}, "etl-a"),
        ({"queryName": "my query"}, "semel-spark-my-query"),
        ({"kafka.group.id": "mine", "groupIdPrefix": "etl"}, "mine"),
    ],
)
def test_progress_is_committed_for_a_group_that_a_restart_does_not_change(options: dict[str, str], group: str) -> None:
    assert stream(**options).group_id == group
    assert stream(**options).group_id == group


def test_numbers_and_truths_have_the_defaults_of_sparks_own_source() -> None:
    options = stream()

    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_offsets_per_trigger is options.min_offsets_per_trigger is None
    assert options.min_partitions is options.max_records_per_partition is None
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert (options.fetch_attempts, options.fetch_retry_ms, options.poll_timeout_ms) == (3, 1000, 120_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("minOffsetsPerTrigger", "-1"),
        ("minPartitions", "two"),
        ("maxRecordsPerPartition", "0"),
        ("failOnDataLoss", "perhaps"),
        ("includeHeaders", "1"),
        ("maxTriggerDelay", "soon"),
        ("maxTriggerDelay", "3 fortnights"),
        ("startingTimestamp", "-1"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"^{name}: '{value}' is not allowed; allowed: "):
        stream(**{name: value})


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadSetting, match="minOffsetsPerTrigger=5 contradicts maxOffsetsPerTrigger=4"):
        stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("1h", 3_600_000), ("30", 30), ("2min", 120_000), ("10 s", 10_000), ("1d", 86_400_000)],
)
def test_a_delay_is_written_as_sparks_times_are(text: str, milliseconds: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_an_unknown_option_is_refused_with_the_nearest_as_it_is_documented() -> None:
    with pytest.raises(
        BadSetting, match=r"^startingofset: unknown option; the nearest known option is startingOffsets$"
    ):
        stream(startingofset="earliest")


@pytest.mark.parametrize("name", ["topic", "deadLetterTopic", "txnAppId", "maxBytesPerTrigger"])
def test_an_option_that_a_read_does_not_have_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(BadSetting, match=f"^{name}: "):
        stream(**{name.lower(): "x"})


def test_names_of_queries_and_places_of_checkpoints_are_let_through() -> None:
    assert stream(queryName="q", checkpointLocation="/c", path="/p").strategy == Topics(frozenset({"a"}))


def test_what_is_wrong_is_told_before_it_is_known_whether_a_stream_or_a_batch_is_read() -> None:
    with pytest.raises(BadSetting, match=r"kafka\.bootstrap\.servers is missing"):
        options_of_any_read({"subscribe": "a"})
    with pytest.raises(BadSetting, match="exactly one of"):
        options_of_any_read(HERE)
    with pytest.raises(BadSetting, match=r"^kafka\.fetch\.min\.bytes: "):
        options_of_any_read({**HERE, "subscribe": "a", "kafka.fetch.min.bytes": "many"})


def test_options_can_be_sent_to_a_task() -> None:
    options = stream_options({**HERE, "subscribePattern": "a.*"})

    assert pickle.loads(pickle.dumps(options)) == options
