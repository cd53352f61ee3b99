"""Declarations and the parsing of single values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_defaults import BROKER_DEFAULTS, TOPIC_DEFAULTS

from semel.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    Kind,
    Scope,
    Setting,
    UnknownSetting,
    describe_topic,
    parse_listener,
    parse_setting,
)
from semel.config.broker_settings import SAME_THING
from semel.config.load import variable_of
from semel.config.settings import INTEGER_BOUNDS, by_name

ALL_SETTINGS = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()]
SAMPLE_ENTRIES = {
    "listeners": ["PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://:0", "PLAINTEXT://[::1]:9092"],
    "advertised.listeners": ["PLAINTEXT://node-1.example:9092", "CLIENTS://node-1.example:0"],
    "listener.security.protocol.map": ["PLAINTEXT:PLAINTEXT", "CONTROLLER:SASL_SSL"],
    "controller.listener.names": ["CONTROLLER", "OTHER"],
    "inter.broker.listener.name": ["PLAINTEXT", "internal"],
    "controller.quorum.bootstrap.servers": ["node-1.example:9093", "[::1]:9093"],
    "controller.quorum.voters": ["1@node-1.example:9093", "2@[::1]:9093"],
    "metrics.listener": ["127.0.0.1:9644", ":0", "[::1]:9644"],
    "ssl.principal.mapping.rules": ["DEFAULT", "RULE:^CN=(.*),O=.*$/$1/L,DEFAULT"],
    "super.users": ["User:admin", "User:admin;User:CN=broker 1,O=Company"],
    "leader.replication.throttled.replicas": ["*", "0:1", "17:3"],
    "follower.replication.throttled.replicas": ["*", "0:1", "17:3"],
}


def values_of(setting):
    """A strategy for the values that a setting allows."""
    if setting.kind is Kind.BOOLEAN:
        return st.just(False) if setting.off_because else st.booleans()
    if setting.kind is Kind.DOUBLE:
        return st.floats(*setting.bounds).filter(math.isfinite)
    if setting.kind in INTEGER_BOUNDS:
        numbers = st.integers(*setting.bounds)
        return numbers if setting.also is None else numbers | st.just(setting.also)
    words = st.text("abc./-_ ", min_size=1).map(str.strip).filter(bool)
    if setting.choices or setting.name in SAMPLE_ENTRIES:
        words = st.sampled_from(setting.choices or SAMPLE_ENTRIES[setting.name])
    if setting.kind is Kind.LIST:
        least, most = setting.entries or (0, 2)
        return st.lists(words, unique=True, min_size=least, max_size=most).map(tuple)
    return words


@given(st.data())
def test_a_value_survives_being_written_and_parsed(data):
    setting = data.draw(st.sampled_from(ALL_SETTINGS))
    value = data.draw(values_of(setting))
    parsed = setting.parse(setting.text(value))
    assert parsed == value
    assert type(parsed) is type(value)


@given(st.sampled_from(ALL_SETTINGS), st.text())
def test_any_text_is_parsed_into_an_allowed_value_or_refused(setting, text):
    try:
        value = setting.parse(text)
    except ConfigError as error:
        refusal = error
    else:
        assert setting.parse(setting.text(value)) == value
        return
    assert refusal.name == setting.name
    assert setting.allowed in str(refusal)


@given(st.sampled_from([s for s in ALL_SETTINGS if s.kind in INTEGER_BOUNDS]), st.integers())
def test_a_whole_number_is_taken_exactly_within_its_bounds(setting, number):
    low, high = setting.bounds
    kind_low, kind_high = INTEGER_BOUNDS[setting.kind]
    assert kind_low <= low <= high <= kind_high
    if low <= number <= high or number == setting.also:
        assert setting.parse(str(number)) == number
    else:
        with pytest.raises(ConfigError):
            setting.parse(str(number))


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: setting.name)
def test_a_default_obeys_its_own_rules(setting):
    if setting.default is not None:
        assert setting.parse(setting.text(setting.default)) == setting.default


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: setting.name)
def test_a_sentence_is_one_sentence(setting):
    assert setting.sentence[0].isupper()
    assert setting.sentence.endswith(".")
    assert ". " not in setting.sentence
    assert "|" not in setting.sentence + setting.allowed


# What Kafka has no name for: limits of what one request, session or group may take.
OURS_ALONE = {
    "group.max.metadata.bytes",
    "max.incremental.fetch.session.partitions",
    "max.request.entries",
    "metrics.listener",
    "metrics.max.series",
}


def test_broker_defaults_are_kafkas_except_where_the_declaration_says_so():
    ours = {
        name: setting.kafka_default or ("null" if setting.default is None else setting.text(setting.default))
        for name, setting in BROKER_SETTINGS.items()
        if name not in OURS_ALONE
    }
    assert ours == BROKER_DEFAULTS
    differing = {name for name, setting in BROKER_SETTINGS.items() if setting.kafka_default}
    assert differing == {
        "listeners",
        "log.dir",
        "log.flush.interval.messages",
        "node.id",
        "controller.listener.names",
        "process.roles",
        "queued.max.request.bytes",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "ssl.keystore.type",
        "ssl.truststore.type",
        *OURS_ALONE,
    }
    for name in differing:
        assert BROKER_SETTINGS[name].text(BROKER_SETTINGS[name].default) != BROKER_SETTINGS[name].kafka_default


def test_topic_defaults_are_kafkas_once_flushing_is_left_to_the_operating_system():
    broker = BrokerConfig({"log.flush.interval.messages": "9223372036854775807"})
    assert {described.name: described.value for described in describe_topic({}, broker)} == TOPIC_DEFAULTS


def test_acknowledged_means_on_disk_unless_told_otherwise():
    assert BrokerConfig().int("log.flush.interval.messages") == 1


def test_synonyms_name_declared_settings():
    for setting in TOPIC_SETTINGS.values():
        for synonym in setting.synonyms:
            assert synonym.name in BROKER_SETTINGS
    for names in SAME_THING:
        assert all(name in BROKER_SETTINGS for name in names)
        # describe.py and load.py rely on it: of several names for one thing, only the first changes at run time.
        assert all(BROKER_SETTINGS[name].needs_restart for name in names[1:])


def test_only_the_first_synonym_of_a_topic_setting_changes_at_run_time():
    for setting in TOPIC_SETTINGS.values():
        first, *others = setting.synonyms or [None]
        assert first is None or not BROKER_SETTINGS[first.name].needs_restart
        assert all(BROKER_SETTINGS[other.name].needs_restart for other in others)


def test_no_two_settings_share_a_variable():
    assert len({variable_of(name) for name in BROKER_SETTINGS}) == len(BROKER_SETTINGS)


def test_a_name_cannot_be_declared_twice():
    setting = BROKER_SETTINGS["node.id"]
    with pytest.raises(RuntimeError):
        by_name([setting, setting])


def test_kinds_carry_the_codes_of_describe_configs():
    codes = [(kind.name, kind.value) for kind in Kind]
    names = ["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
    assert codes == [(name, code) for code, name in enumerate(names, start=1)]


@pytest.mark.parametrize("text", ["true", "TRUE", " True "])
def test_a_boolean_is_read_in_any_case_and_with_blanks(text):
    assert parse_setting("delete.topic.enable", text, Scope.BROKER) is True


@pytest.mark.parametrize("text", ["yes", "1", "", "truee"])
def test_other_words_are_no_boolean(text):
    with pytest.raises(ConfigError):
        parse_setting("delete.topic.enable", text, Scope.BROKER)


@pytest.mark.parametrize("text", ["1_000", "٣٤", "1e3", "0x10", "1.0", "", "-", "9" * 5000, "1 000"])
def test_what_python_or_nobody_takes_for_a_whole_number_is_refused(text):
    with pytest.raises(ConfigError):
        parse_setting("log.segment.bytes", text, Scope.BROKER)


@pytest.mark.parametrize(("text", "number"), [(" 42 ", 42), ("+42", 42), ("0042", 42)])
def test_whole_numbers_are_read_as_kafka_reads_them(text, number):
    assert parse_setting("log.segment.bytes", text, Scope.BROKER) == number


@pytest.mark.parametrize("text", ["nan", "inf", "-0.1", "1.1", "0_1", "", "half"])
def test_a_ratio_lies_between_nothing_and_everything(text):
    with pytest.raises(ConfigError):
        parse_setting("min.cleanable.dirty.ratio", text, Scope.TOPIC)


def test_small_segments_are_allowed():
    assert parse_setting("segment.bytes", "14", Scope.TOPIC) == 14
    with pytest.raises(ConfigError):
        parse_setting("segment.bytes", "13", Scope.TOPIC)


def test_a_list_is_split_at_commas_and_may_be_empty():
    assert parse_setting("cleanup.policy", " compact , delete ", Scope.TOPIC) == ("compact", "delete")
    assert parse_setting("cleanup.policy", "", Scope.TOPIC) == ()


@pytest.mark.parametrize("text", ["compact,", ",", "delete,delete", "erase", "Delete"])
def test_a_list_with_an_empty_double_or_unknown_entry_is_refused(text):
    with pytest.raises(ConfigError):
        parse_setting("cleanup.policy", text, Scope.TOPIC)


def test_no_list_has_an_empty_entry():
    anything = Setting("some.list", Kind.LIST, (), "Some list.")
    assert anything.parse("a, b") == ("a", "b")
    with pytest.raises(ConfigError):
        anything.parse("a,,b")


def test_a_list_can_demand_an_entry():
    with pytest.raises(ConfigError, match="at least one entry"):
        parse_setting("group.consumer.assignors", "", Scope.BROKER)


@pytest.mark.parametrize("text", ["1:2", "*", "1:2,3:4", ""])
def test_throttled_replicas_are_pairs_or_all(text):
    parse_setting("leader.replication.throttled.replicas", text, Scope.TOPIC)


@pytest.mark.parametrize("text", ["1", "1:", ":2", "a:b", "1:2:3", "٣:٤"])
def test_throttled_replicas_of_another_form_are_refused(text):
    with pytest.raises(ConfigError):
        parse_setting("leader.replication.throttled.replicas", text, Scope.TOPIC)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://127.0.0.1:9092", "127.0.0.1", 9092),
        ("plaintext://:0", "", 0),
        ("PLAINTEXT://[::1]:65535", "::1", 65535),
    ],
)
def test_a_listener_has_kafkas_form(text, host, port):
    listener = parse_listener(text)
    assert listener == ("PLAINTEXT", host, port)
    assert parse_listener(str(listener)) == listener


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1",
        "a b://127.0.0.1:9092",
        "://127.0.0.1:9092",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://h:65536",
        "PLAINTEXT://h:-1",
        "PLAINTEXT://h:",
        "PLAINTEXT://h/p:1",
        "PLAINTEXT://[h]:1",
        "",
    ],
)
def test_a_listener_of_another_form_is_refused(text):
    with pytest.raises(ConfigError):
        parse_setting("listeners", text, Scope.BROKER)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_an_address_that_nobody_can_reach_is_not_advertised(host):
    parse_setting("listeners", f"PLAINTEXT://{host}:9092", Scope.BROKER)
    with pytest.raises(ConfigError):
        parse_setting("advertised.listeners", f"PLAINTEXT://{host}:9092", Scope.BROKER)


def test_a_refusal_names_the_setting_the_value_and_what_is_allowed():
    with pytest.raises(ConfigError) as refusal:
        parse_setting("log.segment.bytes", "abc", Scope.BROKER)
    assert str(refusal.value) == (
        'log.segment.bytes: "abc" is not allowed; allowed: a whole number from 14 to 2147483647'
    )
    assert (refusal.value.name, refusal.value.value) == ("log.segment.bytes", "abc")


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(UnknownSetting, match=r"log\.segement\.bytes: unknown setting; .* is log\.segment\.bytes"):
        parse_setting("log.segement.bytes", "1", Scope.BROKER)


def test_the_nearest_name_is_one_of_the_same_scope():
    with pytest.raises(UnknownSetting) as refusal:
        parse_setting("log.segment.bytes", "1", Scope.TOPIC)
    assert refusal.value.nearest == "segment.bytes"


def test_a_name_like_no_other_gets_no_proposal():
    with pytest.raises(UnknownSetting) as refusal:
        parse_setting("%%%", "1", Scope.TOPIC)
    assert refusal.value.nearest is None
    assert "None" not in str(refusal.value)


def test_a_refusal_stays_short_whatever_the_client_sent():
    for name, text in (("x" * 100_000, "1"), ("segment.bytes", "y" * 100_000)):
        with pytest.raises(ConfigError) as refusal:
            parse_setting(name, text, Scope.TOPIC)
        assert len(str(refusal.value)) < 400


def test_a_secret_is_not_repeated_in_a_refusal():
    secret = Setting("ssl.key.password", Kind.PASSWORD, None, "A secret.", choices=("right",), sensitive=True)
    with pytest.raises(ConfigError) as refusal:
        secret.parse("hunter2")
    assert "hunter2" not in str(refusal.value)


def test_a_declaration_does_not_change():
    with pytest.raises(AttributeError):
        BROKER_SETTINGS["node.id"].default = 2
