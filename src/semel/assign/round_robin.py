"""Round robin: all partitions of all topics in order, dealt out one by one to the members that want them."""

from __future__ import annotations

from collections.abc import Mapping

from semel.assign.subscription import Assignment, Members, T, in_order


def assign_round_robin(members: Members[T], partitions: Mapping[T, int]) -> Assignment[T]:
    assignment: Assignment[T] = {name: set() for name in members}
    ordered = in_order(members)
    wanted = {topic for member in members.values() for topic in member.topics}
    place = 0
    for topic in sorted(wanted & partitions.keys()):
        for index in range(partitions[topic]):
            # Who does not want it is passed over, and has its turn when it comes round again.
            while topic not in members[ordered[place]].topics:
                place = (place + 1) % len(ordered)
            assignment[ordered[place]].add((topic, index))
            place = (place + 1) % len(ordered)
    return assignment
