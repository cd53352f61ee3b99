"""`semel serve` as a process: what it says when it is ready, and what a SIGHUP does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from real_broker import Brokers, clean_environment
from semel.cli.main import main
from semel.sync import Producer

PATIENCE_S = 20.0
SERVE = [sys.executable, "-m", "semel.cli.main", "serve"]


def test_sighup_is_a_line_in_the_log_and_the_node_goes_on(brokers: Brokers) -> None:
    broker = brokers.start()
    for count in (1, 2):
        os.kill(broker.pid, signal.SIGHUP)
        deadline_s = time.monotonic() + PATIENCE_S
        while broker.log().count("SIGHUP: no log files to open anew") < count:
            assert time.monotonic() < deadline_s, broker.log()
            time.sleep(0.01)
    with Producer(bootstrap_servers=broker.address) as producer:
        assert producer.send("t", b"value").result().offset == 0
    assert broker.stop() == 0


@pytest.mark.parametrize("is_json", [False, True])
def test_the_ready_line_has_the_bound_address_where_clients_are_told_another(tmp_path: Path, is_json: bool) -> None:
    listeners = [
        "--insecure",
        "--set",
        "listeners=PLAINTEXT://:0",
        "--set",
        "advertised.listeners=PLAINTEXT://broker.test:9",
    ]
    command = [*SERVE, "--data", str(tmp_path / "data"), *listeners, *(["--json"] if is_json else [])]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment())
    assert node.stdout is not None
    try:
        line = node.stdout.readline().decode()
        node.send_signal(signal.SIGTERM)
        assert node.wait(PATIENCE_S) == 0
    finally:
        node.kill()
        node.communicate()
    if is_json:
        ready = json.loads(line)
        assert ready["address"] == "broker.test:9"
        assert re.fullmatch(r"\*:\d+", ready["listening"])
    else:
        assert re.fullmatch(r"semel is ready at broker\.test:9, data in \S+, after \d+ ms, listening on \*:\d+\n", line)


@pytest.mark.parametrize("is_json", [False, True])
def test_the_ready_line_shows_each_of_several_listeners(tmp_path: Path, is_json: bool) -> None:
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    options += ["--data", str(tmp_path / "data")]
    assert main(["storage", "format", "--cluster-id", "c", *options]) == 0
    command = [*SERVE, *options, *(["--json"] if is_json else [])]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment())
    assert node.stdout is not None
    try:
        line = node.stdout.readline().decode()
        node.send_signal(signal.SIGTERM)
        assert node.wait(PATIENCE_S) == 0
    finally:
        node.kill()
        node.communicate()
    if is_json:
        ready = json.loads(line)
        assert [(one["name"], one["for"], one["advertised"] is None) for one in ready["listeners"]] == [
            ("CLIENTS", ["clients"], True),
            ("PLAINTEXT", ["clients", "brokers"], False),
            ("CONTROLLER", ["controllers"], False),
        ]
        assert len({one["listening"] for one in ready["listeners"]}) == 3
        assert ready["address"] == ready["listeners"][1]["advertised"] == ready["listeners"][1]["listening"]
    else:
        places = r"CLIENTS://127\.0\.0\.1:\d+, PLAINTEXT://(127\.0\.0\.1:\d+), CONTROLLER://127\.0\.0\.1:\d+"
        told = re.fullmatch(rf"semel is ready at (\S+), data in \S+, after \d+ ms, listeners {places}\n", line)
        assert told is not None
        assert told[1] == told[2]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["process.roles=broker"], "controller.listener.names"),
        (["process.roles=broker", "controller.listener.names=C", "controller.quorum.voters=2@h:1"], "pose as a broker"),
        (
            [
                "controller.listener.names=C",
                "listeners=PLAINTEXT://127.0.0.1:0,C://127.0.0.1:0",
                "controller.quorum.voters=2@h:1,3@h:2",
            ],
            "with this one among them",
        ),
        (["listeners=SASL_SSL://127.0.0.1:0"], "SASL_SSL"),
    ],
)
def test_a_shape_that_a_node_cannot_have_is_refused_in_one_line(tmp_path: Path, settings: list[str], told: str) -> None:
    options = [part for setting in settings for part in ("--set", setting)]
    command = [*SERVE, "--data", str(tmp_path / "data"), *options]
    refused = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE_S)
    assert refused.returncode == 2
    assert told in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_partition_of_another_node_is_refused_as_data_directory_in_one_line(brokers: Brokers) -> None:
    broker = brokers.start()
    with Producer(bootstrap_servers=broker.address) as producer:
        producer.send("t", b"value").result()
    partition = broker.data / "t-0"
    before = sorted(partition.iterdir())
    command = [*SERVE, "--data", str(partition), "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE_S)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"semel serve: {partition} lies inside the data directory of another node")
    assert refused.stderr.count("\n") == 1
    assert sorted(partition.iterdir()) == before
