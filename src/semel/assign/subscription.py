"""What an assignor is given: the members with what they want and have, and the partition counts of the topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

# A topic is its id on the broker and its name in a client; assignors only need to compare and sort it.
T = TypeVar("T", str, bytes)


@dataclass(frozen=True)
class Subscription(Generic[T]):
    """One member. `owned` is what it was given last; static members keep their place by their instance id."""

    topics: frozenset[T]
    owned: frozenset[tuple[T, int]] = field(default_factory=frozenset)
    instance_id: str | None = None


Members = Mapping[str, Subscription[T]]
Assignment = dict[str, set[tuple[T, int]]]


def in_order(members: Members[T]) -> list[str]:
    """Static members first, by instance, so that a restart under a new member id changes nothing; then the others."""
    return sorted(members, key=lambda name: (members[name].instance_id is None, members[name].instance_id or name))


def subscribers(members: Members[T], partitions: Mapping[T, int]) -> dict[T, list[str]]:
    """The members of each topic that exists, in order; topics in the order in which they sort."""
    ordered = in_order(members)
    return {topic: [name for name in ordered if topic in members[name].topics] for topic in sorted(partitions)}
