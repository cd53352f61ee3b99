"""What may befall a pipeline, each misfortune by its name: processes killed, stopped, overtaken, left waiting.

`Chaos` keeps one driver at work on the query, and another one at hand that takes over when the first is killed, or
while it sleeps. A misfortune returns when the pipeline has gone on after it: at least one more batch is done.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chaos_driver import PATIENCE_S, ChaosDriver, DriverDied
from chaos_world import ChaosWorld, Node, Verdict

from semel.spark.steps import Step

SHORT_TIMEOUT_MS = 4000
BROKER_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
_LOOK_S = 0.02
_BACKLOG_S = 4.0
_MOST_RESTARTS = 8


class Chaos:
    def __init__(self, broker: Node, root: Path, tell: Callable[[str], None] = print) -> None:
        self.broker = broker
        self.root = root
        self.tell = tell
        self.kills: Counter[str] = Counter()
        """By kind; of processes only, not what was stopped or overtaken."""
        self.troubles: Counter[str] = Counter()
        """By kind, those that kill nobody."""
        self.restarts = 0
        self._begun_s = time.monotonic()
        self._spawned = 0
        self._more: dict[str, str] = {}
        self._drivers: list[ChaosDriver] = []
        self._world: ChaosWorld | None = None
        self.active = self.spawn()
        self.standby = self.spawn()

    def spawn(self) -> ChaosDriver:
        self._spawned += 1
        driver = ChaosDriver(self.root / f"driver-{self._spawned}").spawn()
        self._drivers.append(driver)
        return driver

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()

    @property
    def errors(self) -> list[str]:
        """What queries have failed with."""
        return [error for driver in self._drivers for error in driver.errors]

    def killed(self, what: str) -> None:
        self.kills[what] += 1
        self._told(f"kill {self.kills.total()}: {what}")

    def troubled(self, what: str) -> None:
        self.troubles[what] += 1
        self._told(what)

    def _told(self, what: str) -> None:
        self.tell(f"{time.monotonic() - self._begun_s:6.1f} s  batch {self.world.batches_begun() - 1:4d}  {what}")

    @property
    def world(self) -> ChaosWorld:
        if self._world is None:
            raise DriverDied("there is no query yet")
        return self._world

    # -- the query

    def begin(self, world: ChaosWorld) -> None:
        self._world = world
        self.start()
        self.go_on()

    def start(self, **write: str) -> None:
        """`write` are options for this start, and for those that follow of themselves."""
        self._more = write
        self.active.start(self.world.read, {**self.world.write, **write})

    def go_on(self, batches: int = 1) -> None:
        """Returns when so many more batches are done, whatever starts that takes."""
        wanted = self.world.batches_done() + batches
        self.until(lambda: self.world.batches_done() >= wanted, "to go on")

    def reach(self, step: Step) -> None:
        """Returns when a process of the active driver has reached the step, and stays there."""
        self.active.gate.hold(step)
        self.until(lambda: self.active.gate.held() is not None, f"to reach {step}")

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """A query that ends meanwhile is started again, as often as can be explained."""
        deadline = time.monotonic() + PATIENCE_S
        restarts = 0
        while not is_so():
            if not self.active.is_running:
                if restarts == _MOST_RESTARTS:
                    raise DriverDied(f"the query was {what}, and only fails: {self.active.errors[-1:]}")
                restarts += 1
                self.restarts += 1
                self.start(**self._more)
            if time.monotonic() > deadline:
                raise DriverDied(f"the query was {what} within {PATIENCE_S:g} s; errors: {self.active.errors[-3:]}")
            time.sleep(_LOOK_S)

    def swap(self) -> None:
        self.active, self.standby = self.standby, self.active

    def finish(self) -> Verdict:
        """Everything that was produced goes through, and is judged."""
        texts = self.world.feeder.stop()
        self.active.stop()
        for _ in range(_MOST_RESTARTS):
            errors = len(self.active.errors)
            self.active.start(self.world.read, self.world.write, is_bounded=True)
            self.active.wait_until_ended()
            if len(self.active.errors) == errors:
                return self.world.judge(texts)
        raise DriverDied(f"the query does not end: {self.active.errors[-1]}")


# -- misfortunes


def kill_commit(chaos: Chaos, step: Step) -> None:
    """The process that runs `commit` dies; the query fails, and is started again by the same driver."""
    chaos.reach(step)
    chaos.active.gate.kill_held()
    chaos.active.gate.release()
    chaos.killed(f"commit process at {step}")
    chaos.active.wait_until_ended()
    chaos.go_on()


def kill_worker(chaos: Chaos) -> None:
    """A task has staged what it had to, and dies before Spark knows."""
    chaos.reach(Step.STAGED)
    chaos.active.gate.kill_held()
    chaos.active.gate.release()
    chaos.killed("worker of a task")
    chaos.go_on()


def kill_all_workers(chaos: Chaos) -> None:
    """As soon as something new is in the output, all Python processes of the driver die at once."""
    _wait_for_output(chaos)
    chaos.active.kill_workers()
    chaos.killed("all workers after output")
    chaos.go_on()


def kill_workers_after(chaos: Chaos, delay_s: float) -> None:
    """At any moment, whatever they do: they read, write or commit, and one of them plans what is read."""
    time.sleep(delay_s)
    chaos.active.kill_workers()
    chaos.killed("all workers at some moment")
    chaos.go_on()


def damage_staged_file(chaos: Chaos) -> None:
    """A byte of a staged file is not what was written, and the commit comes to read it. Small batches need no file: so
    one is held back until enough has come in for the next one."""
    chaos.reach(Step.CLEANED)
    time.sleep(_BACKLOG_S)
    chaos.reach(Step.CHECKED)
    staged = chaos.world.staged_files()
    if not staged:
        raise DriverDied(f"what came in within {_BACKLOG_S:g} s should be too much to stage without a file")
    path = chaos.world.checkpoint / "sink-staging" / staged[-1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    chaos.active.gate.release()
    chaos.troubled("a staged file damaged")
    chaos.active.wait_until_ended()
    chaos.go_on()


def kill_driver(chaos: Chaos, step: Step, *, is_last: bool = False) -> None:
    """Python, Java and workers of the driver die; another driver goes on."""
    chaos.reach(step)
    chaos.active.kill()
    chaos.killed(f"driver at {step}")
    chaos.swap()
    if not is_last:
        chaos.standby = chaos.spawn()
    chaos.start()
    chaos.go_on()


def kill_driver_after(chaos: Chaos, delay_s: float) -> None:
    time.sleep(delay_s)
    chaos.active.kill()
    chaos.killed("driver at some moment")
    chaos.swap()
    chaos.standby = chaos.spawn()
    chaos.start()
    chaos.go_on()


def zombie_driver(chaos: Chaos, step: Step, *, is_staging_kept: bool = True) -> str:
    """A driver is asleep in `commit`, another one takes over, and the first one wakes. Returns what it fails with.

    Who takes over removes what was staged for the batches that it has committed, and the first one may fail of that. If
    it stages elsewhere, nothing but the broker can hold the first one back.
    """
    asleep = chaos.active
    chaos.reach(step)
    chaos.swap()
    chaos.start(**({"stagingLocation": str(chaos.root / "elsewhere")} if is_staging_kept else {}))
    chaos.go_on(2)
    asleep.gate.release()
    chaos.troubled(f"zombie driver at {step}{', its staged files kept' if is_staging_kept else ''}")
    asleep.wait_until_ended()
    chaos.active.stop()
    chaos.start()  # and stages in the usual place again
    chaos.go_on()
    return asleep.errors[-1] if asleep.errors else ""


def stop_in_commit(chaos: Chaos, step: Step, *, is_overtaken: bool) -> None:
    """The query is stopped while it commits. Its commit goes on, at once or after another driver has taken over."""
    stopped = chaos.active
    chaos.reach(step)
    stopped.ask_to_stop()
    chaos.troubled(f"stop at {step}, {'overtaken' if is_overtaken else 'finished'}")
    if is_overtaken:
        chaos.swap()
        chaos.start()
        chaos.go_on()
    stopped.gate.release()
    stopped.wait_until_ended()
    chaos.go_on()


def stop_after_output(chaos: Chaos) -> bool:
    """The query is stopped as soon as something new is in the output. Returns whether that was within a batch."""
    _wait_for_output(chaos)
    chaos.active.stop()
    chaos.troubled("stop after output")
    is_within_batch = chaos.world.batches_begun() > chaos.world.batches_done()
    chaos.go_on()
    return is_within_batch


def kill_broker(chaos: Chaos, step: Step, *, away_s: float = 0.0) -> None:
    """The broker dies while a commit is at this step, and starts again on the same data. With `away_s` the commit goes
    on in between, and finds nobody."""
    chaos.reach(step)
    chaos.broker.kill()
    chaos.killed(f"broker at {step}")
    if away_s > 0:
        chaos.active.gate.release()
        time.sleep(away_s)
    chaos.broker.start()
    chaos.active.gate.release()
    chaos.go_on()


def kill_broker_after(chaos: Chaos, delay_s: float) -> None:
    time.sleep(delay_s)
    chaos.broker.kill()
    chaos.killed("broker at some moment")
    time.sleep(delay_s)
    chaos.broker.start()
    chaos.go_on()


def outlast_the_transaction(chaos: Chaos, step: Step) -> str:
    """A commit sleeps for longer than its transaction may last. Returns what the query fails with, if it does."""
    chaos.active.stop()
    errors = len(chaos.active.errors)
    chaos.start(**{"kafka.transaction.timeout.ms": str(SHORT_TIMEOUT_MS)})
    chaos.reach(step)
    time.sleep(SHORT_TIMEOUT_MS / 1000 + 1)
    chaos.active.gate.release()
    chaos.troubled(f"transaction timeout at {step}")
    chaos.go_on()
    chaos.active.stop()
    chaos.start()
    chaos.go_on()
    return chaos.active.errors[errors] if len(chaos.active.errors) > errors else ""


def _wait_for_output(chaos: Chaos) -> None:
    with chaos.world.output_end() as output_end:
        before = output_end()
        chaos.until(lambda: output_end() > before, "to write something")
