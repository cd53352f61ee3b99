"""A pipeline that has outgrown one machine, tried on one: `make cluster`.

Three nodes of Apache Kafka, Spark's standalone cluster with two workers, semel in an archive only. While batches run
the leader of the marker, an executor and the driver are killed, one after another, again and again. At the end each
record has to be in the sink's topic once, in order per key. Ends by itself, with all its processes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cluster_events import batch_times, commit_share, medians
from cluster_feed import Feeder
from cluster_kafka import KafkaCluster
from cluster_processes import ProcessFamily, StartedProcess, executor_above, kill_now
from cluster_program import Plan
from cluster_spark import WORKERS, StandaloneCluster, pack_environment
from cluster_world import DriverLauncher, judge
from sink_world import MARKER_TOPIC, committed_rows

from apache_kafka import ASKED_FOR_KAFKA, skip_reason
from real_broker import clean_environment
from semel.client.admin.values import NewTopic
from semel.spark.adoption import marker_of
from semel.spark.steps import VARIABLE, Step
from semel.sync import Admin

SOURCE, SINK, ELSEWHERE = "in", "out", "elsewhere"
# Spark sends a driver's PYTHONPATH along to tasks, which are to find nothing there.
ENVIRON = {"PYSPARK_PYTHON": "./environment/bin/python", "PYTHONPATH": ""}
PATIENCE_S = 300.0
LEADER_STEPS = (Step.MARKED, Step.HALF_PUBLISHED, Step.INITIALISED, Step.PUBLISHED)
DRIVER_STEPS = (Step.ENDED, Step.MARKED, Step.PUBLISHED, Step.CLEANED)
_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


class Trap:
    """A place in the pipeline at which whoever comes there waits, so that it can be killed."""

    def __init__(self, file: Path, step: Step, batch_id: int) -> None:
        self._file = file
        self.text = f"{step}@{batch_id}:pause={file}"
        self.place = f"{step} of batch {batch_id}"
        self._is_sprung = False

    def caught(self) -> int | None:
        """The process that waits there."""
        content = self._file.read_text() if self._file.exists() else ""
        return int(content) if content else None

    def release(self) -> None:
        """From now on nobody is held up: who does the same thing again comes to the same place."""
        self._is_sprung = True
        self.let_pass()

    def let_pass(self) -> None:
        if self._is_sprung:
            self._file.unlink(missing_ok=True)


class Run:
    """All that is going on; `main` sets it up and ends it."""

    def __init__(
        self, root: Path, family: ProcessFamily, kafka: KafkaCluster, spark: StandaloneCluster, archive: Path, seed: int
    ) -> None:
        self._root = root
        self._family = family
        self._kafka = kafka
        self._spark = spark
        self._archive = archive
        self._chance = random.Random(seed)
        self._launcher = DriverLauncher(family, root)
        self._checkpoint = root / "checkpoint"
        self._events = root / "events"
        self._events.mkdir()
        # Spark calls the Python of a data source by one name, here and in tasks. Here it is ours, there the archive's.
        (root / "environment").symlink_to(sys.prefix)
        self._traps: list[Trap] = []
        self._driver: StartedProcess | None = None
        self.kills = {"leader of the marker": 0, "executor": 0, "driver": 0}
        self.sink = self._sink(SINK, self._checkpoint)

    def _sink(self, topic: str, checkpoint: Path) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._kafka.address,
            "topic": topic,
            "checkpointLocation": str(checkpoint),
            "kafka.transaction.timeout.ms": "60000",
        }

    def _plan(self, sink: dict[str, str], conf: dict[str, str], *, is_available_now: bool) -> Plan:
        source = {
            "kafka.bootstrap.servers": self._kafka.address,
            "subscribe": SOURCE,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "5000",
        }
        return Plan(self._spark.master_url, source, sink, {**_CONF, **conf}, is_available_now)

    # -- drivers

    def show_that_workers_need_the_archive(self) -> None:
        """With an environment in its place that lacks nothing but semel, all else the same, their tasks fail."""
        archive = pack_environment(self._root / "without-semel", with_semel=False)
        conf = {"spark.archives": f"{archive}#environment", "spark.task.maxFailures": "1"}
        sink = self._sink(ELSEWHERE, self._root / "elsewhere")
        driver = self._launcher.start(self._plan(sink, conf, is_available_now=True), **ENVIRON)
        driver.wait_until_over(PATIENCE_S)
        missing = [line for line in driver.log().splitlines() if "No module named 'semel'" in line]
        assert missing, driver.log()[-6000:]
        assert committed_rows(self._kafka.address, ELSEWHERE) == []
        _say(f"without the archive the workers' tasks fail: {missing[0].strip()}")

    def start_driver(self, *, is_available_now: bool = False) -> StartedProcess:
        """With the traps that are set now."""
        conf = {
            "spark.archives": f"{self._archive}#environment",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        traps = {VARIABLE: ",".join(trap.text for trap in self._traps)} if self._traps else {}
        conf |= {f"spark.executorEnv.{name}": value for name, value in traps.items()}
        plan = self._plan(self.sink, conf, is_available_now=is_available_now)
        self._driver = self._launcher.start(plan, **ENVIRON, **traps)
        return self._driver

    def finish(self) -> None:
        self._traps.clear()
        driver = self.start_driver(is_available_now=True)
        driver.finish(2 * PATIENCE_S)
        _say(f"all batches are done, up to {self._last('commits')}")

    def show_that_the_command_does_the_same(self) -> None:
        """`semel pipeline run` on this cluster, as its page tells: all that was written goes into another topic."""
        file = self._root / "copy.toml"
        settings = {"master": self._spark.master_url, "spark.archives": f"{self._archive}#environment", **_CONF}
        file.write_text(
            f'address = "{self._kafka.address}"\ntrigger = "available-now"\n'
            f'[source]\ntopics = ["{SINK}"]\n[sink]\ntopic = "{ELSEWHERE}"\n[spark]\n'
            + "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
        )
        command = self._family.start(
            [sys.executable, "-m", "semel.cli.main", "pipeline", "run", file],
            self._root / "copy.log",
            cwd=self._root,
            environ=clean_environment(**ENVIRON, SPARK_LOCAL_IP="127.0.0.1"),
        )
        command.finish(PATIENCE_S)
        copied, written = (committed_rows(self._kafka.address, topic) for topic in (ELSEWHERE, SINK))
        assert sorted(copied) == sorted(written), f"{len(copied)} of {len(written)} rows were copied"
        _say(f"semel pipeline run has copied all of them: {command.log().splitlines()[-1]}")

    # -- rounds

    def round_at_steps(self, number: int) -> None:
        """Each of the three is killed when the pipeline has come to a certain step."""
        first = self._last("offsets") + 1
        leader_step, driver_step = LEADER_STEPS[number % len(LEADER_STEPS)], DRIVER_STEPS[number % len(DRIVER_STEPS)]
        at_leader = self._set_trap(f"leader-{number}", leader_step, first + 3)
        at_executor = self._set_trap(f"executor-{number}", Step.STAGED, first + 7)
        at_driver = self._set_trap(f"driver-{number}", driver_step, first + 10)
        self.start_driver()
        self._wait(lambda: at_leader.caught() is not None, at_leader.place)
        self._kill_leader(at_leader.place, at_leader.release)
        self._wait(lambda: at_executor.caught() is not None, at_executor.place)
        self._kill_executor(at_executor.caught(), at_executor.place)
        at_executor.release()
        self._wait(lambda: at_driver.caught() is not None, at_driver.place)
        self._kill_driver(at_driver.place)
        at_driver.release()
        self._traps.clear()

    def round_at_random(self) -> None:
        """Each of the three is killed in the midst of a batch, wherever that may be."""
        self.start_driver()
        self._wait_for_batches(2)
        self._kill_leader(self._random_moment(), lambda: None)
        self._wait_for_batches(1)
        self._kill_executor(None, self._random_moment())
        self._wait_for_batches(2)
        self._kill_driver(self._random_moment())

    def _set_trap(self, name: str, step: Step, batch_id: int) -> Trap:
        trap = Trap(self._root / f"trap-{name}", step, batch_id)
        self._traps.append(trap)
        return trap

    def _random_moment(self) -> str:
        """Within a batch: its offsets are logged, and its end is not."""
        self._wait(lambda: self._last("offsets") > self._last("commits"), "a batch is running")
        time.sleep(self._chance.uniform(0, 0.6))
        at = f"batch {self._last('offsets')}"
        return at if self._last("offsets") > self._last("commits") else f"the end of {at}"

    # -- kills

    def _kill_leader(self, place: str, release: Callable[[], None]) -> None:
        node = self._kafka.leader_of(MARKER_TOPIC)
        node.kill()
        release()
        self._killed("leader of the marker", f"node {node.node_id}", place)
        self._wait_for_batches(2)
        node.start()
        self._kafka.wait_until_whole(SOURCE, SINK, MARKER_TOPIC)

    def _kill_executor(self, task_pid: int | None, place: str) -> None:
        executors = self._family.executors()
        victim = self._chance.choice(executors) if task_pid is None else executor_above(task_pid)
        if task_pid is not None:
            program = os.readlink(f"/proc/{task_pid}/exe")
            assert "/environment/bin/python" in program, f"a task runs on {program}, which is not of the archive"
        kill_now(victim)
        self._killed("executor", f"process {victim} of {len(executors)}", place)

    def _kill_driver(self, place: str) -> None:
        assert self._driver is not None
        self._family.kill_descendants(self._driver.pid)
        self._driver.kill()
        self._killed("driver", f"process {self._driver.pid}", place)
        self._driver = None

    def _killed(self, what: str, which: str, place: str) -> None:
        self.kills[what] += 1
        _say(f"killed the {what} ({which}) at {place}")

    # -- waiting

    def _wait_for_batches(self, count: int) -> None:
        goal = self._last("commits") + count
        self._wait(lambda: self._last("commits") >= goal, f"batch {goal} is done")

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        assert self._driver is not None

        def look() -> bool:
            for trap in self._traps:
                trap.let_pass()
            return is_so()

        self._driver.wait_for(look, PATIENCE_S, what)

    def _last(self, log: str) -> int:
        """The newest batch in one of the checkpoint's logs."""
        folder = self._checkpoint / log
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    # -- the end

    def tell(self, sent: list[tuple[bytes, bytes]]) -> bool:
        found = committed_rows(self._kafka.address, SINK)
        verdict = judge(sent, found)
        _, marker = marker_of(self.sink)
        times = batch_times(self._events)
        whole_ms, commit_ms = medians(times)
        table = {
            "batches": str(0 if marker is None else marker.number + 1),
            "rows": str(len(found)),
            **{f"kills: {what}": str(count) for what, count in self.kills.items()},
            "lost": str(verdict.lost),
            "duplicated": str(verdict.duplicated),
            "never sent": str(verdict.strange),
            "keys out of order": str(verdict.disordered_keys),
            "median batch": f"{whole_ms:.0f} ms",
            "median commit": f"{commit_ms:.0f} ms",
            "share of commit": f"{commit_share(times):.0%} of the time of {len(times)} batches",
        }
        print()
        for name, value in table.items():
            print(f"{name:<28}{value}")
        return verdict.is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="each kills all three once (default: 2)")
    parser.add_argument("--rows-per-second", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--minutes", type=int, default=30, help="after which it gives up (default: 30)")
    parser.add_argument("--keep", action="store_true", help="leave logs and data where they are")
    chosen = parser.parse_args()
    os.environ[ASKED_FOR_KAFKA] = "1"
    reason = skip_reason()
    if reason is not None:
        print(f"make cluster cannot run here: {reason}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, _give_up)
    signal.alarm(chosen.minutes * 60)
    root = Path(tempfile.mkdtemp(prefix="semel-cluster-"))
    _say(f"seed {chosen.seed}, logs and data in {root}")
    is_good = False
    try:
        is_good = _run(root, chosen)
    finally:
        if is_good and not chosen.keep:
            shutil.rmtree(root)
    return 0 if is_good else 1


def _run(root: Path, chosen: argparse.Namespace) -> bool:
    archive = pack_environment(root / "packed")
    _say(f"packed an environment of {archive.stat().st_size >> 20} MiB")
    with ProcessFamily() as family, KafkaCluster(root / "kafka") as kafka:
        spark = StandaloneCluster(family, root / "spark").start()
        _say(f"three nodes of Apache Kafka and {WORKERS} workers of {spark.master_url} are there")
        with Admin(bootstrap_servers=kafka.address) as admin:
            topics = [NewTopic(name, partitions=3, replication_factor=3) for name in (SOURCE, SINK, ELSEWHERE)]
            admin.create_topics(topics)
        run = Run(root, family, kafka, spark, archive, chosen.seed)
        with Feeder(kafka.address, SOURCE, rows_per_s=chosen.rows_per_second) as feeder:
            run.show_that_workers_need_the_archive()
            for number in range(chosen.rounds):
                if number % 2 == 0:
                    run.round_at_steps(number // 2)
                else:
                    run.round_at_random()
                feeder.check()
            feeder.finish()
            _say(f"{len(feeder.sent)} rows were sent")
            run.finish()
            run.show_that_the_command_does_the_same()
            return run.tell(feeder.sent)


def _give_up(number: int, _: object) -> None:
    raise SystemExit(f"gives up: {signal.Signals(number).name}")


_BEGAN = time.monotonic()


def _say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
