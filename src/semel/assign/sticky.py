"""Sticky: even, and as much as possible as before. Cooperative sticky: nobody gets what another still holds.

The cooperative one needs two rebalances where something moves: in the first its owner gives it up and the group hears
of it, in the second the new one gets it; everybody else reads on meanwhile (KIP-429). Where members read different
topics, what was given up may make a more even choice possible, and one or two more follow.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.assign.subscription import Assignment, Members, T
from semel.assign.uniform import assign_uniform


def assign_sticky(members: Members[T], partitions: Mapping[T, int]) -> Assignment[T]:
    return assign_uniform(members, partitions)


def assign_cooperative_sticky(members: Members[T], partitions: Mapping[T, int]) -> Assignment[T]:
    """Partitions that are to move are with nobody: their owners see that they have lost them and join again."""
    owners = {partition: name for name, member in members.items() for partition in member.owned}
    return {
        name: {partition for partition in owned if owners.get(partition, name) == name}
        for name, owned in assign_sticky(members, partitions).items()
    }
