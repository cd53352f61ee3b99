"""Who of a classic group reads what: the interface of assignors, Kafka's four, and how a setting names them.

The leader of a group asks the assignor that all members support. An assignor may remember things between rebalances
(`on_assignment`) and tell the leader of them (`subscription`). `is_cooperative` says that it never gives a partition to
one member while another still has it, so that members may keep theirs through a rebalance (KIP-429).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from semel.assign import subscription as pure
from semel.assign.range_assignor import assign_range
from semel.assign.round_robin import assign_round_robin
from semel.assign.sticky import assign_sticky
from semel.client.consumer.membership.protocol import NO_GENERATION, Assignment, Subscription, by_topic, in_row
from semel.client.errors import BadSetting
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity
from semel.wire.codec import decode, encode
from semel.wire.errors import WireError
from semel.wire.spec.consumer_protocol import CooperativeStickyUserData, StickyUserData

PartitionCounts: TypeAlias = Mapping[str, int]
"""How many partitions the topics have that anybody subscribes to; topics that do not exist are not in it."""
Subscriptions: TypeAlias = Mapping[str, Subscription]
"""By member id."""


class Assignor(ABC):
    """Programs that have a way of their own subclass this, and give the class or an object of it as
    partition_assignment_strategy. All members of a group need an assignor of the same name."""

    name: str
    is_cooperative: bool = False

    def subscription(self, topics: frozenset[str]) -> bytes | None:
        """What the leader's `assign` is to find as this member's `user_data`; asked before each rebalance."""
        return None

    @abstractmethod
    def assign(self, partitions: PartitionCounts, subscriptions: Subscriptions) -> Mapping[str, Assignment]:
        """The assignment of every member, by member id. Runs on the leader only; who is left out gets nothing."""

    def on_assignment(self, assignment: Assignment, identity: GroupIdentity) -> None:  # noqa: B027
        """This member has been assigned something, with the `user_data` that the leader's `assign` gave it."""


class RangeAssignor(Assignor):
    """Each topic cut into consecutive pieces; members that read the same topics get the same partition numbers."""

    name = "range"

    def assign(self, partitions: PartitionCounts, subscriptions: Subscriptions) -> Mapping[str, Assignment]:
        return _sorted(assign_range(_members(subscriptions, {}), partitions))


class RoundRobinAssignor(Assignor):
    """All partitions of all topics, dealt out one by one."""

    name = "roundrobin"

    def assign(self, partitions: PartitionCounts, subscriptions: Subscriptions) -> Mapping[str, Assignment]:
        return _sorted(assign_round_robin(_members(subscriptions, {}), partitions))


class StickyAssignor(Assignor):
    """Even, and as much as possible as before. Everybody gives up everything first, so members say what they had."""

    name = "sticky"

    def __init__(self) -> None:
        self._previous: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def subscription(self, topics: frozenset[str]) -> bytes | None:
        if self._previous is None:
            return None
        data = StickyUserData(previous_assignment=by_topic(self._previous), generation=self._generation)
        return encode(data, StickyUserData.max_version)

    def on_assignment(self, assignment: Assignment, identity: GroupIdentity) -> None:
        self._previous = assignment.partitions
        self._generation = identity.generation_id

    def assign(self, partitions: PartitionCounts, subscriptions: Subscriptions) -> Mapping[str, Assignment]:
        claims = {name: _sticky_claim(member) for name, member in subscriptions.items()}
        return _sorted(assign_sticky(_members(subscriptions, _undisputed(claims)), partitions))


class CooperativeStickyAssignor(Assignor):
    """As sticky, but members keep what they have: what is to move is given up in one rebalance, and taken in the next.

    Whoever says that it still has a partition is believed here, however old its knowledge is: nobody else gets it now.
    """

    name = "cooperative-sticky"
    is_cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription(self, topics: frozenset[str]) -> bytes | None:
        return encode(CooperativeStickyUserData(generation=self._generation), CooperativeStickyUserData.max_version)

    def on_assignment(self, assignment: Assignment, identity: GroupIdentity) -> None:
        self._generation = identity.generation_id

    def assign(self, partitions: PartitionCounts, subscriptions: Subscriptions) -> Mapping[str, Assignment]:
        claims = {name: (_owned_generation(member), member.owned) for name, member in subscriptions.items()}
        holders: dict[tuple[str, int], set[str]] = {}
        for name, member in subscriptions.items():
            for partition in member.owned:
                holders.setdefault(partition, set()).add(name)
        wished = assign_sticky(_members(subscriptions, _undisputed(claims)), partitions)
        return _sorted(
            {name: {one for one in owned if holders.get(one, {name}) == {name}} for name, owned in wished.items()}
        )


