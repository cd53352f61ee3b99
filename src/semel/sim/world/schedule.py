"""What a run is made of, drawn from its seed before it begins: clients, settings of the node, and strikes in time.

A schedule is plain data, so it can be cut down: strikes left out, clients left out, the time made shorter. What stays
keeps its numbers and its chance, and so a shorter schedule of the same seed is as repeatable as the whole one.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from semel.sim.workload.access import Load


class StrikeKind(Enum):
    """What can happen to the world."""

    KILL = "kill"
    POWER_CUT = "power cut"
    KILL_AT_CALL = "kill in a disk call"
    POWER_CUT_AT_CALL = "power cut in a disk call"
    KILL_AT_SEND = "kill around a send"
    POWER_CUT_AT_SEND = "power cut around a send"
    RESTART = "clean restart"
    CUT = "connections cut"
    FLAKY = "connections cut at random"
    HALF_OPEN = "half-open connections"
    PART = "node cut off"
    PART_CLIENT = "client cut off"
    SLOW = "slow network"
    WEATHER_CUT = "requests and answers cut off"
    WEATHER_DELAY = "requests and answers delayed"
    LOST_ANSWERS = "answers lost"
    DUPLICATES = "requests doubled"
    OVERTAKEN = "requests overtaken"
    DISK_FULL = "disk full"
    WRITE_ERROR = "write error"
    READ_ERROR = "read error"
    FLUSH_ERROR = "flush error"
    SLOW_DISK = "slow disk"
    COLD_CACHE = "cold page cache"
    CLOCK_FORWARD = "wall clock forward"
    CLOCK_BACK = "wall clock back"
    CLOCK_DRIFT = "wall clock drifts"
    CLIENT_CRASH = "client crash"
    CLIENT_FREEZE = "client freezes"
    NODE_FREEZE = "node freezes"
    BIT_FLIP = "bits flip"
    NODES_PART = "nodes cut off from each other"
    NODES_PART_ONE_WAY = "node not heard by another"
    ALL_KILLED = "all nodes killed"
    ALL_POWER_CUT = "power cut of all nodes"
    OLD_DISK = "disk restored from a backup"
    CLONE = "node cloned"


NEEDS_PROXY = frozenset(
    {
        StrikeKind.WEATHER_CUT,
        StrikeKind.WEATHER_DELAY,
        StrikeKind.LOST_ANSWERS,
        StrikeKind.DUPLICATES,
        StrikeKind.OVERTAKEN,
    }
)
AMONG_NODES = (
    StrikeKind.NODES_PART,
    StrikeKind.NODES_PART_ONE_WAY,
    StrikeKind.ALL_KILLED,
    StrikeKind.ALL_POWER_CUT,
    StrikeKind.OLD_DISK,
    StrikeKind.CLONE,
)
"""What needs several of them."""
OTHER_DISKS = (StrikeKind.OLD_DISK, StrikeKind.CLONE)
"""After these a node may go on with a disk that lacks what it has acknowledged with another one."""
NODE_BITS = 20
"""Of a strike's pick, those below say other things than which node it hits."""
LONG_FREEZES_S = (12.0, 40.0)
"""Longer than every timeout between nodes."""
LONG_FREEZE_SHARE = 0.15
DEATHS = (
    StrikeKind.KILL,
    StrikeKind.POWER_CUT,
    StrikeKind.KILL_AT_CALL,
    StrikeKind.POWER_CUT_AT_CALL,
    StrikeKind.KILL_AT_SEND,
    StrikeKind.POWER_CUT_AT_SEND,
)
DEATH_SHARE = 0.4
LONG_SHARE = 0.15
OVERTAKING_SHARE = 0.08
"""Of the runs in which transactions go on while requests of the ones before are still on their way."""
SLEEPING_SHARE = 0.05
"""Of the runs in which a worker of a pipeline sleeps past its session in the middle of a transaction."""
UNWRITTEN_SHARE = 0.04
"""Of the runs in which the power goes off some time after a flush has failed."""
UNSETTLED_SHARE = 0.04
"""Of the runs in which segments are compacted as soon as they may be, while the disk takes its time and loses power."""
ROTTING_SHARE = 0.05
"""Of the runs in which bits flip in old segments, and are mended later."""
LEAPING_SHARE = 0.04
"""Of the runs in which the node's clock is set while transactions are open that their producers do not end in time."""
TOGETHER_SHARE = 0.06
"""Of the runs in which several producers send at the same moments, so that a node gathers what they send."""
GROUP_PATIENCE_S = 330.0
"""An answer to JoinGroup that a half-open connection has swallowed is waited for as long as a member may take to come
back: `max.poll.interval.ms`, five minutes."""


