"""Schedules of several nodes that are aimed at what replication may get wrong: runs are short, nodes miss each other
soon, and few things happen that come together often.

What random strikes hardly ever bring about is drawn here: leaders that go on alone, elections one after the other,
coordinators that move in the middle of a transaction, too few in sync, disks that are older than what was promised.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from semel.sim.world.schedule import CLIENTS, NODE_BITS, Schedule, Strike, StrikeKind

SOON = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "500",
}
SHORT_DEATHS = (
    StrikeKind.KILL,
    StrikeKind.KILL,
    StrikeKind.RESTART,
    StrikeKind.KILL_AT_SEND,
    StrikeKind.POWER_CUT_AT_CALL,
    StrikeKind.POWER_CUT,
)
PARTS = (StrikeKind.NODES_PART, StrikeKind.NODES_PART, StrikeKind.NODES_PART_ONE_WAY)
LONGER_THAN_A_SESSION_S = (1.8, 3.0)
FROM_ONE, FROM_ALL = 0.2, 0.8
"""Shares of a strike that cuts a node off: from one of the others, or from all of them."""


class Blow(NamedTuple):
    """A strike whose node is chosen."""

    at_s: float
    kind: StrikeKind
    length_s: float
    node: int
    share: float


def _with_blows(schedule: Schedule, blows: Sequence[Blow], random: random_module.Random) -> tuple[Strike, ...]:
    in_order = sorted(blows, key=lambda blow: blow.at_s)
    return tuple(
        Strike(
            number,
            blow.kind,
            round(blow.at_s, 3),
            round(blow.length_s, 3),
            blow.share,
            blow.node << NODE_BITS | random.getrandbits(NODE_BITS),
        )
        for number, blow in enumerate(in_order, 1)
    )


def _slow(seconds: float, random: random_module.Random) -> list[Blow]:
    """Sometimes the network is slow for a while: what is on its way is overtaken by what happens meanwhile."""
    if random.random() < 0.6:
        return []
    at_s = random.uniform(0.2, 0.7) * seconds
    return [Blow(at_s, StrikeKind.SLOW, random.uniform(0.3, 0.5) * seconds, 0, random.uniform(0.02, 0.25))]


def _busy(schedule: Schedule, random: random_module.Random, **clients: int) -> Schedule:
    """Few clients, who never rest for long."""
    load = replace(
        schedule.load,
        partitions=3,
        pause_s=(0.0, random.choice([0.05, 0.15])),
        request_timeout_ms=random.choice([500, 2_000, 10_000]),
        **{**dict.fromkeys(CLIENTS, 0), **clients},
    )
    return replace(schedule, load=load, has_keys=False, decays=False, settings={**schedule.settings, **SOON})


def _apart(schedule: Schedule, random: random_module.Random) -> Schedule:
    """Leaders are cut off from other nodes for longer than a session lasts, and not from clients, who go on writing;
    sometimes somebody dies when it is over."""
    schedule = _busy(schedule, random, plain_producers=random.choice([1, 2]), assigned_readers=1)
    seconds = round(random.uniform(3.0, 4.5), 2)
    blows = _slow(seconds, random)
    for at in random.sample([0.1, 0.3, 0.5], random.choice([1, 1, 2])):
        length_s = random.uniform(*LONGER_THAN_A_SESSION_S)
        share = random.choice([FROM_ONE, FROM_ALL])
        blows.append(Blow(seconds * at, random.choice(PARTS), length_s, random.randrange(schedule.nodes), share))
    for _ in range(random.choice([0, 1, 1, 2])):
        at_s = random.uniform(0.4, 1.0) * seconds
        blows.append(Blow(at_s, random.choice(SHORT_DEATHS), 0.1, random.randrange(schedule.nodes), random.random()))
    return replace(schedule, seconds=seconds, strikes=_with_blows(schedule, blows, random))


def _toppled(schedule: Schedule, random: random_module.Random) -> Schedule:
    """One leader after the other dies or stops, while it writes: elections follow each other quickly."""
    schedule = _busy(schedule, random, plain_producers=random.choice([1, 2]), assigned_readers=random.choice([0, 1]))
    return _with_deaths(schedule, random)


def _coordinators_toppled(schedule: Schedule, random: random_module.Random) -> Schedule:
    """The same to transactions and groups, whose coordinators move."""
    schedule = _busy(
        schedule,
        random,
        plain_producers=random.choice([0, 1]),
        transactors=random.choice([1, 2]),
        pipeline_workers=random.choice([0, 1, 1]),
        assigned_readers=random.choice([0, 1]),
    )
    return _with_deaths(schedule, random)


def _with_deaths(schedule: Schedule, random: random_module.Random) -> Schedule:
    seconds = round(random.uniform(2.5, 4.5), 2)
    count = random.choice([3, 4, 6])
    node = random.randrange(schedule.nodes)
    blows = _slow(seconds, random)
    for number in range(count):
        at_s = seconds * (number + random.random()) / count
        kind, length_s = random.choice(SHORT_DEATHS), random.choice([0.05, 0.3])
        if random.random() < 0.25:
            kind, length_s = StrikeKind.NODE_FREEZE, random.uniform(*LONGER_THAN_A_SESSION_S)
        blows.append(Blow(at_s, kind, length_s, node, random.random()))
        node = (node + random.choice([0, 1, 1, 2])) % schedule.nodes
    return replace(schedule, seconds=seconds, strikes=_with_blows(schedule, blows, random))


def _alone(schedule: Schedule, random: random_module.Random) -> Schedule:
    """One or all others are cut off or freeze, so that few are in sync, or too few; then who is left dies, or all."""
    schedule = _busy(schedule, random, plain_producers=2, assigned_readers=1)
    seconds = round(random.uniform(3.5, 4.5), 2)
    last, at_s = random.choice([0, 0, 1, 2]), seconds * random.uniform(0.1, 0.2)
    others = [node for node in range(schedule.nodes) if node != last]
    away = random.sample(others, random.choice([1, 1, 2]))
    if len(away) == len(others) and random.random() < 0.5:
        blows = [Blow(at_s, StrikeKind.NODES_PART, random.uniform(2.0, 3.0), last, FROM_ALL)]
    else:
        blows = [
            Blow(at_s + number * random.uniform(0.0, 0.6), StrikeKind.NODE_FREEZE, random.uniform(2.0, 3.0), node, 0.5)
            for number, node in enumerate(away)
        ]
    kind = random.choice([StrikeKind.KILL, StrikeKind.POWER_CUT, StrikeKind.ALL_KILLED, StrikeKind.ALL_POWER_CUT])
    blows.append(Blow(at_s + random.uniform(1.8, 2.8), kind, random.uniform(0.1, 1.0), last, 0.5))
    return replace(schedule, seconds=seconds, strikes=_with_blows(schedule, blows, random))


def _set_back(schedule: Schedule, random: random_module.Random) -> Schedule:
    """A disk becomes an older one of its own, while its node is in sync."""
    schedule = _busy(schedule, random, plain_producers=random.choice([1, 2]), assigned_readers=1)
    seconds = round(random.uniform(2.5, 3.5), 2)
    node = random.randrange(1, schedule.nodes)
    at_s = random.uniform(0.2, 0.8)
    blows = [Blow(at_s, StrikeKind.OLD_DISK, random.uniform(0.3, 1.0), node, 0.5)]
    if random.random() < 0.5:
        other = random.randrange(schedule.nodes)
        kind = random.choice([StrikeKind.KILL, StrikeKind.RESTART, StrikeKind.NODES_PART])
        length_s = random.uniform(*LONGER_THAN_A_SESSION_S) if kind is StrikeKind.NODES_PART else 0.1
        blows.append(Blow(at_s + random.uniform(0.3, 1.5), kind, length_s, other, random.random()))
    return replace(schedule, seconds=seconds, strikes=_with_blows(schedule, blows, random))


AIMS: tuple[tuple[float, Callable[[Schedule, random_module.Random], Schedule]], ...] = (
    (0.08, _apart),
    (0.08, _toppled),
    (0.08, _coordinators_toppled),
    (0.04, _alone),
    (0.03, _set_back),
)
"""Of all runs of several nodes, how large a share is aimed at what."""


def aim_of(seed: int, nodes: int) -> Callable[[Schedule, random_module.Random], Schedule] | None:
    roll = random_module.Random(f"{seed}/{nodes} nodes/aim").random()
    for share, aim in AIMS:
        if roll < share:
            return aim
        roll -= share
    return None


def aimed(schedule: Schedule, nodes: int) -> Schedule | None:
    """The schedule of this seed with an aim, if it has one."""
    aim = aim_of(schedule.seed, nodes)
    if aim is None:
        return None
    random = random_module.Random(f"{schedule.seed}/{nodes} nodes/aimed")
    return aim(replace(schedule, nodes=nodes, is_proxied=False), random)
