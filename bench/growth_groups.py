"""What a group costs its coordinator with more and more consumers: a heartbeat, and each one's part of a rebalance.

Both protocols: the classic one, where all join again and a leader assigns, and KIP-848's, where the coordinator does. A
topic has as many partitions as the group has members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from brokers import Node
from cases import Progress
from curves import Curve, size_text
from growth_load import (
    EACH,
    GROUP_KEY,
    REQUESTS,
    Caller,
    Cost,
    Costs,
    answer_of,
    cpu_s,
    frame_of,
    make_coordinator,
    refuse_errors,
    tries,
)

from raw_client import RawClient
from semel.wire.spec.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from semel.wire.spec.heartbeat import HeartbeatRequest, HeartbeatResponse
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_JOIN_VERSION, _SYNC_VERSION, _HEARTBEAT_VERSION, _CONSUMER_VERSION = 3, 2, 2, 0
_SESSION_MS = 45_000
_REBALANCE_MS = 60_000
_LEAVING, _JOINING = -1, 0
_UNKNOWN_MEMBER_ID = ""


def measure(node: Node, sizes: list[int], tell: Progress) -> list[Curve]:
    costs = Costs("consumers of a group")
    make_coordinator(node, GROUP_KEY)
    for size in sizes:
        topic = f"group-{size}"
        node.create(topic, size)
        with ExitStack() as ending:
            caller = ending.enter_context(Caller(node))
            classic = _ClassicGroup(node, topic, size, ending)
            classic.form()
            consumers = _ConsumerGroup(caller, topic, size)
            consumers.settle()

            def classic_beats(caller: Caller = caller, group: _ClassicGroup = classic) -> Cost:
                return caller.cost(group.heartbeats(), _check_heartbeat)

            def consumer_beats(caller: Caller = caller, group: _ConsumerGroup = consumers) -> Cost:
                return caller.cost(group.heartbeats(), _check_consumer_heartbeat)

            works = {
                "classic: heartbeat": classic_beats,
                f"classic: rebalance{EACH}": _divided(node, size, classic.rebalance),
                "KIP-848: heartbeat": consumer_beats,
                f"KIP-848: rebalance{EACH}": _divided(node, size, consumers.replace_one),
            }
            told = [costs.add(what, size, tries(work)) for what, work in works.items()]
        tell(f"{size_text(size)} consumers: {'; '.join(told)}")
    return costs.curves()


def _divided(node: Node, size: int, work: Callable[[], None]) -> Callable[[], Cost]:
    """The cost of the work for each of so many."""

    def cost() -> Cost:
        before_s, begin_s = cpu_s(node), time.perf_counter()
        work()
        wall_s = time.perf_counter() - begin_s
        return Cost((cpu_s(node) - before_s) / size * 1e6, wall_s / size * 1e6)

    return cost


class _ClassicGroup:
    """Each member on a connection of its own: a join waits for the others."""

    def __init__(self, node: Node, topic: str, size: int, ending: ExitStack) -> None:
        self._group = f"classic-{size}"
        name = topic.encode()
        self._metadata = b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
        self._members = [ending.enter_context(RawClient(node.process.port, timeout_s=60)) for _ in range(size)]
        self._ids = [_UNKNOWN_MEMBER_ID] * size
        self._leader = 0
        self._generation = 0

    def form(self) -> None:
        """The first is a group by itself at once; when the others come, it has to join again."""
        first, *others = range(len(self._members))
        self._send_join(first)
        self._hear_joined([first])
        for place in others:
            self._send_join(place)
        time.sleep(0.1)
        self._send_join(first)
        self._hear_joined([first, *others])
        self._sync()

    def rebalance(self) -> None:
        """The leader joins again, so all others have to; then each gets its assignment."""
        self._send_join(self._leader)
        # Others that come before it would find a group at rest.
        time.sleep(0.002)
        for place in range(len(self._members)):
            if place != self._leader:
                self._send_join(place)
        self._hear_joined(range(len(self._members)))
        self._sync()

    def _send_join(self, place: int) -> None:
        self._members[place].send(self._join(self._ids[place]), _JOIN_VERSION)

    def _hear_joined(self, places: Iterable[int]) -> None:
        for place in places:
            told = answer_of(JoinGroupRequest, _JOIN_VERSION, self._members[place].read_frame())
            assert isinstance(told, JoinGroupResponse)
            refuse_errors([told.error_code])
            self._ids[place], self._generation = told.member_id, told.generation_id
            if told.member_id == told.leader:
                self._leader = place

    def _sync(self) -> None:
        for place, member in enumerate(self._members):
            shares = self._ids if place == self._leader else []
            assigned = [SyncGroupRequestAssignment(member_id=one, assignment=b"." * 40) for one in shares]
            request = SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._ids[place],
                assignments=assigned,
            )
            member.send(request, _SYNC_VERSION)
        for member in self._members:
            synced = answer_of(SyncGroupRequest, _SYNC_VERSION, member.read_frame())
            assert isinstance(synced, SyncGroupResponse)
            refuse_errors([synced.error_code])

    def _join(self, member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self._metadata)],
        )

    def heartbeats(self) -> list[bytes]:
        return [
            frame_of(
                HeartbeatRequest(
                    group_id=self._group, generation_id=self._generation, member_id=self._ids[turn % len(self._ids)]
                ),
                _HEARTBEAT_VERSION,
            )
            for turn in range(REQUESTS)
        ]


class _Member:
    """What a consumer of KIP-848's protocol knows. `owned` None: nothing to tell."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = _JOINING
        self.owned: list[OwnedTopicPartitions] | None = []


