"""The states of a group of the classic protocol, and every way from one to another.

             REBALANCE               JOINED                  ASSIGNED
    EMPTY ---------------> PREPARING ---------> COMPLETING -----------> STABLE
      ^                      |   ^                  |                     |
      |       EMPTIED        |   |    REBALANCE     |      REBALANCE      |
      +----------------------+   +------------------+---------------------+

PREPARING waits for members to join, COMPLETING for the leader to hand out the assignment. From every state REMOVED
leads to DEAD: the group was deleted, or another node coordinates it.
"""

from __future__ import annotations

from enum import Enum


class ClassicState(Enum):
    """With the names by which clients know them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    REBALANCE = "a member came, went, died or changed what it wants"
    JOINED = "everyone who is left has joined"
    EMPTIED = "nobody is left"
    ASSIGNED = "the leader has handed out the assignment"
    REMOVED = "the group is gone from here"


_S, _E = ClassicState, Event
MOVES: dict[tuple[ClassicState, Event], ClassicState] = {
    (_S.EMPTY, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.STABLE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.JOINED): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.EMPTIED): _S.EMPTY,
    (_S.COMPLETING_REBALANCE, _E.ASSIGNED): _S.STABLE,
    (_S.EMPTY, _E.REMOVED): _S.DEAD,
    (_S.PREPARING_REBALANCE, _E.REMOVED): _S.DEAD,
    (_S.COMPLETING_REBALANCE, _E.REMOVED): _S.DEAD,
    (_S.STABLE, _E.REMOVED): _S.DEAD,
}


class ForbiddenMove(RuntimeError):
    """A move that is not in the table: an error of ours, never of a client."""


def next_state(state: ClassicState, event: Event) -> ClassicState:
    try:
        return MOVES[state, event]
    except KeyError:
        raise ForbiddenMove(f"a group that is {state.value} cannot take {event.name}") from None
