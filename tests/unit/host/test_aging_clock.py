"""What is forgotten when it is old is not forgotten because the wall clock was set."""

from __future__ import annotations

from semel.host.aging import AgingClock

DAY_MS = 24 * 3_600_000
HOUR_MS = 3_600_000


class TwoClocks:
    """Both stand still until they are moved."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000_000
        self.monotonic = 5_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def pass_ms(self, by_ms: int) -> None:
        self.wall += by_ms
        self.monotonic += by_ms


def test_without_a_leap_it_is_the_wall_clock() -> None:
    clock = TwoClocks()
    aging = AgingClock(clock)
    for _ in range(5):
        assert aging.now_ms(DAY_MS) == clock.wall
        clock.pass_ms(HOUR_MS)


def test_a_leap_forward_makes_nothing_older() -> None:
    clock = TwoClocks()
    aging = AgingClock(clock)
    stamped_ms = clock.wall
    clock.pass_ms(HOUR_MS)
    clock.wall += 10 * DAY_MS
    assert aging.now_ms(DAY_MS) - stamped_ms == HOUR_MS
    clock.pass_ms(HOUR_MS)
    assert aging.now_ms(DAY_MS) - stamped_ms == 2 * HOUR_MS


def test_what_is_stamped_after_a_leap_is_as_old_as_it_is_when_that_counts() -> None:
    clock = TwoClocks()
    aging = AgingClock(clock)
    clock.wall += 10 * DAY_MS
    assert aging.now_ms(DAY_MS) < clock.wall
    clock.pass_ms(HOUR_MS)
    stamped_ms = clock.wall
    for _ in range(23):
        clock.pass_ms(HOUR_MS)
        assert aging.now_ms(DAY_MS) - stamped_ms < DAY_MS
    clock.pass_ms(HOUR_MS)
    assert aging.now_ms(DAY_MS) - stamped_ms == DAY_MS


def test_two_leaps_are_both_taken_away_until_each_is_old() -> None:
    clock = TwoClocks()
    aging = AgingClock(clock)
    stamped_ms = clock.wall
    clock.wall += 10 * DAY_MS
    assert aging.now_ms(DAY_MS) == stamped_ms
    clock.pass_ms(12 * HOUR_MS)
    clock.wall += 5 * DAY_MS
    assert aging.now_ms(DAY_MS) == stamped_ms + 12 * HOUR_MS
    clock.pass_ms(12 * HOUR_MS)
    assert clock.wall - aging.now_ms(DAY_MS) == 5 * DAY_MS


def test_a_leap_back_makes_nothing_older_either() -> None:
    clock = TwoClocks()
    aging = AgingClock(clock)
    before_ms = clock.wall
    clock.wall -= 10 * DAY_MS
    after_ms = clock.wall
    clock.pass_ms(HOUR_MS)
    assert aging.now_ms(DAY_MS) - before_ms < HOUR_MS
    assert aging.now_ms(DAY_MS) - after_ms == HOUR_MS


def test_a_clock_that_is_set_back_and_right_again_makes_nothing_older() -> None:
    clock = TwoClocks()
    aging = AgingClock(clock)
    clock.wall -= 10 * DAY_MS
    aging.now_ms(DAY_MS)
    stamped_ms = clock.wall
    clock.wall += 10 * DAY_MS
    clock.pass_ms(HOUR_MS)
    assert aging.now_ms(DAY_MS) - stamped_ms == HOUR_MS


def test_rounding_is_no_leap() -> None:
    clock = TwoClocks()
    aging = AgingClock(clock)
    for number in range(1000):
        clock.wall += 1 if number % 2 else -1
        assert aging.now_ms(DAY_MS) == clock.wall
    assert not aging._leaps
