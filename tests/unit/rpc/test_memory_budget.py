"""The one budget: who waits, who is refused, and that it never stands still."""

from __future__ import annotations

import random

import pytest

from semel.rpc.budget import OWNERS, MemoryBudget, Owner, Waiter

MEGABYTE = 1 << 20


def test_the_budget_is_given_out_in_order_and_never_exceeded() -> None:
    budget = MemoryBudget(10)
    granted: list[str] = []
    assert budget.take(8)
    assert not budget.take(3)
    budget.take_later(9, lambda: granted.append("nine"))
    budget.take_later(1, lambda: granted.append("one"))
    assert not budget.take(1), "not before those who wait"
    budget.give_back(8)
    assert granted == ["nine", "one"]
    assert budget.used_bytes == 10


def test_who_is_forgotten_does_not_hold_up_the_others() -> None:
    budget = MemoryBudget(10)
    granted: list[str] = []
    assert budget.take(5)
    large = budget.take_later(9, lambda: granted.append("large"))
    budget.take_later(4, lambda: granted.append("small"))
    assert granted == []
    budget.forget(large)
    assert granted == ["small"]
    assert budget.used_bytes == 9


def test_an_answer_is_granted_before_requests_that_waited_longer() -> None:
    budget = MemoryBudget(10)
    granted: list[str] = []
    assert budget.take(10)
    budget.take_later(2, lambda: granted.append("request"))
    budget.take_later(2, lambda: granted.append("answer"), Owner.ANSWER)
    budget.give_back(2)
    assert granted == ["answer"]
    budget.give_back(2)
    assert granted == ["answer", "request"]
    assert budget.bytes_of(Owner.ANSWER) == 2
    assert budget.bytes_of(Owner.REQUEST) == 8


def test_who_keeps_its_turn_is_granted_before_younger_ones_whenever_it_asks() -> None:
    budget = MemoryBudget(10)
    granted: list[str] = []
    assert budget.take(10)
    older, younger = budget.turn(), budget.turn()
    budget.take_later(1, lambda: granted.append("younger"), turn=younger)
    budget.take_later(1, lambda: granted.append("older"), turn=older)
    budget.give_back(1)
    assert granted == ["older"]


@pytest.mark.parametrize("owner", [owner for owner, rule in OWNERS.items() if not rule.waits])
def test_what_is_kept_for_long_has_a_part_of_the_budget_and_is_refused_beyond_it(owner: Owner) -> None:
    budget = MemoryBudget(100)
    assert budget.take(25, owner)
    assert not budget.take(1, owner)
    assert budget.take(75)
    budget.give_back(25, owner)
    assert budget.take(20, owner)
    assert not budget.take(6, owner), "the budget is full"
    with pytest.raises(ValueError, match="does not wait"):
        budget.take_later(1, lambda: None, owner)
    budget.take_anyway(80, owner)
    assert budget.bytes_of(owner) == 100
    assert not budget.take(1), "what was read from a log counts for all"


def test_if_all_that_hold_memory_wait_for_more_the_oldest_has_it_beyond_the_limit() -> None:
    budget = MemoryBudget(10)
    granted: list[str] = []
    assert budget.take(5)
    assert budget.take(5)
    older, younger = budget.turn(), budget.turn()
    budget.take_later(3, lambda: granted.append("younger"), turn=younger, holds_bytes=5)
    assert granted == [], "the other one may still be done with what it has"
    budget.take_later(3, lambda: granted.append("older"), turn=older, holds_bytes=5)
    assert granted == ["older"]
    assert budget.used_bytes == 13
    budget.give_back(8)
    assert granted == ["older", "younger"]


def test_small_ones_may_be_taken_beyond_the_limit_until_that_is_overdrawn() -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    assert budget.small_bytes == MEGABYTE // 4
    assert budget.take(64 * MEGABYTE)
    budget.take_anyway(8 * MEGABYTE)
    assert not budget.is_overdrawn
    budget.take_anyway(1)
    assert budget.is_overdrawn


def test_somebody_is_told_when_the_first_one_begins_to_wait() -> None:
    told: list[int] = []
    budget = MemoryBudget(10, lambda: told.append(budget.waiting))
    assert budget.take(9)
    budget.take_later(1, lambda: None)
    assert told == [], "it was there"
    first = budget.take_later(1, lambda: None)
    budget.take_later(1, lambda: None)
    assert told == [1]
    budget.forget(first)
    budget.give_back(5)
    assert budget.waiting == 0
    budget.take_later(100, lambda: None)
    assert told == [1, 1]


def test_a_thousand_that_are_granted_one_by_the_other_do_not_nest() -> None:
    budget = MemoryBudget(10)
    served: list[int] = []
    assert budget.take(10)
    for number in range(5000):

        def granted(number: int = number) -> None:
            served.append(number)
            budget.give_back(10)

        budget.take_later(10, granted)
    budget.give_back(10)
    assert served == list(range(5000))
    assert budget.used_bytes == 0


@pytest.mark.parametrize("seed", range(200))
def test_whatever_is_asked_all_are_served_in_the_end_and_the_limit_holds(seed: int) -> None:
    """Frames of random sizes grow in random steps: beyond the limit is at most what two of them take."""
    chance = random.Random(seed)
    limit, largest = 100, 60
    budget = MemoryBudget(limit)
    held: dict[int, int] = {}
    wanted = {number: chance.randint(1, largest) for number in range(60)}
    turns = {number: budget.turn() for number in wanted}
    waiting: dict[int, Waiter] = {}
    peak = 0

    def step(number: int) -> None:
        nonlocal peak
        if held.get(number, 0) >= wanted[number]:
            budget.give_back(held.pop(number))
            del wanted[number]
            return
        more = min(chance.randint(1, 20), wanted[number] - held.get(number, 0))

        def granted() -> None:
            waiting.pop(number, None)
            held[number] = held.get(number, 0) + more

        if budget.take(more):
            granted()
        else:
            waiter = budget.take_later(more, granted, turn=turns[number], holds_bytes=held.get(number, 0))
            if waiter.is_waiting:
                waiting[number] = waiter
        peak = max(peak, budget.used_bytes)
        assert budget.used_bytes == sum(held.values())

    for _ in range(10_000):
        moving = [number for number in wanted if number not in waiting]
        if not wanted:
            break
        assert moving, "it stands still"
        number = chance.choice(moving)
        if waiting and chance.random() < 0.05:
            gone = chance.choice(sorted(waiting))
            budget.forget(waiting.pop(gone))
            budget.give_back(held.pop(gone, 0))
            del wanted[gone]
        else:
            step(number)
    assert not wanted
    assert budget.used_bytes == budget.waiting == 0
    assert peak <= limit + limit // 8 + 2 * largest
