"""A node's settings as values, their layers, and what a topic makes of them."""

import dataclasses

import pytest

from semel.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    TopicConfig,
    UnknownSetting,
    topic_config,
)
from semel.config.broker_config import ORDERED

HOUR_MS = 3_600_000


def test_a_broker_config_is_a_mapping_of_every_setting():
    broker = BrokerConfig()
    assert dict(broker) == {name: setting.default for name, setting in BROKER_SETTINGS.items()}
    assert len(broker) == len(BROKER_SETTINGS)


def test_values_are_read_by_their_type():
    broker = BrokerConfig()
    assert broker.int("num.partitions") == 1
    assert broker.str("compression.type") == "producer"
    assert broker.bool("auto.create.topics.enable") is True
    assert broker.list("log.cleanup.policy") == ("delete",)
    assert broker.double("log.cleaner.min.cleanable.ratio") == 0.5


@pytest.mark.parametrize(
    ("reader", "name"),
    [
        ("int", "log.retention.ms"),
        ("int", "delete.topic.enable"),
        ("str", "num.partitions"),
        ("bool", "num.partitions"),
        ("list", "log.dir"),
        ("double", "num.partitions"),
    ],
)
def test_a_value_read_as_another_type_is_our_mistake_and_says_so(reader, name):
    with pytest.raises(TypeError, match=name):
        getattr(BrokerConfig(), reader)(name)


def test_a_node_is_started_with_texts():
    broker = BrokerConfig({"num.partitions": "3"})
    assert broker.int("num.partitions") == 3
    assert broker.source("num.partitions") is ConfigSource.STATIC_BROKER
    assert broker.source("node.id") is ConfigSource.DEFAULT
    with pytest.raises(UnknownSetting):
        BrokerConfig({"num.partition": "3"})


def test_a_change_for_the_node_wins_over_one_for_the_cluster_and_that_over_the_start():
    name = "log.segment.bytes"
    started = BrokerConfig({name: "1000"})
    cluster = started.with_changes({name: "2000"}, cluster_wide=True)
    node = cluster.with_changes({name: "3000"})
    assert [config.int(name) for config in (started, cluster, node)] == [1000, 2000, 3000]
    assert node.source(name) is ConfigSource.DYNAMIC_BROKER
    assert cluster.source(name) is ConfigSource.DYNAMIC_DEFAULT_BROKER
    back = node.with_changes({name: None})
    assert back.int(name) == 2000
    assert back.with_changes({name: None}, cluster_wide=True).int(name) == 1000


def test_taking_back_a_change_that_was_not_made_is_no_mistake():
    assert BrokerConfig().with_changes({"log.segment.bytes": None}).int("log.segment.bytes") == 2**30


def test_a_change_makes_a_new_config_and_leaves_the_old_one():
    before = BrokerConfig()
    before.with_changes({"log.segment.bytes": "1000"})
    assert before == BrokerConfig()


def test_what_cluster_metadata_holds_replaces_earlier_changes():
    broker = BrokerConfig().with_changes({"log.segment.bytes": "1000"})
    replayed = broker.with_overrides(cluster={"max.connections": "5"}, node={"max.connections": "6"})
    assert replayed.int("log.segment.bytes") == 2**30
    assert replayed.int("max.connections") == 6


def test_overrides_of_cluster_and_node_are_judged_together():
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "5"})
    replayed = broker.with_overrides(
        cluster={"log.cleaner.min.compaction.lag.ms": "10"}, node={"log.cleaner.max.compaction.lag.ms": "20"}
    )
    assert replayed.int("log.cleaner.min.compaction.lag.ms") == 10


@pytest.mark.parametrize("name", sorted(n for n, s in BROKER_SETTINGS.items() if s.needs_restart))
def test_a_setting_that_needs_a_restart_is_not_changed_at_run_time(name):
    setting = BROKER_SETTINGS[name]
    text = setting.text(setting.default) or "1"
    for cluster_wide in (True, False):
        with pytest.raises(ConfigError, match="restart"):
            BrokerConfig().with_changes({name: text}, cluster_wide=cluster_wide)


@pytest.mark.parametrize(("lower", "upper"), ORDERED)
def test_a_lower_limit_does_not_exceed_its_upper_one(lower, upper):
    defaults = BrokerConfig()
    limit = max(defaults.int(lower), int(BROKER_SETTINGS[upper].bounds[0]))
    assert BrokerConfig({lower: str(limit), upper: str(limit)}).int(lower) == limit
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig({lower: str(limit + 1), upper: str(limit)})
    assert (refusal.value.name, refusal.value.value) == (lower, str(limit + 1))
    assert f"at most {upper}, which is {limit}" in str(refusal.value)


def test_the_setting_that_was_set_is_blamed_and_not_the_default():
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig({"group.max.session.timeout.ms": "5000"})
    assert refusal.value.name == "group.max.session.timeout.ms"
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig({"group.min.session.timeout.ms": "2000000"})
    assert refusal.value.name == "group.min.session.timeout.ms"


