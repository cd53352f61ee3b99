"""The rules of ISR and high watermark, each by itself; numbers in brackets are those of the traps in the fact sheet."""

from __future__ import annotations

from dataclasses import dataclass

from semel.replication.in_sync import UNKNOWN, InSync

LAG_MS = 30_000
LEADER, B, C = 1, 2, 3


@dataclass(frozen=True)
class Assigned:
    replicas: tuple[int, ...] = (LEADER, B, C)
    isr: tuple[int, ...] = (LEADER, B, C)
    partition_epoch: int = 5


def anyone(node_id: int, broker_epoch: int) -> bool:
    return True


def nobody(node_id: int, broker_epoch: int) -> bool:
    return False


def term(isr: tuple[int, ...] = (LEADER, B, C), epoch_start: int = 0, now_ms: int = 0) -> InSync:
    return InSync(LEADER, Assigned(isr=isr), epoch_start, now_ms)


def fetch(in_sync: InSync, node_id: int, offset: int, end: int, now_ms: int = 0, broker_epoch: int = 7) -> None:
    in_sync.note_fetch(node_id, offset, 0, end, broker_epoch, now_ms)


def high_watermark(in_sync: InSync, end: int, now_ms: int = 0, *, own: int | None = None, least: int = 1) -> int:
    return in_sync.high_watermark(end if own is None else own, end, now_ms, LAG_MS, least, anyone)


def test_the_high_watermark_is_the_least_of_the_isr_and_of_what_the_leader_has_itself() -> None:
    in_sync = term()
    assert high_watermark(in_sync, 10) == UNKNOWN, "nobody has said yet where it is"
    fetch(in_sync, B, 8, 10)
    assert high_watermark(in_sync, 10) == UNKNOWN
    fetch(in_sync, C, 9, 10)
    assert high_watermark(in_sync, 10) == 8
    assert high_watermark(in_sync, 10, own=6) == 6


def test_it_stands_still_while_the_isr_is_too_small() -> None:
    """14"""
    in_sync = term(isr=(LEADER,))
    assert high_watermark(in_sync, 10, least=2) == UNKNOWN
    assert high_watermark(in_sync, 10, least=1) == 10


def test_no_more_replicas_are_wanted_than_there_are() -> None:
    in_sync = InSync(LEADER, Assigned((LEADER, B), (LEADER, B)), 0, 0)
    fetch(in_sync, B, 10, 10)
    assert high_watermark(in_sync, 10, least=3) == 10
    assert in_sync.has_enough(3)


def test_who_is_proposed_to_leave_counts_until_that_is_confirmed() -> None:
    """21"""
    in_sync = term()
    fetch(in_sync, B, 10, 10)
    fetch(in_sync, C, 4, 4)
    proposal = in_sync.propose((LEADER, B), 77)
    assert high_watermark(in_sync, 10, LAG_MS * 2) == 4
    assert in_sync.adopt(proposal, (LEADER, B), 6)
    assert high_watermark(in_sync, 10, LAG_MS * 2) == 10
    assert (in_sync.isr, in_sync.partition_epoch, in_sync.proposal) == ((LEADER, B), 6, None)


def test_who_is_proposed_to_join_counts_at_once_and_is_enough_only_when_confirmed() -> None:
    """21, 22"""
    in_sync = term(isr=(LEADER,))
    fetch(in_sync, B, 10, 10)
    isr = in_sync.to_join(B, 10, anyone)
    assert isr == (LEADER, B)
    proposal = in_sync.propose(isr, 77)
    assert (proposal.isr, proposal.broker_epochs, proposal.partition_epoch) == ((LEADER, B), (77, 7), 5)
    assert high_watermark(in_sync, 12, LAG_MS * 2) == 10
    assert (in_sync.has_enough(2), in_sync.may_have_enough(2)) == (False, True)
    in_sync.withdraw(proposal)
    assert (in_sync.has_enough(2), in_sync.may_have_enough(2)) == (False, False)
    assert high_watermark(in_sync, 12, LAG_MS * 2) == 12


def test_who_has_caught_up_and_may_join_holds_back_and_who_has_stopped_does_not() -> None:
    """23"""
    in_sync = term(isr=(LEADER, C))
    fetch(in_sync, C, 20, 20, 0)
    assert high_watermark(in_sync, 20) == 20, "at the election nobody but the ISR is waited for"
    fetch(in_sync, B, 10, 10, 1000)
    assert high_watermark(in_sync, 20, 1000) == 10
    assert high_watermark(in_sync, 20, 1001 + LAG_MS) == 20
    assert in_sync.high_watermark(20, 20, 1000, LAG_MS, 1, nobody) == 20


def test_to_join_takes_all_that_is_committed_and_all_from_before_this_leader() -> None:
    """18, 25"""
    in_sync = term(isr=(LEADER,), epoch_start=8)
    assert in_sync.to_join(B, 0, anyone) is None
    fetch(in_sync, B, 7, 10)
    assert in_sync.to_join(B, 5, anyone) is None, "the high watermark of a new leader is an old one"
    fetch(in_sync, B, 8, 10)
    assert in_sync.to_join(B, 9, anyone) is None
    assert in_sync.to_join(B, 8, nobody) is None
    assert in_sync.to_join(B, 8, anyone) == (LEADER, B)
    in_sync.propose((LEADER, B), 77)
    assert in_sync.to_join(B, 8, anyone) is None, "one change at a time"


