"""The tables of states: what is in them is possible, everything else is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from semel.client.consumer.membership import classic_states, modern_states

TABLES = pytest.mark.parametrize("table", [classic_states, modern_states])


@TABLES
def test_a_move_that_is_not_in_the_table_is_refused(table: Any) -> None:
    for state, event in product(table.State, table.Event):
        if (state, event) in table.MOVES:
            assert table.next_state(state, event) is table.MOVES[state, event]
        else:
            with pytest.raises(table.ForbiddenMove, match=event.name):
                table.next_state(state, event)


@TABLES
def test_every_state_can_be_reached_and_left_for_out(table: Any) -> None:
    reached = {table.State.OUT}
    while True:
        more = {after for (before, _), after in table.MOVES.items() if before in reached}
        if more <= reached:
            break
        reached |= more
    assert reached == set(table.State)
    for state in table.State:
        if state is not table.State.OUT:
            assert table.next_state(state, table.Event.LEFT) is table.State.OUT
