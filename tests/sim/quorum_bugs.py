"""Mistakes of a quorum for the simulated world to find: in votes, in what is recorded, in what counts as committed, and
in terms. Each is planted in one process, and so in all of its nodes.

with planted("votes twice"): ...                                                          in this process
semel sim --nodes 3 --voters 3 --seeds 1..99 --patch quorum_bugs:plant_NAME    with this folder in PYTHONPATH
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from semel.controller import metadata_term
from semel.controller.image import MetadataImage
from semel.controller.metadata import Metadata
from semel.log.types import Offset
from semel.quorum import term
from semel.quorum.election import Election, VoteQuestion
from semel.quorum.fetch_validation import Judgement, Verdict
from semel.quorum.quorum_replica import QuorumReplica
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.state_file import NO_VOTE, QuorumState
from semel.quorum.states import State
from semel.quorum.term import Term
from semel.quorum.voters import VoterSet
from semel.wire.errors import ErrorCode

_for_ever = ExitStack()


# -- votes, and what is recorded of them


def votes_are_not_recorded(stack: ExitStack) -> None:
    """A vote is in memory only: after a kill it is given again (trap 35)."""
    right = Election.durable.fget  # type: ignore[attr-defined]
    forgetful = property(lambda self: right(self)._replace(voted_id=NO_VOTE))
    stack.enter_context(patch.object(Election, "durable", forgetful))


def nothing_is_recorded(stack: ExitStack) -> None:
    """A candidate asks for votes in an epoch that is nowhere on its disk (trap 36)."""
    stack.enter_context(patch.object(QuorumReplica, "_write_state", lambda self, election: None))


def leads_again(stack: ExitStack) -> None:
    """A leader that starts again goes on in its epoch (trap 34)."""
    right = Election._begin

    def begin(self: Election, recorded: QuorumState, now_ms: int) -> None:
        right(self, recorded, now_ms)
        if self.state is State.RESIGNED and self._log.end_epoch == recorded.epoch:
            self.state = State.CANDIDATE
            self._ask_all(now_ms)
            self.granting = {voter.node_id for voter in self.voters}
            self._count(now_ms)

    stack.enter_context(patch.object(Election, "_begin", begin))


def votes_twice(stack: ExitStack) -> None:
    """Whoever asks gets the vote of an epoch, whoever got it before."""
    right = Election._would_grant

    def would_grant(self: Election, question: VoteQuestion) -> bool:
        voted, self.voted = self.voted, None
        try:
            return right(self, question) or (self.state is State.CANDIDATE and not question.is_pre_vote)
        finally:
            self.voted = voted

    stack.enter_context(patch.object(Election, "_would_grant", would_grant))


def votes_for_who_has_less(stack: ExitStack) -> None:
    """Nobody looks how far the log of a candidate goes."""
    right = Election.asked_for_vote

    def asked(self: Election, question: VoteQuestion, now_ms: int) -> Any:
        if question.last_epoch < question.epoch:
            question = question._replace(last_offset=1 << 40, last_epoch=max(question.epoch - 1, 0))
        return right(self, question, now_ms)

    stack.enter_context(patch.object(Election, "asked_for_vote", asked))


def half_is_a_majority(stack: ExitStack) -> None:
    stack.enter_context(patch.object(VoterSet, "majority", property(lambda self: max(len(self) // 2, 1))))


def pre_votes_are_refused(stack: ExitStack) -> None:
    """Who has ever heard of a leader refuses, for good."""
    right = Election._would_grant

    def would_grant(self: Election, question: VoteQuestion) -> bool:
        return right(self, question) and not (question.is_pre_vote and self.epoch > 0)

    stack.enter_context(patch.object(Election, "_would_grant", would_grant))


def candidates_wait_for_ever(stack: ExitStack) -> None:
    """An election that nobody wins is not followed by another one."""
    right = Election._become_candidate

    def become(self: Election, now_ms: int) -> None:
        right(self, now_ms)
        if self.state is State.CANDIDATE:
            self.deadline_of_state_ms = 1 << 60

    stack.enter_context(patch.object(Election, "_become_candidate", become))


# -- what is committed


def unflushed_counts(stack: ExitStack) -> None:
    """A voter fetches on before it has flushed: the leader counts what a power cut takes away."""

    async def flushed(self: QuorumReplica) -> None:
        self._group_commit.flush_if_due()

    stack.enter_context(patch.object(QuorumReplica, "flushed", flushed))


def the_furthest_counts(stack: ExitStack) -> None:
    """What one voter has is committed."""

    def committed(ends: Iterable[Offset]) -> Offset:
        return max(ends)

    stack.enter_context(patch.object(term, "committed_by_majority", committed))


def positions_are_believed(stack: ExitStack) -> None:
    """A follower counts without a look at the epoch of its last record, and keeps what it has."""

    def judge(self: Term, offset: Offset, last_epoch: int) -> Judgement:
        return Judgement(Verdict.VALID)

    stack.enter_context(patch.object(Term, "judge", judge))


def logs_are_not_cut(stack: ExitStack) -> None:
    """A follower drops no record that its leader does not have, and takes what comes behind it."""

    async def truncate(self: ReplicatedLog, epoch: int, end_offset: Offset) -> None:
        self.log.epochs.assign(epoch, self.end_offset)

    stack.enter_context(patch.object(ReplicatedLog, "truncate", truncate))


# -- terms


def success_at_the_end_of_a_term(stack: ExitStack) -> None:
    """Whoever waits when a controller loses its term is told that it was done."""

    def fail(future: asyncio.Future[None], epoch: int) -> None:
        if not future.done():
            future.set_result(None)

    stack.enter_context(patch.object(metadata_term, "_fail", fail))


def what_was_decided_stays(stack: ExitStack) -> None:
    """The next term begins with what the last one had decided, committed or not (trap 58)."""
    right = MetadataImage.fill_from
    kept: dict[int, MetadataImage] = {}
    begin = Metadata._begin_term

    async def begin_term(self: Metadata, elected: Term) -> None:
        await begin(self, elected)
        if self.term is not None:
            old = kept.get(id(self))
            if old is not None:
                self.term.decided = old
            kept[id(self)] = self.term.decided

    assert right
    stack.enter_context(patch.object(Metadata, "_begin_term", begin_term))


def decides_too_early(stack: ExitStack) -> None:
    """A controller decides as soon as it is elected, on an image that lacks what was committed last (trap 59)."""
    right = Metadata.committed_further

    async def committed_further(self: Metadata) -> None:
        elected = self._elected
        if elected is not None and self.term is None:
            await self._begin_term(elected)
        await right(self)

    stack.enter_context(patch.object(Metadata, "committed_further", committed_further))


def epoch_of_a_snapshot_is_forgotten(stack: ExitStack) -> None:
    """A log that begins behind a snapshot, and has no record yet, is of epoch 0 (trap 13)."""
    stack.enter_context(patch.object(ReplicatedLog, "end_epoch", property(lambda self: max(self.log.epochs.latest, 0))))


def snapshot_of_the_end_of_the_log(stack: ExitStack) -> None:
    """A snapshot is named by what was written, and not by what is in it (trap 48)."""
    right = Metadata._begin_snapshot

    async def begin(self: Metadata) -> asyncio.Task[None]:
        here = self.next_offset
        self.next_offset = self._log.end_offset
        try:
            return await right(self)
        finally:
            self.next_offset = here

    stack.enter_context(patch.object(Metadata, "_begin_snapshot", begin))


def leaders_never_resign(stack: ExitStack) -> None:
    """Who is elected leads, whatever others say of higher epochs."""
    right = Election.learn

    def learn(self: Election, epoch: int, leader_id: int, now_ms: int) -> bool:
        return False if self.state is State.LEADER else right(self, epoch, leader_id, now_ms)

    def asked(self: Election, question: VoteQuestion, now_ms: int) -> Any:
        if self.state is State.LEADER:
            from semel.quorum.election import VoteAnswer

            return VoteAnswer(ErrorCode.NONE)
        return ask(self, question, now_ms)

    ask = Election.asked_for_vote
    stack.enter_context(patch.object(Election, "learn", learn))
    stack.enter_context(patch.object(Election, "asked_for_vote", asked))
    stack.enter_context(patch.object(Election, "_quorum_deadline_ms", lambda self: 1 << 60))


BUGS: dict[str, Callable[[ExitStack], None]] = {
    function.__name__.replace("_", " "): function
    for function in (
        votes_are_not_recorded,
        nothing_is_recorded,
        leads_again,
        votes_twice,
        votes_for_who_has_less,
        half_is_a_majority,
        pre_votes_are_refused,
        candidates_wait_for_ever,
        unflushed_counts,
        the_furthest_counts,
        positions_are_believed,
        logs_are_not_cut,
        success_at_the_end_of_a_term,
        what_was_decided_stays,
        decides_too_early,
        epoch_of_a_snapshot_is_forgotten,
        snapshot_of_the_end_of_the_log,
        leaders_never_resign,
    )
}


@contextmanager
def _planted(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        BUGS[name](stack)
        yield


def planted(name: str) -> AbstractContextManager[None]:
    return _planted(name)


def __getattr__(name: str) -> Callable[[], None]:
    """`plant_votes_twice`, for the command."""
    bug = BUGS.get(name.removeprefix("plant_").replace("_", " ")) if name.startswith("plant_") else None
    if bug is None:
        raise AttributeError(name)
    return lambda: bug(_for_ever)
