"""What is counted: times in buckets."""

from semel.metrics.counts_kernel import BOUNDS_S, Times
from semel.metrics.node_counts import IsrCounts, RequestCounts


def test_each_bound_is_the_last_time_of_its_bucket() -> None:
    times = Times()
    for bound_s in BOUNDS_S:
        times.observe(round(bound_s * 1e9))
    assert times.counts == [1] * len(BOUNDS_S) + [0]
    times.observe(round(BOUNDS_S[-1] * 1e9) + 1)
    times.observe(round(BOUNDS_S[0] * 1e9) + 1, 3)
    assert times.counts == [1, 4, *[1] * (len(BOUNDS_S) - 2), 1]
    assert times.count == len(BOUNDS_S) + 4


def test_several_of_one_time_weigh_as_many_in_the_sum() -> None:
    times = Times()
    times.observe(50, 3)
    times.observe(1_000_000, 2)
    assert (times.count, times.total_ns) == (5, 2_000_150)


def test_requests_are_counted_by_their_api() -> None:
    counts = RequestCounts(lambda: 0)
    counts.answered(1, 10)
    counts.answered(1, 10, 2)
    counts.of(0).observe(5)
    assert {key: times.count for key, times in counts.times.items()} == {0: 1, 1: 3}


def test_a_change_of_the_isr_is_a_shrink_or_an_expansion() -> None:
    counts = IsrCounts()
    for before, after in ((3, 2), (2, 1), (1, 2), (2, 2)):
        counts.changed(before, after)
    assert (counts.shrinks, counts.expands) == (2, 1)
