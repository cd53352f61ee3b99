"""What semel does, in two minutes: one Spark application books payments in two ways, and the plug is pulled on both.

`plain` writes as Spark's own Kafka sink does, `semel` writes each batch once. Broker and drivers die at the worst
moments there are: in an open transaction, after the commit but before Spark knows of it, and as a zombie that wakes up.
"""

import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from application import WAYS
from broker import Broker
from driver import Driver
from picture import draw, lines
from traffic import Onlooker, Payments

import semel
import semel.sync

PICTURE = Path("semel-demo.png")
DRAIN_S = 90.0


class Story:
    """Tells what happens, with the time since the beginning; and between, how far payments and bookings are."""

    def __init__(self) -> None:
        self.begin_s = time.monotonic()
        self.troubles: list[tuple[float, str]] = []
        self._is_live = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def tell(self, text: str, end: str = "\n") -> None:
        seconds = int(time.monotonic() - self.begin_s)
        start = "\r\x1b[K" if self._is_live else ""
        with self._lock:
            print(f"{start}  {seconds // 60}:{seconds % 60:02}  {text}", end=end, flush=True)

    def trouble(self, what: str, text: str) -> None:
        self.troubles.append((time.monotonic() - self.begin_s, what))
        self.tell(f"{len(self.troubles)}: {text}")

    def follow(self, payments: Payments, onlooker: Onlooker) -> None:
        while not self._is_over.wait(0.5 if self._is_live else 15):
            booked = "   ".join(f"{way} {found.records:,}" for way, found in onlooker.found.items())
            self.tell(f"sent {payments.sent:,}   booked: {booked}", end="" if self._is_live else "\n")

    def close(self) -> None:
        self._is_over.set()


def create_topics(address: str) -> None:
    topics = [semel.NewTopic(name, partitions=2, replication_factor=1) for name in ("payments", *WAYS)]
    with semel.sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(topics)


def play(
    broker: Broker, directory: Path, story: Story, payments: Payments, onlooker: Onlooker, drivers: list[Driver]
) -> None:
    files = {name: directory / name for name in ("marked", "ended", "written", "halted", "idle")}

    def start(name: str, halts: dict[str, Path]) -> Driver:
        drivers.append(Driver(name, broker.address, directory, halts))
        return drivers[-1]

    def committed(batch: int) -> list[Path]:
        return [directory / way / "commits" / str(batch) for way in WAYS]

    story.tell("payments are coming in; the Spark application starts (some ten seconds)")
    first = start("first", {"marked@3": files["marked"], "ended@6": files["ended"], "cleaned@6": files["written"]})

    first.wait_for(files["marked"])
    story.trouble(
        "broker killed", "batch 3 is written but not committed: kill -9 to the broker, in the open transaction"
    )
    broker.end(signal.SIGKILL)
    story.tell(f"the broker is back after {broker.start()} ms, its log recovered")
    files["marked"].unlink()

    first.wait_for(files["ended"], files["written"])
    story.trouble("driver killed", "batch 6 is committed, and Spark does not know it yet: kill -9 to the driver")
    first.end(signal.SIGKILL)
    second = start("second", {"marked@9": files["halted"], "cleaned@9": files["idle"]})
    told = second.wait_for_word("was committed before")
    story.tell(f"the next driver, way semel: {told.strip()!r}; way plain writes it again")

    second.wait_for(files["halted"], files["idle"])
    second.send(signal.SIGSTOP)
    story.trouble(
        "driver stopped", "the driver is stopped in the commit of batch 9, as by a long pause; another takes over"
    )
    third = start("third", {})
    third.wait_for(*committed(10))
    second.send(signal.SIGCONT)
    files["halted"].unlink()
    files["idle"].unlink()
    story.trouble("zombie woken", "it wakes up, and goes on where it was")
    told = second.wait_for_word("has taken over")
    story.tell(f"way semel: fenced, {told.split('Overtaken:')[-1].strip()!r}")
    second.end(signal.SIGKILL)

    payments.stop()
    story.tell(f"{payments.sent:,} payments were sent; waiting until all are booked")
    deadline = time.monotonic() + DRAIN_S
    while not onlooker.has_all() and time.monotonic() < deadline:
        time.sleep(0.2)
    third.end(signal.SIGTERM)
    time.sleep(0.5)


def report(onlooker: Onlooker, story: Story, sent: int) -> bool:
    """Whether ours has each payment once, in order, and the plain way does not."""
    print(f"\n  {'way':<8}{'sent':>10}{'booked':>10}{'lost':>8}{'duplicated':>12}{'out of order':>14}")
    for way, found in onlooker.found.items():
        lost = sent - len(found.payments)
        print(f"  {way:<8}{sent:>10,}{found.records:>10,}{lost:>8,}{found.duplicated:>12,}{found.disordered:>14,}")
    print()
    for line in lines(onlooker.noted, story.troubles):
        print(line)
    for number, (_, what) in enumerate(story.troubles, 1):
        print(f"  {number}: {what}", end="  ")
    draw(onlooker.noted, story.troubles, PICTURE)
    print(f"\n\n  the same as a picture: {PICTURE}")
    ours = onlooker.found["semel"]
    return len(ours.payments) == ours.records == sent and not ours.disordered


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="semel-demo-"))
    broker = Broker(str(directory / "log"))
    drivers: list[Driver] = []
    story = Story()
    try:
        story.tell(f"the broker is ready after {broker.start()} ms")
        create_topics(broker.address)
        payments = Payments(broker.address)
        onlooker = Onlooker(broker.address, list(WAYS), payments)
        payments.start()
        onlooker.start()
        threading.Thread(target=story.follow, args=(payments, onlooker), daemon=True).start()
        try:
            play(broker, directory, story, payments, onlooker, drivers)
        finally:
            story.close()
            payments.stop()
            onlooker.stop()
    finally:
        for driver in drivers:
            driver.send(signal.SIGCONT)
            driver.end(signal.SIGKILL)
        broker.end(signal.SIGTERM)
        shutil.rmtree(directory, ignore_errors=True)
    is_exact = report(onlooker, story, payments.sent)
    print("\n  semel: each payment exactly once, in order" if is_exact else "\n  not exactly once: please report it")
    sys.exit(0 if is_exact else 1)


if __name__ == "__main__":
    main()
