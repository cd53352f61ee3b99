"""Mistakes of a cluster for the simulated world to find: in what counts as committed, in truncation, fencing and
elections, and in coordinators that move. Each is planted in one process, and so in all of its nodes.

with planted("high watermark of a majority"): ...                          in this process
semel sim --nodes 3 --seeds 1..500 --patch replication_bugs:plant_NAME     with this folder in PYTHONPATH
python tests/sim/replication_bugs.py "high watermark of a majority" TESTS  tests of a part, with the bug
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

sys.path.insert(0, str(Path(__file__).parent.parent))

import planted_bugs
from semel.controller import controller, image, isr
from semel.controller.cluster_rules import ClusterRules
from semel.controller.elections import Election
from semel.coordinator import shards
from semel.coordinator.shard import Shard, replay_batch_in_steps
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.log import truncation
from semel.log.epochs import LeaderEpochs
from semel.log.indexes import AbortedTransaction
from semel.log.log import FileRange
from semel.replication import follower, following
from semel.replication.follower import Follower
from semel.replication.following import Event, Position, TryLater
from semel.replication.in_sync import UNKNOWN, InSync, Proposal
from semel.replication.partition import NO_EPOCH, Fetched, Partition
from semel.wire.errors import ErrorCode

_for_ever = ExitStack()

# -- what is committed


def proposed_isr_counts(stack: ExitStack) -> None:
    """Whoever is proposed to leave holds nothing back any more, confirmed or not."""
    propose = InSync.propose

    def at_once(self: InSync, members: tuple[int, ...], leader_broker_epoch: int) -> Proposal:
        proposal = propose(self, members, leader_broker_epoch)
        self.maximal = frozenset(members)
        return proposal

    stack.enter_context(patch.object(InSync, "propose", at_once))


def committed_isr_counts(stack: ExitStack) -> None:
    """Whoever is proposed to join holds nothing back before the leader has heard that it has joined."""

    def without_the_proposed(self: InSync, own_offset: int, leader_end: int, *rest: Any) -> int:
        if not self.has_enough(rest[2]):
            return UNKNOWN
        ends = [one.end_offset for node_id, one in self.followers.items() if node_id in self.isr]
        return min([own_offset, *ends])

    stack.enter_context(patch.object(InSync, "high_watermark", without_the_proposed))


def majority_counts(stack: ExitStack) -> None:
    """As in Raft: what more than half of them have. But any member of the ISR may lead next."""

    def of_a_majority(self: InSync, own_offset: int, leader_end: int, *rest: Any) -> int:
        ends = sorted([own_offset, *(one.end_offset for one in self.followers.values())], reverse=True)
        return ends[len(self.replicas) // 2]

    stack.enter_context(patch.object(InSync, "high_watermark", of_a_majority))


def too_few_are_enough(stack: ExitStack) -> None:
    """`min.insync.replicas` is not looked at."""
    for name in ("has_enough", "may_have_enough"):
        stack.enter_context(patch.object(InSync, name, lambda self, min_insync_replicas: True))


def unflushed_counts(stack: ExitStack) -> None:
    """A follower tells what it has written, and flushes it some time."""
    stack.enter_context(patch.object(Follower, "is_flushing", PropertyMock(return_value=False)))


def success_at_the_end_of_a_term(stack: ExitStack) -> None:
    """Whoever waits for replicas when a leader loses its term is told that it has what it waits for."""
    end = Partition._end

    def as_if_committed(self: Partition) -> None:
        for _, _, future in self.waiting:
            if not future.done():
                future.set_result(None)
        end(self)

    stack.enter_context(patch.object(Partition, "_end", as_if_committed))


def readers_see_the_end(stack: ExitStack) -> None:
    """Readers get what the leader has, committed or not."""

    def up_to_the_end(
        self: Partition,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool,
        at_least_one: bool,
        last_fetched_epoch: int = NO_EPOCH,
        warmed: bool = False,
    ) -> Fetched:
        log = self.log
        stable = log.last_stable_offset if log.producers.oldest_open_offset() is not None else log.end_offset
        up_to = stable if read_committed else log.end_offset
        records = log.read(offset, max_bytes, up_to, at_least_one=at_least_one, warmed=warmed)
        aborted: list[AbortedTransaction] | None = None
        if read_committed:
            aborted = log.aborted_between(offset, records) if isinstance(records, FileRange) else []
        return Fetched(records, log.end_offset, stable, log.start_offset, aborted)

    stack.enter_context(patch.object(Partition, "fetch", up_to_the_end))


# -- who is in sync


def joins_at_an_old_high_watermark(stack: ExitStack) -> None:
    """The high watermark of a new leader may be an old one; what its epoch began with is not looked at."""
    to_join = InSync.to_join

    def by_the_high_watermark(self: InSync, *rest: Any) -> tuple[int, ...] | None:
        epoch_start, self.epoch_start = self.epoch_start, 0
        try:
            return to_join(self, *rest)
        finally:
            self.epoch_start = epoch_start

    stack.enter_context(patch.object(InSync, "to_join", by_the_high_watermark))


def fenced_joins(stack: ExitStack) -> None:
    """Neither the leader nor the controller asks whether who joins is fenced, or is the start that has fetched."""
    from semel.broker.leading import Leading

    stack.enter_context(patch.object(Leading, "can_join", lambda self, node_id, broker_epoch: True))
    stack.enter_context(patch.object(isr, "_may_join", lambda image, member: True))


def restarted_stays_in_sync(stack: ExitStack) -> None:
    """A node that has started again is taken for the one before, whatever its disk holds now."""
    without_brokers = ClusterRules.without_brokers

    def nobody(self: ClusterRules, gone: Any, **options: Any) -> Iterator[Any]:
        if options:  # a registration
            return iter(())
        return without_brokers(self, gone)

    stack.enter_context(patch.object(ClusterRules, "without_brokers", nobody))


# -- elections


def fenced_leads(stack: ExitStack) -> None:
    """Nobody asks whether who is elected is there."""
    stack.enter_context(patch.object(ClusterRules, "_is_acceptable", lambda self, node_id, directory: True))


def unclean_everywhere(stack: ExitStack) -> None:
    """Whoever is there leads when nobody of the ISR is, also where the topic does not allow it."""
    stack.enter_context(patch.object(ClusterRules, "election", lambda self, topic: Election.UNCLEAN))


def epoch_not_raised(stack: ExitStack) -> None:
    """A new leader leads in the epoch of the one before."""
    merged = image.merged

    def as_before(state: Any, record: Any) -> Any:
        after = merged(state, record)
        return after if after.leader == state.leader else replace(after, leader_epoch=state.leader_epoch)

    stack.enter_context(patch.object(image, "merged", as_before))


def producer_ids_twice(stack: ExitStack) -> None:
    """Every node is given the same block of producer ids."""
    allocate = controller.Controller.allocate_producer_ids

    def the_first(self: Any, *rest: Any) -> Any:
        block, committed = allocate(self, *rest)
        return range(len(block)), committed

    stack.enter_context(patch.object(controller.Controller, "allocate_producer_ids", the_first))


# -- truncation


def nothing_is_cut(stack: ExitStack) -> None:
    """Where the logs part the follower keeps what it has, and asks again."""
    judge = follower.judge_fetch

    def keeping(answer: Any, *rest: Any) -> Any:
        parts = answer.error_code == ErrorCode.NONE and answer.diverging_epoch is not None
        if parts and answer.diverging_epoch.end_offset >= 0:
            return TryLater("the logs part")
        return judge(answer, *rest)

    stack.enter_context(patch.object(follower, "judge_fetch", keeping))


def cut_to_the_high_watermark(stack: ExitStack) -> None:
    """A follower begins by cutting its log to its own high watermark, as before KIP-101."""
    begin = Follower.__init__

    def cutting(self: Follower, *rest: Any, **options: Any) -> None:
        begin(self, *rest, **options)
        self._cut = self.log.high_watermark
        self._move(Event.DIVERGES)

    stack.enter_context(patch.object(Follower, "__init__", cutting))


def last_epoch_not_told(stack: ExitStack) -> None:
    """The follower does not say of which epoch its last batch is: nobody finds where the logs part (KAFKA-15510)."""
    right = Follower.position.fget
    assert right is not None

    def silent(self: Follower) -> Position | None:
        position: Position | None = right(self)
        return None if position is None else position._replace(last_epoch=NO_EPOCH)

    stack.enter_context(patch.object(Follower, "position", property(silent)))


def only_offsets_compared(stack: ExitStack) -> None:
    """It is cut where the leader's epoch ends, whichever epoch that is (KIP-279)."""

    def by_offset(epochs: LeaderEpochs, end_offset: int, epoch: int, epoch_end: int) -> int:
        return min(epoch_end, end_offset)

    stack.enter_context(patch.object(following, "cut_offset", by_offset))


