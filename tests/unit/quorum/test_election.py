"""The state machine of a replica of the metadata log, told of messages and time: situations, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from semel.log.errors import BrokenLog
from semel.quorum.election import Election, Kind, Message, Timeouts, VoteQuestion
from semel.quorum.metadata_topic import NO_LEADER
from semel.quorum.state_file import NO_VOTE, QuorumState
from semel.quorum.states import MOVES, Event, State, next_state
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.wire.errors import ErrorCode

TIMEOUTS = Timeouts(election_ms=1000, fetch_ms=2000, backoff_most_ms=1000, retry_ms=20)
LATER_MS = 10_000
ONE, TWO, THREE, FOUR, FIVE = (ReplicaKey(number) for number in range(1, 6))
NOBODY = ReplicaKey(99)


@dataclass
class Log:
    end_offset: int = 10
    end_epoch: int = 3


def voters(count: int) -> VoterSet:
    return VoterSet(VoterNode(ReplicaKey(number)) for number in range(1, count + 1))


def started(
    recorded: QuorumState | None = None, *, key: ReplicaKey = ONE, count: int = 3, log: Log | None = None, seed: int = 1
) -> Election:
    return Election(key, voters(count), log or Log(), TIMEOUTS, Random(seed), recorded, 0)


def prospective(count: int = 3) -> tuple[Election, int]:
    """And the time at which it is that."""
    election = started(QuorumState(3), count=count)
    now_ms = election.deadline_ms
    election.tick(now_ms)
    assert election.state is State.PROSPECTIVE
    return election, now_ms


def agreed(election: Election, message: Message, now_ms: int, *, is_granted: bool = True) -> None:
    election.answered(message, now_ms, 0, election.epoch, NO_LEADER, is_granted=is_granted)


def candidate(count: int = 3) -> tuple[Election, int]:
    election, now_ms = prospective(count)
    for message in election.take_messages()[: count // 2]:
        agreed(election, message, now_ms)
    assert election.state is State.CANDIDATE
    return election, now_ms


def leader(count: int = 3) -> tuple[Election, int]:
    election, now_ms = candidate(count)
    for message in election.take_messages()[: count // 2]:
        agreed(election, message, now_ms)
    assert election.state is State.LEADER
    return election, now_ms


def follower(epoch: int = 3, *, has_fetched: bool = False) -> Election:
    election = started(QuorumState(epoch, 2))
    assert election.state is State.FOLLOWER
    if has_fetched:
        election.fetched(epoch, 0)
    return election


def question(epoch: int, *, is_pre_vote: bool = False, offset: int = 10, last_epoch: int = 3) -> VoteQuestion:
    return VoteQuestion(epoch, TWO, offset, last_epoch, is_pre_vote, ONE)


# -- the start


def test_a_replica_that_knows_nothing_waits_for_an_election_and_may_look_for_a_leader() -> None:
    election = started(log=Log(0, 0))
    assert (election.state, election.epoch, election.leader_id) == (State.UNATTACHED, 0, NO_LEADER)
    assert election.may_fetch
    assert TIMEOUTS.election_ms <= election.deadline_ms < 2 * TIMEOUTS.election_ms


@pytest.mark.parametrize(
    ("recorded", "state", "epoch"),
    [
        (QuorumState(2, 2), State.UNATTACHED, 3),  # the log has records of a later epoch
        (QuorumState(5, 1, 1), State.RESIGNED, 5),
        (QuorumState(5, NO_LEADER, 1), State.CANDIDATE, 5),
        (QuorumState(5, 2, 2), State.FOLLOWER, 5),
        (QuorumState(5, 3, 2), State.FOLLOWER, 5),
        (QuorumState(5, NO_LEADER, 2), State.UNATTACHED, 5),
        (QuorumState(5), State.UNATTACHED, 5),
    ],
)
def test_a_start_goes_on_from_what_was_recorded(recorded: QuorumState, state: State, epoch: int) -> None:
    election = started(recorded)
    assert (election.state, election.epoch) == (state, epoch)
    if recorded.epoch == epoch and recorded.voted_id != NO_VOTE:
        assert election.voted == ReplicaKey(recorded.voted_id)


def test_a_leader_that_starts_again_never_leads_its_epoch_again() -> None:
    election = started(QuorumState(5, 1, 1))
    assert {message.kind for message in election.take_messages()} == {Kind.END_EPOCH}
    election.tick(election.deadline_ms)
    assert (election.state, election.epoch, election.leader_id, election.voted) == (
        State.UNATTACHED,
        6,
        NO_LEADER,
        None,
    )


def test_one_voter_alone_is_elected_at_once_in_a_new_epoch() -> None:
    for recorded in (None, QuorumState(5, 1, 1), QuorumState(5, NO_LEADER, 1), QuorumState(5)):
        election = started(recorded, count=1)
        assert (election.state, election.leader_id) == (State.LEADER, 1)
        assert election.epoch == (4 if recorded is None else 6)
        assert not election.take_messages()
        election.tick(10**9)
        assert election.state is State.LEADER, "it need not hear of anybody"


def test_an_observer_follows_and_never_wants_to_lead() -> None:
    election = started(QuorumState(3, 2), key=NOBODY)
    assert election.state is State.FOLLOWER
    election.tick(10**9)
    assert election.state is State.FOLLOWER
    election.learn(4, NO_LEADER, 0)
    election.tick(2 * 10**9)
    assert (election.state, election.epoch) == (State.UNATTACHED, 4)


# -- elections


def test_a_prospective_asks_first_and_changes_nothing_by_that() -> None:
    election, _ = prospective()
    assert election.durable == QuorumState(3, voters=(1, 2, 3))
    messages = election.take_messages()
    assert [(one.kind, one.to, one.epoch, one.last_offset, one.last_epoch) for one in messages] == [
        (Kind.PRE_VOTE, TWO, 3, 10, 3),
        (Kind.PRE_VOTE, THREE, 3, 10, 3),
    ]
    assert not election.may_fetch


def test_a_candidate_has_voted_for_itself_in_a_new_epoch_before_it_asks() -> None:
    election, _ = candidate()
    assert election.durable == QuorumState(4, NO_LEADER, 1, (1, 2, 3))
    assert {(one.kind, one.epoch) for one in election.take_messages()} == {(Kind.VOTE, 4)}


def test_a_majority_elects_and_the_others_are_told() -> None:
    election, _ = leader()
    assert (election.epoch, election.leader_id, election.granting) == (4, 1, {1, 2})
    assert election.durable == QuorumState(4, 1, 1, (1, 2, 3))
    assert {(one.kind, one.to) for one in election.take_messages()} == {
        (Kind.BEGIN_EPOCH, TWO),
        (Kind.BEGIN_EPOCH, THREE),
    }


def test_less_than_a_majority_does_not_elect() -> None:
    election, now_ms = candidate(5)
    first = election.take_messages()[0]
    agreed(election, first, now_ms)
    agreed(election, first, now_ms)  # the same voter twice
    assert election.state is State.CANDIDATE


def test_votes_of_an_earlier_attempt_do_not_count() -> None:
    election, now_ms = prospective()
    asked = election.take_messages()
    agreed(election, asked[0], now_ms)
    assert election.state is State.CANDIDATE
    agreed(election, asked[1], now_ms)  # a pre-vote, late
    assert election.state is State.CANDIDATE


def test_a_candidate_that_has_lost_waits_for_the_rest_of_its_time() -> None:
    election, now_ms = candidate()
    until_ms = election.deadline_of_state_ms
    for message in election.take_messages():
        agreed(election, message, now_ms, is_granted=False)
    assert (election.state, election.deadline_of_state_ms) == (State.CANDIDATE, until_ms)
    election.tick(until_ms)
    assert (election.state, election.epoch, election.voted) == (State.PROSPECTIVE, 4, ONE)


def test_a_prospective_without_a_chance_follows_its_leader_again_or_waits() -> None:
    for recorded, state in ((QuorumState(3, 2), State.FOLLOWER), (QuorumState(3), State.UNATTACHED)):
        election = started(recorded)
        now_ms = election.deadline_ms
        election.tick(now_ms)
        for message in election.take_messages():
            agreed(election, message, now_ms, is_granted=False)
        assert (election.state, election.epoch) == (state, 3)


def test_who_has_refused_a_pre_vote_is_asked_again() -> None:
    election, now_ms = prospective()
    first = election.take_messages()[0]
    agreed(election, first, now_ms, is_granted=False)
    election.tick(now_ms + TIMEOUTS.election_ms // 5)
    (again,) = election.take_messages()
    assert (again.kind, again.to) == (Kind.PRE_VOTE, TWO)
    agreed(election, again, now_ms)
    assert election.state is State.CANDIDATE


def test_a_voter_that_knows_no_pre_votes_makes_it_a_candidate_at_once() -> None:
    election, now_ms = prospective()
    election.not_supported(election.take_messages()[0], now_ms)
    assert (election.state, election.epoch) == (State.CANDIDATE, 4)


def test_what_did_not_come_through_is_sent_again() -> None:
    election, now_ms = candidate()
    message = election.take_messages()[0]
    election.not_answered(message, now_ms)
    election.tick(now_ms + TIMEOUTS.retry_ms - 1)
    assert not election.take_messages()
    election.tick(now_ms + TIMEOUTS.retry_ms)
    assert [one.to for one in election.take_messages()] == [TWO]


# -- votes


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (question(3, offset=-1), ErrorCode.INVALID_REQUEST),
        (question(3, last_epoch=-1), ErrorCode.INVALID_REQUEST),
        (question(4, last_epoch=4), ErrorCode.INVALID_REQUEST),
        (question(4, last_epoch=5, is_pre_vote=True), ErrorCode.INVALID_REQUEST),
        (question(4)._replace(candidate=ReplicaKey(-1)), ErrorCode.INVALID_REQUEST),
        (question(2, last_epoch=1), ErrorCode.FENCED_LEADER_EPOCH),
        (question(4)._replace(asked=TWO), ErrorCode.INVALID_VOTER_KEY),
        (question(4)._replace(asked=ReplicaKey(-1)), ErrorCode.INVALID_VOTER_KEY),
        (question(4), ErrorCode.NONE),
        (question(4)._replace(asked=None), ErrorCode.NONE),
    ],
)
def test_questions_are_checked(asked: VoteQuestion, code: ErrorCode) -> None:
    answer = started(QuorumState(3)).asked_for_vote(asked, 0)
    assert answer.code == code
    assert answer.is_granted == (code == ErrorCode.NONE)


def test_a_vote_is_given_once_in_an_epoch_and_recorded() -> None:
    election = started(QuorumState(3))
    assert election.asked_for_vote(question(4), 0).is_granted
    assert election.durable == QuorumState(4, NO_LEADER, 2, (1, 2, 3))
    assert election.asked_for_vote(question(4), 0).is_granted, "the same one asks again"
    other = question(4)._replace(candidate=THREE)
    assert not election.asked_for_vote(other, 0).is_granted
    again = started(election.durable)
    assert again.asked_for_vote(question(4), 0).is_granted
    assert not again.asked_for_vote(other, 0).is_granted, "also after a start"


@pytest.mark.parametrize(
    ("offset", "last_epoch", "is_granted"), [(10, 3, True), (9, 3, False), (11, 3, True), (1, 4, True), (99, 2, False)]
)
def test_only_who_has_all_of_the_log_is_voted_for(offset: int, last_epoch: int, is_granted: bool) -> None:
    for is_pre_vote in (False, True):
        asked = question(5, offset=offset, last_epoch=last_epoch, is_pre_vote=is_pre_vote)
        assert started(QuorumState(3)).asked_for_vote(asked, 0).is_granted == is_granted


def test_a_pre_vote_moves_the_epoch_and_is_no_vote() -> None:
    election = started(QuorumState(3))
    assert election.asked_for_vote(question(7, is_pre_vote=True), 0).is_granted
    assert election.durable == QuorumState(7, voters=(1, 2, 3))
    assert election.asked_for_vote(question(7)._replace(candidate=THREE), 0).is_granted


def test_a_higher_epoch_counts_even_if_the_vote_is_refused() -> None:
    election = follower(3, has_fetched=True)
    assert not election.asked_for_vote(question(9, offset=1), 0).is_granted
    assert (election.state, election.epoch, election.leader_id) == (State.UNATTACHED, 9, NO_LEADER)


def test_who_follows_a_leader_that_answers_refuses_pre_votes() -> None:
    assert follower().asked_for_vote(question(3, is_pre_vote=True), 0).is_granted
    assert not follower(has_fetched=True).asked_for_vote(question(3, is_pre_vote=True), 0).is_granted
    assert not follower().asked_for_vote(question(3, last_epoch=2, offset=99), 0).is_granted


def test_states_that_have_a_leader_or_want_to_be_one_refuse_votes() -> None:
    for election, now_ms in (candidate(), leader()):
        asked = question(election.epoch, offset=99)
        assert not election.asked_for_vote(asked, now_ms).is_granted
        is_granted = election.asked_for_vote(asked._replace(is_pre_vote=True), now_ms).is_granted
        assert is_granted == (election.state is State.CANDIDATE)


def test_who_grants_a_vote_waits_anew_and_who_refuses_does_not() -> None:
    election = started(QuorumState(3))
    before_ms = election.deadline_of_state_ms
    election.asked_for_vote(question(5, offset=1), 900)
    assert election.deadline_of_state_ms == before_ms
    election.asked_for_vote(question(5), 900)
    assert election.deadline_of_state_ms > before_ms


# -- leaders


def test_a_leader_that_hears_of_no_majority_resigns() -> None:
    election, now_ms = leader(5)
    for time_ms in range(now_ms, now_ms + 6000, 500):
        election.heard(TWO, time_ms)
        election.heard(THREE, time_ms)
        election.tick(time_ms)
    assert election.state is State.LEADER
    last_ms = now_ms + 5500
    for time_ms in range(last_ms, last_ms + 3500, 500):
        election.heard(TWO, time_ms)  # two of five are no majority
        election.tick(time_ms)
        assert election.state is (State.LEADER if time_ms < last_ms + 3000 else State.RESIGNED)


def test_observers_do_not_count_for_the_quorum() -> None:
    election, now_ms = leader()
    election.heard(NOBODY, now_ms + 2999)
    election.tick(now_ms + 3000)
    assert election.state is State.RESIGNED


def test_voters_that_do_not_fetch_are_told_again_who_leads() -> None:
    election, now_ms = leader()
    for message in election.take_messages():
        election.answered(message, now_ms, 0, 4, 1)
    election.heard(TWO, now_ms + 500)
    election.tick(now_ms + 1000)
    assert [(one.kind, one.to) for one in election.take_messages()] == [(Kind.BEGIN_EPOCH, THREE)]


def test_a_leader_of_a_higher_epoch_is_followed() -> None:
    election, now_ms = leader()
    assert election.learn(5, 3, now_ms)
    assert (election.state, election.epoch, election.leader_id, election.voted) == (State.FOLLOWER, 5, 3, None)


def test_what_is_older_is_no_news() -> None:
    election, now_ms = leader()
    assert not election.learn(3, 3, now_ms)
    assert not election.learn(-1, NO_LEADER, now_ms)
    assert election.state is State.LEADER


def test_two_leaders_of_an_epoch_break_the_log_but_no_request_does() -> None:
    election = follower()
    with pytest.raises(BrokenLog, match="both lead"):
        election.learn(3, 3, 0)
    assert election.epoch_begun(3, 3, None, 0) == ErrorCode.INVALID_REQUEST
    assert election.epoch_ended(3, 3, [], 0) == ErrorCode.INVALID_REQUEST


def test_a_leader_that_resigns_tells_the_others_whom_it_prefers_and_leaves_its_epoch() -> None:
    election, now_ms = leader()
    election.resign(now_ms, (THREE, TWO))
    messages = election.take_messages()
    assert {(one.kind, one.to, one.preferred) for one in messages} == {
        (Kind.END_EPOCH, TWO, (THREE, TWO)),
        (Kind.END_EPOCH, THREE, (THREE, TWO)),
    }
    assert not election.has_told_all
    for message in messages:
        election.answered(message, now_ms, 0, 4, 1)
    assert election.has_told_all
    election.tick(election.deadline_ms)
    assert (election.state, election.epoch) == (State.UNATTACHED, 5)


def test_who_stops_stays_resigned() -> None:
    election, now_ms = leader()
    election.is_stopping = True
    election.resign(now_ms, ())
    election.tick(now_ms + LATER_MS)
    assert (election.state, election.epoch) == (State.RESIGNED, 4)


# -- followers


def test_a_follower_that_hears_nothing_asks_for_votes_a_little_after_the_timeout() -> None:
    election = follower()
    assert TIMEOUTS.fetch_ms <= election.deadline_ms < TIMEOUTS.fetch_ms * 9 // 8
    election.fetched(3, 1500)
    assert election.deadline_ms >= 1500 + TIMEOUTS.fetch_ms
    election.fetched(2, 1900)  # an answer of an older epoch
    assert election.deadline_ms < 1900 + TIMEOUTS.fetch_ms
    election.tick(election.deadline_ms)
    assert (election.state, election.leader_id) == (State.PROSPECTIVE, 2)


@pytest.mark.parametrize(
    ("preferred", "delay_ms"),
    [([ONE, THREE], 0), ([THREE, ONE], 500), ([THREE], 1000), ([], 1000), ([TWO, THREE, FOUR, ONE], 500)],
)
def test_the_preferred_successor_goes_first(preferred: list[ReplicaKey], delay_ms: int) -> None:
    election = follower(has_fetched=True)
    assert election.epoch_ended(3, 2, preferred, 100) == ErrorCode.NONE
    assert election.deadline_of_state_ms == 100 + delay_ms
    assert election.asked_for_vote(question(3, is_pre_vote=True)._replace(candidate=THREE), 100).is_granted


def test_a_prospective_goes_back_to_a_leader_that_speaks_itself() -> None:
    election = follower()
    election.tick(election.deadline_ms)
    assert not election.learn(3, 2, LATER_MS), "others who have not noticed do not count"
    assert election.state is State.PROSPECTIVE
    assert election.epoch_begun(3, 2, ONE, LATER_MS) == ErrorCode.NONE
    assert election.state is State.FOLLOWER


def test_messages_of_leaders_are_checked() -> None:
    election = follower()
    assert election.epoch_begun(2, 2, ONE, 0) == ErrorCode.FENCED_LEADER_EPOCH
    assert election.epoch_begun(3, -1, ONE, 0) == ErrorCode.INVALID_REQUEST
    assert election.epoch_begun(4, 3, ReplicaKey(1, b"\x07" * 16), 0) == ErrorCode.NONE
    assert (election.epoch, election.leader_id) == (4, 3)
    assert election.epoch_begun(4, 3, TWO, 0) == ErrorCode.INVALID_VOTER_KEY


# -- the table


def test_every_move_of_the_table_can_be_made_and_no_other() -> None:
    for state in State:
        for event in Event:
            if (state, event) in MOVES:
                assert next_state(state, event) is MOVES[state, event]
            else:
                with pytest.raises(RuntimeError):
                    next_state(state, event)


def test_no_state_leads_to_leading_but_that_of_a_candidate() -> None:
    assert [move for move, after in MOVES.items() if after is State.LEADER] == [(State.CANDIDATE, Event.MAJORITY)]
