"""Secrets are not shown by `repr`, wherever settings are printed or logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.client.admin.settings import AdminSettings
from semel.client.consumer.settings import ConsumerSettings
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import ConnectionSettings, declared, load
from semel.config import BrokerConfig
from semel.config.broker_settings import BROKER_SETTINGS
from semel.spark import databases, foreach_batch, sink_options, source_options
from semel.spark.pipeline.file import load_pipeline
from semel.spark.pipeline.target import Target

SECRET = "hunter2"
TABLE_SINK = f'table = "t"\nurl = "postgresql://u:{SECRET}@host/db"\nkeys = ["id"]'


@pytest.mark.parametrize("cls", [ConnectionSettings, ProducerSettings, ConsumerSettings, AdminSettings])
def test_no_secret_of_a_client_is_shown(cls: type[ConnectionSettings]) -> None:
    secrets = [entry.keyword for entry in declared(cls).values() if entry.option.sensitive]
    assert {"sasl_plain_password", "ssl_password", "sasl_jaas_config", "ssl_keystore_key"} <= set(secrets)
    settings = load(cls, {**dict.fromkeys(secrets, SECRET), "client_id": "shown"})
    assert SECRET not in repr(settings)
    assert SECRET not in f"{settings}"
    assert "shown" in repr(settings)


def test_everything_that_is_called_a_password_is_a_secret() -> None:
    for cls in (ProducerSettings, ConsumerSettings, AdminSettings):
        for entry in declared(cls).values():
            if any(word in entry.keyword for word in ("password", "secret", "jaas", "keystore_key")):
                assert entry.option.sensitive, entry.keyword


def test_no_secret_of_a_broker_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BROKER_SETTINGS, "log.dir", BROKER_SETTINGS["log.dir"]._replace(sensitive=True))
    config = BrokerConfig({"log.dir": f"/{SECRET}", "num.partitions": "7"})
    assert SECRET not in repr(config)
    assert "num.partitions" in repr(config)


def test_no_secret_of_a_pipeline_is_shown() -> None:
    kafka = {"kafka.bootstrap.servers": "a:1", "kafka.sasl.password": SECRET}
    read = source_options.batch_options({**kafka, "subscribe": "t"})
    written = sink_options.batch_options({**kafka, "topic": "t"})
    published = foreach_batch.publish_each("app", {**kafka, "topic": "t"})
    for options in (read, written, published):
        assert SECRET not in repr(options)


def test_no_secret_of_a_pipelines_file_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    for sink in ('topic = "t"\n[sink.options]\n"kafka.sasl.password" = "hunter2"', TABLE_SINK):
        file.write_text(
            'sql = "SELECT * FROM input"\naddress = "a:1"\ncheckpoint = "/c"\n'
            f'[kafka]\n"sasl.password" = "{SECRET}"\n[spark]\n"spark.secret" = "{SECRET}"\n'
            f'[source]\ntopics = ["s"]\n[source.options]\n"kafka.ssl.key.password" = "{SECRET}"\n[sink]\n{sink}\n'
        )
        pipeline = load_pipeline(file)
        assert SECRET in str(pipeline.kafka)
        assert SECRET not in repr(pipeline)
    options = [f"kafka.sasl.password={SECRET}"]
    assert SECRET not in repr(Target.of(str(tmp_path / "checkpoint"), "a:1", options))
    assert SECRET not in repr(databases.database_for(f"postgresql://u:{SECRET}@host/db", None, None))
