"""A schedule that breaks something is cut down to what is needed for it, and can be replayed by the options told."""

from __future__ import annotations

from semel.sim.history import History
from semel.sim.world.findings import Violation
from semel.sim.world.schedule import AMONG_NODES, CLIENTS, DEATHS, NEEDS_PROXY, Schedule, StrikeKind, drawn
from semel.sim.world.shrinking import MAX_RUNS, Shrinking, replay_options
from semel.sim.world.simulation import Run


def run_of(schedule: Schedule, *kinds: str) -> Run:
    return Run(schedule, History(), [], [Violation(kind, "so it is") for kind in kinds], {}, 1.0)


def with_many_strikes() -> Schedule:
    return next(schedule for seed in range(1, 100) if len((schedule := drawn(seed)).strikes) == 8)


def numbers_of(schedule: Schedule) -> set[int]:
    return {strike.number for strike in schedule.strikes}


def test_only_the_strikes_that_are_needed_stay() -> None:
    whole = with_many_strikes()

    def run(schedule: Schedule) -> Run:
        return run_of(schedule, *(["lost"] if {3, 6} <= numbers_of(schedule) else []))

    shortest = Shrinking(run_of(whole, "lost"), run=run).shrink()
    assert numbers_of(shortest.schedule) == {3, 6}


def test_a_shorter_schedule_has_to_break_the_same() -> None:
    whole = with_many_strikes()

    def run(schedule: Schedule) -> Run:
        return run_of(schedule, "lost" if 5 in numbers_of(schedule) else "something else")

    shortest = Shrinking(run_of(whole, "lost"), run=run).shrink()
    assert numbers_of(shortest.schedule) == {5}


def test_time_and_clients_are_left_out_too() -> None:
    whole = drawn(1)
    least_s = whole.seconds / 3

    def run(schedule: Schedule) -> Run:
        breaks = schedule.seconds >= least_s and schedule.load.transactors == whole.load.transactors
        return run_of(schedule, *(["torn"] if breaks else []))

    shortest = Shrinking(run_of(whole, "torn"), run=run).shrink().schedule
    assert least_s <= shortest.seconds < whole.seconds
    assert not shortest.strikes
    assert [name for name in CLIENTS if getattr(shortest.load, name)] in ([], ["transactors"])


def test_it_ends_after_a_number_of_runs() -> None:
    runs = []

    def run(schedule: Schedule) -> Run:
        runs.append(schedule)
        return run_of(schedule, "lost")

    Shrinking(run_of(with_many_strikes(), "lost"), run=run).shrink()
    assert len(runs) <= MAX_RUNS


def test_what_is_told_replays_the_shorter_schedule() -> None:
    whole = with_many_strikes()
    assert replay_options(whole, whole) == ["--seed", str(whole.seed)]
    part = whole.only(frozenset({3, 6})).shortened(whole.seconds)
    assert replay_options(part, whole) == ["--seed", str(whole.seed), "--strikes", "3,6"]
    assert replay_options(whole.only(frozenset()), whole)[2:] == ["--strikes", "none"]
    clients = next(name for name in CLIENTS if getattr(whole.load, name))
    assert replay_options(whole.without(clients), whole)[2:] == ["--without", clients.replace("_", "-")]


def test_a_schedule_follows_from_its_seed_alone() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_schedules_have_every_kind_of_strike_and_client() -> None:
    schedules = [drawn(seed) for seed in range(300)]
    seen = {strike.kind for schedule in schedules for strike in schedule.strikes}
    assert seen == set(StrikeKind) - set(AMONG_NODES), "what needs several nodes does not happen to one"
    several = [drawn(seed, nodes=3) for seed in range(100)]
    assert {strike.kind for schedule in several for strike in schedule.strikes} == set(StrikeKind) - NEEDS_PROXY
    for name in CLIENTS:
        assert any(getattr(schedule.load, name) for schedule in schedules)
    assert any(schedule.decays for schedule in schedules)
    assert any(schedule.has_keys for schedule in schedules)
    share = sum(strike.kind in DEATHS for schedule in schedules for strike in schedule.strikes)
    assert share > 300, "the node dies often"


def test_only_proxied_schedules_have_strikes_that_need_a_proxy() -> None:
    for schedule in map(drawn, range(300)):
        assert schedule.is_proxied or not {strike.kind for strike in schedule.strikes} & NEEDS_PROXY


def test_some_runs_are_aimed_at_what_chance_seldom_meets() -> None:
    schedules = [drawn(seed) for seed in range(300)]
    overtaking = [one for one in schedules if sum(s.kind is StrikeKind.OVERTAKEN for s in one.strikes) == 2]
    assert sum(one.is_proxied and one.load.transactors > 0 for one in overtaking) > 10
    sleeping = [
        one
        for one in schedules
        for strike in one.strikes
        if strike.kind is StrikeKind.CLIENT_FREEZE
        and strike.length_s * 1000 > one.load.session_timeout_ms
        and strike.at_s + 6 < one.seconds
        and one.load.pipeline_workers > 1
    ]
    assert len(sleeping) > 5
