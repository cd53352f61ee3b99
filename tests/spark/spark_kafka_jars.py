"""Spark's own Kafka connector, from Maven: its jars for a session that has them, in a process of its own.

The jars are kept beside those of Apache Kafka (see tests/apache_kafka.py). A session takes its jars when its Java is
started, and the session that the tests share has none; so what needs them is run in another process, by `Connector`.
"""

from __future__ import annotations

import fcntl
import functools
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from apache_kafka import ASKED_FOR_KAFKA, CACHE, KafkaDied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = "4.2.0"
"""The newest release of the connector; it works with Spark 4.3 as well."""
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    # Of delegation tokens, which are not used here. The connector cannot be loaded without it, of whatever version.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
JARS = CACHE.parent / f"spark-sql-kafka-{VERSION}"
RESOLVE_TIMEOUT_S = 200.0
CALL_TIMEOUT_S = 240.0

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def skip_reason() -> str | None:
    """Why there is no connector on this machine, or in this run; None if there is."""
    if not os.environ.get(ASKED_FOR_KAFKA):
        return f"make conformance runs it ({ASKED_FOR_KAFKA}=1)"
    if shutil.which("java") is None:
        return "Maven and Spark need java on the PATH"
    if shutil.which("mvn") is None and not (JARS / "complete").exists():
        return "the jars of Spark's Kafka connector are resolved by Maven, and mvn is not on the PATH"
    return None


def jars() -> list[Path]:
    """From the cache, or from Maven."""
    JARS.mkdir(parents=True, exist_ok=True)
    # Several test processes may come at once: the first resolves, the others wait.
    with (JARS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (JARS / "complete").exists():
            for artifact in ARTIFACTS:
                _copy(artifact)
            (JARS / "complete").touch()
    return sorted(JARS.glob("*.jar"))


def _copy(artifact: str) -> None:
    """One by one, without what it depends on: Spark brings the rest along."""
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={JARS}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False, cwd=JARS)
    if ran.returncode:
        raise KafkaDied(f"Maven could not resolve {artifact}:\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")


class ConnectorFailed(Exception):
    """Spark's own exceptions hold Java objects, and cannot be sent to another process: their text can."""


class Connector:
    """A process with one session that has the jars. Functions that it runs are known by name there, as in any module;
    they get the session from `connector_session`."""

    def __init__(self) -> None:
        # Spawned, not forked: this process may have Java and threads of its own.
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def run(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """What the function returns; raises ConnectorFailed with what it raised."""
        return self._pool.submit(_called, function, *arguments, **named).result(CALL_TIMEOUT_S)

    def close(self) -> None:
        """Java ends with the process that started it."""
        try:
            self.run(_stop)
        finally:
            self._pool.shutdown(cancel_futures=True)


@functools.cache
def connector_session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("semel beside Spark's own connector")
        .config("spark.jars", ",".join(map(str, jars())))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _called(function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
    try:
        return function(*arguments, **named)
    except Exception as error:
        raise ConnectorFailed(f"{type(error).__name__}: {error}") from None


def _stop() -> None:
    if connector_session.cache_info().currsize:
        connector_session().stop()
