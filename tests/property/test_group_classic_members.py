"""Classic groups under random joins, leaves, silences, restarts and refused writes, against what must always hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from group_world import GROUP, REBALANCE_MS, SESSION_MS, World, run_in_world
from semel.coordinator.group.classic_states import ClassicState
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "static", "leave", "silence", "wait", "restart", "refuse", "admin"]),
        st.integers(0, 5),
    ),
    min_size=5,
    max_size=30,
)


class Client:
    """A member as clients are: it joins, syncs, sends heartbeats, and begins again when it is told to."""

    def __init__(self, world: World, log: Watch, instance_id: str | None) -> None:
        self.world = world
        self.watch = log
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.is_assigned = False
        self.task = asyncio.ensure_future(self._live())

    async def _live(self) -> None:
        while True:
            self.is_assigned = False
            try:
                await self._join_and_read()
            except Refused as refusal:
                if refusal.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED):
                    self.member_id = ""
                elif refusal.code == ErrorCode.FENCED_INSTANCE_ID:
                    return
                await asyncio.sleep(0.1)

    async def _join_and_read(self) -> None:
        joined = await self.world.join(self.member_id, instance_id=self.instance_id)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await self.world.join(self.member_id, instance_id=self.instance_id)
        if joined.error_code:
            raise Refused(ErrorCode(joined.error_code), "join")
        self.member_id, self.generation = joined.member_id, joined.generation_id
        self.watch.joined(joined)
        plan = None
        if joined.leader == self.member_id and not joined.skip_assignment:
            plan = {member.member_id: member.member_id.encode() for member in joined.members}
        synced = await self.world.sync(self.member_id, self.generation, plan, group_instance_id=self.instance_id)
        if synced.error_code:
            raise Refused(ErrorCode(synced.error_code), "sync")
        assert synced.assignment, "a member of a stable group has an assignment"
        self.is_assigned = True
        while True:
            await asyncio.sleep(SESSION_MS / 4000)
            await self.world.heartbeat(self.member_id, self.generation, group_instance_id=self.instance_id)


class Watch:
    """What the answers say, over one life of the coordinator."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.protocols: dict[int, str | None] = {}
        self.newest = 0

    def joined(self, response: object) -> None:
        generation, leader = response.generation_id, response.leader  # type: ignore[attr-defined]
        # A static leader that comes back leads on under a new id, and older clients are told the old one.
        assert self.leaders.setdefault(generation, leader) == leader or "-" in leader
        self.newest = max(self.newest, generation)


def check_group(world: World) -> None:
    group = world.side().rebalance.groups.get(GROUP)
    if group is None:
        return
    if group.members:
        assert group.leader in group.members
    else:
        assert group.leader is None or group.state is ClassicState.PREPARING_REBALANCE
    assert (group.state is ClassicState.EMPTY) <= (not group.members)
    if group.state is ClassicState.STABLE:
        assert group.protocol == "range"
        assert group.static == {
            member.instance_id: member_id for member_id, member in group.members.items() if member.instance_id
        }
    assert group.joining.keys() <= group.members.keys()
    counted = Counter(name for member in group.members.values() for name, _ in member.protocols)
    assert group._with_protocol == counted, "what is kept is not what counting would find"
    for member_id, member in group.members.items():
        assert member.member_id == member_id
        waits = group.is_waiting(member) or ("session", GROUP, member_id) in world.side().timers
        assert waits, "nobody would notice that this member is gone"


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1000))
def test_a_classic_group_keeps_its_promises_and_settles_when_it_is_left_alone(
    steps: list[tuple[str, int]], seed: int
) -> None:
    async def scenario(world: World) -> None:
        random = Random(seed)
        watch = Watch()
        clients: list[Client] = []
        generation = 0
        for step, number in steps:
            if step == "join":
                clients.append(Client(world, watch, None))
            elif step == "static":
                clients.append(Client(world, watch, f"instance{number % 2}"))
            elif step in ("leave", "silence") and clients:
                client = clients.pop(number % len(clients))
                client.task.cancel()
                if step == "leave" and client.member_id:
                    await quietly(world.leave(client.member_id))
            elif step == "wait":
                await asyncio.sleep(random.choice([0, 0.01, 1, 5, SESSION_MS / 1000, REBALANCE_MS / 1000]))
            elif step == "restart":
                await world.restart()
                watch.leaders.clear()
                generation = 0
            elif step == "refuse":
                world.partition_of().refuses = ErrorCode.NOT_ENOUGH_REPLICAS
                await asyncio.sleep(random.choice([0.01, 4]))
                world.partition_of().refuses = None
            elif step == "admin":
                await quietly(world.groups.delete(GROUP))
                if GROUP not in world.side().rebalance.groups:
                    watch.leaders.clear()
                    generation = 0
            await asyncio.sleep(0)
            check_group(world)
            if GROUP in world.side().rebalance.groups:
                assert world.classic().generation >= generation, "generations only grow"
                generation = world.classic().generation
        # Left alone, everyone who is alive ends up in one stable generation.
        await asyncio.sleep(4 * REBALANCE_MS / 1000)
        check_group(world)
        alive = [client for client in clients if not client.task.done()]
        assert all(client.is_assigned for client in alive)
        if alive:
            group = world.classic()
            assert group.state is ClassicState.STABLE
            assert set(group.members) == {client.member_id for client in alive}
            assert {client.generation for client in alive} == {group.generation}
            assert all(member.assignment for member in group.members.values())
        for client in clients:
            if client.task.done() and not client.task.cancelled():
                client.task.result()
            client.task.cancel()
        world.check_replay()

    run_in_world(scenario, {})


async def quietly(request: object) -> None:
    try:
        await request  # type: ignore[misc]
    except Refused:
        pass
