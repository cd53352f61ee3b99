"""What DescribeConfigs shows, and what the AlterConfigs family and CreateTopics accept."""

import pytest

from semel.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    Kind,
    Operation,
    Scope,
    Setting,
    UnknownSetting,
    altered,
    checked_overrides,
    describe_broker,
    describe_topic,
    topic_config,
)
from semel.config.describe import DescribedSynonym, _described

STATIC, DEFAULT = ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT
NODE, CLUSTER, TOPIC = ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER, ConfigSource.TOPIC_CONFIG


def described_topic(name, overrides, broker):
    (described,) = describe_topic(overrides, broker, names={name})
    return described


def described_broker(name, broker, **options):
    (described,) = describe_broker(broker, names={name}, **options)
    return described


def test_every_setting_is_described_once_in_order():
    assert [described.name for described in describe_topic({}, BrokerConfig())] == sorted(TOPIC_SETTINGS)
    assert [described.name for described in describe_broker(BrokerConfig())] == sorted(BROKER_SETTINGS)


def test_names_that_do_not_exist_are_passed_over():
    assert describe_topic({}, BrokerConfig(), names=["no.such.setting"]) == []


def test_a_described_setting_carries_its_declaration():
    described = described_broker("log.segment.bytes", BrokerConfig())
    setting = BROKER_SETTINGS["log.segment.bytes"]
    assert described.kind is Kind.INT
    assert described.documentation == setting.sentence
    assert described.value == "1073741824"
    assert not described.read_only
    assert not described.sensitive
    assert described_broker("num.partitions", BrokerConfig()).read_only


def test_a_topic_setting_is_never_read_only():
    assert not any(described.read_only for described in describe_topic({}, BrokerConfig()))


def test_a_setting_of_the_topic_heads_its_chain():
    broker = BrokerConfig({"log.segment.bytes": "1000"})
    broker = broker.with_changes({"log.segment.bytes": "2000"}, cluster_wide=True)
    broker = broker.with_changes({"log.segment.bytes": "3000"})
    described = described_topic("segment.bytes", {"segment.bytes": "4000"}, broker)
    assert (described.value, described.source) == ("4000", TOPIC)
    assert described.synonyms == (
        ("segment.bytes", "4000", TOPIC),
        ("log.segment.bytes", "3000", NODE),
        ("log.segment.bytes", "2000", CLUSTER),
        ("log.segment.bytes", "1000", STATIC),
        ("log.segment.bytes", "1073741824", DEFAULT),
    )


def test_retention_in_hours_is_described_in_its_own_unit_and_counted_in_milliseconds():
    described = described_topic("retention.ms", {}, BrokerConfig({"log.retention.hours": "2"}))
    assert (described.value, described.source) == ("7200000", STATIC)
    assert described.synonyms == (("log.retention.hours", "2", STATIC), ("log.retention.hours", "168", DEFAULT))


