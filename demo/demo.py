"""What semel does, in half a minute: payments are sent while the broker is killed again and again, and all arrive once.

The client is a foreign one (confluent-kafka, the most used Kafka client of Python): nothing in it knows of semel.
"""

import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PAYMENTS = 20_000
KILLS = 5
MOST_OUTSTANDING = 500
TOPIC = "payments"


class Broker:
    """A node in a process of its own, so that it can be killed."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        command = [sys.executable, "-m", "semel.cli.main", "serve", "--data", self.directory, "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--log-level", "ERROR"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().strip()
        found = re.search(r":(\d+),", ready)
        if found is None:
            sys.exit("the broker did not start: its message is above")
        self.port = int(found[1])
        return ready

    def end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()


class Tally:
    """What the client was told of each payment."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.failed = 0

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.acknowledged.add(int(message.key() or b"-1"))


def send(address: str, tally: Tally) -> None:
    """At 5,000 a second, with retries: what Kafka calls an idempotent producer."""
    settings = {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    producer = Producer({**settings, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100})
    for number in range(PAYMENTS):
        producer.produce(TOPIC, key=str(number), value=f'{{"payment": {number}}}', on_delivery=tally.delivered)
        producer.poll(0.01 if number % 50 == 0 else 0)
        while number - len(tally.acknowledged) > MOST_OUTSTANDING:
            producer.poll(0.05)
    producer.flush(60)


def wait_for_progress(tally: Tally) -> None:
    """Until some more payments went through, and then for a moment nobody can foresee."""
    enough, deadline = len(tally.acknowledged) + 1000, time.monotonic() + 20
    while len(tally.acknowledged) < enough and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(random.uniform(0, 0.3))


def read_all(address: str) -> list[int]:
    settings = {"bootstrap.servers": address, "group.id": "demo", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []
    while True:
        for message in consumer.consume(500, timeout=1):
            if message.error() is not None:
                consumer.close()
                return found
            found.append(int(message.key() or b"-1"))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as directory:
        broker = Broker(directory)
        print(broker.start())
        address = f"127.0.0.1:{broker.port}"
        tally = Tally()
        sender = threading.Thread(target=send, args=(address, tally), daemon=True)
        sender.start()
        print(f"sending {PAYMENTS:,} payments, and pulling the plug {KILLS} times (kill -9)\n")
        for kill in range(1, KILLS + 1):
            wait_for_progress(tally)
            broker.end(signal.SIGKILL)
            took = re.search(r"after (\d+) ms", broker.start())
            print(
                f"  kill {kill}: {len(tally.acknowledged):>6,} acknowledged so far; "
                f"the broker was back, its log recovered, after {took[1] if took else '?'} ms"
            )
        sender.join()
        found = read_all(address)
        broker.end(signal.SIGTERM)
    lost = tally.acknowledged - set(found)
    print(f"\n  {'sent':<14}{PAYMENTS:>8,}")
    print(f"  {'acknowledged':<14}{len(tally.acknowledged):>8,}")
    print(f"  {'in the log':<14}{len(found):>8,}")
    print(f"  {'lost':<14}{len(lost):>8,}")
    print(f"  {'duplicated':<14}{len(found) - len(set(found)):>8,}")
    print(f"  {'out of order':<14}{sum(1 for a, b in pairwise(found) if b < a):>8,}")
    is_exact = not lost and len(found) == len(set(found)) == PAYMENTS and found == sorted(found)
    print("\n  each payment exactly once, in order" if is_exact else "\n  that is not exactly once: please report it")
    sys.exit(0 if is_exact else 1)


if __name__ == "__main__":
    main()