def test_no_limit_is_above_every_limit():
    broker = BrokerConfig({"queued.max.request.bytes": "-1", "socket.request.max.bytes": "2147483647"})
    assert broker.int("queued.max.request.bytes") == -1


def test_the_data_directory_is_log_dirs_if_set_else_log_dir():
    assert BrokerConfig({"log.dir": "/a, b"}).log_dir() == "/a, b"
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b"}).log_dir() == "/b"
    with pytest.raises(ConfigError):
        BrokerConfig({"log.dirs": "/a,/b"})
    with pytest.raises(ConfigError):
        BrokerConfig({"log.dir": ""})
    with pytest.raises(ConfigError):
        BrokerConfig({"log.dir": "a\0b"})


def test_the_repr_shows_what_was_set():
    assert repr(BrokerConfig({"num.partitions": "3"})) == "BrokerConfig({'num.partitions': '3'})"


def test_a_topic_config_has_an_attribute_for_every_topic_setting():
    attributes = {field.name for field in dataclasses.fields(TopicConfig)}
    assert attributes == {name.replace(".", "_") for name in TOPIC_SETTINGS}


def test_every_topic_setting_reaches_its_attribute():
    broker = BrokerConfig()
    for name, setting in TOPIC_SETTINGS.items():
        if setting.off_because:
            assert getattr(topic_config({}, broker), name.replace(".", "_")) is False
            continue
        text = _another_text(setting)
        value = getattr(topic_config({name: text}, broker), name.replace(".", "_"))
        expected = setting.parse(text)
        assert value == (frozenset(expected) if name == "cleanup.policy" else expected)
        assert value != getattr(topic_config({}, broker), name.replace(".", "_"))


def test_every_topic_setting_is_inherited_from_each_of_its_synonyms():
    for name, setting in TOPIC_SETTINGS.items():
        for synonym in setting.synonyms:
            text = _another_text(BROKER_SETTINGS[synonym.name])
            broker = BrokerConfig({synonym.name: text})
            value = getattr(topic_config({}, broker), name.replace(".", "_"))
            parsed = broker[synonym.name]
            if name == "cleanup.policy":
                parsed = frozenset(parsed)
            assert value == (parsed if synonym.unit_ms == 1 else parsed * synonym.unit_ms)


def _another_text(setting):
    """A text that is allowed and is not the default."""
    candidates = ["false", "true", "compact", "zstd", "LogAppendTime", "3:4", "2", "22", "0.25"]
    for text in candidates:
        try:
            if setting.parse(text) != setting.default:
                return text
        except ConfigError:
            continue
    raise AssertionError(setting.name)


@pytest.mark.parametrize(
    ("started_with", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "1"}, HOUR_MS),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": "1"}, -1),
    ],
)
def test_of_the_retention_settings_the_finest_that_is_set_wins(started_with, retention_ms):
    assert topic_config({}, BrokerConfig(started_with)).retention_ms == retention_ms


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_a_node_does_not_keep_records_for_no_time_at_all(name):
    with pytest.raises(ConfigError, match="or -1"):
        BrokerConfig({name: "0"})


@pytest.mark.parametrize(
    ("started_with", "segment_ms", "segment_jitter_ms"),
    [
        ({}, 168 * HOUR_MS, 0),
        ({"log.roll.hours": "2", "log.roll.jitter.hours": "1"}, 2 * HOUR_MS, HOUR_MS),
        ({"log.roll.ms": "7", "log.roll.hours": "2", "log.roll.jitter.ms": "0", "log.roll.jitter.hours": "1"}, 7, 0),
    ],
)
def test_of_the_roll_settings_the_finest_that_is_set_wins(started_with, segment_ms, segment_jitter_ms):
    config = topic_config({}, BrokerConfig(started_with))
    assert (config.segment_ms, config.segment_jitter_ms) == (segment_ms, segment_jitter_ms)


def test_a_topics_own_setting_wins_over_the_nodes():
    broker = BrokerConfig({"log.retention.ms": "5"})
    assert topic_config({"retention.ms": "0"}, broker).retention_ms == 0


def test_a_topic_follows_a_change_of_the_node():
    broker = BrokerConfig().with_changes({"log.segment.bytes": "1000"})
    assert topic_config({}, broker).segment_bytes == 1000


def test_a_topic_refuses_unknown_names_and_wrong_values():
    with pytest.raises(UnknownSetting):
        topic_config({"segment.byte": "1000"}, BrokerConfig())
    with pytest.raises(ConfigError):
        topic_config({"segment.bytes": "1"}, BrokerConfig())


def test_a_topic_says_what_it_does_with_old_records_and_timestamps():
    config = topic_config(
        {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}, BrokerConfig()
    )
    assert config.compacts
    assert config.deletes
    assert config.stamps_at_append
    plain = topic_config({"cleanup.policy": ""}, BrokerConfig())
    assert (plain.compacts, plain.deletes, plain.stamps_at_append) == (False, False, False)