class _ConsumerGroup:
    """All members on one connection: nobody waits for anybody."""

    def __init__(self, caller: Caller, topic: str, size: int) -> None:
        self._caller = caller
        self._group = f"consumer-{size}"
        self._topic = topic
        self._names = size
        self._members = [_Member(f"member-{number}") for number in range(size)]

    def settle(self) -> None:
        """All send heartbeats, round after round, until all are in one epoch and nobody is told anything new."""
        while True:
            news = [self._beat(member) for member in self._members]
            if not any(news) and len({member.epoch for member in self._members}) == 1:
                return

    def replace_one(self) -> None:
        """One leaves and another comes."""
        leaving = self._members.pop(0)
        leaving.epoch, leaving.owned = _LEAVING, None
        self._beat(leaving)
        self._members.append(_Member(f"member-{self._names}"))
        self._names += 1
        self.settle()

    def _beat(self, member: _Member) -> bool:
        """Whether it was told anything new."""
        told = self._caller.call(self._request(member), _CONSUMER_VERSION)
        assert isinstance(told, ConsumerGroupHeartbeatResponse)
        refuse_errors([told.error_code])
        is_new = told.assignment is not None or told.member_epoch != member.epoch
        member.epoch = told.member_epoch
        member.owned = None if told.assignment is None else _owned(told.assignment.topic_partitions)
        return is_new

    def _request(self, member: _Member) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=member.name, member_epoch=member.epoch, topic_partitions=member.owned
        )
        if member.epoch == _JOINING:
            request.rebalance_timeout_ms = _REBALANCE_MS
            request.subscribed_topic_names = [self._topic]
        return request

    def heartbeats(self) -> list[bytes]:
        members = self._members
        return [frame_of(self._request(members[turn % len(members)]), _CONSUMER_VERSION) for turn in range(REQUESTS)]


def _owned(assigned: list[AssignedTopicPartitions] | tuple[AssignedTopicPartitions, ...]) -> list[OwnedTopicPartitions]:
    return [OwnedTopicPartitions(topic_id=one.topic_id, partitions=one.partitions) for one in assigned]


def _check_heartbeat(answer: bytes) -> None:
    told = answer_of(HeartbeatRequest, _HEARTBEAT_VERSION, answer)
    assert isinstance(told, HeartbeatResponse)
    refuse_errors([told.error_code])


def _check_consumer_heartbeat(answer: bytes) -> None:
    told = answer_of(ConsumerGroupHeartbeatRequest, _CONSUMER_VERSION, answer)
    assert isinstance(told, ConsumerGroupHeartbeatResponse)
    refuse_errors([told.error_code])