def test_the_epoch_that_a_fetch_told_is_what_is_asked_about() -> None:
    """16"""
    in_sync = term(isr=(LEADER,))
    fetch(in_sync, B, 10, 10, broker_epoch=7)
    asked: list[tuple[int, int]] = []

    def can_join(node_id: int, broker_epoch: int) -> bool:
        asked.append((node_id, broker_epoch))
        return False

    in_sync.to_join(B, 8, can_join)
    assert asked == [(B, 7)]


def test_who_has_not_caught_up_for_too_long_goes() -> None:
    in_sync = term(now_ms=1000)
    fetch(in_sync, B, 10, 10, 2000)
    assert in_sync.to_shrink(10, 1000 + LAG_MS, LAG_MS) is None, "time to come after an election"
    assert in_sync.to_shrink(10, 1001 + LAG_MS, LAG_MS) == (LEADER, B)
    assert in_sync.to_shrink(11, 2001 + LAG_MS, LAG_MS) == (LEADER,)
    in_sync.propose((LEADER, B), 77)
    assert in_sync.to_shrink(11, 2001 + LAG_MS, LAG_MS) is None


def test_who_is_always_a_little_behind_has_caught_up_with_what_there_was_at_its_last_fetch() -> None:
    """26"""
    in_sync = term()
    for number in range(1, 20):
        now_ms = number * LAG_MS // 2
        fetch(in_sync, C, number * 10, number * 10, now_ms)
        fetch(in_sync, B, (number - 1) * 10, number * 10, now_ms)
        assert in_sync.to_shrink(number * 10, now_ms, LAG_MS) is None


def test_a_follower_at_the_end_is_caught_up_for_as_long_as_its_session_asks() -> None:
    in_sync = term(isr=(LEADER, B))
    fetch(in_sync, B, 10, 10, 1000)
    in_sync.note_at_end(B, 100_000)
    assert in_sync.to_shrink(11, 100_000 + LAG_MS, LAG_MS) is None
    assert in_sync.to_shrink(11, 100_001 + LAG_MS, LAG_MS) == (LEADER,)


def test_an_answer_that_is_older_than_the_metadata_is_not_taken() -> None:
    """19"""
    in_sync = term()
    proposal = in_sync.propose((LEADER, B), 77)
    assert in_sync.follow(Assigned(isr=(LEADER, B), partition_epoch=6), 0)
    assert in_sync.follow(Assigned(isr=(LEADER, C), partition_epoch=7), 0)
    assert not in_sync.adopt(proposal, (LEADER, B), 6)
    assert (in_sync.isr, in_sync.maximal) == ((LEADER, C), {LEADER, C})


def test_metadata_that_are_older_than_the_answer_are_not_taken() -> None:
    """19"""
    in_sync = term()
    proposal = in_sync.propose((LEADER, B), 77)
    assert in_sync.adopt(proposal, (LEADER, B), 6)
    assert not in_sync.follow(Assigned(isr=(LEADER, B, C), partition_epoch=5), 0)
    assert not in_sync.follow(Assigned(isr=(LEADER, B), partition_epoch=6), 0)
    assert in_sync.isr == (LEADER, B)


def test_other_replicas_at_the_epoch_of_the_answer_leave_the_next_proposal_alone() -> None:
    in_sync = term(isr=(LEADER, B))
    assert in_sync.adopt(in_sync.propose((LEADER,), 77), (LEADER,), 6)
    fetch(in_sync, B, 10, 10)
    proposal = in_sync.propose((LEADER, B), 77)
    assert in_sync.follow(Assigned((LEADER, B), (LEADER,), 6), 0)
    assert (in_sync.proposal, in_sync.maximal, in_sync.replicas) == (proposal, {LEADER, B}, (LEADER, B))
    assert list(in_sync.followers) == [B]


def test_news_end_a_proposal_and_keep_what_is_known_of_followers() -> None:
    in_sync = term()
    fetch(in_sync, B, 10, 10)
    in_sync.propose((LEADER, B), 77)
    assert in_sync.follow(Assigned((LEADER, B, 4), (LEADER, B), 6), 0)
    assert (in_sync.proposal, in_sync.maximal) == (None, {LEADER, B})
    assert {one: progress.end_offset for one, progress in in_sync.followers.items()} == {B: 10, 4: UNKNOWN}


def test_a_leader_that_leads_on_knows_where_its_followers_are() -> None:
    before = term()
    fetch(before, B, 10, 10, 5)
    after = term(isr=(LEADER, B), now_ms=100)
    after.keep_progress(before, 10, 100)
    assert (after.followers[B].end_offset, after.followers[B].caught_up_ms) == (10, 100)
    assert after.followers[C].end_offset == UNKNOWN
    assert high_watermark(after, 12, 100) == 10


def test_the_low_watermark_is_of_those_that_are_alive() -> None:
    in_sync = term()
    in_sync.note_fetch(B, 10, 4, 10, 7, 0)
    assert in_sync.low_watermark(6, lambda node_id: True) == UNKNOWN
    assert in_sync.low_watermark(6, lambda node_id: node_id == B) == 4
    in_sync.note_fetch(B, 10, 8, 10, 7, 0)
    assert in_sync.low_watermark(6, lambda node_id: node_id == B) == 6
