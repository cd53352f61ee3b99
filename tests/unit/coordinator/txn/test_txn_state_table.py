"""The table of a transactional id's life: every move that is in it, and no other."""

from __future__ import annotations

import itertools
import re

import pytest

from semel.coordinator.txn import state as state_module
from semel.coordinator.txn.state import MOVES, Event, IllegalMove, TransactionState, moved

S, E = TransactionState, Event

# Written down from the diagram, arrow by arrow, not from the table.
ARROWS = {
    (S.EMPTY, E.INIT, S.EMPTY),
    (S.COMPLETE_COMMIT, E.INIT, S.EMPTY),
    (S.COMPLETE_ABORT, E.INIT, S.EMPTY),
    (S.EMPTY, E.ADD, S.ONGOING),
    (S.ONGOING, E.ADD, S.ONGOING),
    (S.COMPLETE_COMMIT, E.ADD, S.ONGOING),
    (S.COMPLETE_ABORT, E.ADD, S.ONGOING),
    (S.ONGOING, E.COMMIT, S.PREPARE_COMMIT),
    (S.ONGOING, E.ABORT, S.PREPARE_ABORT),
    (S.ONGOING, E.FENCE, S.PREPARE_EPOCH_FENCE),
    (S.PREPARE_EPOCH_FENCE, E.ABORT, S.PREPARE_ABORT),
    (S.PREPARE_COMMIT, E.MARKED, S.COMPLETE_COMMIT),
    (S.PREPARE_ABORT, E.MARKED, S.COMPLETE_ABORT),
    # The sentences below the diagram.
    (S.EMPTY, E.EXPIRE, S.DEAD),
    (S.COMPLETE_COMMIT, E.EXPIRE, S.DEAD),
    (S.COMPLETE_ABORT, E.EXPIRE, S.DEAD),
    (S.EMPTY, E.ABORT, S.PREPARE_ABORT),
    (S.COMPLETE_COMMIT, E.ABORT, S.PREPARE_ABORT),
    (S.COMPLETE_ABORT, E.ABORT, S.PREPARE_ABORT),
}


def test_the_table_holds_the_arrows_of_the_diagram_and_no_other() -> None:
    assert {(before, event, after) for (before, event), after in MOVES.items()} == ARROWS


def test_the_diagram_names_every_state_and_every_event() -> None:
    words = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", state_module.__doc__ or ""))
    assert {state.name for state in S} <= words
    assert {event.name for event in E} <= words


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)))
def test_a_move_is_made_when_it_is_in_the_table_and_refused_otherwise(state: TransactionState, event: Event) -> None:
    after = {(before, happening): then for before, happening, then in ARROWS}.get((state, event))
    if after is not None:
        assert moved(state, event) is after
    else:
        with pytest.raises(IllegalMove, match=f"{event.name} is not possible in {state.name}"):
            moved(state, event)


def test_a_decision_can_never_be_changed() -> None:
    """From a prepared state there is one way, and it leads to the end that was decided."""
    for prepared, done in ((S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)):
        assert {(event, after) for (before, event), after in MOVES.items() if before is prepared} == {(E.MARKED, done)}


def test_nothing_leads_out_of_dead() -> None:
    assert not [event for before, event in MOVES if before is S.DEAD]


def test_states_are_written_with_kafkas_codes_and_shown_with_kafkas_names() -> None:
    assert [(state.value, state.label) for state in S] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