Claims: TypeAlias = Mapping[str, tuple[int, tuple[TopicPartition, ...]]]
"""What each member says it had, and in which generation it was given that."""


def _sticky_claim(member: Subscription) -> tuple[int, tuple[TopicPartition, ...]]:
    """What cannot be read is no claim: the member starts from nothing."""
    for version in (StickyUserData.max_version, StickyUserData.min_version):
        try:
            data = decode(StickyUserData, version, member.user_data or b"")
        except WireError:
            continue
        return data.generation, in_row(data.previous_assignment)
    return NO_GENERATION, ()


def _owned_generation(member: Subscription) -> int:
    """Members of older clients have it in the assignor's data only."""
    if member.generation != NO_GENERATION:
        return member.generation
    try:
        return decode(CooperativeStickyUserData, 0, member.user_data or b"").generation
    except WireError:
        return NO_GENERATION


def _undisputed(claims: Claims) -> dict[str, Iterable[TopicPartition]]:
    """Of several claims to one partition the newest counts (KIP-792); of several from one generation none does."""
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for name, (generation, partitions) in claims.items():
        for partition in partitions:
            known = newest.get(partition)
            if known is None or known[0] < generation:
                newest[partition] = (generation, name)
            elif known[0] == generation:
                newest[partition] = (generation, None)
    return {
        name: [partition for partition in partitions if newest[partition][1] == name]
        for name, (_, partitions) in claims.items()
    }


def _members(
    subscriptions: Subscriptions, owned: Mapping[str, Iterable[TopicPartition]]
) -> dict[str, pure.Subscription[str]]:
    return {
        name: pure.Subscription(
            frozenset(member.topics),
            frozenset((topic, index) for topic, index in owned.get(name, ())),
            member.instance_id,
        )
        for name, member in subscriptions.items()
    }


def _sorted(assignment: Mapping[str, Iterable[tuple[str, int]]]) -> dict[str, Assignment]:
    return {
        name: Assignment(tuple(TopicPartition(topic, index) for topic, index in sorted(owned)))
        for name, owned in assignment.items()
    }


# -- how a setting names them

_CLASSES: tuple[type[Assignor], ...] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
)
BUILT_IN = {cls.name: cls for cls in _CLASSES}
_KAFKA_CLASSES = {f"org.apache.kafka.clients.consumer.{cls.__name__}": cls for cls in _CLASSES}
_SETTING = "partition_assignment_strategy"
_NEEDED = ("subscription", "assign", "on_assignment")


def assignors_for(strategy: Any) -> list[Assignor]:
    """The assignors that a value of partition_assignment_strategy means, most wanted first. Raises BadSetting.

    A name (Kafka's class names too), several with commas between, a class, an object, or a sequence of these.
    """
    if isinstance(strategy, str):
        strategy = [part.strip() for part in strategy.split(",")]
    elif isinstance(strategy, type) or not isinstance(strategy, Iterable):
        strategy = [strategy]
    assignors = [_assignor(entry) for entry in strategy]
    if not assignors:
        raise BadSetting(f"{_SETTING}: at least one assignor is needed, such as {', '.join(BUILT_IN)}")
    names = [assignor.name for assignor in assignors]
    for name in names:
        if names.count(name) > 1:
            raise BadSetting(f"{_SETTING}: {name!r} is there twice")
    return assignors


def _assignor(entry: Any) -> Assignor:
    if isinstance(entry, str):
        cls = BUILT_IN.get(entry) or _KAFKA_CLASSES.get(entry)
        if cls is None:
            near = get_close_matches(entry, [*BUILT_IN, *_KAFKA_CLASSES], 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(BUILT_IN)}, and classes of yours"
            raise BadSetting(f"{_SETTING}: there is no assignor {entry!r}{hint}")
        return cls()
    made = entry() if isinstance(entry, type) else entry
    missing = [method for method in _NEEDED if not callable(getattr(made, method, None))]
    if not isinstance(getattr(made, "name", None), str) or not made.name:
        missing.append("name")
    if not isinstance(getattr(made, "is_cooperative", None), bool):
        missing.append("is_cooperative")
    if missing:
        raise BadSetting(f"{_SETTING}: {type(made).__name__} is no assignor: it lacks {', '.join(missing)}")
    assignor: Assignor = made
    return assignor
