"""`semel storage`: directories for the nodes of a cluster, and whose they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from semel.cli.main import main
from semel.controller.bootstrap import first_features
from semel.host.real import real_host

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
OF_A_CLUSTER = {
    "process.roles": "broker,controller",
    "node.id": "2",
    "listeners": "PLAINTEXT://n2:9092,CONTROLLER://n2:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@n1:9093,2@n2:9093",
}


def settings(**changes: str) -> list[str]:
    given = OF_A_CLUSTER | {name.replace("_", "."): value for name, value in changes.items()}
    return [part for name, value in given.items() for part in ("--set", f"{name}={value}")]


def formatted(data: Path, *options: str, cluster_id: str = CLUSTER, **changes: str) -> int:
    return main(["storage", "format", "--cluster-id", cluster_id, "--data", str(data), *settings(**changes), *options])


def properties(data: Path) -> dict[str, str]:
    lines = (data / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_directory_is_formatted_as_kafka_does(tmp_path: Path) -> None:
    assert formatted(tmp_path / "new" / "data") == 0
    found = properties(tmp_path / "new" / "data")
    assert list(found) == ["version", "cluster.id", "node.id", "directory.id"]
    assert (found["version"], found["cluster.id"], found["node.id"]) == ("1", CLUSTER, "2")
    assert len(found["directory.id"]) == 22


def test_what_is_formatted_is_not_formatted_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert formatted(tmp_path) == 0
    before = properties(tmp_path)
    assert formatted(tmp_path) == 1
    assert "is formatted already, for node 2 of cluster" in capsys.readouterr().err
    assert formatted(tmp_path, "--ignore-formatted") == 0
    assert "was already that of node 2" in capsys.readouterr().out
    assert properties(tmp_path) == before


@pytest.mark.parametrize(
    "changes", [{"cluster_id": "another"}, {"node_id": "1"}], ids=["another cluster", "another node"]
)
def test_the_directory_of_another_node_or_cluster_is_refused(
    tmp_path: Path, changes: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path) == 0
    before = properties(tmp_path)
    assert formatted(tmp_path, "--ignore-formatted", **changes) == 1  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert f"is that of node 2 of cluster {CLUSTER}" in told
    assert told.count("\n") == 1
    assert properties(tmp_path) == before


def test_a_directory_of_somebody_else_is_not_formatted(tmp_path: Path) -> None:
    (tmp_path / "report.csv").write_text("")
    assert formatted(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["report.csv"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--release-version", "5.0"], "allowed: 3.3"),
        (["--release-version", "3.2"], "allowed: 3.3"),
        (["--standalone"], "name the controllers in controller.quorum.voters"),
        (["--set", "node.id=3"], "controller.quorum.voters"),
        (["--set", "no.such=1"], "no.such"),
        (["--config", "/no/such/file"], "a file that can be read"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path / "data", *options) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("cluster_id", ["", "two words", "a\nb", "x" * 101])
def test_a_cluster_id_is_one_word(tmp_path: Path, cluster_id: str) -> None:
    assert formatted(tmp_path / "data", cluster_id=cluster_id) == 2
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "level", "elr"),
    [
        ([], 27, 1),
        (["--release-version", "3.3"], 7, 0),
        (["--release-version", "3.3-IV3"], 7, 0),
        (["--release-version", "3.7-IV2"], 17, 0),
        (["--release-version", "3.9"], 21, 0),
        (["--release-version", "4.3"], 30, 1),
    ],
)
def test_a_cluster_begins_at_the_level_of_a_release(tmp_path: Path, options: list[str], level: int, elr: int) -> None:
    assert formatted(tmp_path, *options) == 0
    host = real_host()
    features = first_features(host.disk, str(tmp_path))
    host.close()
    assert (features["metadata.version"], features.get("eligible.leader.replicas.version", 0)) == (level, elr)


def test_only_controllers_say_at_which_level_a_cluster_begins(tmp_path: Path) -> None:
    assert formatted(tmp_path, process_roles="broker", node_id="4", listeners="PLAINTEXT://n4:9092") == 0
    assert not (tmp_path / "bootstrap.checkpoint").exists()


def test_a_broker_without_a_controller_can_be_formatted_although_it_is_not_served_yet(tmp_path: Path) -> None:
    roles = {"process_roles": "broker", "node_id": "4", "listeners": "PLAINTEXT://n4:9092"}
    assert formatted(tmp_path, **roles) == 0  # type: ignore[arg-type]
    assert properties(tmp_path)["node.id"] == "4"


def test_info_says_whose_a_directory_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["storage", "info", "--data", str(tmp_path), "--json"]
    assert main([*where, *settings()]) == 1
    assert json.loads(capsys.readouterr().out)["problem"] == f"{tmp_path} is not formatted"
    formatted(tmp_path)
    capsys.readouterr()
    assert main([*where, *settings()]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["cluster_id"], told["node_id"], told["problem"]) == (CLUSTER, 2, None)
    assert told["directory_id"] == properties(tmp_path)["directory.id"]
    assert main([*where, *settings(node_id="1")]) == 1
    assert json.loads(capsys.readouterr().out)["problem"] == f"{tmp_path} belongs to node 2, but node.id is 1"
    (tmp_path / "meta.properties").write_text("")
    assert main(["storage", "info", "--data", str(tmp_path), *settings()]) == 1
    assert "is damaged" in capsys.readouterr().out


def test_random_ids_differ() -> None:
    command = [sys.executable, "-m", "semel.cli.main", "storage", "random-uuid"]
    one, other = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert one != other
    assert [len(one), len(other)] == [23, 23]
