"""A broker killed at random moments, again and again, while producers count what it has acknowledged.

Afterwards every acknowledged record is there once, at the offset it was acknowledged with, in the order in which its
producer sent it. kill -9 keeps the page cache, so this holds for both kinds of flush; power loss is for the simulator.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer

from raw_client import RawClient, batch_of, fetch_request, produce_request
from real_broker import Brokers, RealBroker, clean_environment
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_response
from semel.wire.spec.produce import ProduceResponse

KILLS = 30
PARTITIONS = 3
TOPIC = "killed"
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    # Small segments and frequent checkpoints: kills meet rolls, snapshots and checkpoints too.
    "log.segment.bytes": "300000",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.retention.bytes": "-1",
}

# Partition -> offset by number, for one producer.
Acknowledged = dict[int, dict[int, int]]


class Sender(threading.Thread):
    """Sends numbered values until told to stop, then waits for every acknowledgement."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name=name, daemon=True)
        self.port = port
        self.stopping = threading.Event()
        self.acknowledged: Acknowledged = defaultdict(dict)
        self.sent: dict[int, int] = defaultdict(int)
        self.failures: list[str] = []

    def next_value(self, partition: int) -> bytes:
        number = self.sent[partition]
        self.sent[partition] += 1
        return b"%s %d %d %s" % (self.name.encode(), partition, number, b"." * (number % 200))

    def run(self) -> None:
        try:
            self.send_until_stopped()
        except BaseException as error:
            self.failures.append(f"{self.name}: {error!r}")

    def send_until_stopped(self) -> None:
        raise NotImplementedError