def epochs_not_cut(stack: ExitStack) -> None:
    """Epochs of what was cut are remembered."""
    stack.enter_context(patch.object(LeaderEpochs, "truncate_end", lambda self, end_offset: None))


def producers_not_cut(stack: ExitStack) -> None:
    """Producers are remembered as they were before the cut."""

    async def as_they_are(*rest: Any) -> tuple[None, None]:
        return None, None

    stack.enter_context(patch.object(truncation, "_producers_at", as_they_are))


def producers_not_followed(stack: ExitStack) -> None:
    """A follower appends batches and does not look at who wrote them."""
    append = follower.append_as_follower

    def forgetful(log: Any, *rest: Any, **options: Any) -> int:
        rows = log.producers.rows()
        try:
            return append(log, *rest, **options)
        finally:
            log.producers.load(rows)

    stack.enter_context(patch.object(follower, "append_as_follower", forgetful))


def open_transactions_not_followed(stack: ExitStack) -> None:
    """A follower that becomes the leader does not know of transactions that are open."""
    append = follower.append_as_follower

    def forgetful(log: Any, *rest: Any, **options: Any) -> int:
        taken = append(log, *rest, **options)
        log.producers._open.clear()
        return taken

    stack.enter_context(patch.object(follower, "append_as_follower", forgetful))


