"""Range: each topic by itself is cut into as many consecutive pieces as it has members; the first ones are longer.

Members that read the same topics get the same partition numbers of each, so topics can be joined by key.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.assign.subscription import Assignment, Members, T, subscribers


def assign_range(members: Members[T], partitions: Mapping[T, int]) -> Assignment[T]:
    assignment: Assignment[T] = {name: set() for name in members}
    for topic, names in subscribers(members, partitions).items():
        if not names:
            continue
        each, longer = divmod(partitions[topic], len(names))
        start = 0
        for number, name in enumerate(names):
            end = start + each + (number < longer)
            assignment[name].update((topic, index) for index in range(start, end))
            start = end
    return assignment
