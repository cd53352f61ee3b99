"""A consume-transform-produce loop as one would write it with confluent-kafka: reads, transforms, and commits output
and offsets in one transaction. It may be killed at any time and started again.

Run as a program: `transaction_loop.py <address> <input> <output> <name>`. What can be retried it retries, what can be
aborted it aborts and reads again; anything else ends it with exit code 3, and whoever watches it starts it again. It
writes a dot for each transaction that it begins.
"""

from __future__ import annotations

import os
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

RECORDS = 750
WAIT_S = 30.0
AGAIN = 3
QUICK = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    # When its only broker is down, librdkafka 2.16 by default throws it away and begins anew, but goes on to send
    # TxnOffsetCommit to the one that it threw away, for minutes.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


def transformed(value: bytes) -> bytes:
    return b"out of " + value


def commit(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(WAIT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def send_offsets(producer: Producer, consumer: Consumer, offsets: list[TopicPartition]) -> None:
    while True:
        try:
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def one_transaction(producer: Producer, consumer: Consumer, messages: list[Message], target: str) -> None:
    producer.begin_transaction()
    os.write(sys.stdout.fileno(), b".")
    offsets: dict[int, TopicPartition] = {}
    for message in messages:
        producer.produce(target, transformed(message.value() or b""), partition=message.partition())
        place = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        offsets[message.partition()] = place
    send_offsets(producer, consumer, list(offsets.values()))
    commit(producer)


def rewind(consumer: Consumer) -> None:
    """Back to what is committed: an aborted transaction has read nothing."""
    for place in consumer.committed(consumer.assignment(), WAIT_S):
        consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


def main() -> None:
    address, source, target, name = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": name,
            "group.instance.id": name,  # a killed instance is replaced at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **QUICK,
        }
    )
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 2, **QUICK})
    try:
        producer.init_transactions(WAIT_S)
        consumer.subscribe([source])
        while True:
            found = consumer.consume(RECORDS, 0.2)
            messages = [message for message in found if message.error() is None]
            if not messages:
                continue
            try:
                one_transaction(producer, consumer, messages, target)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(WAIT_S)
                rewind(consumer)
    except KafkaException as error:
        print(f"gives up: {error}", file=sys.stderr, flush=True)
        os._exit(AGAIN)  # as a crash does: taking leave properly can take its time


if __name__ == "__main__":
    main()
