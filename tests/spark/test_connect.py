"""Through Spark Connect: a server, and a client that has no Java and knows of semel only the name of the format."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from cluster_processes import ProcessFamily
from cluster_world import spark_home
from sink_world import committed_rows

from real_broker import clean_environment
from semel.spark.adoption import marker_of

pytestmark = pytest.mark.spark

PATIENCE_S = 150.0
CLIENT_NEEDS = ("grpc", "grpc_status", "google.rpc", "pandas", "zstandard")


def missing() -> list[str]:
    """What a client of Spark Connect imports, and is not installed."""

    def is_there(name: str) -> bool:
        try:
            return find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    return [name for name in CLIENT_NEEDS if not is_there(name)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(missing()), reason=f"pip install 'pyspark[connect]': {', '.join(missing())} not installed")
def test_reads_writes_and_streams_go_through_spark_connect(
    address: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source_topic, sink_topic = new_topic("in"), new_topic("out", partitions=3)
    checkpoint, port = str(tmp_path / "checkpoint"), free_port()
    home = spark_home(tmp_path / "home")
    environ = clean_environment(SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command = [home / "bin" / "spark-submit", "--master", "local[2]", "--class"]
    command += ["org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    program = Path(__file__).parent / "connect_program.py"
    asked = [f"sc://127.0.0.1:{port}", address, source_topic, sink_topic, checkpoint]
    with ProcessFamily() as family:
        server = family.start([*command, "spark-internal"], tmp_path / "server.log", cwd=tmp_path, environ=environ)
        server.wait_for(lambda: is_listening(port), PATIENCE_S, "the server listens")
        # A client that tried to start a Java would not find one.
        without_java = {name: value for name, value in clean_environment().items() if name not in ("JAVA_HOME", "PATH")}
        without_java["PATH"] = os.path.dirname(sys.executable)
        client = family.start([sys.executable, program, *asked], tmp_path / "client.log", environ=without_java)
        client.finish(PATIENCE_S)

    told = json.loads(client.log().splitlines()[-1])
    assert told["client"] == "pyspark.sql.connect.session"
    assert not told["semel was imported"]
    assert (told["first run"], told["second run"]) == (2, 1)
    assert told["read"] == ["WRITTEN 1", "WRITTEN 2", "WRITTEN 3"]
    assert told["columns"] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert "startingOffset" in told["refused"]
    assert "startingOffsets" in told["refused"]
    expected = [(b"a", b"WRITTEN 1"), (b"a", b"WRITTEN 3"), (b"b", b"WRITTEN 2")]
    found = committed_rows(address, sink_topic)
    assert sorted(found) == expected
    assert [row for row in found if row[0] == b"a"] == expected[:2]
    options = {"kafka.bootstrap.servers": address, "topic": sink_topic, "checkpointLocation": checkpoint}
    _, marker = marker_of(options)
    assert marker is not None
    assert marker.number == 1
