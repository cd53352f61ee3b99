"""`semel.testing.Broker`: a real node in the hand of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.client.admin.admin import Admin
from semel.client.errors import SemelError
from semel.client.producer.producer import Producer
from semel.sync import Admin as BlockingAdmin
from semel.sync import Producer as BlockingProducer
from semel.testing import Broker, NodeDied


def test_a_broker_is_there_within_with_and_leaves_nothing_behind() -> None:
    with Broker(num_partitions=3) as broker:
        directory, pid = broker.directory, broker.pid
        with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert producer.send("payments", b"10.00 EUR").result().offset == 0
            with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
                described = admin.describe_topics("payments")["payments"]
                assert len(described.partitions) == 3, "settings are arguments"
    assert not directory.exists()
    assert not Path(f"/proc/{pid}").exists()


async def test_it_keeps_its_data_and_address_through_kill_and_start() -> None:
    async with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert (await producer.send_and_wait("t", b"1")).offset == 0
        address = broker.bootstrap_servers
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.bootstrap_servers == address
        assert (await producer.send_and_wait("t", b"2")).offset == 1
        broker.stop()
        assert "semel has stopped cleanly" in broker.log
        broker.restart()
        assert (await producer.send_and_wait("t", b"3")).offset == 2


async def test_one_that_is_paused_answers_nothing() -> None:
    async with (
        Broker() as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=300, default_api_timeout_ms=500) as admin,
    ):
        await admin.list_topics()
        broker.pause()
        with pytest.raises(SemelError):
            await admin.list_topics()
        broker.resume()
        await admin.list_topics()


def test_a_directory_that_was_given_stays(tmp_path: Path) -> None:
    for offset in (0, 1):
        with (
            Broker(directory=tmp_path) as broker,
            BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ):
            assert producer.send("t", b"value").result().offset == offset


def test_a_misspelt_setting_is_told_in_the_error() -> None:
    broker = Broker(num_partition=3)
    with pytest.raises(NodeDied, match=r"num\.partition: unknown setting .* num\.partitions"), broker:
        pass
    assert not broker.is_running


def test_settings_with_names_as_kafka_writes_them(tmp_path: Path) -> None:
    settings: dict[str, object] = {"auto.create.topics.enable": False, "num.partitions": 2}
    with Broker(settings=settings, num_partitions=5, directory=tmp_path) as broker:
        command = Path(f"/proc/{broker.pid}/cmdline").read_bytes().decode().split("\0")
    assert "auto.create.topics.enable=false" in command
    assert "num.partitions=5" in command
