"""Who leads a partition: the choice itself, from what a change leaves of the replicas, the ISR and the ELR.

Clean is who holds all that is committed: a member of the ISR, or of the ELR once the ISR is empty. Only where the topic
allows it an unclean leader is chosen, which may lack acknowledged records: first the leader that was known last, then
any replica. Kafka takes the leader known last (KIP-966) without being asked; here that counts as unclean, too.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from semel.wire.spec.metadata_records import NO_LEADER


class Election(Enum):
    CLEAN = "clean"
    PREFERRED = "preferred"  # clean, and the first of the replicas before the one that leads now
    UNCLEAN = "unclean"


class Candidates(NamedTuple):
    """Of one partition. `is_acceptable` says of a replica whether it may lead at all: its broker is active, and its
    directory online."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    is_acceptable: Callable[[int], bool]


class Elected(NamedTuple):
    leader: int
    is_unclean: bool = False


def elect(candidates: Candidates, election: Election) -> Elected:
    """The leader, or NO_LEADER. In order of the replicas; whoever leads stays if it may."""
    clean = candidates.isr or candidates.elr
    first = candidates.replicas[:1] if election is Election.PREFERRED else ()
    for node_id in (*first, candidates.leader, *candidates.replicas):
        if node_id in clean and candidates.is_acceptable(node_id):
            return Elected(node_id)
    if election is Election.UNCLEAN:
        # Several members are what another controller noted, not the leader.
        last_leader = candidates.last_known_elr if len(candidates.last_known_elr) == 1 and not clean else ()
        for node_id in (*last_leader, *candidates.replicas):
            if node_id in candidates.replicas and candidates.is_acceptable(node_id):
                return Elected(node_id, is_unclean=True)
    return Elected(NO_LEADER)
