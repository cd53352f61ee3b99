"""A consume-transform-produce program dies between any two of its calls: the next one takes over, nothing is lost and
nothing is there twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from sample_records import FIRST_TIMESTAMP_MS
from transaction_steps import BATCH, STEPS

from raw_client import RawClient, batch_of
from real_broker import Brokers, RealBroker

PROGRAM = Path(__file__).with_name("transaction_steps.py")
WAIT_S = 60.0


@pytest.fixture(scope="module")
def one_broker(shared_brokers: Brokers) -> RealBroker:
    return shared_brokers.start()


def read_committed(broker: RealBroker, topic: str, count: int) -> list[bytes]:
    """`count` records, and then as many more as come within a second: there should be none."""
    settings = {"bootstrap.servers": broker.address, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(10 if len(values) < count else 1)) is not None:
        assert message.error() is None
        values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_program_that_dies_after_any_call_is_taken_over_and_every_record_comes_out_once(
    one_broker: RealBroker, client: str
) -> None:
    source, target, name = f"{client}-source", f"{client}-target", f"{client}-pass"
    values = [b"%d" % number for number in range(2 * BATCH)]
    with RawClient(one_broker.port) as raw:
        raw.make_topic(source)
        raw.make_topic(target)
        assert raw.produce(source, 0, batch_of(values, timestamp_ms=FIRST_TIMESTAMP_MS)).error_code == 0
    # Every life but those that reach the commit is in vain.
    for last_step in (*STEPS, STEPS[-1]):
        command = [sys.executable, str(PROGRAM), client, one_broker.address, source, target, name, last_step]
        done = subprocess.run(command, timeout=WAIT_S, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{client} was to die once it had {last_step}:\n{done.stderr}"
    assert read_committed(one_broker, target, len(values)) == [b"out of " + value for value in values]
