"""What can happen to a cluster of several nodes, drawn by a seed: who is met, how, and for how long.

Only one fault is drawn at a time, and it meets one broker, one controller or one set of links: of three replicas two
can go on, and of three controllers as well. Nothing is done here; `ClusterAssault` does it.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Mapping
from dataclasses import dataclass

from semel.sim.attack.assault import FaultKind

SESSION_MS = 3000
"""A broker that is silent for so long is fenced, and others lead in its stead."""
SHORT_S = (0.0, 1.5)
LONG_S = (SESSION_MS / 1000 + 0.5, SESSION_MS / 1000 + 3.0)
"""Long enough to be fenced."""
LONG_CHANCE = 0.6
CONTROLLER_CHANCE = 0.2
LEADER_CHANCE = 0.6
ONE_WAY_CHANCE = 0.4


@dataclass(frozen=True)
class Members:
    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    """Of which one is active; they may be brokers as well."""


@dataclass(frozen=True)
class NodeFault:
    """A kill or a pause of one node. `target` says what it was met as: a kind that can be counted."""

    kind: FaultKind
    node_id: int
    lasts_s: float
    target: str
    leads: str = ""
    """The partition that it was chosen for."""


@dataclass(frozen=True)
class LinkFault:
    """Nothing goes from the first to the second of each pair."""

    pairs: tuple[tuple[int, int], ...]
    lasts_s: float
    target: str


def draw_node_fault(
    kind: FaultKind, random: random_module.Random, members: Members, leaders: Mapping[str, int]
) -> NodeFault:
    """`leaders` are those of partitions by name, as far as they are known."""
    lasts_s = _draw_time(random)
    if random.random() < CONTROLLER_CHANCE:
        return NodeFault(kind, random.choice(members.controllers), lasts_s, "controller")
    led = sorted(name for name, leader in leaders.items() if leader in members.brokers)
    if led and random.random() < LEADER_CHANCE:
        name = random.choice(led)
        return NodeFault(kind, leaders[name], lasts_s, "leader", name)
    return NodeFault(kind, random.choice(members.brokers), lasts_s, "broker")


def draw_link_fault(random: random_module.Random, members: Members) -> LinkFault:
    lasts_s = _draw_time(random)
    one, other = random.sample(members.brokers, 2)
    choice = random.randrange(3)
    if choice == 0:
        target, pairs = "between two brokers", [(one, other)]
    elif choice == 1:
        controllers = [node for node in members.controllers if node != one]
        target, pairs = "from a controller", [(one, random.choice(controllers or [other]))]
    else:
        others = [node for node in sorted({*members.brokers, *members.controllers}) if node != one]
        target, pairs = "from all nodes", [(one, node) for node in others]
    back = [(to, source) for source, to in pairs]
    if random.random() >= ONE_WAY_CHANCE:
        return LinkFault((*pairs, *back), lasts_s, target)
    return LinkFault(tuple(random.choice([pairs, back])), lasts_s, f"{target}, one way")


def _draw_time(random: random_module.Random) -> float:
    return random.uniform(*(LONG_S if random.random() < LONG_CHANCE else SHORT_S))
