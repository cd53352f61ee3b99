"""What is said to be wrong, and how bad it is."""

from __future__ import annotations

from typing import Any

from semel.views.cluster import DOWN, UP, ClusterView, NodeView, PartitionView
from semel.views.health import BAD, WARN, findings


def view(**changed: Any) -> ClusterView:
    nodes = (NodeView(1, ("broker",), UP, leads=3), NodeView(2, ("broker",), UP, leads=3))
    return ClusterView("id", 1, 0, **{"nodes": nodes, "topics": 1, "partitions": 3, "replicas": 6, **changed})


def held(**changed: Any) -> dict[str, Any]:
    transaction = {
        "transactional_id": "till",
        "producer_id": 5,
        "age_ms": 60_000,
        "idle_ms": 50_000,
        "hangs": False,
        "command": "semel txn abort till",
        **changed,
    }
    return {"place": "payments/0", "last_stable_offset": 4, "end_offset": 10, "transactions": [transaction]}


def test_a_healthy_cluster_has_no_findings() -> None:
    assert findings(view(), [], [{"node": 1, "bytes": 10, "free_bytes": 90}]) == []


def test_a_partition_without_a_leader_is_bad_and_comes_first() -> None:
    offline = PartitionView("payments", 0, None, 3, (1, 2), (1,), 1, {2: None})
    behind = PartitionView("orders", 1, 1, 3, (1, 2), (1,), 1, {2: 7})
    below = PartitionView("refunds", 0, 1, 3, (1, 2), (1,), 2, {2: 7})
    found = findings(view(under_replicated=(behind, offline, below)), [], [])
    assert [(one.severity, one.title.rpartition(": ")[2]) for one in found] == [
        (BAD, "payments/0"),
        (BAD, "refunds/0"),
        (WARN, "orders/1"),
    ]


def test_a_node_that_is_down_is_named() -> None:
    nodes = (NodeView(1, ("broker",), UP, leads=3), NodeView(2, ("broker",), DOWN, follows=3))
    (one,) = findings(view(nodes=nodes), [], [])
    assert one.title == "Node 2 is down"
    assert one.severity == WARN


def test_without_a_controller_nothing_can_be_changed() -> None:
    (one,) = findings(view(has_controller=False), [], [])
    assert one.severity == BAD


def test_who_holds_readers_back_is_told_with_the_command_that_ends_it() -> None:
    (one,) = findings(view(), [held()], [])
    assert one.severity == WARN
    assert one.title == "payments/0 is held back by till"
    assert one.command == "semel txn abort till"
    assert "6 offsets wait" in one.why


def test_a_transaction_that_has_just_begun_is_no_finding_but_one_that_hangs_is_a_bad_one() -> None:
    assert findings(view(), [held(age_ms=2000)], []) == []
    (one,) = findings(view(), [held(age_ms=None, idle_ms=2000, hangs=True, transactional_id=None)], [])
    assert one.severity == BAD


def test_a_disk_that_is_nearly_full_is_told_before_it_is_full() -> None:
    (one,) = findings(view(), [], [{"node": 1, "bytes": 98, "free_bytes": 2}])
    assert one.severity == BAD
    (one,) = findings(view(), [], [{"node": 1, "bytes": 90, "free_bytes": 10}])
    assert one.severity == WARN
    assert findings(view(), [], [{"node": 1, "bytes": 98, "free_bytes": None}]) == []