class Strike(NamedTuple):
    """`share` (0 to 1) and `pick` are its chance: each kind makes of them what it needs."""

    number: int
    kind: StrikeKind
    at_s: float
    length_s: float
    share: float
    pick: int


@dataclass(frozen=True)
class Schedule:
    seed: int
    seconds: float
    """How long the clients work while strikes happen."""
    load: Load
    settings: dict[str, str]
    """Of the node."""
    is_proxied: bool
    """Clients speak through a proxy that understands requests; only then are there clients of the first generation."""
    has_keys: bool
    """Somebody writes to a compacted topic and to one with short retention besides."""
    decays: bool
    """In the end bits flip on the disk."""
    strikes: tuple[Strike, ...]
    nodes: int = 1
    voters: int = 1
    """How many of the nodes are controllers."""

    def only(self, numbers: frozenset[int]) -> Schedule:
        """Without the other strikes."""
        return replace(self, strikes=tuple(strike for strike in self.strikes if strike.number in numbers))

    def shortened(self, seconds: float) -> Schedule:
        strikes = tuple(strike for strike in self.strikes if strike.at_s < seconds)
        return replace(self, seconds=seconds, strikes=strikes)

    def without(self, clients: str) -> Schedule:
        """`clients` is one of CLIENTS, or the side topics."""
        if clients == SIDE_TOPICS:
            return replace(self, has_keys=False)
        fewer: dict[str, Any] = {clients: 0}
        return replace(self, load=replace(self.load, **fewer))


CLIENTS = ("plain_producers", "transactors", "assigned_readers", "group_members", "pipeline_workers")
"""Names of the kinds of clients in a Load."""
SIDE_TOPICS = "side_topics"

