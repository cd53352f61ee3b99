"""What can happen to a cluster of several nodes: who is met, how long, and never more than one node at a time."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from semel.sim.attack.assault import FaultKind
from semel.sim.attack.cluster_faults import SESSION_MS, Members, draw_link_fault, draw_node_fault

MEMBERS = Members((1, 2, 3), (3000,))
LEADERS = {"records-0": 2, "records-1": 3, "gone-0": -1, "elsewhere-0": 9}
DRAWS = 2000


@pytest.mark.parametrize("kind", [FaultKind.KILL, FaultKind.PAUSE])
def test_brokers_leaders_and_the_controller_are_met(kind: FaultKind) -> None:
    dice = random.Random(1)
    drawn = [draw_node_fault(kind, dice, MEMBERS, LEADERS) for _ in range(DRAWS)]
    targets = Counter(fault.target for fault in drawn)
    assert set(targets) == {"broker", "leader", "controller"}
    assert min(targets.values()) > DRAWS / 10
    for fault in drawn:
        assert fault.kind is kind
        assert (fault.node_id == MEMBERS.controllers[0]) == (fault.target == "controller")
        if fault.target == "leader":
            assert LEADERS[fault.leads] == fault.node_id
            assert fault.node_id in MEMBERS.brokers, "a partition without a leader is not chosen"
        else:
            assert fault.leads == ""


def test_without_a_known_leader_any_broker_is_met() -> None:
    dice = random.Random(1)
    drawn = [draw_node_fault(FaultKind.KILL, dice, MEMBERS, {}) for _ in range(DRAWS)]
    assert {fault.target for fault in drawn} == {"broker", "controller"}
    assert {fault.node_id for fault in drawn} == {1, 2, 3, 3000}


def test_most_faults_last_longer_than_a_session_and_some_are_over_sooner() -> None:
    dice = random.Random(1)
    times_s = [draw_node_fault(FaultKind.PAUSE, dice, MEMBERS, LEADERS).lasts_s for _ in range(DRAWS)]
    times_s += [draw_link_fault(dice, MEMBERS).lasts_s for _ in range(DRAWS)]
    longer = sum(lasts_s > SESSION_MS / 1000 for lasts_s in times_s)
    assert 0.5 < longer / len(times_s) < 0.9


def test_links_between_brokers_and_with_the_controller_are_cut_both_ways_and_one_way() -> None:
    dice = random.Random(1)
    drawn = [draw_link_fault(dice, MEMBERS) for _ in range(DRAWS)]
    nodes = {"between two brokers": 2, "from a controller": 2, "from all nodes": 4}
    seen = Counter(fault.target for fault in drawn)
    assert set(seen) == set(nodes) | {f"{target}, one way" for target in nodes}
    for fault in drawn:
        target, _, is_one_way = fault.target.partition(", ")
        pairs = set(fault.pairs)
        assert len(pairs) == len(fault.pairs)
        assert len({node for pair in pairs for node in pair}) == nodes[target]
        assert any(all(node in pair for pair in pairs) for node in MEMBERS.brokers), "one broker is cut off, not two"
        assert all(((to, source) in pairs) != bool(is_one_way) for source, to in pairs)
        assert any(MEMBERS.controllers[0] in pair for pair in pairs) == (target != "between two brokers")


def test_a_seed_draws_the_same_again() -> None:
    one, other = random.Random(5), random.Random(5)
    for _ in range(50):
        assert draw_link_fault(one, MEMBERS) == draw_link_fault(other, MEMBERS)
        assert draw_node_fault(FaultKind.KILL, one, MEMBERS, LEADERS) == draw_node_fault(
            FaultKind.KILL, other, MEMBERS, LEADERS
        )
