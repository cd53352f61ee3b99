"""The states of a member of a classic group, as the member itself sees them, and every way from one to another.

         WANTED            BEGUN            SYNCED             TAKEN
    OUT --------> UNJOINED -----> JOINING ---------> ASSIGNED --------> STABLE
                     ^               |                  |                 |
                     +----- AGAIN ---+----- DROPPED ----+----- AGAIN -----+

In UNJOINED and ASSIGNED the program has something to do, inside poll: give up, or take. In JOINING the coordinator has.
DROPPED, which says that the group goes on without us, leads to UNJOINED from wherever we were; BROKEN to FAILED, and
LEFT to OUT.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    OUT = "out of the group"
    UNJOINED = "about to join"
    JOINING = "joining"
    ASSIGNED = "assigned"
    STABLE = "stable"
    FAILED = "failed"


class Event(Enum):
    WANTED = "the program has subscribed"
    BEGUN = "what had to be given up has been, and the coordinator is asked"
    SYNCED = "the leader's assignment is here"
    TAKEN = "the assignment is the program's"
    AGAIN = "the group rebalances, or we want it to"
    DROPPED = "the group goes on without us"
    BROKEN = "the coordinator refuses us for good"
    LEFT = "we are out by our own will"


_S, _E = State, Event
_IN_GROUP = (_S.UNJOINED, _S.JOINING, _S.ASSIGNED, _S.STABLE)
MOVES: dict[tuple[State, Event], State] = {
    (_S.OUT, _E.WANTED): _S.UNJOINED,
    (_S.UNJOINED, _E.BEGUN): _S.JOINING,
    (_S.JOINING, _E.SYNCED): _S.ASSIGNED,
    (_S.JOINING, _E.AGAIN): _S.UNJOINED,
    (_S.ASSIGNED, _E.TAKEN): _S.STABLE,
    (_S.STABLE, _E.AGAIN): _S.UNJOINED,
    **{(state, _E.DROPPED): _S.UNJOINED for state in _IN_GROUP},
    **{(state, _E.BROKEN): _S.FAILED for state in _IN_GROUP},
    **{(state, _E.LEFT): _S.OUT for state in (*_IN_GROUP, _S.FAILED)},
}


class ForbiddenMove(RuntimeError):
    """A move that is not in the table: an error of ours."""


def next_state(state: State, event: Event) -> State:
    try:
        return MOVES[state, event]
    except KeyError:
        raise ForbiddenMove(f"a member that is {state.value} cannot take {event.name}") from None
