"""Uniform: everyone gets the same number of partitions, give or take one, and keeps what it has wherever it can.

When not all members read the same topics, the loads are as even as the subscriptions allow: no partition could move to
a member that has at least two fewer.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.assign.subscription import Assignment, Members, T, in_order, subscribers


def assign_uniform(members: Members[T], partitions: Mapping[T, int]) -> Assignment[T]:
    if not members:
        return {}
    readers = subscribers(members, partitions)
    every = len(members)
    if all(len(names) == every for names in readers.values()):
        return _alike(members, partitions, list(readers))
    return _unlike(members, partitions, readers)


def _kept(members: Members[T], partitions: Mapping[T, int]) -> Assignment[T]:
    """What members own and still may: the first owner of a partition has it, should there ever be two."""
    taken: set[tuple[T, int]] = set()
    kept: Assignment[T] = {}
    for name in in_order(members):
        member = members[name]
        kept[name] = {
            (topic, index)
            for topic, index in member.owned
            if topic in member.topics and index < partitions.get(topic, 0) and (topic, index) not in taken
        }
        taken |= kept[name]
    return kept


def _alike(members: Members[T], partitions: Mapping[T, int], topics: list[T]) -> Assignment[T]:
    """All members read the same topics: each has the quota, and some one more."""
    total = sum(partitions[topic] for topic in topics)
    quota, one_more = divmod(total, len(members))
    assignment = _kept(members, partitions)
    ordered = list(assignment)
    for name in sorted(ordered, key=lambda name: -len(assignment[name])):
        owned = assignment[name]
        limit = quota
        if len(owned) > quota and one_more:
            limit, one_more = quota + 1, one_more - 1
        for partition in sorted(owned, reverse=True)[: max(len(owned) - limit, 0)]:
            owned.remove(partition)
    taken = {partition for owned in assignment.values() for partition in owned}
    free = iter(
        [(topic, index) for topic in topics for index in range(partitions[topic]) if (topic, index) not in taken]
    )
    for name in ordered:
        while len(assignment[name]) < quota:
            assignment[name].add(next(free))
    for name, partition in zip((name for name in ordered if len(assignment[name]) == quota), free, strict=False):
        assignment[name].add(partition)
    return assignment


def _unlike(members: Members[T], partitions: Mapping[T, int], readers: dict[T, list[str]]) -> Assignment[T]:
    assignment = _kept(members, partitions)
    taken = {partition for owned in assignment.values() for partition in owned}
    # Topics with few readers first: the others can still be put where there is room.
    for topic in sorted(readers, key=lambda topic: len(readers[topic])):
        names = readers[topic]
        for index in range(partitions[topic] if names else 0):
            if (topic, index) not in taken:
                assignment[min(names, key=lambda name: len(assignment[name]))].add((topic, index))
    # Each move makes the sum of the squares of the loads smaller, so this ends.
    moved = True
    while moved:
        moved = False
        for name in sorted(assignment, key=lambda name: -len(assignment[name])):
            for partition in sorted(assignment[name]):
                least = min(readers[partition[0]], key=lambda other: len(assignment[other]))
                if len(assignment[least]) + 1 < len(assignment[name]):
                    assignment[name].remove(partition)
                    assignment[least].add(partition)
                    moved = True
    return assignment
