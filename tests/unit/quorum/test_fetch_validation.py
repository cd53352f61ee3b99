"""What a leader answers to a position: every case of the rule, and each replica that is not a part of the log."""

from __future__ import annotations

import pytest

from semel.log.epochs import LeaderEpochs
from semel.quorum.fetch_validation import Judgement, Verdict, judge
from semel.quorum.snapshot_files import SnapshotId

VALID, DIVERGING, SNAPSHOT = Verdict.VALID, Verdict.DIVERGING, Verdict.NEEDS_SNAPSHOT
# Epoch 1 wrote 0 to 9, epoch 3 wrote 10 to 19, epoch 4 what follows, up to 30.
EPOCHS = [(1, 0), (3, 10), (4, 20)]


def judged(
    offset: int,
    epoch: int,
    *,
    start: int = 0,
    end: int = 30,
    snapshots: tuple[SnapshotId, ...] = (),
    entries: list[tuple[int, int]] | None = None,
) -> Judgement:
    return judge(
        offset,
        epoch,
        log_start=start,
        log_end=end,
        epochs=LeaderEpochs(list(EPOCHS if entries is None else entries)),
        newest_snapshot=snapshots[-1] if snapshots else None,
        snapshot_at_start=next((one for one in snapshots if one.end_offset == start), None),
    )


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (0, 9), (5, 1), (10, 1), (20, 3), (25, 4), (30, 4)])
def test_a_position_in_the_log_is_valid(offset: int, epoch: int) -> None:
    assert judged(offset, epoch) == (VALID, -1, -1)


@pytest.mark.parametrize(
    ("offset", "epoch", "parts"),
    [
        (31, 4, (4, 30)),  # more than the leader has
        (25, 3, (3, 20)),  # epoch 3 went on there
        (15, 1, (1, 10)),
        (12, 2, (1, 10)),  # an epoch that this log does not have
        (30, 9, (4, 30)),  # a later one, which only others know
    ],
)
def test_another_history_is_told_where_the_logs_part(offset: int, epoch: int, parts: tuple[int, int]) -> None:
    assert judged(offset, epoch) == (DIVERGING, *parts)


def test_who_has_nothing_of_a_log_with_a_snapshot_loads_it() -> None:
    assert judged(0, 0, snapshots=(SnapshotId(10, 1),), start=10).verdict is SNAPSHOT
    assert judged(0, 0, snapshots=(SnapshotId(10, 1),)).verdict is SNAPSHOT


def test_who_is_behind_the_begin_of_the_log_loads_a_snapshot() -> None:
    at = {"start": 10, "snapshots": (SnapshotId(10, 1), SnapshotId(20, 3)), "entries": [(3, 10), (4, 20)]}
    assert judged(9, 1, **at).verdict is SNAPSHOT  # type: ignore[arg-type]
    assert judged(10, 1, **at).verdict is VALID  # type: ignore[arg-type]
    assert judged(10, 0, **at).verdict is SNAPSHOT  # type: ignore[arg-type]
    assert judged(15, 0, **at).verdict is SNAPSHOT  # type: ignore[arg-type]
    assert judged(15, 3, **at).verdict is VALID  # type: ignore[arg-type]


def test_an_empty_log_behind_a_snapshot_goes_on_from_its_epoch() -> None:
    at = {"start": 30, "end": 30, "snapshots": (SnapshotId(30, 4),), "entries": []}
    assert judged(30, 4, **at).verdict is VALID  # type: ignore[arg-type]
    assert judged(30, 3, **at).verdict is SNAPSHOT  # type: ignore[arg-type]
