"""kafka-python transactions on a real broker: commit, abort, isolation, offsets in the transaction, fencing."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from real_broker import RealBroker

WAIT_S = 20.0
_numbers = itertools.count()


def new_name(word: str) -> str:
    return f"kafka-python-txn-{word}-{next(_numbers)}"


def new_topic(broker: RealBroker, partitions: int = 1) -> str:
    topic = new_name("topic")
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    client.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
    client.close()
    return topic


def producer(broker: RealBroker, name: str, **config: Any) -> KafkaProducer:
    made = KafkaProducer(bootstrap_servers=broker.address, transactional_id=name, **config)
    made.init_transactions()
    return made


def transaction(made: KafkaProducer, topic: str, values: list[bytes], *, commit: bool) -> None:
    made.begin_transaction()
    for value in values:
        made.send(topic, value, partition=0)
    made.flush(WAIT_S)
    if commit:
        made.commit_transaction()
    else:
        made.abort_transaction()


def read(broker: RealBroker, topic: str, isolation: str, count: int) -> list[bytes]:
    """As many values as are expected, and what comes after them within a second."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, isolation_level=isolation, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(values) < count and time.monotonic() < deadline_s:
        values += polled(consumer, 2000)
    values += polled(consumer, 1000)
    consumer.close()
    return values


def polled(consumer: KafkaConsumer, timeout_ms: int) -> list[bytes]:
    return [record.value for records in consumer.poll(timeout_ms).values() for record in records]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: RealBroker) -> None:
    topic = new_topic(broker)
    made = producer(broker, new_name("id"))
    transaction(made, topic, [b"a", b"b"], commit=True)
    transaction(made, topic, [b"c"], commit=False)
    transaction(made, topic, [b"d"], commit=True)
    assert read(broker, topic, "read_committed", 3) == [b"a", b"b", b"d"]
    assert read(broker, topic, "read_uncommitted", 4) == [b"a", b"b", b"c", b"d"]
    made.close()


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(broker: RealBroker) -> None:
    topic, name = new_topic(broker), new_name("id")
    zombie = producer(broker, name)
    zombie.begin_transaction()
    zombie.send(topic, b"zombie", partition=0)
    zombie.flush(WAIT_S)
    made = producer(broker, name)
    transaction(made, topic, [b"mine"], commit=True)
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        zombie.commit_transaction()
    assert read(broker, topic, "read_committed", 1) == [b"mine"]
    made.close()
    try:
        zombie.close(0)
    except KafkaError:
        pass  # it is not forgiven


def test_consume_transform_produce_with_a_group(broker: RealBroker) -> None:
    source, target, group = new_topic(broker), new_topic(broker), new_name("group")
    plain = KafkaProducer(bootstrap_servers=broker.address)
    for number in range(40):
        plain.send(source, b"%d" % number, partition=0)
    plain.flush(WAIT_S)
    plain.close()
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=broker.address,
        group_id=group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        max_poll_records=10,
    )
    made = producer(broker, group)
    place = TopicPartition(source, 0)
    done = 0
    for number in range(3):
        records = []
        while len(records) < 10:
            found = consumer.poll(timeout_ms=1000, max_records=10 - len(records))
            records += [record for part in found.values() for record in part]
        made.begin_transaction()
        for record in records:
            made.send(target, record.value, partition=0)
        offset = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        made.send_offsets_to_transaction({place: offset}, consumer.group_metadata())
        if number == 1:
            made.abort_transaction()
            consumer.seek(place, consumer.committed(place))
        else:
            made.commit_transaction()
            done += 10
    assert consumer.committed(place) == done
    consumer.close()
    made.close()
    assert read(broker, target, "read_committed", done) == [b"%d" % number for number in range(done)]
