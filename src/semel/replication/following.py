"""What a follower makes of its leader's answers. Pure: who follows carries it out (`follower`)."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from semel.host.api import Buffer
from semel.log.epochs import LeaderEpochs
from semel.log.types import Epoch, Offset
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchResponsePartition


class Phase(Enum):
    """Where a follower is in its term. `MOVES` has every step that there is."""

    FETCHING = auto()
    CUTTING = auto()
    LOOKING_UP = auto()
    EMPTYING = auto()
    PAUSED = auto()
    FENCED = auto()
    ENDED = auto()


class Event(Enum):
    """What happens to it."""

    GOES_ON = auto()
    DIVERGES = auto()
    OUT_OF_RANGE = auto()
    BEGINS_LATER = auto()
    FAILED = auto()
    FENCED = auto()
    DAMAGED = auto()
    TERM_ENDS = auto()


#                            DIVERGES
#            +-----------------------------> CUTTING --------+
#            |                                  ^            |
#  +--> FETCHING --OUT_OF_RANGE--> LOOKING_UP --+            |
#  |         |                        |  BEGINS_LATER        |
#  |         +--FENCED--> FENCED      +--> EMPTYING ---------+
#  |                                                         |
#  +---------------------------------------------------------+
# From everywhere: FAILED --> PAUSED --> FETCHING when the pause is over; DAMAGED --> LOOKING_UP; TERM_ENDS --> ENDED.
MOVES: dict[tuple[Phase, Event], Phase] = {
    (Phase.FETCHING, Event.GOES_ON): Phase.FETCHING,
    (Phase.FETCHING, Event.DIVERGES): Phase.CUTTING,
    (Phase.FETCHING, Event.OUT_OF_RANGE): Phase.LOOKING_UP,
    (Phase.FETCHING, Event.FENCED): Phase.FENCED,
    (Phase.CUTTING, Event.GOES_ON): Phase.FETCHING,
    (Phase.LOOKING_UP, Event.GOES_ON): Phase.FETCHING,
    (Phase.LOOKING_UP, Event.DIVERGES): Phase.CUTTING,
    (Phase.LOOKING_UP, Event.BEGINS_LATER): Phase.EMPTYING,
    (Phase.LOOKING_UP, Event.FENCED): Phase.FENCED,
    (Phase.EMPTYING, Event.GOES_ON): Phase.FETCHING,
    (Phase.PAUSED, Event.GOES_ON): Phase.FETCHING,
    **{(phase, Event.FAILED): Phase.PAUSED for phase in Phase if phase not in (Phase.FENCED, Phase.ENDED)},
    **{(phase, Event.DAMAGED): Phase.LOOKING_UP for phase in Phase if phase not in (Phase.FENCED, Phase.ENDED)},
    **{(phase, Event.TERM_ENDS): Phase.ENDED for phase in Phase},
}


class Position(NamedTuple):
    """What a follower asks for. An answer counts only while this is still what it would ask (KAFKA-18991), but for the
    start of the log, which retention moves here as well."""

    offset: Offset
    last_epoch: Epoch  # of the last batch that it has: always told, so that the leader sees where the logs part
    leader_epoch: Epoch
    log_start_offset: Offset


class Append(NamedTuple):
    """Append the batches, and only then believe what the leader says of its log."""

    records: Buffer
    high_watermark: Offset
    log_start_offset: Offset


class Cut(NamedTuple):
    """The leader does not have what lies from `offset` on. It said nothing else that counts (KAFKA-14704)."""

    offset: Offset


class Empty(NamedTuple):
    """What the leader has begins at `offset`, behind all that is here."""

    offset: Offset


class LookUp(NamedTuple):
    """Ask the leader where its log begins and ends."""


class StopAsking(NamedTuple):
    """The leader knows of a newer term: the metadata log will tell."""


class TryLater(NamedTuple):
    """Nothing came of it this time."""

    reason: str


class GoOn(NamedTuple):
    """There is nothing to do but to fetch."""


FetchVerdict: TypeAlias = Append | Cut | LookUp | StopAsking | TryLater
LookUpVerdict: TypeAlias = Cut | Empty | GoOn


def judge_fetch(answer: FetchResponsePartition, epochs: LeaderEpochs, end_offset: Offset) -> FetchVerdict:
    """What to do about the answer to a fetch from `end_offset`, with the epochs of the follower's own log."""
    code = answer.error_code
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return LookUp()
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return StopAsking()
    if code != ErrorCode.NONE:
        return TryLater(code_name(code))
    if answer.diverging_epoch is not None and answer.diverging_epoch.end_offset >= 0:
        diverging = answer.diverging_epoch
        offset = cut_offset(epochs, end_offset, diverging.epoch, diverging.end_offset)
        # An epoch that has begun at the end of the log goes with the cut, so that the next fetch tells an older one.
        if offset < end_offset or (epochs.entries and epochs.entries[-1][1] >= end_offset):
            return Cut(offset)
        return TryLater(f"the logs are said to part at offset {diverging.end_offset}, epoch {diverging.epoch}")
    return Append(answer.records or b"", answer.high_watermark, answer.log_start_offset)


def cut_offset(epochs: LeaderEpochs, end_offset: Offset, epoch: Epoch, epoch_end: Offset) -> Offset:
    """How far a log agrees with its leader's, as far as one answer tells (KIP-101, KIP-279): the leader's largest epoch
    that is not above ours ends there. If ours is another one than that, the next fetch asks again."""
    known = [(found, start) for found, start in epochs.entries if found <= epoch]
    if not known:
        return min(epoch_end, end_offset)
    ours = known[-1][0]
    later = [start for found, start in epochs.entries if found > epoch]
    our_end = min(later[0], end_offset) if later else end_offset
    return our_end if ours != epoch else min(our_end, epoch_end)


def judge_look_up(leader_start: Offset, leader_end: Offset, end_offset: Offset, *, drops_all: bool) -> LookUpVerdict:
    """What to do where an offset was out of range, or (`drops_all`) where nothing here can be used."""
    if drops_all:
        return Empty(leader_start)
    if leader_end < end_offset:
        return Cut(leader_end)
    return Empty(leader_start) if leader_start > end_offset else GoOn()


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
