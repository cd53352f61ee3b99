"""All that happens on one partition of `__consumer_offsets`: the two protocols and the offsets, on one state.

The state is the shard's, made by replay. What lives beside it (waiting requests, timers) is owned here and ends with
`unload`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from random import Random

from semel.config import BrokerConfig
from semel.coordinator.group.classic import ClassicRequests
from semel.coordinator.group.classic_rebalance import ClassicRebalance
from semel.coordinator.group.classic_states import ClassicState
from semel.coordinator.group.cluster import ClusterTopics
from semel.coordinator.group.consumer import ConsumerRequests
from semel.coordinator.group.consumer_records import removed_group
from semel.coordinator.group.group_memory import GroupMemory
from semel.coordinator.group.offsets import GroupOffsets, Place
from semel.coordinator.group.records import group_entry
from semel.coordinator.group.state import GroupState
from semel.coordinator.group.timers import Timers
from semel.coordinator.shard import Entry, Shard
from semel.coordinator.work import Steps
from semel.host.api import Clock
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_groups import DescribedGroup, DescribedGroupMember
from semel.wire.spec.list_groups import ListedGroup

logger = logging.getLogger("semel.groups")

CLASSIC, CONSUMER = "classic", "consumer"
_S = ClassicState


class GroupShard:
    def __init__(
        self,
        shard: Shard[GroupState],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        random: Random,
        topics: ClusterTopics,
        memory: GroupMemory,
    ) -> None:
        self.shard = shard
        self.timers = Timers()
        self.rebalance = ClassicRebalance(shard, self.timers, config, clock, memory)
        self.classic = ClassicRequests(shard, self.rebalance, random)
        self.consumer = ConsumerRequests(shard, self.timers, config, clock, random, topics, memory)
        self.offsets = GroupOffsets(shard, self.rebalance, config, clock)
        # Groups that were known by their offsets alone, and have none left: they are there until somebody looks after
        # them, as in Kafka, so that who took the offsets away can take the group away as well.
        self._emptied: set[str] = set()

    def load(self) -> Steps:
        """Makes groups of what was replayed, and gives their members a session, in small steps."""
        try:
            yield from self.rebalance.load()
            yield from self.consumer.load()
        except GeneratorExit:
            self.rebalance.forget()
            self.consumer.uncount()
            self.timers.close()  # this term was over before it had begun
            raise

    def unload(self) -> Steps:
        """The shard is served here no longer. The call itself ends the timers: nobody is removed from a group, and
        nothing else decided, by who does not coordinate it. The steps tell those who wait, and free what is here."""
        self.consumer.uncount()
        return chain(self.rebalance.unload(), self.timers.close())

    # -- a group has one protocol at a time

    def make_way_for_classic(self, group_id: str) -> None:
        """Classic members may have the name of a KIP-848 group once that is empty."""
        group = self.shard.state.consumer.get(group_id)
        if group is None:
            return
        if group.members:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group_id!r} has members of the KIP-848 protocol, not classic"
            )
        self.shard.append(removed_group(group))
        self.consumer.forget(group_id)

    def make_way_for_consumer(self, group_id: str) -> None:
        """And the other way round. Both kinds of members in one group are not served yet."""
        group = self.rebalance.groups.get(group_id)
        if group is None:
            return
        if group.state is not _S.EMPTY or group.pending_join:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id!r} is a group of the classic protocol")
        if group_id in self.shard.state.classic:
            self.shard.append([group_entry(group_id, None)])
        self.rebalance.remove(group)

    # -- for those who look

    def group_ids(self) -> list[str]:
        state = self.shard.state
        simple = [group_id for group_id in (*state.offsets, *self._emptied) if self._is_simple(group_id)]
        return list(dict.fromkeys([*self.rebalance.groups, *state.consumer, *simple]))

    def _is_simple(self, group_id: str) -> bool:
        """Whether offsets are, or were, all that is known of a group."""
        if group_id in self._emptied:
            return group_id not in self.rebalance.groups and group_id not in self.shard.state.consumer
        return self.shard.state.is_simple(group_id)

    def listed(self) -> list[ListedGroup]:
        state = self.shard.state
        listed = []
        for group_id in self.group_ids():
            one = ListedGroup(group_id=group_id, group_type=CLASSIC, group_state=_S.EMPTY.value)
            consumer, classic = state.consumer.get(group_id), self.rebalance.groups.get(group_id)
            if consumer is not None:
                one.group_type, one.protocol_type, one.group_state = CONSUMER, CONSUMER, consumer.state
            elif classic is not None:
                one.protocol_type, one.group_state = classic.protocol_type or "", classic.state.value
            listed.append(one)
        return listed

    def described(self, group_id: str) -> DescribedGroup:
        """A classic group; Refused when there is none of this name."""
        group = self.rebalance.groups.get(group_id)
        if group is None:
            if self._is_simple(group_id):
                return DescribedGroup(group_id=group_id, group_state=_S.EMPTY.value)
            kind = "not a classic group" if group_id in self.shard.state.consumer else "not known"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is {kind}")
        is_stable = group.state is _S.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
                for member in group.members.values()
            ],
        )

    # -- removing

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> dict[Place, ErrorCode]:
        """What became of each. Of a group that has nothing but offsets they may be the last."""
        if group_id in self._emptied and not self.shard.state.is_simple(group_id):
            return dict.fromkeys(places, ErrorCode.NONE)
        was_simple = self.shard.state.is_simple(group_id)
        codes = self.offsets.delete(group_id, places)
        if was_simple and not self.shard.state.is_simple(group_id):
            self._emptied.add(group_id)
        return codes

    def delete(self, group_id: str) -> None:
        """Takes an empty group away, with its offsets."""
        state = self.shard.state
        group, consumer = self.rebalance.groups.get(group_id), state.consumer.get(group_id)
        if group is None and consumer is None and not self._is_simple(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if (group is not None and group.state is not _S.EMPTY) or (consumer is not None and consumer.members):
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members")
        self.shard.append([*self.offsets.removals(group_id), *self._removal(group_id)])
        self._emptied.discard(group_id)
        self.consumer.forget(group_id)
        if group is not None:
            self.rebalance.remove(group)

    def _removal(self, group_id: str) -> list[Entry]:
        state = self.shard.state
        if group_id in state.consumer:
            return removed_group(state.consumer[group_id])
        return [group_entry(group_id, None)] if group_id in state.classic else []

    def clean(self, group_id: str) -> None:
        """Removes offsets that are overdue, and a group that nobody is in and that has none left."""
        entries, has_none_left = self.offsets.expired(group_id)
        group, consumer = self.rebalance.groups.get(group_id), self.shard.state.consumer.get(group_id)
        has_members = group is not None and (group.state is not _S.EMPTY or bool(group.pending_join))
        is_over = has_none_left and not has_members and not (consumer is not None and consumer.members)
        if is_over:
            entries = [*entries, *self._removal(group_id)]
        if entries:
            logger.info("%r: %d records of it have expired", group_id, len(entries))
            self.shard.append(entries)
        if is_over:
            self._emptied.discard(group_id)
            self.consumer.forget(group_id)
            if group is not None:
                self.rebalance.remove(group)

    def check_connection(self, group_id: str, member_id: str, connection: int) -> None:
        """Refuses a commit of a member that was delayed on its way, over a connection that the member has replaced: it
        would take back what the member has committed since. (The epoch of a member stays the same meanwhile.)"""
        if self._has_member(group_id, member_id):
            self.shard.connections.check((group_id, member_id), member_id, connection)

    def _has_member(self, group_id: str, member_id: str) -> bool:
        classic, consumer = self.rebalance.groups.get(group_id), self.shard.state.consumer.get(group_id)
        return (classic is not None and member_id in classic.members) or (
            consumer is not None and member_id in consumer.members
        )

    def forget_connections(self) -> None:
        """Of producers whose state has expired, and of members that have gone: nothing of them is open here."""
        if not len(self.shard.connections):
            return
        rows = self.shard.partition.log.producers.live_rows
        self.shard.connections.keep(lambda who: self._has_member(*who) if isinstance(who, tuple) else who in rows)

    def topics_deleted(self, topics: Collection[str]) -> None:
        self.offsets.topics_deleted(topics)
