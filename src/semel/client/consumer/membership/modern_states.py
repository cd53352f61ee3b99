"""The states of a member of a KIP-848 group, as the member itself sees them, and every way from one to another.

         WANTED           ADMITTED          FENCED
    OUT --------> JOINING --------> MEMBER --------> LOST
                     ^                                |
                     +------------- TOLD -------------+

A member gives up and takes partitions while it stays one, so there is no state for that. In LOST the program has yet to
hear that its partitions are gone. BROKEN leads to FAILED from wherever we were in the group, and LEFT to OUT.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    OUT = "out of the group"
    JOINING = "joining"
    MEMBER = "a member"
    LOST = "lost"
    FAILED = "failed"


class Event(Enum):
    WANTED = "the program has subscribed"
    ADMITTED = "the coordinator has given us an epoch"
    FENCED = "the group goes on without us"
    TOLD = "the program knows that its partitions are gone"
    BROKEN = "the coordinator refuses us for good"
    LEFT = "we are out by our own will"


_S, _E = State, Event
_IN_GROUP = (_S.JOINING, _S.MEMBER, _S.LOST)
MOVES: dict[tuple[State, Event], State] = {
    (_S.OUT, _E.WANTED): _S.JOINING,
    (_S.JOINING, _E.ADMITTED): _S.MEMBER,
    (_S.MEMBER, _E.FENCED): _S.LOST,
    (_S.LOST, _E.TOLD): _S.JOINING,
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
