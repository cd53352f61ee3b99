"""The states of a replica of the metadata log, and the moves between them (KIP-595, pre-vote: KIP-996).

                 timer                majority             majority
    UNATTACHED ---------> PROSPECTIVE --------> CANDIDATE ---------> LEADER
      |    ^               |  ^    ^               |                   |
      |    |               |  |    +---------------+                   | resigns: it stops, or has not
      |    +---------------+  |         timer                          | heard of a majority for too long
      |      gives up         | timer                                  v
      +-------------------> FOLLOWER                               RESIGNED ----> UNATTACHED, one epoch on
         a leader is known                                                timer

    From every state: a higher epoch leads to UNATTACHED, or to FOLLOWER where its leader is known. A leader of the own
    epoch leads to FOLLOWER. Who grants a vote becomes UNATTACHED (and remembers it).

A prospective replica asks whether it would be elected, and changes nothing by that; a candidate has begun an epoch and
voted for itself. A leader never comes back into its epoch: from RESIGNED the way leads into the next one. Who has no
vote (an observer) is only ever UNATTACHED or FOLLOWER.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    UNATTACHED = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    LEADER = auto()
    FOLLOWER = auto()
    RESIGNED = auto()


class Event(Enum):
    TIMER = auto()
    """The time of the state is over."""
    MAJORITY = auto()
    """More than half of the voters have granted what was asked of them; or one of them knows no pre-votes."""
    GIVES_UP = auto()
    """Pre-votes: a majority cannot be reached any more, or not in time."""
    HIGHER_EPOCH = auto()
    """An epoch has begun elsewhere, and who leads in it is not known."""
    LEADER_KNOWN = auto()
    """Somebody else leads, in this epoch or a higher one."""
    VOTES = auto()
    """It gives its vote to another replica."""
    RESIGNS = auto()


_ANY_TIME = {(state, Event.HIGHER_EPOCH): State.UNATTACHED for state in State} | {
    (state, Event.LEADER_KNOWN): State.FOLLOWER for state in State
}

MOVES: dict[tuple[State, Event], State] = _ANY_TIME | {
    (State.UNATTACHED, Event.TIMER): State.PROSPECTIVE,
    (State.UNATTACHED, Event.VOTES): State.UNATTACHED,
    (State.FOLLOWER, Event.TIMER): State.PROSPECTIVE,
    (State.PROSPECTIVE, Event.MAJORITY): State.CANDIDATE,
    (State.PROSPECTIVE, Event.GIVES_UP): State.UNATTACHED,
    (State.PROSPECTIVE, Event.VOTES): State.UNATTACHED,
    (State.CANDIDATE, Event.MAJORITY): State.LEADER,
    (State.CANDIDATE, Event.TIMER): State.PROSPECTIVE,
    (State.LEADER, Event.RESIGNS): State.RESIGNED,
    (State.RESIGNED, Event.TIMER): State.UNATTACHED,
}


def next_state(state: State, event: Event) -> State:
    """The state that follows; every other move is a mistake of ours."""
    try:
        return MOVES[state, event]
    except KeyError:
        raise RuntimeError(f"a replica that is {state.name} cannot take {event.name}") from None
