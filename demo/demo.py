"""What semel does, in ten seconds: payments are sent while the broker is killed again and again, and arrive once."""

import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from itertools import pairwise

import semel
import semel.sync

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

    def delivered(self, number: int, delivery: semel.sync.Delivery) -> None:
        if delivery.exception() is not None:
            self.failed += 1
        else:
            self.acknowledged.add(number)


def send(address: str, tally: Tally) -> None:
    """At 5,000 a second. The producer is idempotent: it retries, and nothing is written twice."""
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        for number in range(PAYMENTS):
            value = b'{"payment": %d}' % number
            producer.send(TOPIC, value, key=b"%d" % number, on_delivery=partial(tally.delivered, number))
            if number % 50 == 0:
                time.sleep(0.01)
            while number - len(tally.acknowledged) > MOST_OUTSTANDING:
                time.sleep(0.01)


def wait_for_progress(tally: Tally) -> None:
    """Until some more payments went through, and then for a moment nobody can foresee."""
    enough, deadline = len(tally.acknowledged) + 1000, time.monotonic() + 20
    while len(tally.acknowledged) < enough and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(random.uniform(0, 0.3))


def read_all(address: str) -> list[int]:
    partition = semel.TopicPartition(TOPIC, 0)
    with semel.sync.Consumer(bootstrap_servers=address) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: list[int] = []
        while consumer.position(partition) < end:
            for messages in consumer.poll(timeout_ms=1000).values():
                found += [int(message.key) for message in messages]
        return found


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
