"""Who leads the metadata log, decided by this replica for its part: the whole state machine, without any I/O.

It is told of messages and of the time, and changes at once. Whoever holds it then does, in this order:
1. writes `durable` to the disk, if it has changed: nothing of an epoch or a vote is said before it is kept;
2. follows `state` (begins to lead, ends it, fetches or not);
3. sends what `take_messages` gives;
4. calls `tick` at `deadline_ms`.

Rule 1: in one epoch a replica votes once, and leads only in an epoch that it has not led before.
Rule 2: an answer counts for the attempt that it was asked in: each has a number. What it says of epochs always counts.
Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from random import Random
from typing import NamedTuple, Protocol

from semel.log.errors import BrokenLog
from semel.log.types import Epoch, Offset
from semel.quorum.metadata_topic import NO_LEADER
from semel.quorum.state_file import NO_VOTE, QuorumState
from semel.quorum.states import Event, State, next_state
from semel.quorum.voters import ReplicaKey, VoterSet
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID

_FETCHES_UNTIL_RESIGNED = 1.5
"""A leader that has not heard of a majority for so many fetch timeouts resigns: another one may lead already."""
_ASKS_AGAIN = 5
"""How often a voter that has refused a pre-vote is asked again, at most, in the least time of an election."""
_JITTER = 8
"""A follower waits for its leader up to one part in so many longer than the timeout."""
_NEVER_MS = 1 << 60


class Timeouts(NamedTuple):
    """Kafka's settings `controller.quorum.*`, in milliseconds."""

    election_ms: int = 1000
    fetch_ms: int = 2000
    backoff_most_ms: int = 1000
    retry_ms: int = 20


class LogEnd(Protocol):
    """How far this replica has the log."""

    @property
    def end_offset(self) -> Offset: ...

    @property
    def end_epoch(self) -> Epoch:
        """Of the last record, 0 if there is none."""


class Kind(Enum):
    PRE_VOTE = auto()
    VOTE = auto()
    BEGIN_EPOCH = auto()
    END_EPOCH = auto()


class Message(NamedTuple):
    """To be sent to a voter; what becomes of it is told with `answered`, or `not_answered`. `attempt` is for us."""

    kind: Kind
    to: ReplicaKey
    attempt: int
    epoch: Epoch
    last_offset: Offset = 0
    last_epoch: Epoch = 0
    preferred: tuple[ReplicaKey, ...] = ()


class VoteQuestion(NamedTuple):
    """A request for a vote, or a pre-vote. `asked` is whom it was meant for, None if it does not say."""

    epoch: Epoch
    candidate: ReplicaKey
    last_offset: Offset
    last_epoch: Epoch
    is_pre_vote: bool = False
    asked: ReplicaKey | None = None


