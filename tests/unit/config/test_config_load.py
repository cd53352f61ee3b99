"""Files, variables and flags, and the page that documents them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from semel.config import BROKER_SETTINGS, ConfigError, ConfigSource, UnknownSetting, load_config, topic_config
from semel.config.document import SECTIONS, page
from semel.config.load import _is_reserved, variable_of

ROOT = Path(__file__).parents[3]


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "semel.toml"
        path.write_text(text)
        return path

    return write


def test_without_anything_the_defaults_hold():
    config = load_config(None, {}, {})
    assert all(config.source(name) is ConfigSource.DEFAULT for name in config)


def test_flags_win_over_variables_and_variables_over_the_file(toml):
    path = toml('"num.partitions" = 2\n"fetch.max.bytes" = 2000\n"log.segment.bytes" = 2000\n')
    environ = {"SEMEL_NUM_PARTITIONS": "3", "SEMEL_FETCH_MAX_BYTES": "3000"}
    config = load_config(path, environ, {"num.partitions": "4"})
    names = ("num.partitions", "fetch.max.bytes", "log.segment.bytes", "default.replication.factor")
    assert [config.int(name) for name in names] == [4, 3000, 2000, 1]
    assert config.source("num.partitions") is ConfigSource.STATIC_BROKER


@pytest.mark.parametrize(
    "text",
    [
        '"log.segment.bytes" = 1000',
        "log.segment.bytes = 1000",
        "[log]\nsegment.bytes = 1000",
        "[log.segment]\nbytes = 1000",
        'log.segment.bytes = "1000"',
        '[log]\n"segment.bytes" = 1000',
    ],
)
def test_a_name_in_a_file_may_be_quoted_dotted_or_in_tables(toml, text):
    assert load_config(toml(text), {}, {}).int("log.segment.bytes") == 1000


def test_a_file_may_use_the_types_of_toml(toml):
    path = toml(
        "delete.topic.enable = false\n"
        "log.cleaner.min.cleanable.ratio = 0.25\n"
        'log.cleanup.policy = ["compact", "delete"]\n'
    )
    config = load_config(path, {}, {})
    assert config.bool("delete.topic.enable") is False
    assert config.double("log.cleaner.min.cleanable.ratio") == 0.25
    assert config.list("log.cleanup.policy") == ("compact", "delete")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("num.partitions = true", "num.partitions"),
        ("num.partitions = 1.5", "num.partitions"),
        ("num.partitions = 2020-01-01", "num.partitions"),
        ("num.partitions = [1]", "num.partitions"),
        ('log.cleanup.policy = ["compact,delete"]', "log.cleanup.policy"),
        ("num.partitions = 0", "num.partitions"),
        ('"num.partitions" = 1\nnum.partitions = 2', "num.partitions"),
        ("num.partition = 1", "num.partition"),
    ],
)
def test_a_mistake_in_a_file_is_refused_with_its_name_and_the_file(toml, text, name):
    path = toml(text)
    with pytest.raises(ConfigError) as refusal:
        load_config(path, {}, {})
    assert refusal.value.name == name
    assert str(path) in str(refusal.value)


def test_a_file_that_is_not_toml_is_refused_by_name(toml):
    path = toml("num.partitions 3")
    with pytest.raises(ConfigError) as refusal:
        load_config(path, {}, {})
    assert str(path) in str(refusal.value)


def test_a_missing_file_is_not_passed_over(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.toml", {}, {})


def test_every_setting_has_a_variable():
    for name, setting in BROKER_SETTINGS.items():
        if setting.default is not None:
            text = setting.text(setting.default)
            config = load_config(None, {variable_of(name): text}, {})
            assert config.source(name) is ConfigSource.STATIC_BROKER


def test_an_unknown_variable_is_refused_with_the_nearest_one():
    with pytest.raises(UnknownSetting) as refusal:
        load_config(None, {"SEMEL_LOG_SEGMENTS_BYTES": "1"}, {})
    assert "unknown variable" in str(refusal.value)
    assert refusal.value.nearest == "SEMEL_LOG_SEGMENT_BYTES"


def test_other_variables_are_none_of_our_business():
    environ = {
        "PATH": "/bin",
        "SEMELE": "1",
        "SEMEL_LOG_LEVEL": "debug",
        "SEMEL_PORT": "tcp://10.0.0.1:9092",
        "SEMEL_PORT_9092_TCP_ADDR": "10.0.0.1",
        "SEMEL_SERVICE_HOST": "10.0.0.1",
    }
    load_config(None, environ, {})


@pytest.mark.parametrize("variable", ["SEMEL_LISTENER", "SEMEL_NUM_PARTITION", "SEMEL_LOG_RETENTION_MSEC"])
def test_a_variable_that_is_nearly_a_setting_is_refused(variable):
    with pytest.raises(UnknownSetting, match=variable):
        load_config(None, {variable: "1"}, {})


@pytest.mark.parametrize("variable", ["SEMEL_PORT", "SEMEL_HOME", "SEMEL_VERSION", "SEMEL_BACKUP_BUCKET"])
def test_a_variable_that_is_like_no_setting_stops_no_node_and_is_told(variable, caplog):
    load_config(None, {variable: "9093"}, {})

    assert f"the variable {variable}" in caplog.text
    assert "no effect" in caplog.text


def test_no_setting_hides_behind_a_variable_that_is_let_through():
    assert not any(_is_reserved(variable_of(name)) for name in BROKER_SETTINGS)


def test_a_refusal_says_where_the_value_came_from():
    with pytest.raises(ConfigError, match="from variable SEMEL_NUM_PARTITIONS"):
        load_config(None, {"SEMEL_NUM_PARTITIONS": "none"}, {})
    with pytest.raises(ConfigError, match="from a flag"):
        load_config(None, {}, {"num.partitions": "none"})
    with pytest.raises(UnknownSetting, match="from a flag"):
        load_config(None, {}, {"num.partition": "1"})


def test_values_that_are_wrong_together_are_refused_with_their_origin():
    with pytest.raises(ConfigError, match="from variable SEMEL_GROUP_MAX_SESSION_TIMEOUT_MS"):
        load_config(None, {"SEMEL_GROUP_MAX_SESSION_TIMEOUT_MS": "1"}, {})


def test_a_wrong_value_is_refused_even_where_a_stronger_one_hides_it():
    with pytest.raises(ConfigError, match="SEMEL_NUM_PARTITIONS"):
        load_config(None, {"SEMEL_NUM_PARTITIONS": "none"}, {"num.partitions": "2"})


def test_a_flag_in_hours_wins_over_a_file_in_milliseconds(toml):
    path = toml('"log.retention.ms" = 5\n"log.dirs" = "/file"\n"log.roll.ms" = 5')
    config = load_config(path, {"SEMEL_LOG_RETENTION_MINUTES": "7"}, {"log.retention.hours": "1", "log.dir": "/flag"})
    assert topic_config({}, config).retention_ms == 3_600_000
    assert topic_config({}, config).segment_ms == 5
    assert config.log_dir() == "/flag"


def test_the_page_of_settings_is_up_to_date():
    committed = (ROOT / "docs" / "settings.md").read_text()
    assert committed == page(), "run: python -m semel.config.document > docs/settings.md"


def test_the_page_lists_every_broker_setting():
    assert sorted(s.name for settings in SECTIONS.values() for s in settings) == sorted(BROKER_SETTINGS)


def test_the_example_on_the_page_works(toml):
    example = page().split("```toml\n")[1].split("```")[0]
    config = load_config(toml("\n".join(line.removeprefix("   ") for line in example.splitlines())), {}, {})
    assert config.int("max.connections") == 500
    assert config.int("max.connections.per.ip") == 50
    assert config.list("log.cleanup.policy") == ("compact", "delete")


def test_importing_the_settings_brings_in_nothing_heavy():
    program = "import sys, semel.config; print(*sorted(sys.modules))"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    modules = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    loaded = modules.stdout.split()
    assert "semel.config" in loaded
    assert not {"tomllib", "difflib", "asyncio", "logging", "json", "semel.config.document"} & set(loaded)
    ours = {name for name in loaded if name.startswith("semel.") and not name.startswith("semel.config")}
    assert ours == {"semel.version"}
