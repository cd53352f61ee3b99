"""Strikes that need several nodes: links between them are cut, all die at once, disks are restored and cloned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semel.sim.network import Wires
from semel.sim.world.node import SimulatedNode
from semel.sim.world.nodes import Nodes
from semel.sim.world.schedule import NODE_BITS, Strike, StrikeKind

DOWN_MAX_S = 1.0
"""A node is away for no longer than this: what waits for it does nothing meanwhile."""

Tell = Callable[[Strike, str], None]
Afterwards = Callable[[Strike, Callable[[], None]], None]


def struck(strike: Strike, nodes: Sequence[SimulatedNode]) -> SimulatedNode:
    """The node that it hits."""
    return nodes[(strike.pick >> NODE_BITS) % len(nodes)]


def down_s(strike: Strike) -> float:
    return min(strike.length_s, DOWN_MAX_S)


class StrikesAmongNodes:
    def __init__(self, wires: Wires, nodes: Nodes, tell: Tell, afterwards: Afterwards) -> None:
        self._wires = wires
        self._nodes = nodes
        self._tell = tell
        self._afterwards = afterwards
        self.deal: dict[StrikeKind, Callable[[Strike], None]] = {
            StrikeKind.NODES_PART: self._part_nodes,
            StrikeKind.NODES_PART_ONE_WAY: self._part_nodes,
            StrikeKind.ALL_KILLED: self._end_all,
            StrikeKind.ALL_POWER_CUT: self._end_all,
            StrikeKind.OLD_DISK: self._restore,
            StrikeKind.CLONE: self._clone,
        }

    def _part_nodes(self, strike: Strike) -> None:
        """Two of them, or one and all others; in both directions or in one."""
        node, wires = struck(strike, self._nodes.all), self._wires
        others = [other.name for other in self._nodes.others(node)]
        if strike.share < 0.5:
            others = others[strike.pick % len(others) :][:1]
        is_one_way = strike.kind is StrikeKind.NODES_PART_ONE_WAY
        how = "not heard by" if is_one_way else "cut off from"
        self._tell(strike, f"{node.name} is {how} {', '.join(others)} for {strike.length_s:.2f} s")
        if is_one_way:
            wires.part_one_way([node.name], others)
        else:
            wires.part([node.name], others)
        self._afterwards(strike, lambda: wires.rejoin([node.name], others))

    def _end_all(self, strike: Strike) -> None:
        if strike.kind is StrikeKind.ALL_KILLED:
            self._tell(strike, "kill -9 of all nodes at once")
            self._nodes.kill_all(down_s(strike))
        else:
            self._tell(strike, "power cut of all nodes at once")
            self._nodes.lose_power_of_all(down_s(strike))

    def _idle_one(self, strike: Strike) -> SimulatedNode:
        """Not the first: without replicas it alone holds what clients were promised."""
        return struck(strike, self._nodes.others(self._nodes.first))

    def _restore(self, strike: Strike) -> None:
        node = self._idle_one(strike)
        image = self._nodes.image(node)
        self._tell(strike, f"a backup is made of the disk of {node.name}, and restored after {strike.length_s:.2f} s")
        self._afterwards(strike, lambda: node.restore(image, down_s(strike)))

    def _clone(self, strike: Strike) -> None:
        node = self._idle_one(strike)
        self._tell(strike, f"{node.name} is cloned, and its clone runs beside it")
        self._nodes.clone(node, self._nodes.image(node))