def test_the_first_of_a_topics_chain_is_the_value_in_force():
    broker = BrokerConfig(
        {"log.retention.hours": "2", "log.retention.ms": "5", "log.flush.scheduler.interval.ms": "7"}
    ).with_changes({"log.retention.ms": "6"})
    assert described_topic("retention.ms", {}, broker).synonyms == (
        ("log.retention.ms", "6", NODE),
        ("log.retention.ms", "5", STATIC),
        ("log.retention.hours", "2", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    )
    assert described_topic("flush.ms", {}, broker).value == "7"


def test_what_is_described_is_what_the_topic_does():
    broker = BrokerConfig({"log.roll.hours": "3", "log.cleaner.min.cleanable.ratio": "0.25"})
    overrides = {"cleanup.policy": "compact", "preallocate": "true"}
    config = topic_config(overrides, broker)
    for described in describe_topic(overrides, broker):
        value = getattr(config, described.name.replace(".", "_"))
        shown = TOPIC_SETTINGS[described.name].parse(described.value)
        assert (frozenset(shown) if described.name == "cleanup.policy" else shown) == value


def test_a_topic_setting_without_a_broker_setting_has_no_chain():
    described = described_topic("leader.replication.throttled.replicas", {}, BrokerConfig())
    assert (described.value, described.source, described.synonyms) == ("", DEFAULT, ())


def test_a_broker_setting_is_described_with_its_own_source():
    broker = BrokerConfig({"log.retention.ms": "5"})
    described = described_broker("log.retention.hours", broker)
    assert (described.value, described.source) == ("168", DEFAULT)
    described = described_broker("log.retention.ms", broker)
    assert described.synonyms == (("log.retention.ms", "5", STATIC), ("log.retention.hours", "168", DEFAULT))
    for described in describe_broker(broker):
        assert described.source is broker.source(described.name)


def test_a_broker_setting_that_is_not_set_has_no_value():
    described = described_broker("log.retention.ms", BrokerConfig())
    assert (described.value, described.source, described.synonyms) == (None, DEFAULT, ())


def test_the_cluster_is_described_by_its_changes_alone():
    broker = BrokerConfig({"max.connections": "1"}).with_changes({"max.connections": "2"}, cluster_wide=True)
    broker = broker.with_changes({"max.connections": "3", "log.segment.bytes": "1000"})
    (described,) = describe_broker(broker, cluster_wide=True)
    assert (described.name, described.value, described.source) == ("max.connections", "2", CLUSTER)
    assert described.synonyms == (("max.connections", "2", CLUSTER),)


def test_a_secret_is_described_without_its_value():
    secret = Setting("ssl.key.password", Kind.PASSWORD, None, "A secret.", sensitive=True)
    described = _described(secret, "hunter2", [DescribedSynonym("ssl.key.password", "hunter2", STATIC)])
    assert described.sensitive
    assert "hunter2" not in str(described)


def test_set_and_delete_change_one_setting():
    overrides = altered({}, Operation.SET, "segment.bytes", " 1000 ", Scope.TOPIC)
    assert overrides == {"segment.bytes": "1000"}
    assert altered(overrides, Operation.DELETE, "segment.bytes", None, Scope.TOPIC) == {}
    assert altered({}, Operation.DELETE, "segment.bytes", None, Scope.TOPIC) == {}
    assert overrides == {"segment.bytes": "1000"}


def test_append_and_subtract_edit_the_list_in_force():
    appended = altered({}, Operation.APPEND, "cleanup.policy", "compact", Scope.TOPIC)
    assert appended == {"cleanup.policy": "delete,compact"}
    assert altered(appended, Operation.APPEND, "cleanup.policy", "compact", Scope.TOPIC) == appended
    subtracted = altered(appended, Operation.SUBTRACT, "cleanup.policy", "delete", Scope.TOPIC)
    assert subtracted == {"cleanup.policy": "compact"}
    assert altered(subtracted, Operation.SUBTRACT, "cleanup.policy", "delete", Scope.TOPIC) == subtracted


def test_append_starts_from_what_the_node_gives():
    broker = BrokerConfig({"log.cleanup.policy": "compact"})
    appended = altered({}, Operation.APPEND, "cleanup.policy", "delete", Scope.TOPIC, broker=broker)
    assert appended == {"cleanup.policy": "compact,delete"}
    appended = altered({}, Operation.APPEND, "log.cleanup.policy", "delete", Scope.BROKER, broker=broker)
    assert appended == {"log.cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("operation", "name", "value", "scope"),
    [
        (Operation.SET, "segment.bytes", "x", Scope.TOPIC),
        (Operation.SET, "segment.bytes", None, Scope.TOPIC),
        (Operation.SET, "log.segment.bytes", "1000", Scope.TOPIC),
        (Operation.SET, "no.such.setting", "1", Scope.TOPIC),
        (Operation.APPEND, "segment.bytes", "1000", Scope.TOPIC),
        (Operation.SUBTRACT, "compression.type", "gzip", Scope.TOPIC),
        (Operation.APPEND, "cleanup.policy", "erase", Scope.TOPIC),
        (Operation.APPEND, "cleanup.policy", None, Scope.TOPIC),
        (4, "segment.bytes", "1000", Scope.TOPIC),
        (Operation.SET, "num.partitions", "2", Scope.BROKER),
    ],
)
def test_an_operation_that_makes_no_sense_is_refused(operation, name, value, scope):
    with pytest.raises(ConfigError) as refusal:
        altered({}, operation, name, value, scope)
    assert refusal.value.name == name


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("name", ["no.such.setting", "num.partitions"])
def test_what_is_not_set_can_be_deleted_whether_it_is_known_or_not(name, scope):
    assert altered({}, Operation.DELETE, name, None, scope) == {}


def test_operations_carry_the_codes_of_the_protocol():
    assert [(operation.name, operation.value) for operation in Operation] == [
        ("SET", 0),
        ("DELETE", 1),
        ("APPEND", 2),
        ("SUBTRACT", 3),
    ]


def test_a_whole_set_of_overrides_is_checked_and_stored_in_one_form():
    checked = checked_overrides({"preallocate": "TRUE", "cleanup.policy": "compact, delete"}, Scope.TOPIC)
    assert checked == {"preallocate": "true", "cleanup.policy": "compact,delete"}


@pytest.mark.parametrize("texts", [{"segment.bytes": None}, {"segment.bytes": "1"}, {"segment.byte": "1000"}])
def test_a_whole_set_of_overrides_with_one_mistake_is_refused(texts):
    with pytest.raises(ConfigError):
        checked_overrides(texts, Scope.TOPIC)


def test_a_broker_setting_that_needs_a_restart_cannot_be_an_override():
    with pytest.raises(ConfigError, match="restart"):
        checked_overrides({"num.partitions": "2"}, Scope.BROKER)


def test_compaction_lags_are_checked_against_each_other_and_against_the_node():
    broker = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "10"})
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms, which is 10"):
        checked_overrides({"min.compaction.lag.ms": "11"}, Scope.TOPIC, broker=broker)
    both = {"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "12"}
    assert checked_overrides(both, Scope.TOPIC, broker=broker) == both
    with pytest.raises(ConfigError):
        checked_overrides({"log.cleaner.min.compaction.lag.ms": "11"}, Scope.BROKER, broker=broker)


def test_an_unknown_name_in_a_request_is_answered_with_the_nearest_one():
    with pytest.raises(UnknownSetting) as refusal:
        checked_overrides({"retention.msec": "1"}, Scope.TOPIC)
    assert refusal.value.nearest == "retention.ms"
