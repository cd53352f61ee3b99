"""The fixtures that pytest finds where semel is installed, and what a test leaves behind."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import semel
from semel.sync import Admin, Consumer, Producer, transform
from semel.testing import Broker, assert_exactly_once


def test_a_test_may_leave_its_broker_killed_and_full(semel_broker: Broker, semel_topic: str) -> None:
    with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        assert producer.send(semel_topic, b"1").result().offset == 0
        producer.send("another", b"1")
    with Consumer(semel_topic, bootstrap_servers=semel_broker.bootstrap_servers, group_id="g") as consumer:
        consumer.poll(timeout_ms=100)
    semel_broker.kill()


@pytest.mark.semel_topic(partitions=3, retention_ms=60_000)
def test_the_next_one_finds_it_up_and_empty(semel_broker: Broker, semel_topic: str) -> None:
    with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
        assert list(admin.list_topics()) == [semel_topic]
        assert admin.list_groups() == {}
        assert len(admin.describe_topics(semel_topic)[semel_topic].partitions) == 3


def test_what_clients_send_is_late_or_waits(semel_broker: Broker, semel_topic: str) -> None:
    with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        producer.send_and_wait(semel_topic, b"quick")
        semel_broker.delay(0.5)
        began_s = time.monotonic()
        producer.send_and_wait(semel_topic, b"late")
        assert time.monotonic() - began_s >= 1.0, "there, and back"
        semel_broker.cut()
        delivery = producer.send(semel_topic, b"cut")
        with pytest.raises(semel.errors.TimedOut):
            delivery.result(timeout_s=0.5)
        semel_broker.heal()
        assert delivery.result(timeout_s=30).offset == 2


def test_a_pipeline_is_compared_with_its_input(semel_broker: Broker) -> None:
    address = semel_broker.bootstrap_servers
    with Producer(bootstrap_servers=address) as producer:
        for number in range(30):
            producer.send("orders", b"%d" % number, key=b"key %d" % number)
    with (
        Consumer(
            "orders",
            bootstrap_servers=address,
            group_id="g",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
        Producer(bootstrap_servers=address, transactional_id="t") as producer,
    ):
        batches = transform(consumer, producer, max_records=10)
        seen = 0
        for batch in batches:
            for message in batch:
                producer.send("invoices", b"invoice", key=message.key)
            seen += len(batch)
            if seen == 20 and batches.attempt == 1:
                semel_broker.restart()
            if seen == 30:
                batches.stop()
    semel_broker.assert_exactly_once("orders", "invoices")
    with Producer(bootstrap_servers=address) as producer:
        producer.send_and_wait("invoices", b"invoice", key=b"key 7")
        producer.send_and_wait("orders", b"new", key=b"key 30")
    with pytest.raises(AssertionError, match="'key 30' is missing: it was read from orders-0") as failed:
        assert_exactly_once("orders", "invoices", bootstrap_servers=address, timeout_s=1)
    assert "b'key 7' is there 2 times instead of 1: invoices-0 offset" in str(failed.value)


def test_a_program_without_a_conftest_has_the_fixtures_and_the_log_of_its_broker(tmp_path: Path) -> None:
    program = tmp_path / "test_it.py"
    program.write_text(
        textwrap.dedent("""
        import pytest
        from semel.sync import Producer

        @pytest.fixture(scope="session")
        def semel_settings():
            return {"num.partitions": 2}

        def test_it(semel_broker):
            with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
                assert len(producer.partitions_for("new")) == 3
    """)
    )
    command = [sys.executable, "-m", "pytest", "-p", "semel.testing.plugin", "-p", "no:cacheprovider", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "assert 2 == 3" in done.stdout
    assert "log of semel_broker" in done.stdout
