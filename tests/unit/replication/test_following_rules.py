"""What a follower makes of an answer, by the rules alone."""

from __future__ import annotations

import pytest

from semel.log.epochs import LeaderEpochs
from semel.replication.following import (
    MOVES,
    Append,
    Cut,
    Empty,
    Event,
    GoOn,
    LookUp,
    Phase,
    StopAsking,
    TryLater,
    cut_offset,
    judge_fetch,
    judge_look_up,
)
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import EpochEndOffset, FetchResponsePartition

EPOCHS = [(1, 0), (3, 10), (4, 20)]
END = 30


@pytest.mark.parametrize(
    ("epoch", "epoch_end", "expected"),
    [
        (4, 25, 25),  # the same epoch, which ends sooner there
        (3, 15, 15),
        (3, 40, 20),  # the same epoch, which ends sooner here
        (2, 5, 10),
        (2, 12, 10),  # one that is not known here: up to where the one before it ended, and then again
        (1, 7, 7),
        (0, 5, 5),  # older than all that is here
    ],
)
def test_logs_part_where_the_last_epoch_that_both_have_ends(epoch: int, epoch_end: int, expected: int) -> None:
    assert cut_offset(LeaderEpochs(list(EPOCHS)), END, epoch, epoch_end) == expected


def answer(code: int = 0, diverging: tuple[int, int] | None = None) -> FetchResponsePartition:
    return FetchResponsePartition(
        error_code=code,
        high_watermark=29,
        log_start_offset=3,
        diverging_epoch=None if diverging is None else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        records=b"",
    )


def test_where_logs_part_nothing_else_counts() -> None:
    assert judge_fetch(answer(diverging=(3, 15)), LeaderEpochs(list(EPOCHS)), END) == Cut(15)


def test_an_epoch_that_wrote_nothing_goes_though_nothing_else_does() -> None:
    assert judge_fetch(answer(diverging=(4, 30)), LeaderEpochs([*EPOCHS, (6, 30)]), END) == Cut(30)


def test_an_answer_that_says_nothing_new_of_where_logs_part_is_not_asked_for_again_at_once() -> None:
    assert isinstance(judge_fetch(answer(diverging=(4, 40)), LeaderEpochs(list(EPOCHS)), END), TryLater)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Append),
        (ErrorCode.OFFSET_OUT_OF_RANGE, LookUp),
        (ErrorCode.FENCED_LEADER_EPOCH, StopAsking),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, TryLater),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, TryLater),
        (ErrorCode.UNKNOWN_TOPIC_ID, TryLater),
        (ErrorCode.KAFKA_STORAGE_ERROR, TryLater),
        (ErrorCode.CORRUPT_MESSAGE, TryLater),
        (12345, TryLater),
    ],
)
def test_what_error_codes_mean(code: int, verdict: type) -> None:
    assert isinstance(judge_fetch(answer(code), LeaderEpochs(list(EPOCHS)), END), verdict)


@pytest.mark.parametrize(
    ("start", "end", "drops_all", "verdict"),
    [
        (0, 20, False, Cut(20)),
        (40, 50, False, Empty(40)),
        (5, 50, False, GoOn()),
        (0, 30, False, GoOn()),
        (30, 50, False, GoOn()),
        (5, 50, True, Empty(5)),
    ],
)
def test_what_is_done_where_an_offset_is_out_of_range(start: int, end: int, drops_all: bool, verdict: object) -> None:
    assert judge_look_up(start, end, END, drops_all=drops_all) == verdict


def test_the_end_of_a_term_is_the_end_in_every_phase_and_no_phase_has_no_way_out_but_that() -> None:
    for phase in Phase:
        assert MOVES[phase, Event.TERM_ENDS] is Phase.ENDED
        ways = {event for (start, event) in MOVES if start is phase and event is not Event.TERM_ENDS}
        assert bool(ways) == (phase not in (Phase.FENCED, Phase.ENDED))
