"""One step of a member of a KIP-848 group towards its target: give up first, confirm, then take what is free.

So no partition is ever with two members: one that is to move stays with its owner until the owner has said that it
reads it no longer, or is out of the group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from semel.coordinator.group.consumer_group import (
    NOTHING,
    ConsumerMember,
    MemberState,
    Partitions,
    TopicPartition,
)


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[TopicPartition], bool],
    reported: Partitions | None,
) -> ConsumerMember:
    """The member after this heartbeat. `reported` is what it says it reads, None when it does not say."""
    if member.has_reached(target_epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if _still_reads(reported, member.revoking):
            return member
        epoch += 1
    kept = member.assigned & target
    to_revoke = member.assigned - target
    if to_revoke and _still_reads(reported, to_revoke):
        # It stays in its epoch until it has let go.
        return _moved(member, epoch, MemberState.UNREVOKED, kept, to_revoke)
    missing = target - kept
    free = frozenset(partition for partition in missing if not is_owned(partition))
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED
    return _moved(member, target_epoch, state, kept | free, NOTHING)


def _still_reads(reported: Partitions | None, partitions: Partitions) -> bool:
    """A member that does not say what it reads is taken to read everything that it had."""
    return reported is None or bool(reported & partitions)


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> ConsumerMember:
    previous = member.epoch if epoch != member.epoch else member.previous_epoch
    return replace(member, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking)
