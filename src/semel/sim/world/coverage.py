"""What the runs have been through, of all that they could: kinds of faults, and moves of the state machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from semel.coordinator.group.classic_states import MOVES as CLASSIC_MOVES
from semel.coordinator.group.consumer_group import MemberState
from semel.coordinator.txn.state import MOVES as TRANSACTION_MOVES
from semel.quorum.states import MOVES as QUORUM_MOVES
from semel.sim.network import DIED_TOGETHER, TOGETHER
from semel.sim.world.quorum_rules import move_name
from semel.sim.world.schedule import AMONG_NODES, OTHER_DISKS, StrikeKind


class Part(NamedTuple):
    """`unseen` are the names of what has not happened."""

    name: str
    seen: int
    total: int
    unseen: list[str]


def possible(nodes: int = 1, voters: int = 1) -> dict[str, list[str]]:
    """Everything that can be covered, by what it is about."""
    impossible = (*(AMONG_NODES if nodes == 1 else ()), *(OTHER_DISKS if voters > 1 else ()))
    faults = [f"fault: {kind.value}" for kind in StrikeKind if kind not in impossible]
    transactions = [
        f"transaction: {state.label} {event.name.lower()} {after.label}"
        for (state, event), after in TRANSACTION_MOVES.items()
    ]
    classic = [
        f"classic group: {state.value} {event.name.lower()} {after.value}"
        for (state, event), after in CLASSIC_MOVES.items()
    ]
    states = [state.name.lower() for state in MemberState]
    members = [f"member: {before} to {after}" for before in ["new", *states] for after in states]
    rounds = [f"round: {what}" for what in (TOGETHER, DIED_TOGETHER)]
    return {
        "faults": faults,
        "transactions": transactions,
        "classic groups": classic,
        "members": members,
        "rounds": rounds,
    } | ({"quorum": [move_name(*move, after) for move, after in QUORUM_MOVES.items()]} if voters > 1 else {})


def covered(coverage: Mapping[str, int], nodes: int = 1, voters: int = 1) -> list[Part]:
    parts = []
    for name, all_of_it in possible(nodes, voters).items():
        unseen = [what.partition(": ")[2] for what in all_of_it if not coverage.get(what)]
        parts.append(Part(name, len(all_of_it) - len(unseen), len(all_of_it), unseen))
    return parts
