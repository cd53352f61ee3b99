"""One change to one partition, and all that follows from it, as one PartitionChangeRecord.

A change says what is to be different: the ISR, the replicas, who may lead. From that follow, in this order, the end of
a reassignment, the eligible leader replicas, the leader, and whether a leader epoch begins. All decisions on partitions
that exist are made here, so that none forgets a consequence. The rules are Kafka's (CLUSTER.md 3.6, 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from semel.controller.elections import Candidates, Election, elect
from semel.controller.image import MIGRATING_DIRECTORY, PartitionState
from semel.controller.levels import DIRECTORIES, WITHOUT_EPOCH_AT_SHRINK
from semel.wire.spec.metadata_records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord

_AS_BEFORE = -1


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """What decides besides the state of the partition. `directory` is where a new replica of a broker is put,
    `min_insync_replicas` as set, however few replicas there are."""

    is_acceptable: Callable[[int, bytes], bool]
    directory: Callable[[int], bytes]
    level: int
    has_elr: bool
    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be different; None stays as it is. `unclean` are brokers that may have lost records."""

    election: Election = Election.CLEAN
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    directories: Mapping[int, bytes] | None = None
    unclean: Collection[int] = ()
    is_recovering: bool | None = None


def changed(
    topic_id: bytes, index: int, state: PartitionState, wanted: Wanted, rules: PartitionRules
) -> PartitionChangeRecord | None:
    """The record, or None if nothing changes."""
    replicas, isr, removing, adding = _assignment(state, wanted)
    directories = _directories(state, replicas, wanted.directories, rules)
    elr = _eligible(state, replicas, isr, wanted.unclean, rules)

    def is_acceptable(node_id: int) -> bool:
        if node_id not in replicas:
            return False
        directory = directories[replicas.index(node_id)] if directories else MIGRATING_DIRECTORY
        return rules.is_acceptable(node_id, directory)

    elected = elect(Candidates(replicas, isr, elr, state.last_known_elr, state.leader, is_acceptable), wanted.election)
    is_recovering = state.is_recovering if wanted.is_recovering is None else wanted.is_recovering
    if elected.is_unclean:
        isr, elr, is_recovering = (elected.leader,), (), True
    elif elected.leader in elr:
        isr, elr = (elected.leader,), tuple(one for one in elr if one != elected.leader)
    if not isr and not rules.has_elr:
        isr = state.isr  # without an ELR, it is the last members of the ISR that can lead again
    leader = elected.leader if elected.leader != state.leader else NO_LEADER_CHANGE
    if leader == NO_LEADER_CHANGE and _begins_epoch(state, replicas, isr, rules):
        leader = state.leader
    last_known = _last_known(state, leader, rules)
    is_same = leader == NO_LEADER_CHANGE and last_known is None and is_recovering == state.is_recovering
    if is_same and (isr, replicas, elr, removing, adding, directories) == (
        state.isr,
        state.replicas,
        state.elr,
        state.removing,
        state.adding,
        state.directories,
    ):
        return None
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=None if isr == state.isr else isr,
        leader=leader,
        replicas=None if replicas == state.replicas else replicas,
        removing_replicas=None if removing == state.removing else removing,
        adding_replicas=None if adding == state.adding else adding,
        leader_recovery_state=_AS_BEFORE if is_recovering == state.is_recovering else int(is_recovering),
        directories=_told(state, replicas, directories, rules),
        eligible_leader_replicas=None if elr == state.elr else elr,
        last_known_elr=last_known,
    )


def _assignment(
    state: PartitionState, wanted: Wanted
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Replicas, ISR, those being removed and added. A reassignment is over when all that are added are in the ISR, and
    one of it stays; where replicas become fewer, when all that stay are in it."""
    replicas = state.replicas if wanted.replicas is None else wanted.replicas
    isr = state.isr if wanted.isr is None else wanted.isr
    removing = state.removing if wanted.removing is None else wanted.removing
    adding = state.adding if wanted.adding is None else wanted.adding
    if not removing and not adding:
        return replicas, isr, (), ()
    staying = tuple(one for one in replicas if one not in removing)
    staying_isr = tuple(one for one in isr if one not in removing)
    needed = staying if len(adding) < len(removing) else adding
    is_over = staying and staying_isr and set(needed) <= set(staying_isr)
    return (staying, staying_isr, (), ()) if is_over else (replicas, isr, removing, adding)


def _eligible(
    state: PartitionState,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    unclean: Collection[int],
    rules: PartitionRules,
) -> tuple[int, ...]:
    """Who has left the ISR since it was too small to commit anything: nothing is committed that they lack."""
    if not rules.has_elr or len(isr) >= min(rules.min_insync_replicas, len(replicas)):
        return ()
    former = {*state.isr, *state.elr}
    return tuple(one for one in replicas if one in former and one not in isr and one not in unclean)


def _directories(
    state: PartitionState, replicas: tuple[int, ...], assigned: Mapping[int, bytes] | None, rules: PartitionRules
) -> tuple[bytes, ...]:
    """Of each replica; none at all where they were never told, or are not told at this level."""
    if rules.level < DIRECTORIES or (replicas == state.replicas and not assigned):
        return state.directories
    known = {node_id: state.directory_of(node_id) for node_id in state.replicas} | dict(assigned or {})
    directories = tuple(known[one] if one in known else rules.directory(one) for one in replicas)
    return directories if any(one != MIGRATING_DIRECTORY for one in directories) else ()


def _told(
    state: PartitionState, replicas: tuple[int, ...], directories: tuple[bytes, ...], rules: PartitionRules
) -> tuple[bytes, ...] | None:
    """As a record carries them: one for each replica, or Kafka fails over the record."""
    if rules.level < DIRECTORIES or (directories == state.directories and len(replicas) == len(state.replicas)):
        return None
    return directories or (MIGRATING_DIRECTORY,) * len(replicas)


def _begins_epoch(
    state: PartitionState, replicas: tuple[int, ...], isr: tuple[int, ...], rules: PartitionRules
) -> bool:
    """A leader that stays begins an epoch when a replica is gone, so that nobody takes it for one; at older levels also
    when one leaves the ISR (KAFKA-15021)."""
    if rules.level < WITHOUT_EPOCH_AT_SHRINK and not set(state.isr) <= set(isr):
        return True
    return replicas != state.replicas and not set(state.replicas) <= set(replicas)


def _last_known(state: PartitionState, leader: int, rules: PartitionRules) -> tuple[int, ...] | None:
    """The last leader is noted when a partition loses it, and forgotten with the next one."""
    if rules.has_elr and leader == NO_LEADER != state.leader and not state.last_known_elr:
        return (state.leader,)
    is_led = leader >= 0 or not rules.has_elr
    return () if is_led and state.last_known_elr else None
