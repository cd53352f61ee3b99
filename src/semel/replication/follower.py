"""A partition as one of its followers sees it: one term of copying what the leader has.

Who fetches (`fetcher`) asks for `position`, hands the answer to `take`, and does what `phase` says after that. What an
answer means is decided in `following`.
Rule 1: an answer counts only if the follower would still ask what it was asked for.
Rule 2: while the term lasts, only this moves the log's high watermark: after the append, and never where logs part.
Rule 3: with `flush.messages=1` it asks for what it has flushed, so that what the leader counts is on this disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from semel.config import TopicConfig
from semel.host.api import Clock
from semel.log.errors import BrokenLog, CorruptSegment, Refused
from semel.log.following import append_as_follower
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.log.truncation import restart_at, truncate_to
from semel.log.types import Epoch, Offset
from semel.replication.following import (
    MOVES,
    Append,
    Cut,
    Empty,
    Event,
    FetchVerdict,
    LookUp,
    Phase,
    Position,
    StopAsking,
    TryLater,
    code_name,
    judge_fetch,
    judge_look_up,
)
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchResponsePartition

logger = logging.getLogger("semel.replication")


def _ignore() -> None:
    """Nobody asked to be told."""


def _yes() -> bool:
    return True


class Follower:
    """One term of following. Another leader epoch is another object; the log and its flushes pass from term to term.

    `is_in_sync` says whether others may count on what is here: then a damaged log is not emptied to be copied anew, and
    `on_damage` is told of it.
    """

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        leader_id: int,
        leader_epoch: Epoch,
        clock: Clock,
        on_broken: Callable[[BaseException], None],
        *,
        group_commit: GroupCommit | None = None,
        is_in_sync: Callable[[], bool] = _yes,
        on_damage: Callable[[], None] = _ignore,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.clock = clock
        self.on_broken = on_broken
        self.is_in_sync = is_in_sync
        self.on_damage = on_damage
        self.phase = Phase.FETCHING
        self.failures = 0
        """In a row: pauses grow with it."""
        self.problem = ""
        """Why it failed the last time."""
        self.changed: Callable[[], None] = _ignore
        """Called when it may have something new to ask for, or to do, other than by `take`."""
        self.group_commit = group_commit or GroupCommit(log, on_broken)
        self.group_commit.told = self._flushed
        log.on_start = _ignore
        self._is_taking = False
        self._cut: Offset | None = None  # where the log is to be cut, or to begin
        self._drops_all = False
        self.group_commit.flush_if_due()  # of what the term before has left

    def __repr__(self) -> str:
        return f"Follower({self.topic}-{self.index}, leader {self.leader_id}, epoch {self.leader_epoch})"

    @property
    def is_closed(self) -> bool:
        return self.phase is Phase.ENDED

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self.log.config = config
        self.group_commit.flush_if_due()
        self.changed()

    # -- asking

    @property
    def is_flushing(self) -> bool:
        """It has more than it may tell of."""
        return self.log.config.flush_messages == 1 and self.log.flushed_offset < self.log.end_offset

    @property
    def position(self) -> Position | None:
        """What it asks for; None when it does not."""
        if self.phase is not Phase.FETCHING or self._is_taking or self.is_flushing:
            return None
        log = self.log
        return Position(log.end_offset, log.epochs.latest, self.leader_epoch, log.start_offset)

    def take(self, asked: Position, answer: FetchResponsePartition) -> Iterator[None]:
        """Carries out what an answer says, in slices: between them others have their turn, and the term may end."""
        position = self.position
        if position is None or asked != position._replace(log_start_offset=asked.log_start_offset):
            return
        self._is_taking = True
        try:
            yield from self._take(judge_fetch(answer, self.log.epochs, self.log.end_offset))
        except Refused as refusal:
            if not self.is_closed:
                self.failed(str(refusal))
        except BrokenLog as broken:
            self.on_broken(broken)
        finally:
            self._is_taking = False
            if not self.is_closed:
                self.group_commit.flush_if_due()

    def _take(self, verdict: FetchVerdict) -> Iterator[None]:
        match verdict:
            case Append():
                yield from self._append(verdict)
            case Cut(offset):
                self._cut = offset
                self._move(Event.DIVERGES)
            case LookUp():
                self._move(Event.OUT_OF_RANGE)
            case StopAsking():
                logger.debug("%r: the leader knows of a newer term", self)
                self._move(Event.FENCED)
            case TryLater(reason):
                self.failed(reason)

    def _append(self, answer: Append) -> Iterator[None]:
        log, records = self.log, memoryview(answer.records)
        taken = 0
        while taken < len(records):
            more = append_as_follower(log, records[taken:], self.leader_epoch, self.clock.wall_ms())
            if more == 0:
                break
            taken += more
            if taken < len(records):
                yield
                if self.is_closed:
                    return
        if records and not taken:
            self.failed("the answer holds no batch that could be appended")
            return
        self.failures = 0
        log.high_watermark = max(log.high_watermark, min(answer.high_watermark, log.end_offset))
        # DeleteRecords and retention of the leader. Of what is not committed here, nothing goes.
        log.advance_start(min(answer.log_start_offset, log.high_watermark))

    def _flushed(self) -> None:
        if not self.is_closed and not self.is_flushing:
            self.changed()

    # -- cutting

    async def cut(self) -> None:
        """Makes the log end, or begin, where its leader's does. Called when `phase` says so."""
        offset, log = self._cut, self.log
        if offset is None:
            raise BrokenLog(f"{self!r} does not know where to cut")
        if self.phase is Phase.CUTTING and offset < log.high_watermark:
            logger.warning(
                "%s-%d: cut to offset %d, below the high watermark %d: the leader was elected uncleanly",
                *(self.topic, self.index, offset, log.high_watermark),
            )
        phase = self.phase
        try:
            if phase is Phase.CUTTING:
                is_done = await truncate_to(log, offset, self.clock.wall_ms(), self._is_cutting)
            else:
                is_done = await restart_at(log, offset, self._is_cutting)
        except CorruptSegment as damage:
            self._damaged(damage)
        except OSError as error:  # no room for a checkpoint, or no descriptor: nothing is cut
            if log.has_unsynced_cut:
                self.on_broken(error)
            elif not self.is_closed:
                self.failed(str(error))
        except BrokenLog as broken:
            self.on_broken(broken)
        else:
            if is_done and self.phase is phase:
                self._cut, self._drops_all = None, False
                self.group_commit.flush_if_due()
                self._move(Event.GOES_ON)

    def _is_cutting(self) -> bool:
        return self.phase in (Phase.CUTTING, Phase.EMPTYING)

    def _damaged(self, damage: CorruptSegment) -> None:
        if self.is_closed:
            return
        if self.is_in_sync():
            self.failed(f"{damage}; it is copied anew when nobody counts on it any more")
            self.on_damage()
        else:
            logger.error("%s: the partition is copied anew", damage)
            self._drops_all = True
            self._move(Event.DAMAGED)

    # -- where the leader's log begins and ends

    def looked_up(self, leader_start: Offset, leader_end: Offset) -> None:
        """The answer to the question that `phase` asks."""
        if self.phase is not Phase.LOOKING_UP:
            return
        verdict = judge_look_up(leader_start, leader_end, self.log.end_offset, drops_all=self._drops_all)
        match verdict:
            case Cut(offset):
                self._cut = offset
                self._move(Event.DIVERGES)
            case Empty(offset):
                self._cut = offset
                self._move(Event.BEGINS_LATER)
            case _:
                self._move(Event.GOES_ON)

    def look_up_refused(self, code: int) -> None:
        if self.phase is not Phase.LOOKING_UP:
            return
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self._move(Event.FENCED)
        else:
            self.failed(code_name(code))

    # -- failing

    def failed(self, reason: str) -> None:
        """It waits for a while; whoever fetches calls `resume` then."""
        self.failures += 1
        self.problem = reason
        logger.debug("%r: %s", self, reason)
        self._move(Event.FAILED)

    def resume(self) -> None:
        if self.phase is Phase.PAUSED:
            self._move(Event.DAMAGED if self._drops_all else Event.GOES_ON)

    def _move(self, event: Event) -> None:
        if (self.phase, event) not in MOVES:
            raise BrokenLog(f"{self!r}: {event.name} while {self.phase.name}")
        self.phase = MOVES[self.phase, event]

    # -- ending

    def resign(self) -> None:
        """The term is over. What was appended is still flushed."""
        self._move(Event.TERM_ENDS)
        self.changed()

    def abandon(self) -> None:
        """The partition is copied here no longer."""
        self.group_commit.stop()
        self.resign()

    async def close(self) -> None:
        """A clean stop: waits for the flush that is under way."""
        self.abandon()
        await self.group_commit.when_over()


__all__ = ["Follower"]