def later_epochs_taken(stack: ExitStack) -> None:
    """Neither the term that asked nor the epoch of the batches is held against an answer (KAFKA-18991, KAFKA-18723)."""
    append, take = follower.append_as_follower, Follower.take

    def any_term(self: Follower, asked: Position, answer: Any) -> Any:
        return take(self, asked._replace(leader_epoch=self.leader_epoch), answer)

    def any_epoch(log: Any, batches: Any, leader_epoch: int, now_ms: int, **options: Any) -> int:
        return append(log, batches, 1 << 30, now_ms, **options)

    stack.enter_context(patch.object(Follower, "take", any_term))
    stack.enter_context(patch.object(follower, "append_as_follower", any_epoch))


# -- coordinators


def old_coordinator_answers(stack: ExitStack) -> None:
    """A coordinator whose term is over is asked on, and answers."""
    stack.enter_context(patch.object(Shard, "is_current", PropertyMock(return_value=True)))
    stack.enter_context(patch.object(shards.Shards, "follow", lambda self, is_led_here: None))


def decisions_not_carried_on(stack: ExitStack) -> None:
    """A new coordinator leaves transactions that were decided as they are."""
    stack.enter_context(patch.object(TransactionCoordinator, "_carried_on", lambda self, term: iter(())))


def coordinator_does_not_wait(stack: ExitStack) -> None:
    """A coordinator answers as soon as it has written."""
    stack.enter_context(patch.object(Shard, "when_committed_at", lambda self, offset: None))
    stack.enter_context(patch.object(Shard, "when_decided", lambda self: None))


def loaded_up_to_the_high_watermark(stack: ExitStack) -> None:
    """A coordinator begins with what it knows to be committed. That of a new leader may be an old one."""

    def in_part(self: Shard[Any]) -> Iterator[Any]:
        for segment in list(self.partition.log.segments):
            for _, header, batch in segment.batches():
                if header.base_offset < self.partition.log.high_watermark:
                    yield from (None for _ in replay_batch_in_steps(self.state, header, batch))
                    yield None

    stack.enter_context(patch.object(shards, "replayed", in_part))


BUGS: dict[str, Callable[[ExitStack], None]] = {
    "high watermark of the proposed ISR": proposed_isr_counts,
    "high watermark without who is joining": committed_isr_counts,
    "high watermark of a majority": majority_counts,
    "acknowledged with too few in sync": too_few_are_enough,
    "followers tell what they have not flushed": unflushed_counts,
    "success at the end of a term": success_at_the_end_of_a_term,
    "readers see what is not committed": readers_see_the_end,
    "ISR joined at an old high watermark": joins_at_an_old_high_watermark,
    "fenced node joins the ISR": fenced_joins,
    "restarted node stays in sync": restarted_stays_in_sync,
    "fenced node elected": fenced_leads,
    "unclean election where none is allowed": unclean_everywhere,
    "leader epoch not raised": epoch_not_raised,
    "producer ids given out twice": producer_ids_twice,
    "nothing cut where logs part": nothing_is_cut,
    "cut to the high watermark": cut_to_the_high_watermark,
    "last epoch not told": last_epoch_not_told,
    "logs compared by offset alone": only_offsets_compared,
    "epochs not cut": epochs_not_cut,
    "producers not cut": producers_not_cut,
    "producers not followed": producers_not_followed,
    "open transactions not followed": open_transactions_not_followed,
    "answers of other terms taken": later_epochs_taken,
    "old coordinator answers": old_coordinator_answers,
    "decisions not carried on": decisions_not_carried_on,
    "coordinator does not wait": coordinator_does_not_wait,
    "coordinator loads what is known to be committed": loaded_up_to_the_high_watermark,
}


def planted(name: str | None) -> AbstractContextManager[None]:
    """Without a name: no bug."""
    return planted_bugs.planted(name, BUGS)


def __getattr__(name: str) -> Callable[[], None]:
    """For `--patch`: every bug by the name of its function, planted until the process ends."""
    for plant in BUGS.values():
        if f"plant_{plant.__name__}" == name:
            return lambda: plant(_for_ever)
    raise AttributeError(name)


if __name__ == "__main__":
    import pytest

    with planted(sys.argv[1]):
        sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[2:]]))