class VoteAnswer(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    is_granted: bool = False


class Election:
    def __init__(
        self,
        key: ReplicaKey,
        voters: VoterSet,
        log: LogEnd,
        timeouts: Timeouts,
        random: Random,
        recorded: QuorumState | None = None,
        now_ms: int = 0,
    ) -> None:
        """As after a start: what was `recorded`, and what the log says of epochs."""
        self.key = key
        self.voters = voters
        self.state = State.UNATTACHED
        self.epoch: Epoch = 0
        self.leader_id = NO_LEADER
        self.voted: ReplicaKey | None = None
        """Whom it has voted for in this epoch."""
        self.granting: set[int] = set()
        """Voters that have granted what this attempt asks for."""
        self.deadline_of_state_ms = _NEVER_MS
        self.is_stopping = False
        self._log = log
        self._timeouts = timeouts
        self._random = random
        self._attempt = 0
        self._patience_ms = timeouts.fetch_ms
        self._refusing: set[int] = set()
        self._has_fetched = False  # from this leader: it is alive
        self._due: dict[
            int, int
        ] = {}  # when each voter is to be sent the message of this attempt; _NEVER_MS: under way
        self._heard: dict[int, int] = {}  # when each voter has fetched from this leader
        self._preferred: tuple[ReplicaKey, ...] = ()
        self._messages: list[Message] = []
        self._begin(recorded or QuorumState(), now_ms)

    def _begin(self, recorded: QuorumState, now_ms: int) -> None:
        self._wait_for_election(now_ms)
        if recorded.epoch < self._log.end_epoch:
            self.epoch = self._log.end_epoch
        else:
            self.epoch = recorded.epoch
            if recorded.voted_id != NO_VOTE:
                self.voted = ReplicaKey(recorded.voted_id, recorded.voted_directory_id)
            if recorded.leader_id == self.key.node_id:
                # What it has written in that epoch may be gone: another record would stand there under the same epoch.
                self.leader_id, self.state = recorded.leader_id, State.RESIGNED
                self._tell_all(now_ms)
            elif recorded.leader_id != NO_LEADER:
                self._follow(recorded.leader_id, now_ms)
            elif self.is_voter and self.voted is not None and self.voted.may_be(self.key):
                self.state = State.CANDIDATE
                self._ask_all(now_ms)
        if self.voters.is_only(self.key):
            self.state = State.UNATTACHED  # it need not wait for anybody, and will begin the next epoch
            self._move(Event.TIMER)
            self._ask_for_pre_votes(now_ms)
        self._send_due(now_ms)

    # -- what others see

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters

    @property
    def durable(self) -> QuorumState:
        """What has to be on disk before anybody is told of anything."""
        voted = self.voted
        return QuorumState(
            self.epoch,
            self.leader_id,
            NO_VOTE if voted is None else voted.node_id,
            self.voters.ids,
            NO_UUID if voted is None else voted.directory_id,
        )

    @property
    def may_fetch(self) -> bool:
        """Whether it follows somebody, or looks for whom to follow."""
        return self.state in (State.FOLLOWER, State.UNATTACHED)

    @property
    def deadline_ms(self) -> int:
        """When `tick` has something to do."""
        due = min(self._due.values(), default=_NEVER_MS)
        return min(self.deadline_of_state_ms, due, self._quorum_deadline_ms())

    def take_messages(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    # -- time

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._quorum_deadline_ms():
            self.resign(now_ms, ())
        if now_ms >= self.deadline_of_state_ms:
            self._time_is_over(now_ms)
        self._send_due(now_ms)

    def _time_is_over(self, now_ms: int) -> None:
        if self.state is State.PROSPECTIVE:
            self._give_up(now_ms)
        elif self.state is State.RESIGNED:
            self._end_epoch_for_good(now_ms)
        elif self.is_voter and (self.state is not State.LEADER):
            self._move(Event.TIMER)
            self._ask_for_pre_votes(now_ms)
        else:
            self.deadline_of_state_ms = _NEVER_MS

    def _end_epoch_for_good(self, now_ms: int) -> None:
        if self.is_stopping:
            self.deadline_of_state_ms = _NEVER_MS
            return
        self._move(Event.TIMER)
        self.epoch, self.leader_id, self.voted = self.epoch + 1, NO_LEADER, None
        self._wait_for_election(now_ms)

    def _wait_for_election(self, now_ms: int) -> None:
        least = self._timeouts.election_ms
        self.deadline_of_state_ms = (
            now_ms + least + self._random.randrange(max(least, 1)) if self.is_voter else _NEVER_MS
        )

    def _quorum_deadline_ms(self) -> int:
        """When a leader resigns unless it hears more."""
        if self.state is not State.LEADER:
            return _NEVER_MS
        others = sorted(
            (self._heard.get(voter.node_id, 0) for voter in self.voters if voter.node_id != self.key.node_id),
            reverse=True,
        )
        needed = self.voters.majority - (1 if self.is_voter else 0)
        if not needed:
            return _NEVER_MS
        return others[needed - 1] + round(self._timeouts.fetch_ms * _FETCHES_UNTIL_RESIGNED)

    # -- moves

    def _move(self, event: Event) -> None:
        self.state = next_state(self.state, event)
        self._attempt += 1
        self._due.clear()
        self._messages.clear()
        self.granting.clear()
        self._refusing.clear()

    def _higher_epoch(self, epoch: Epoch, now_ms: int) -> None:
        # Who waited for an election goes on waiting: or candidates could keep each other from ever being elected.
        keeps_waiting = self.state in (State.UNATTACHED, State.CANDIDATE, State.RESIGNED) or (
            self.state is State.PROSPECTIVE and not self._is_lost
        )
        self._move(Event.HIGHER_EPOCH)
        self.epoch, self.leader_id, self.voted = epoch, NO_LEADER, None
        if not keeps_waiting:
            self._wait_for_election(now_ms)

    def _follow(self, leader_id: int, now_ms: int) -> None:
        self._move(Event.LEADER_KNOWN)
        self.leader_id = leader_id
        self._has_fetched = False
        # Followers are answered at the same moment: they are not to miss the leader at the same moment as well.
        fetch_ms = self._timeouts.fetch_ms
        self._patience_ms = fetch_ms + self._random.randrange(max(fetch_ms // _JITTER, 1))
        self._wait_for_leader(now_ms)

    def _wait_for_leader(self, now_ms: int) -> None:
        self.deadline_of_state_ms = now_ms + self._patience_ms if self.is_voter else _NEVER_MS

    def _ask_for_pre_votes(self, now_ms: int) -> None:
        self._wait_for_election(now_ms)
        self._ask_all(now_ms)

    def _ask_all(self, now_ms: int) -> None:
        self._attempt += 1
        self.granting = {self.key.node_id}
        self._refusing = set()
        self._tell_all(now_ms)
        self._count(now_ms)

    def _tell_all(self, now_ms: int) -> None:
        self._due = {voter.node_id: now_ms for voter in self.voters if voter.node_id != self.key.node_id}

    @property
    def _is_lost(self) -> bool:
        return len(self._refusing) > len(self.voters) - self.voters.majority

    def _count(self, now_ms: int) -> None:
        if len(self.granting) < self.voters.majority:
            if self._is_lost and self.state is State.PROSPECTIVE:
                self._give_up(now_ms)
            return  # a candidate that has lost waits for the rest of its time (KAFKA-18345)
        if self.state is State.PROSPECTIVE:
            self._become_candidate(now_ms)
        elif self.state is State.CANDIDATE:
            granting = set(self.granting)
            self._move(Event.MAJORITY)
            self.granting = granting
            self.leader_id = self.key.node_id
            self.deadline_of_state_ms = _NEVER_MS
            self._heard = {voter.node_id: now_ms for voter in self.voters}
            self._tell_all(now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        self._move(Event.MAJORITY)
        self.epoch, self.leader_id, self.voted = self.epoch + 1, NO_LEADER, self.key
        self._wait_for_election(now_ms)
        self._ask_all(now_ms)

    def _give_up(self, now_ms: int) -> None:
        """A leader that is known is followed again, else it waits for another election."""
        if self.leader_id != NO_LEADER:
            self._follow(self.leader_id, now_ms)
        else:
            self._move(Event.GIVES_UP)
        self._wait_for_election(now_ms)  # and no longer, unless the leader answers

    def resign(self, now_ms: int, preferred: Iterable[ReplicaKey]) -> None:
        """It leads no more; the others are told, those that it prefers as its successors first."""
        if self.state is not State.LEADER:
            return
        self._move(Event.RESIGNS)
        self._preferred = tuple(preferred)
        self._wait_for_election(now_ms)
        self._tell_all(now_ms)
        self._send_due(now_ms)

    @property
    def has_told_all(self) -> bool:
        """Whether all voters know that it has resigned, or another one leads."""
        return self.state is not State.RESIGNED or not self._due

    # -- messages that it sends

    def _send_due(self, now_ms: int) -> None:
        kinds = {
            State.PROSPECTIVE: Kind.PRE_VOTE,
            State.CANDIDATE: Kind.VOTE,
            State.LEADER: Kind.BEGIN_EPOCH,
            State.RESIGNED: Kind.END_EPOCH,
        }
        for node_id, due_ms in self._due.items():
            voter = self.voters.get(node_id)
            if due_ms > now_ms or voter is None:
                continue
            self._due[node_id] = _NEVER_MS
            preferred = self._preferred if self.state is State.RESIGNED else ()
            message = Message(kinds[self.state], voter.key, self._attempt, self.epoch, preferred=preferred)
            if self.state in (State.PROSPECTIVE, State.CANDIDATE):
                message = message._replace(
                    last_offset=self._log.end_offset, last_epoch=self._log.end_epoch, preferred=()
                )
            self._messages.append(message)

    def answered(
        self, message: Message, now_ms: int, code: int, epoch: Epoch, leader_id: int, *, is_granted: bool = False
    ) -> None:
        if self.learn(epoch, leader_id, now_ms) or message.attempt != self._attempt:
            self._send_due(now_ms)
            return
        node_id = message.to.node_id
        if code != ErrorCode.NONE or epoch < self.epoch:
            self._due[node_id] = now_ms + max(self._timeouts.retry_ms, 1) * 10
        elif message.kind is Kind.BEGIN_EPOCH:
            self._due[node_id] = now_ms + self._begin_again_ms
        elif message.kind is Kind.PRE_VOTE and not is_granted:
            # Who still hears of the leader, or believes so, may not do so a moment later: it is asked again.
            self._due[node_id] = now_ms + max(self._timeouts.election_ms // _ASKS_AGAIN, 1)
            self._refusing.add(node_id)
            self._count(now_ms)
        else:
            self._due.pop(node_id, None)
            if message.kind in (Kind.PRE_VOTE, Kind.VOTE):
                (self.granting if is_granted else self._refusing).add(node_id)
                self._refusing -= self.granting
                self._count(now_ms)
        self._send_due(now_ms)

    @property
    def _begin_again_ms(self) -> int:
        return max(self._timeouts.fetch_ms // 2, 1)

    def not_answered(self, message: Message, now_ms: int) -> None:
        """It did not come through, or not in time: it is sent again."""
        if message.attempt == self._attempt:
            self._due[message.to.node_id] = now_ms + max(self._timeouts.retry_ms, 1)

    def not_supported(self, message: Message, now_ms: int) -> None:
        """The voter knows no pre-votes: then there is no asking beforehand."""
        if message.attempt == self._attempt and message.kind is Kind.PRE_VOTE:
            self._become_candidate(now_ms)
            self._send_due(now_ms)
        else:
            self.not_answered(message, now_ms)

    # -- what others say

    def learn(self, epoch: Epoch, leader_id: int, now_ms: int) -> bool:
        """Of an epoch, and who leads in it: whether that is news. Raises BrokenLog when two lead in one epoch."""
        if epoch < self.epoch or epoch < 0:
            return False
        is_other = leader_id not in (NO_LEADER, self.key.node_id)
        if epoch > self.epoch:
            self._higher_epoch(epoch, now_ms)
            if is_other:
                self._follow(leader_id, now_ms)
            return True
        if not is_other:
            return False
        if self.leader_id not in (NO_LEADER, leader_id):
            raise BrokenLog(
                f"nodes {self.leader_id} and {leader_id} both lead the metadata log in epoch {epoch}: this cluster is "
                "broken"
            )
        if self.leader_id == leader_id:
            return False  # who has lost sight of a leader is not told by others that it is still there
        self._follow(leader_id, now_ms)
        return True

    def fetched(self, epoch: Epoch, now_ms: int) -> None:
        """The leader has answered a fetch of this replica in this epoch."""
        if self.state is State.FOLLOWER and epoch == self.epoch:
            self._has_fetched = True
            self._wait_for_leader(now_ms)

    def heard(self, voter: ReplicaKey, now_ms: int) -> None:
        """A replica has fetched from this one, which leads."""
        if self.state is State.LEADER and voter in self.voters:
            self._heard[voter.node_id] = now_ms
            if self._due.get(voter.node_id, _NEVER_MS) != _NEVER_MS:
                self._due[voter.node_id] = now_ms + self._begin_again_ms  # who fetches need not be told who leads

    # -- requests of other voters

    def asked_for_vote(self, question: VoteQuestion, now_ms: int) -> VoteAnswer:
        last_epoch_most = question.epoch if question.is_pre_vote else question.epoch - 1
        if (
            question.last_offset < 0
            or not 0 <= question.last_epoch <= last_epoch_most
            or question.candidate.node_id < 0
        ):
            return VoteAnswer(ErrorCode.INVALID_REQUEST)
        if question.epoch < self.epoch:
            return VoteAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        if question.epoch > self.epoch:
            self._higher_epoch(question.epoch, now_ms)
        if question.asked is not None and not question.asked.may_be(self.key):
            return VoteAnswer(ErrorCode.INVALID_VOTER_KEY)
        is_granted = self._would_grant(question)
        if is_granted and not question.is_pre_vote and self.voted is None:
            self._move(Event.VOTES)
            self.voted = question.candidate
            self._wait_for_election(now_ms)
        return VoteAnswer(is_granted=is_granted)

    def _would_grant(self, question: VoteQuestion) -> bool:
        is_up_to_date = (question.last_epoch, question.last_offset) >= (self._log.end_epoch, self._log.end_offset)
        if question.is_pre_vote:
            hears_of_leader = self.state is State.FOLLOWER and self._has_fetched
            return is_up_to_date and not hears_of_leader and self.state is not State.LEADER
        if self.state not in (State.UNATTACHED, State.PROSPECTIVE):
            return False
        if self.voted is not None:
            return self.voted.may_be(question.candidate)
        return is_up_to_date and self.leader_id == NO_LEADER

    def epoch_begun(self, epoch: Epoch, leader_id: int, asked: ReplicaKey | None, now_ms: int) -> ErrorCode:
        """BeginQuorumEpoch."""
        code = self._check_leader(epoch, leader_id, now_ms)
        if code == ErrorCode.NONE and asked is not None and not asked.may_be(self.key):
            return ErrorCode.INVALID_VOTER_KEY
        return code

    def epoch_ended(self, epoch: Epoch, leader_id: int, preferred: list[ReplicaKey], now_ms: int) -> ErrorCode:
        """EndQuorumEpoch: who comes first among the preferred begins an election at once, the others a little later."""
        code = self._check_leader(epoch, leader_id, now_ms)
        if code == ErrorCode.NONE and self.state is State.FOLLOWER and self.is_voter:
            self._has_fetched = False  # its leader itself says that there may be another
            self.deadline_of_state_ms = now_ms + self._succession_ms(preferred)
        return code

    def _succession_ms(self, preferred: list[ReplicaKey]) -> int:
        most = self._timeouts.backoff_most_ms
        position = next((at for at, one in enumerate(preferred) if one.may_be(self.key)), None)
        if position is None:
            return most
        if position == 0:
            return 0
        return min(most, (most >> (len(preferred) - 1)) << (position - 1))

    def _check_leader(self, epoch: Epoch, leader_id: int, now_ms: int) -> ErrorCode:
        if leader_id < 0:
            return ErrorCode.INVALID_REQUEST
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch == self.epoch and self.leader_id not in (NO_LEADER, leader_id):
            return ErrorCode.INVALID_REQUEST  # no request ends a node
        self.learn(epoch, leader_id, now_ms)
        if self.state is State.PROSPECTIVE and self.leader_id == leader_id:
            self._follow(leader_id, now_ms)  # it says so itself
        return ErrorCode.NONE
