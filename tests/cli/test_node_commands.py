"""`semel node config` and `semel cluster info` on running brokers."""

from __future__ import annotations

from command_calls import Semel

from semel.cli.failures import Exit

RETENTION = "log.retention.ms"


def node_of(semel: Semel) -> str:
    return str(semel("cluster", "info", "--json").document["nodes"][0]["node"])


def test_settings_of_a_node_win_over_those_of_all_and_go_back_to_them(semel: Semel) -> None:
    node = node_of(semel)
    try:
        semel("node", "config", "--config", f"{RETENTION}=111111")
        assert value(semel, node) == ("111111", "all brokers")
        semel("node", "config", node, "--config", f"{RETENTION}=222222")
        assert value(semel, node) == ("222222", "broker")
        line = next(line for line in semel("node", "config", node).lines if line.startswith(RETENTION))
        assert line.split() == [RETENTION, "222222", "broker"]
        semel("node", "config", node, "--reset", RETENTION)
        assert value(semel, node) == ("111111", "all brokers")
    finally:
        semel("node", "config", "--reset", RETENTION)
    assert value(semel, node) is None
    assert RETENTION in semel("node", "config", node, "--all-settings").out


def value(semel: Semel, node: str) -> tuple[str, str] | None:
    found = semel("node", "config", node, "--json").document["settings"].get(RETENTION)
    return None if found is None else (found["value"], found["source"])


def test_what_cannot_be_set_is_told(semel: Semel) -> None:
    node = node_of(semel)

    assert "INVALID_CONFIG" in semel("node", "config", node, "--config", f"{RETENTION}=soon", code=Exit.FAILED).err
    assert "--config 'x' is not allowed; allowed: NAME=VALUE" in (
        semel("node", "config", node, "--config", "x", code=Exit.WRONG_CALL).err
    )
    assert "the cluster's nodes are" in semel("node", "config", "77777", code=Exit.WRONG_CALL).err


def test_a_cluster_tells_its_nodes_features_and_disks(semel: Semel, topic: str) -> None:
    before = semel("cluster", "info", "--json").document["nodes"][0]["bytes"]
    semel("produce", topic, "x" * 5000)
    document = semel("cluster", "info", "--json").document

    (node,) = document["nodes"]
    assert node["address"] == semel.address.replace("localhost", "127.0.0.1")
    assert node["bytes"] >= before + 5000
    assert node["replicas"] >= 3
    assert document["features"]["metadata.version"] >= 7
    lines = semel("cluster", "info").lines
    assert lines[0].split() == ["cluster", document["cluster_id"]]
    assert lines[-1].split()[:2] == [str(node["node"]), node["address"]]
