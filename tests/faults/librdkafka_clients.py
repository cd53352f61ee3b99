"""Clients of librdkafka that work beside ours: `python librdkafka_clients.py ADDRESS RECORDS RESULTS PARTITIONS`.

What they say and are told is described in foreign_program.py. There are idempotent producers, transactional ones, and
workers that write a result for each record that they read, in the same transaction as their offsets.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

PLAIN, TRANSACTORS, WORKERS = 2, 2, 2
ABORTS = 0.2
BATCH_MAX = 200
TRANSACTION_MS = 15_000
HUNG_S = 30.0
_LONG_MS = 600_000
_PLACES = "\t".join

_channel = threading.Lock()
_quick = {
    "socket.timeout.ms": 4000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    # Else it may not send the offsets of a transaction any more (docs/clients.md).
    "metadata.recovery.strategy": "none",
    "log_level": 2,
}


def tell(*words: object) -> None:
    line = "\t".join(str(word).replace("\t", " ").replace("\n", " ") for word in words)
    with _channel:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def ask(*words: object) -> list[str]:
    with _channel:
        sys.stdout.write("\t".join(map(str, words)) + "\n")
        sys.stdout.flush()
        answer = sys.stdin.readline()
    if not answer:
        raise EOFError("nobody listens any more")
    return answer.rstrip("\n").split("\t")


def is_over(phase: str) -> bool:
    return ask("over", phase) == ["yes"]


class Hung(Exception):
    """A call of the library does not return: its client is given up as it is."""


class Clients:
    def __init__(self, address: str, records: str, results: str, partitions: int) -> None:
        self.address = address
        self.records = records
        self.results = results
        self.partitions = partitions
        self.group = f"{records}-librdkafka"
        self._given_up: list[object] = []

    def producer(self, **settings: object) -> Producer:
        own = {"bootstrap.servers": self.address, "linger.ms": 0}
        return Producer({**_quick, **own, **settings})

    def _delivered(self, value: str, error: KafkaError | None, message: Message) -> None:
        if error is None:
            tell("sent", value, message.offset())
        else:
            tell("unsent", value, error)

    def send(self, producer: Producer, process: str, transaction: str, topic: str, targets: list[str]) -> str:
        """Targets are partitions, with a source. Returns the number of the transaction."""
        places = [f"{topic}-{target}" for target in targets]
        number, *values = ask("sends", process, transaction, *places)
        for target, value in zip(targets, values, strict=True):
            partition = int(target.partition("=")[0])
            try:
                producer.produce(
                    topic, value.encode(), partition=partition, on_delivery=partial(self._delivered, value)
                )
            except (KafkaException, BufferError) as error:
                tell("unsent", value, error)
        producer.poll(0)
        return number

    # -- idempotent

    def write(self, name: str) -> None:
        chance = random.Random(name)
        tell("client", name, "plain", "-", "-")
        producer = self.producer(**{"enable.idempotence": True, "message.timeout.ms": _LONG_MS})
        while not is_over("writing"):
            targets = [str(chance.randrange(self.partitions)) for _ in range(chance.randint(1, 8))]
            self.send(producer, name, "-", self.records, targets)
            while len(producer) > 50:
                producer.poll(0.05)
            time.sleep(chance.uniform(0, 0.3))
        if producer.flush(120):
            tell("complaint", f"{name}: {len(producer)} records are not delivered two minutes after the faults")

    # -- transactional

    def take_over(self, name: str, role: str, transactional_id: str, group: str, number: int) -> tuple[str, Producer]:
        while True:
            process = f"{name}.{number}"
            tell("client", process, role, transactional_id, group)
            producer = self.producer(**{"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_MS})
            ask("init", process)
            while True:
                try:
                    producer.init_transactions(10)
                except KafkaException as error:
                    if error.args[0].retriable():
                        continue
                    tell("inited", process, "info", error)
                    number += 100_000
                    break
                tell("inited", process, "ok", "")
                return process, producer

    def end(self, producer: Producer, process: str, transaction: str, is_commit: bool) -> tuple[bool, bool]:
        """Whether it was committed, and whether the producer can go on."""
        ask("end", process, transaction, "commit" if is_commit else "abort")
        while True:
            try:
                if is_commit:
                    producer.commit_transaction(10)
                else:
                    producer.abort_transaction(10)
            except KafkaException as failed:
                error = failed.args[0]
                if error.retriable():
                    continue
                if error.txn_requires_abort() and is_commit:
                    tell("ended", transaction, "fail", error)
                    return self.end(producer, process, transaction, False)
                tell("ended", transaction, "info", error)
                return False, False
            tell("ended", transaction, "ok", "")
            return is_commit, True

    def transact(self, name: str) -> None:
        chance, instance = random.Random(name), 1
        process, producer = self.take_over(name, "transactor", f"{self.records}-{name}", "-", instance)
        while not is_over("writing"):
            producer.begin_transaction()
            transaction = "new"
            for _ in range(chance.randint(1, 4)):
                target = str(chance.randrange(self.partitions))
                transaction = self.send(producer, process, transaction, self.records, [target])
                if chance.random() < 0.3:
                    time.sleep(chance.uniform(0, 0.1))
            _, is_usable = self.end(producer, process, transaction, chance.random() >= ABORTS)
            if not is_usable or chance.random() < 0.05:
                instance += 1
                process, producer = self.take_over(name, "transactor", f"{self.records}-{name}", "-", instance)

    # -- consume, transform, produce

    def work(self, name: str) -> None:
        chance, instance = random.Random(name), 0
        while not is_over("piping"):
            instance += 1
            process, producer = self.take_over(name, "pipeline", f"{self.records}-{name}", self.group, instance)
            consumer = Consumer(
                {
                    **_quick,
                    "bootstrap.servers": self.address,
                    "group.id": self.group,
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 6000,
                    "max.poll.interval.ms": 20_000,
                    "heartbeat.interval.ms": 1000,
                    "fetch.wait.max.ms": 200,
                }
            )
            consumer.subscribe([self.records], on_assign=self._assigned(process))
            try:
                self._work(process, producer, consumer, chance)
            except Hung:
                tell("hung")
                self._given_up += [producer, consumer]  # to end them would take as long
            else:
                consumer.close()

    def _assigned(self, process: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            if partitions:
                tell("move", process, *(f"{one.topic}-{one.partition}=-1" for one in partitions))

        return assigned

    def _work(self, process: str, producer: Producer, consumer: Consumer, chance: random.Random) -> None:
        while not is_over("piping"):
            batch = [message for message in consumer.consume(BATCH_MAX, 0.2) if message.error() is None]
            if not batch:
                continue
            found: dict[int, list[Message]] = {}
            for message in batch:
                found.setdefault(message.partition(), []).append(message)
            tell("polled", process, *(self._read(number, messages) for number, messages in found.items()))
            producer.begin_transaction()
            targets = [f"{chance.randrange(self.partitions)}={_value(message)}" for message in batch]
            transaction = self.send(producer, process, "new", self.results, targets)
            offsets = [
                TopicPartition(self.records, number, messages[-1].offset() + 1) for number, messages in found.items()
            ]
            is_commit = chance.random() >= ABORTS and self._send_offsets(producer, consumer, offsets)
            is_committed, is_usable = self.end(producer, process, transaction, is_commit)
            if not is_usable or chance.random() < (0.02 if is_committed else 0.3):
                return  # the next one goes on where the group has committed
            if not is_committed:
                self._rewind(process, consumer, found)

    def _rewind(self, process: str, consumer: Consumer, found: dict[int, list[Message]]) -> None:
        for number, messages in found.items():
            offset = messages[0].offset() or 0
            try:
                consumer.seek(TopicPartition(self.records, number, offset))
            except KafkaException:
                continue  # it is somebody else's by now
            tell("move", process, f"{self.records}-{number}={offset}")

    def _read(self, number: int, messages: list[Message]) -> str:
        records = ",".join(f"{message.offset()}:{_value(message)}" for message in messages)
        return f"{self.records}-{number}={records}"

    def _send_offsets(self, producer: Producer, consumer: Consumer, offsets: list[TopicPartition]) -> bool:
        until_s = time.monotonic() + TRANSACTION_MS / 1000
        while True:
            try:
                _within(
                    HUNG_S, lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 5)
                )
                return True
            except KafkaException as failed:
                if not failed.args[0].retriable() or time.monotonic() >= until_s:
                    return False


def _within(timeout_s: float, call: Callable[[], object]) -> None:
    """librdkafka has been seen to wait without end in a call to which it was given a time limit. Raises Hung then."""
    done = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)
        done.set()

    threading.Thread(target=run, daemon=True).start()
    if not done.wait(timeout_s):
        raise Hung
    if failed:
        raise failed[0]


def _value(message: Message) -> int:
    return int((message.value() or b"-1").split(b" ")[0])


def main() -> int:
    address, records, results, partitions = sys.argv[1:]
    clients = Clients(address, records, results, int(partitions))
    failed: list[BaseException] = []

    def run(work: Callable[[str], None], name: str) -> None:
        try:
            work(name)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [
        threading.Thread(target=run, args=(work, f"librdkafka-{kind}-{number}"))
        for kind, work, count in (
            ("plain", clients.write, PLAIN),
            ("transactor", clients.transact, TRANSACTORS),
            ("worker", clients.work, WORKERS),
        )
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.flush()
    os._exit(len(failed))  # without an end of clients that hang


if __name__ == "__main__":
    sys.exit(main())
