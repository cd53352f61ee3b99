"""confluent-kafka (librdkafka) transactions on a real broker: commit, abort, isolation, offsets, fencing, time-outs."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from real_broker import Brokers, RealBroker

WAIT_S = 20.0
_numbers = itertools.count()


def new_name(word: str) -> str:
    return f"confluent-txn-{word}-{next(_numbers)}"


def new_topic(broker: RealBroker, partitions: int = 1) -> str:
    topic = new_name("topic")
    client = AdminClient({"bootstrap.servers": broker.address})
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    return topic


def producer(broker: RealBroker, name: str, **config: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    made = Producer({"bootstrap.servers": broker.address, "transactional.id": name, **settings})
    made.init_transactions(WAIT_S)
    return made


def transaction(made: Producer, topic: str, values: list[bytes], *, commit: bool, partition: int = 0) -> None:
    made.begin_transaction()
    for value in values:
        made.produce(topic, value, partition=partition)
    if commit:
        made.commit_transaction(WAIT_S)
    else:
        made.flush(WAIT_S)  # otherwise they are given up before they are sent
        made.abort_transaction(WAIT_S)


def read(broker: RealBroker, topic: str, isolation: str, wait_s: float = 1.0, partition: int = 0) -> list[bytes]:
    """Everything until nothing comes for a while."""
    settings = {"bootstrap.servers": broker.address, "group.id": new_name("reader"), "isolation.level": isolation}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    values = []
    while (message := consumer.poll(10 if not values and wait_s > 1 else wait_s)) is not None:
        assert message.error() is None
        values.append(message.value() or b"")
    consumer.close()
    return values


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: RealBroker) -> None:
    topic = new_topic(broker)
    made = producer(broker, new_name("id"))
    transaction(made, topic, [b"a", b"b"], commit=True)
    transaction(made, topic, [b"c"], commit=False)
    transaction(made, topic, [b"d"], commit=True)
    assert read(broker, topic, "read_committed") == [b"a", b"b", b"d"]
    assert read(broker, topic, "read_uncommitted") == [b"a", b"b", b"c", b"d"]


def test_an_open_transaction_holds_the_records_behind_it_back(broker: RealBroker) -> None:
    topic = new_topic(broker)
    made = producer(broker, new_name("id"))
    made.begin_transaction()
    made.produce(topic, b"inside", partition=0)
    made.flush(WAIT_S)
    plain = Producer({"bootstrap.servers": broker.address})
    plain.produce(topic, b"behind", partition=0)
    plain.flush(WAIT_S)
    assert read(broker, topic, "read_committed") == []
    made.commit_transaction(WAIT_S)
    assert read(broker, topic, "read_committed") == [b"inside", b"behind"]


def test_a_transaction_over_many_partitions_is_there_at_once(broker: RealBroker) -> None:
    topic = new_topic(broker, 6)
    made = producer(broker, new_name("id"))
    for number in range(3):
        made.begin_transaction()
        for partition in range(6):
            made.produce(topic, b"%d" % number, partition=partition)
        made.commit_transaction(WAIT_S)
    for partition in range(6):
        assert read(broker, topic, "read_committed", partition=partition) == [b"0", b"1", b"2"]


def test_an_empty_transaction_can_be_committed_and_aborted(broker: RealBroker) -> None:
    made = producer(broker, new_name("id"))
    for _ in range(2):
        made.begin_transaction()
        made.commit_transaction(WAIT_S)
        made.begin_transaction()
        made.abort_transaction(WAIT_S)


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(broker: RealBroker) -> None:
    topic, name = new_topic(broker), new_name("id")
    zombie = producer(broker, name)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    zombie.flush(WAIT_S)
    made = producer(broker, name)
    transaction(made, topic, [b"mine"], commit=True)
    with pytest.raises(KafkaException) as failed:
        zombie.commit_transaction(WAIT_S)
    assert failed.value.args[0].code() == KafkaError._FENCED
    assert failed.value.args[0].fatal()
    assert read(broker, topic, "read_committed") == [b"mine"]
    transaction(made, topic, [b"more"], commit=True)


def test_consume_transform_produce_with_a_group(broker: RealBroker) -> None:
    source, target, group = new_topic(broker, 3), new_topic(broker, 3), new_name("group")
    plain = Producer({"bootstrap.servers": broker.address})
    for number in range(60):
        plain.produce(source, b"%d" % number, partition=number % 3)
    plain.flush(WAIT_S)
    done = 0
    for life in range(2):
        # The second one begins where the first one has committed.
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe([source])
        made = producer(broker, group)
        for number in range(3):
            messages = []
            while len(messages) < 10:
                message = consumer.poll(WAIT_S)
                assert message is not None
                if message.error() is None:
                    messages.append(message)
            made.begin_transaction()
            for message in messages:
                made.produce(target, message.value(), partition=message.partition())
            made.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_S
            )
            if number == 1 and life == 0:
                made.abort_transaction(WAIT_S)
                consumer.close()
                break
            made.commit_transaction(WAIT_S)
            done += 10
        if life == 1:
            consumer.close()
    found = [read(broker, target, "read_committed", partition=partition) for partition in range(3)]
    assert sum(len(values) for values in found) == done
    for partition, values in enumerate(found):
        expected = [b"%d" % number for number in range(partition, 60, 3)]
        assert values == expected[: len(values)], "in order, no gap, none twice"


def test_offsets_of_a_member_that_is_not_in_the_group_are_refused(broker: RealBroker) -> None:
    """KIP-447: the generation fences an instance whose partitions went to another one."""
    source, group = new_topic(broker), new_name("group")
    settings = {"bootstrap.servers": broker.address, "group.id": group, "session.timeout.ms": 6000}
    gone = Consumer({**settings, "auto.offset.reset": "earliest"})
    gone.subscribe([source])
    deadline = time.monotonic() + WAIT_S
    while not gone.assignment() and time.monotonic() < deadline:
        gone.poll(0.2)
    metadata = gone.consumer_group_metadata()
    gone.close()
    made = producer(broker, new_name("id"))
    made.begin_transaction()
    with pytest.raises(KafkaException) as failed:
        made.send_offsets_to_transaction([TopicPartition(source, 0, 1)], metadata, WAIT_S)
    assert failed.value.args[0].txn_requires_abort()
    made.abort_transaction(WAIT_S)


def test_a_transaction_that_takes_too_long_is_aborted_and_readers_go_on(brokers: Brokers) -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    broker = brokers.start(settings=settings)
    topic = new_topic(broker)
    made = producer(broker, new_name("id"), transaction_timeout_ms=1000)
    made.begin_transaction()
    made.produce(topic, b"too slow", partition=0)
    made.flush(WAIT_S)
    time.sleep(2.5)
    plain = Producer({"bootstrap.servers": broker.address})
    plain.produce(topic, b"behind", partition=0)
    plain.flush(WAIT_S)
    assert read(broker, topic, "read_committed") == [b"behind"]
    with pytest.raises(KafkaException):
        made.commit_transaction(WAIT_S)


def test_transactions_go_on_after_the_broker_was_killed(brokers: Brokers) -> None:
    broker = brokers.start()
    topic = new_topic(broker)
    made = producer(broker, new_name("id"))
    expected = []
    for number in range(6):
        made.begin_transaction()
        made.produce(topic, b"%d" % number, partition=0)
        if number % 2:
            broker.kill()
            broker.start()
        made.commit_transaction(60)
        expected.append(b"%d" % number)
    assert read(broker, topic, "read_committed", wait_s=2) == expected