class LibrdkafkaSender(Sender):
    def send_until_stopped(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.port}",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "retries": 1_000_000,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 50,
                "message.timeout.ms": 300_000,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        partition = 0
        while not self.stopping.is_set():
            partition = (partition + 1) % PARTITIONS
            number = self.sent[partition]
            producer.produce(
                TOPIC, self.next_value(partition), partition=partition, on_delivery=self._noted(partition, number)
            )
            producer.poll(0)
            # A bounded number in flight, so that a kill meets requests and not only a queue.
            while len(producer) > 500 and not self.stopping.is_set():
                producer.poll(0.01)
            time.sleep(0.0005)
        left = producer.flush(60)
        if left:
            self.failures.append(f"{self.name}: {left} records were never acknowledged")

    def _noted(self, partition: int, number: int):  # type: ignore[no-untyped-def]
        def noted(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{self.name}: record {number} of partition {partition}: {error}")
            else:
                self.acknowledged[partition][number] = message.offset()

        return noted


class KafkaPythonSender(Sender):
    def send_until_stopped(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=f"127.0.0.1:{self.port}",
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            retries=1_000_000,
            retry_backoff_ms=10,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=50,
            request_timeout_ms=10_000,
            delivery_timeout_ms=300_000,
            max_block_ms=60_000,
        )
        partition = 0
        while not self.stopping.is_set():
            partition = (partition + 1) % PARTITIONS
            number = self.sent[partition]
            future = producer.send(TOPIC, self.next_value(partition), partition=partition)
            future.add_callback(self._delivered, partition, number)
            future.add_errback(self._failed, partition, number)
            time.sleep(0.002)
        producer.flush(60)
        producer.close(10)

    def _delivered(self, partition: int, number: int, metadata) -> None:  # type: ignore[no-untyped-def]
        self.acknowledged[partition][number] = metadata.offset

    def _failed(self, partition: int, number: int, error: BaseException) -> None:
        self.failures.append(f"{self.name}: record {number} of partition {partition}: {error!r}")


class RawSender(Sender):
    """Up to five batches in flight; after a broken connection all that is not acknowledged is sent again, as it was."""

    def send_until_stopped(self) -> None:
        partition = int(self.name[-1])
        producer_id = -1
        sequence = 0
        unanswered: list[tuple[bytearray, list[int]]] = []
        while unanswered or not self.stopping.is_set():
            try:
                with RawClient(self.port, timeout_s=10) as client:
                    if producer_id < 0:
                        producer_id = client.new_producer_id()
                    while unanswered or not self.stopping.is_set():
                        while len(unanswered) < 5 and not self.stopping.is_set():
                            numbers = list(range(self.sent[partition], self.sent[partition] + 3))
                            values = [self.next_value(partition) for _ in numbers]
                            now_ms = int(time.time() * 1000)
                            batch = batch_of(values, timestamp_ms=now_ms, producer_id=producer_id, sequence=sequence)
                            sequence += len(values)
                            unanswered.append((batch, numbers))
                        # All of them again on a new connection, then one after the other.
                        self._exchange(client, partition, unanswered)
            except OSError:
                time.sleep(0.01)

    def _exchange(self, client: RawClient, partition: int, unanswered: list[tuple[bytearray, list[int]]]) -> None:
        for batch, _ in unanswered:
            client.send(produce_request(TOPIC, partition, batch), 9)
        while unanswered:
            _, answer = read_response(ProduceResponse, 9, client.read_frame())
            (result,) = answer.responses[0].partition_responses
            if result.error_code:
                raise AssertionError(f"{ErrorCode(result.error_code).name}: {result.error_message}")
            _, numbers = unanswered.pop(0)
            for distance, number in enumerate(numbers):
                self.acknowledged[partition][number] = result.base_offset + distance


def seeds() -> Iterator[int]:
    chosen = os.environ.get("SEMEL_CRASH_SEED")
    yield int(chosen) if chosen else random.SystemRandom().randrange(1 << 32)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("flush", ["fsync", "os"])
def test_what_was_acknowledged_is_there_once_after_thirty_kills(brokers: Brokers, flush: str) -> None:
    seed = next(seeds())
    print(f"\nrepeat with SEMEL_CRASH_SEED={seed}")
    chance = random.Random(seed)
    broker = brokers.start(flush=flush, settings=SETTINGS)
    with RawClient(broker.port) as client:
        client.make_topic(TOPIC)
    senders: list[Sender] = [
        LibrdkafkaSender("librdkafka-a", broker.port),
        LibrdkafkaSender("librdkafka-b", broker.port),
        KafkaPythonSender("kafka-python", broker.port),
        RawSender("raw-0", broker.port),
        RawSender("raw-1", broker.port),
    ]
    for sender in senders:
        sender.start()
    kills = kill_again_and_again(broker, chance)
    for sender in senders:
        sender.stopping.set()
    for sender in senders:
        sender.join(70)
    assert not any(sender.is_alive() for sender in senders)
    assert [failure for sender in senders for failure in sender.failures] == []

    counts = {sender.name: sum(map(len, sender.acknowledged.values())) for sender in senders}
    print(f"{kills} kills, acknowledged: {counts}")
    assert all(counts.values())
    check_log(broker, senders)
    # The same after one more kill and after a clean stop.
    broker.kill()
    broker.start()
    check_log(broker, senders)
    assert broker.stop() == 0
    broker.start()
    check_log(broker, senders)
    assert "Traceback" not in broker.log()


def kill_again_and_again(broker: RealBroker, chance: random.Random) -> int:
    kills = 0
    while kills < KILLS:
        time.sleep(chance.uniform(0.02, 0.5))
        broker.kill()
        kills += 1
        if chance.random() < 0.2:
            # Killed while it starts, too: in the middle of recovery.
            broker.spawn()
            time.sleep(chance.uniform(0.05, 0.3))
            broker.kill()
            kills += 1
        broker.start()
    return kills


def check_log(broker: RealBroker, senders: list[Sender]) -> None:
    """The log holds, per producer and partition, exactly what was sent, in order, where it was said to be."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    with RawClient(broker.port) as client:
        for partition in range(PARTITIONS):
            offsets = []
            for record in client.read_log(TOPIC, partition):
                name, of_partition, number, _ = (record.value or b"").split(b" ", 3)
                assert int(of_partition) == partition
                found[name.decode(), partition].append((int(number), record.offset))
                offsets.append(record.offset)
            assert offsets == list(range(len(offsets)))
    for sender in senders:
        for partition, sent in sender.sent.items():
            numbers = [number for number, _ in found[sender.name, partition]]
            assert len(numbers) == len(set(numbers)), f"{sender.name} in partition {partition}: records twice"
            assert numbers == sorted(numbers), f"{sender.name} in partition {partition}: out of order"
            missing = set(sender.acknowledged[partition]) - set(numbers)
            assert not missing, f"{sender.name} in partition {partition}: acknowledged and lost: {sorted(missing)[:5]}"
            assert numbers == list(range(sent))
            assert dict(found[sender.name, partition]) == sender.acknowledged[partition]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("segment_bytes", ["200", "1000000"])
def test_the_last_five_batches_of_a_producer_are_known_after_a_restart(
    brokers: Brokers, ending: signal.Signals, segment_bytes: str
) -> None:
    """With one batch a segment, four of the five are known from a snapshot alone."""
    broker = brokers.start(settings={"log.segment.bytes": segment_bytes})
    with RawClient(broker.port) as client:
        client.make_topic("again")
        producer_id = client.new_producer_id()
        batches = [
            batch_of([b"%d" % number] * 3, timestamp_ms=1, producer_id=producer_id, sequence=3 * number)
            for number in range(8)
        ]
        assert [client.produce("again", 0, batch).base_offset for batch in batches] == list(range(0, 24, 3))
    for _ in range(2):
        broker.stop(ending)
        broker.start()
        with RawClient(broker.port) as client:
            answers = [client.produce("again", 0, batch) for batch in batches[3:]]
            assert [(answer.error_code, answer.base_offset) for answer in answers] == [
                (0, offset) for offset in range(9, 24, 3)
            ]
            assert client.produce("again", 0, batches[2]).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            assert len(client.read_log("again", 0)) == 24
    with RawClient(broker.port) as client:
        assert client.new_producer_id() > producer_id, "producer ids never repeat"


def run_to_its_end(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A broker that is expected to refuse to start."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env=clean_environment(**variables)
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_says_so_and_the_next_start_needs_no_recovery(brokers: Brokers, number: signal.Signals) -> None:
    broker = brokers.start()
    with RawClient(broker.port) as client:
        client.make_topic("clean")
        assert client.produce("clean", 0, batch_of([b"a"], timestamp_ms=1)).error_code == 0
    assert broker.stop(number) == 0
    assert broker.stdout.endswith("semel has stopped cleanly\n")
    broker.start()
    assert "recovered" not in broker.log()
    with RawClient(broker.port) as client:
        assert [record.value for record in client.read_log("clean", 0)] == [b"a"]


def test_a_broker_stops_although_clients_wait_for_an_answer(brokers: Brokers) -> None:
    broker = brokers.start()
    with RawClient(broker.port) as client:
        client.make_topic("waiting")
        client.send(fetch_request("waiting", 0, 0, max_wait_ms=60_000), 11)
        started = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - started < 10


def test_a_second_node_on_the_same_directory_is_refused_with_the_holders_pid(brokers: Brokers) -> None:
    broker = brokers.start()
    second = run_to_its_end([*broker.command()[:-4], "--port", "0"])
    assert second.returncode != 0
    assert str(broker.pid) in second.stderr
    assert "Traceback" not in second.stderr
    with RawClient(broker.port) as client:
        client.make_topic("still-served")
    # Killed, not stopped: the lock goes with its holder.
    broker.kill()
    broker.start()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "num.partitions=none"], ["num.partitions", "none", "number"]),
        (["--set", "num.partitions=0"], ["num.partitions", "0", "1"]),
        (["--set", "log.cleanup.policy=shred"], ["log.cleanup.policy", "shred", "compact", "delete"]),
        (["--set", "num.partition=3"], ["num.partition", "num.partitions"]),
        (["--set", "nonsense"], ["nonsense", "NAME=VALUE"]),
        (["--flush", "sometimes"], ["--flush", "sometimes", "fsync", "os"]),
        (["--log-level", "LOUD"], ["--log-level", "LOUD", "DEBUG"]),
        (["--config", "/does/not/exist.toml"], ["/does/not/exist.toml"]),
    ],
)
def test_a_wrong_setting_is_refused_with_name_value_and_what_is_allowed(
    brokers: Brokers, arguments: list[str], told: list[str]
) -> None:
    command = brokers.new().command()
    refused = run_to_its_end([*command, *arguments])
    assert refused.returncode == 2
    assert [word for word in told if word not in refused.stderr] == []
    assert "Traceback" not in refused.stderr
    assert re.search("semel is ready", refused.stdout) is None


def test_a_wrong_variable_is_refused_too(brokers: Brokers) -> None:
    refused = run_to_its_end(brokers.new().command(), SEMEL_NUM_PARTITIONS="-3")
    assert refused.returncode == 2
    assert "num.partitions" in refused.stderr
    assert "-3" in refused.stderr


def test_a_port_that_is_taken_is_said_in_one_line(brokers: Brokers) -> None:
    broker = brokers.start()
    other = brokers.new()
    other.port = broker.port
    refused = run_to_its_end(other.command())
    assert refused.returncode != 0
    assert str(broker.port) in refused.stderr
    assert "Traceback" not in refused.stderr