NODE_SETTINGS = {
    # Clocks jump by hours and days, apart from each other: records are not to be refused or removed for that.
    "log.message.timestamp.after.max.ms": "8640000000",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def drawn(seed: int, nodes: int = 1, voters: int = 1) -> Schedule:
    """The schedule of a seed; with several nodes it is that of one, and what can happen among them besides."""
    schedule = _drawn(seed)
    if nodes == 1:
        return schedule
    from semel.sim.world.aims_among_nodes import aimed  # which knows what a schedule is

    schedule = aimed(schedule, nodes) or _among_nodes(schedule, nodes, random_module.Random(f"{seed}/{nodes} nodes"))
    if voters == 1:
        return schedule
    # A voter with an old disk has forgotten how it voted: with voters that are fixed, nobody can tell.
    strikes = tuple(strike for strike in schedule.strikes if strike.kind not in OTHER_DISKS)
    return replace(schedule, voters=voters, strikes=strikes)


def _among_nodes(schedule: Schedule, nodes: int, random: random_module.Random) -> Schedule:
    # Clients go from node to node: the proxy stands before one.
    strikes = tuple(strike for strike in schedule.strikes if strike.kind not in NEEDS_PROXY)
    schedule = replace(schedule, is_proxied=False, strikes=strikes)
    if random.random() < LONG_FREEZE_SHARE:
        schedule = replace(
            schedule,
            seconds=round(LONG_FREEZES_S[1] + random.uniform(1.0, 10.0), 2),
            load=replace(schedule.load, pause_s=(0.0, 3.0)),
        )
        freeze = (round(random.uniform(0.02, 1.0), 3), StrikeKind.NODE_FREEZE, random.uniform(*LONG_FREEZES_S))
        schedule = replace(schedule, strikes=_with(schedule.strikes, [freeze], random))
    more = []
    for _ in range(random.choice([1, 2, 4, 6])):
        at_s = round(random.uniform(0.02, schedule.seconds), 3)
        more.append((at_s, random.choice(AMONG_NODES), random.choice([0.05, 0.5, 2.0, 12.0])))
    strikes = _with(schedule.strikes, more, random)
    # Of three copies two have to be on disks that were acknowledged: one run takes one disk away, and no more.
    other_disks = [strike for strike in strikes if strike.kind in OTHER_DISKS]
    return replace(schedule, nodes=nodes, strikes=tuple(strike for strike in strikes if strike not in other_disks[1:]))


def _drawn(seed: int) -> Schedule:
    random = random_module.Random(f"{seed}/schedule")
    seconds = round(random.choice([0.5, 1.0, 1.0, 2.0, 2.0, 3.0]) * random.uniform(0.6, 1.4), 2)
    is_proxied = random.random() < 0.4
    load = _load(random)
    long = random_module.Random(f"{seed}/long")
    if long.random() < LONG_SHARE:
        # Longer than sessions last, and not much more to do: members are missed, and come back.
        seconds = round(long.uniform(8.0, 20.0), 2)
        load = replace(load, pause_s=(0.0, 2.0))
    schedule = Schedule(
        seed=seed,
        seconds=seconds,
        load=load,
        settings=_settings(random),
        is_proxied=is_proxied,
        has_keys=random.random() < 0.25,
        decays=random.random() < 0.15,
        strikes=_strikes(random, seconds, is_proxied),
    )
    aimed = random_module.Random(f"{seed}/aimed")
    roll = aimed.random()
    for share, aim in AIMS:
        if roll < share:
            return aim(schedule, aimed)
        roll -= share
    return schedule


def _overtaking(schedule: Schedule, random: random_module.Random) -> Schedule:
    """A request is held up, its connection is cut, and the client asks again on another and goes on."""
    busy = {**dict.fromkeys(CLIENTS, 0), "transactors": random.choice([1, 2]), "assigned_readers": 1}
    load = replace(schedule.load, pause_s=(0.0, random.choice([0.01, 0.05])), **busy)
    seconds = round(random.uniform(0.8, 1.6), 2)
    strikes = [(round(random.uniform(0.02, 0.3), 3), StrikeKind.OVERTAKEN, seconds) for _ in range(2)]
    usual = schedule.shortened(seconds).strikes[: random.choice([0, 0, 2])]
    return replace(
        schedule, seconds=seconds, load=load, is_proxied=True, has_keys=False, strikes=_with(usual, strikes, random)
    )


def _sleeping(schedule: Schedule, random: random_module.Random) -> Schedule:
    """It goes on where it was, as if it still had its partitions: somebody else has them by then."""
    few = {**dict.fromkeys(CLIENTS, 0), "plain_producers": 1, "pipeline_workers": random.choice([2, 2, 3])}
    load = replace(schedule.load, pause_s=(0.0, random.choice([1.0, 2.0])), transaction_timeout_ms=15_000, **few)
    seconds = round(random.uniform(8.5, 10.0), 2)
    strikes = [
        (round(random.uniform(0.1, 1.0), 3), StrikeKind.CLIENT_FREEZE, round(random.uniform(6.2, 8.5), 3))
        for _ in range(random.choice([1, 2]))
    ]
    usual = schedule.strikes[: random.choice([0, 0, 1])]
    return replace(schedule, seconds=seconds, load=load, has_keys=False, strikes=_with(usual, strikes, random))


def _unwritten(schedule: Schedule, random: random_module.Random) -> Schedule:
    """What could not be flushed stays in memory, where the next node finds it; and then the memory is gone."""
    seconds = round(random.uniform(1.5, 2.5), 2)
    strikes = [
        (round(random.uniform(0.05, 0.6), 3), StrikeKind.FLUSH_ERROR, 0.0),
        (round(seconds * random.uniform(0.6, 1.0), 3), StrikeKind.POWER_CUT, 0.1),
    ]
    usual = schedule.shortened(seconds).strikes[: random.choice([0, 1])]
    return replace(schedule, seconds=seconds, strikes=_with(usual, strikes, random))


def _unsettled(schedule: Schedule, random: random_module.Random) -> Schedule:
    """New segments come faster than they are made safe to trust, and what may be compacted is compacted at once."""
    busy = {
        **dict.fromkeys(CLIENTS, 0),
        "transactors": random.choice([0, 1]),
        "pipeline_workers": random.choice([0, 1]),
    }
    seconds = round(random.uniform(1.0, 2.5), 2)
    settings = {
        **schedule.settings,
        "transaction.state.log.segment.bytes": "300",
        "offsets.topic.segment.bytes": "300",
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.min.cleanable.ratio": "0",
    }
    # Slow enough that much happens before a segment is safe, and not so slow that nothing happens at all.
    slow = Strike(0, StrikeKind.SLOW_DISK, 0.02, seconds, random.uniform(0.02, 0.12), 0)
    cuts = [
        (
            round(random.uniform(0.2, seconds), 3),
            random.choice([StrikeKind.POWER_CUT, StrikeKind.POWER_CUT_AT_CALL]),
            0.02,
        )
        for _ in range(random.choice([2, 4, 6]))
    ]
    load = replace(schedule.load, pause_s=(0.0, 0.02), **busy)
    strikes = _with((slow,), cuts, random)
    return replace(schedule, seconds=seconds, load=load, settings=settings, has_keys=True, strikes=strikes)


def _rotting(schedule: Schedule, random: random_module.Random) -> Schedule:
    """Somebody reads from the start meanwhile, and sometimes the node starts while the bits are wrong."""
    seconds = round(random.uniform(1.0, 2.0), 2)
    small = random.choice(["400", "2500"])
    settings = {**schedule.settings, "log.segment.bytes": small, "offsets.topic.segment.bytes": small}
    strikes = [
        (round(random.uniform(0.3, seconds), 3), StrikeKind.BIT_FLIP, random.choice([0.2, seconds]))
        for _ in range(random.choice([1, 2, 4]))
    ]
    deaths = [StrikeKind.KILL, StrikeKind.POWER_CUT, StrikeKind.RESTART]
    for _ in range(random.choice([0, 1, 2])):
        strikes.append((round(random.uniform(0.3, seconds), 3), random.choice(deaths), 0.05))
    usual = schedule.shortened(seconds).strikes[: random.choice([0, 0, 2])]
    load = replace(schedule.load, pause_s=(0.0, 0.2))
    return replace(schedule, seconds=seconds, load=load, settings=settings, strikes=_with(usual, strikes, random))


def _leaping(schedule: Schedule, random: random_module.Random) -> Schedule:
    """By days, there and often back, and the node may start in between."""
    busy = {**dict.fromkeys(CLIENTS, 0), "transactors": random.choice([1, 2, 3]), "assigned_readers": 1}
    load = replace(schedule.load, pause_s=(0.0, 0.3), transaction_timeout_ms=1_000, **busy)
    seconds = round(random.uniform(6.0, 12.0), 2)
    there, back = random.choice(
        [(StrikeKind.CLOCK_FORWARD, StrikeKind.CLOCK_BACK), (StrikeKind.CLOCK_BACK, StrikeKind.CLOCK_FORWARD)]
    )
    leaps = [(there, random.uniform(0.1, 0.5)), (back, random.uniform(0.5, 0.9))][: random.choice([1, 2, 2])]
    # Of the node, and by days.
    by_days = tuple(Strike(0, kind, round(seconds * at, 3), 0.0, 0.0, 1) for kind, at in leaps)
    others = random.sample([StrikeKind.KILL, StrikeKind.RESTART, StrikeKind.CLIENT_CRASH], random.choice([0, 1, 2]))
    more = [(round(random.uniform(0.1, seconds), 3), kind, 0.1) for kind in others]
    return replace(schedule, seconds=seconds, load=load, has_keys=False, strikes=_with(by_days, more, random))


def _together(schedule: Schedule, random: random_module.Random) -> Schedule:
    """The node dies between judging, writing and answering, or its disk refuses what it has gathered."""
    busy = {
        **dict.fromkeys(CLIENTS, 0),
        "plain_producers": random.randint(4, 7),
        "transactors": random.choice([0, 1]),
        "assigned_readers": 1,
    }
    load = replace(schedule.load, pause_s=(0.0, 0.01), step_s=random.choice([0.01, 0.03]), **busy)
    seconds = round(random.uniform(0.8, 1.6), 2)
    kinds = [
        StrikeKind.KILL_AT_CALL,
        StrikeKind.POWER_CUT_AT_CALL,
        StrikeKind.KILL_AT_SEND,
        StrikeKind.POWER_CUT_AT_SEND,
        StrikeKind.DISK_FULL,
    ]
    strikes = [
        (round(random.uniform(0.1, seconds), 3), random.choice(kinds), random.choice([0.02, 0.2]))
        for _ in range(random.choice([1, 2, 4]))
    ]
    return replace(schedule, seconds=seconds, load=load, is_proxied=False, strikes=_with((), strikes, random))


AIMS: tuple[tuple[float, Callable[[Schedule, random_module.Random], Schedule]], ...] = (
    (OVERTAKING_SHARE, _overtaking),
    (SLEEPING_SHARE, _sleeping),
    (UNWRITTEN_SHARE, _unwritten),
    (UNSETTLED_SHARE, _unsettled),
    (ROTTING_SHARE, _rotting),
    (LEAPING_SHARE, _leaping),
    (TOGETHER_SHARE, _together),
)


def _with(
    strikes: tuple[Strike, ...], more: list[tuple[float, StrikeKind, float]], random: random_module.Random
) -> tuple[Strike, ...]:
    aimed = [Strike(0, kind, at_s, length_s, random.random(), random.getrandbits(30)) for at_s, kind, length_s in more]
    in_order = sorted([*strikes, *aimed], key=lambda strike: strike.at_s)
    return tuple(strike._replace(number=number) for number, strike in enumerate(in_order, 1))


def _load(random: random_module.Random) -> Load:
    """Few kinds of clients at a time: runs differ more, and are short."""
    chosen = dict.fromkeys(CLIENTS, 0)
    kinds = ["plain_producers", "transactors", "pipeline_workers", "group_members"]
    for kind in random.sample(kinds, random.choice([1, 2, 2, 3, 4])):
        chosen[kind] = random.choice([1, 1, 2] if kind in ("transactors", "pipeline_workers") else [1, 2, 3])
    if not chosen["plain_producers"] and not chosen["transactors"]:
        chosen[random.choice(["plain_producers", "transactors"])] = 1
    chosen["assigned_readers"] = random.choice([0, 1])
    return Load(
        partitions=random.choice([1, 1, 2, 3]),
        pause_s=(0.0, random.choice([0.1, 0.3, 0.6])),
        patience_s=30.0,
        group_patience_s=GROUP_PATIENCE_S,
        ending_s=1500.0,
        request_timeout_ms=random.choice([500, 2_000]),
        transaction_timeout_ms=random.choice([1_000, 15_000]),
        **chosen,
    )


def _settings(random: random_module.Random) -> dict[str, str]:
    small = random.choice(["", "2500", "9000"])
    settings = {
        **NODE_SETTINGS,
        "transaction.state.log.num.partitions": random.choice(["1", "3"]),
        "offsets.topic.num.partitions": random.choice(["1", "3"]),
        "log.flush.offset.checkpoint.interval.ms": random.choice(["100", "1000", "60000"]),
        "log.retention.check.interval.ms": random.choice(["200", "1000", "300000"]),
        "log.index.interval.bytes": random.choice(["0", "200", "4096"]),
    }
    if small:
        settings["log.segment.bytes"] = small
    if random.random() < 0.5:
        settings |= {
            "transaction.state.log.segment.bytes": random.choice(["300", "1000", "5000"]),
            "offsets.topic.segment.bytes": random.choice(["300", "1000", "5000"]),
            "log.cleaner.backoff.ms": random.choice(["50", "200", "1000"]),
            "log.cleaner.min.cleanable.ratio": random.choice(["0", "0.1", "0.5"]),
        }
    if random.random() < 0.2:
        # Ids that nobody uses are forgotten: also some that somebody will use again.
        settings |= {
            "transactional.id.expiration.ms": "2500",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        }
    return settings


def _strikes(random: random_module.Random, seconds: float, is_proxied: bool) -> tuple[Strike, ...]:
    """A few kinds, several strikes of them: what has to come together to break something is often of one kind."""
    apart = (*DEATHS, *NEEDS_PROXY, *AMONG_NODES, StrikeKind.BIT_FLIP)
    others = [kind for kind in StrikeKind if kind not in apart]
    kinds = random.sample(others, random.randint(1, 4))
    if is_proxied:
        kinds += random.sample(sorted(NEEDS_PROXY, key=lambda kind: kind.value), random.randint(1, 3))
    deaths = random.sample(DEATHS, random.randint(1, 3))
    strikes = []
    for _ in range(random.choice([1, 2, 3, 4, 6, 8])):
        kind = random.choice(deaths if random.random() < DEATH_SHARE else kinds)
        at_s = round(random.uniform(0.02, seconds), 3)
        length_s = round(random.choice([0.02, 0.2, 0.7, 2.0, 9.0]) * random.uniform(0.5, 1.5), 3)
        strikes.append((at_s, kind, length_s, random.random(), random.getrandbits(30)))
    strikes.sort(key=lambda strike: strike[0])
    return tuple(
        Strike(number, kind, at_s, length_s, share, pick)
        for number, (at_s, kind, length_s, share, pick) in enumerate(strikes, 1)
    )
