"""Spark's own standalone cluster on this machine: a master and two workers, each in a directory of its own.

The workers know nothing of semel and of the environment that the tests run in: what tasks need comes to them in an
archive, an environment that is packed here from what is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

from cluster_processes import ProcessFamily, StartedProcess
from cluster_world import spark_home

import semel

WORKERS = 2
START_TIMEOUT_S = 120.0
PACKED = ("pyarrow", "crc32c", "cramjam", "lz4")
"""What semel needs in a task, besides pyspark, which Spark brings along."""
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


def pack_environment(place: Path, *, with_semel: bool = True) -> Path:
    """An environment as an archive, for spark.archives, with semel and what it needs, or with the latter only. Takes
    no network, as it is made of what is installed."""
    place.mkdir(parents=True)
    environment = place / "environment"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = Path(sys.base_prefix, "bin", version)
    subprocess.run([python, "-m", "venv", "--copies", "--without-pip", environment], check=True)
    packages = environment / "lib" / version / "site-packages"
    for name in PACKED:
        _install(name, packages)
    sources = Path(semel.__file__).parent.parent
    for name in ("semel", "pyspark_semel") if with_semel else ():
        shutil.copytree(sources / name, packages / name, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.pyx"))
    archive = place / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packing:
        packing.add(environment, arcname=".")
    shutil.rmtree(environment)
    return archive


def _install(name: str, packages: Path) -> None:
    for file in distribution(name).files or ():
        if not {"..", "__pycache__", "tests"} & set(file.parts):
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)


class StandaloneCluster:
    """Its processes are of the family that it is given, which ends them."""

    def __init__(self, family: ProcessFamily, root: Path) -> None:
        self._family = family
        self._root = root
        self.master_url = ""
        self.workers: list[StartedProcess] = []

    def start(self) -> StandaloneCluster:
        listening = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = self._start("master", "org.apache.spark.deploy.master.Master", *listening)
        master.wait_for(lambda: _MASTER_URL.search(master.log()) is not None, START_TIMEOUT_S, "the master is there")
        found = _MASTER_URL.search(master.log())
        assert found is not None
        self.master_url = found[1]
        for number in range(1, WORKERS + 1):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._root / f"worker-{number}" / "work"))
            self.workers.append(
                self._start(
                    f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *listening, *size, self.master_url
                )
            )
        for worker in self.workers:
            worker.wait_for(lambda worker=worker: _REGISTERED in worker.log(), START_TIMEOUT_S, "a worker is there")
        return self

    def _start(self, name: str, main_class: str, *arguments: str) -> StartedProcess:
        place = self._root / name
        home = spark_home(place / "spark")
        (place / "tmp").mkdir()
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
        java = shutil.which("java")
        assert java is not None
        environ = {
            **kept,
            "PATH": f"{Path(java).parent}:/usr/bin:/bin",
            "HOME": str(place),
            "TMPDIR": str(place / "tmp"),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place / "tmp"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        command = [home / "bin" / "spark-class", main_class, *arguments]
        return self._family.start(command, place / "log", cwd=place, environ=environ)
