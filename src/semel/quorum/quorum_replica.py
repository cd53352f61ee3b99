"""This node's replica of the metadata log: follows its leader, or leads it, as `Election` decides.

After everything that the state machine was told, `_settle` does what follows from it: the state is written down first
(Rule 1), then a term begins or ends, then messages leave. The log has one writer at a time: the term while this
replica leads, else the observer; while that cuts the log or loads a snapshot no timer of the election fires, so that
nobody is elected who has half a log (Rule 2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from struct import Struct

from semel.host.api import Clock, Disk
from semel.host.complaints import Complaints
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.types import Epoch
from semel.peer.backoff import Backoff
from semel.peer.caller import PeerCaller
from semel.peer.calls import HostPort
from semel.peer.errors import PeerError, Unsupported
from semel.quorum.election import Election, Message, Timeouts, VoteAnswer, VoteQuestion
from semel.quorum.election_messages import Answer, ask
from semel.quorum.leadership import Leadership
from semel.quorum.metadata_topic import NO_LEADER
from semel.quorum.observer import Observer
from semel.quorum.owner import Owner
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.state_file import QuorumState, read_state, write_state_now
from semel.quorum.states import State
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey, VoterSet
from semel.records.build import build_batch
from semel.wire.codec import encode
from semel.wire.errors import ErrorCode
from semel.wire.spec.quorum_records import LEADER_CHANGE, LeaderChangeMessage, QuorumVoter

logger = logging.getLogger("semel.quorum")

_CONTROL_KEY = Struct(">hh")
_RETRY_FIRST_MS, _RETRY_MOST_MS = 20, 1000
_RESIGNING_S = 1.0
"""How long a leader that stops tells the others of it."""


class QuorumReplica:
    """`start` when the owner has read its snapshot. `on_broken` gets what makes the log unusable, or WrongCluster.

    `keeps` is whether this replica may be counted, now or later: then what it fetches is on its disk before it fetches
    on. Whether it votes is for the voters to say."""

    def __init__(
        self,
        cluster_id: str,
        key: ReplicaKey,
        voters: VoterSet,
        log: ReplicatedLog,
        group_commit: GroupCommit,
        owner: Owner,
        leadership: Leadership,
        calls: PeerCaller,
        calls_aside: PeerCaller,
        disk: Disk,
        clock: Clock,
        random: Random,
        on_broken: Callable[[BaseException], None],
        *,
        timeouts: Timeouts,
        keeps: bool,
        endpoints: Callable[[], Mapping[str, HostPort]] = dict,
    ) -> None:
        """`calls` are for fetches, which wait at the leader; `calls_aside` for all else."""
        self.term: Term | None = None
        self.leadership = leadership
        self.following: asyncio.Task[None] | None = None
        """Ends by itself only with what makes it impossible to follow."""
        self._cluster_id = cluster_id
        self._key = key
        self._voters = voters
        self._log = log
        self._group_commit = group_commit
        self._owner = owner
        self._calls = calls_aside
        self._disk = disk
        self._clock = clock
        self._random = random
        self._on_broken = on_broken
        self._timeouts = timeouts
        self._keeps = keeps
        self._endpoints = endpoints
        self._election: Election | None = None
        self._written: QuorumState | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cuts = 0
        self._is_stopping = False
        self._may_fetch = asyncio.Event()
        self._more = asyncio.Event()
        self._changed = asyncio.Event()
        self._flushed: list[asyncio.Future[None]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._feeding: asyncio.Task[None] | None = None
        self._complaints = Complaints(logger)
        self.observer = Observer(
            disk, cluster_id, key, log, leadership, calls, owner, self, Backoff(random, _RETRY_FIRST_MS, _RETRY_MOST_MS)
        )
        group_commit.told = self._log_flushed

    # -- life

    def start(self) -> None:
        """One voter alone is elected when this returns."""
        recorded = read_state(self._disk, self._log.log.directory)
        self._written = recorded
        self._election = Election(
            self._key, self._voters, self._log, self._timeouts, self._random, recorded, self._now_ms()
        )
        loop = asyncio.get_running_loop()
        self._feeding = loop.create_task(self._feed())
        self._feeding.add_done_callback(self._ended)
        self._settle()
        self.following = loop.create_task(self.observer.run())
        self.following.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)

    async def resign(self) -> None:
        """Before a stop: who leads gives that up, and tells the others, so that they need not find out."""
        election = self._election
        self._is_stopping = True
        if election is None or election.state is not State.LEADER:
            return
        election.is_stopping = True
        term = self.term
        assert term is not None
        ends = term.ends_of_voters()
        others = [voter for voter in sorted(ends, key=lambda one: -ends[one]) if not voter.may_be(self._key)]
        election.resign(self._now_ms(), others)
        self._settle()
        try:
            async with asyncio.timeout(_RESIGNING_S):
                while not election.has_told_all:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            logger.info("not all voters have heard that this node leads the metadata log no more")

    async def stop(self) -> None:
        await self.resign()
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self.following, self._feeding, *self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._end_term()
        self._group_commit.stop()
        await self._group_commit.when_over()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    # -- what follows from what the state machine was told

    def _settle(self) -> None:
        election = self._election
        if election is None:
            return
        try:
            self._write_state(election)
            self._follow_state(election)
        except Exception as error:
            self._on_broken(error)
            return
        for message in election.take_messages():
            sending = asyncio.get_running_loop().create_task(self._send(message))
            self._sending.add(sending)
            sending.add_done_callback(self._sent)
        self._set_timer(election)
        self._changed.set()

    def _write_state(self, election: Election) -> None:
        durable, directory = election.durable, self._log.log.directory
        if durable == self._written:
            return
        is_new = not self._disk.exists(directory)
        if is_new and not election.is_voter:
            return  # it has promised nothing, and followed nobody
        if is_new:
            self._disk.make_dirs(directory)
        write_state_now(self._disk, directory, durable)
        if is_new:
            self._disk.sync_parents_now(directory)
        self._written = durable

    def _follow_state(self, election: Election) -> None:
        term = self.term
        if term is not None and (election.state is not State.LEADER or term.epoch != election.epoch):
            self._end_term()
        # Where this node is, it knows best: the settings may have been written before its port was chosen.
        address = next(iter(self._endpoints().values()), None)
        ours = {} if address is None else {self._key.node_id: address}
        self.leadership.learn(election.epoch, election.leader_id, ours)
        if election.state is State.LEADER and self.term is None:
            self._lead(election)
        if election.may_fetch:
            self._may_fetch.set()
        else:
            self._may_fetch.clear()

    def _set_timer(self, election: Election) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._cuts:
            delay_s = max(election.deadline_ms - self._now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(min(delay_s, 3600.0), self._tick)

    def _tick(self) -> None:
        if self._election is not None:
            self._election.tick(self._now_ms())
            self._settle()

    # -- leading

    def _lead(self, election: Election) -> None:
        logger.info("this node leads the metadata log from now on, epoch %d", election.epoch)
        term = Term(self._key, election.epoch, self._log, election.voters, self._group_commit, self._disk, self._clock)
        self._group_commit.told = self._log_flushed
        self.term = term
        term.committed = self._more.set
        term.resign = self._resign_soon
        term.heard = self._heard
        self._owner.leads(term)
        try:
            term.append(self._leader_change(election))
        except Refused as refusal:  # no room, say: others may have it
            logger.error("this node cannot lead the metadata log: %s", refusal.text)
            self._resign_soon()

    def _leader_change(self, election: Election) -> bytearray:
        change = LeaderChangeMessage(
            version=0,
            leader_id=self._key.node_id,
            voters=[QuorumVoter(voter_id=node_id) for node_id in election.voters.ids],
            granting_voters=[QuorumVoter(voter_id=node_id) for node_id in sorted(election.granting)],
        )
        return build_batch(
            [encode(change, 0)],
            keys=[_CONTROL_KEY.pack(0, LEADER_CHANGE)],
            base_timestamp_ms=self._clock.wall_ms(),
            control=True,
        )

    def _resign_soon(self) -> None:
        """In a turn of its own: whoever asks may be in the middle of the term."""
        term = self.term

        def resign() -> None:
            if self.term is term and self._election is not None:
                self._election.resign(self._now_ms(), ())
                self._settle()

        asyncio.get_running_loop().call_soon(resign)

    def _end_term(self) -> None:
        term, self.term = self.term, None
        if term is not None:
            logger.info("this node leads the metadata log no more, its epoch %d is over", term.epoch)
            term.end()
            self._owner.leads_no_more(term)

    def _heard(self, replica: ReplicaKey) -> None:
        if self._election is not None:
            self._election.heard(replica, self._now_ms())

    def _log_flushed(self) -> None:
        if self.term is not None:
            self.term.advance()
        if self._flushed and self._log.log.flushed_offset >= self._log.end_offset:
            waiting, self._flushed = self._flushed, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def _feed(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            async with self.observer.reading:
                await self._owner.committed_further()

    # -- messages to other voters

    async def _send(self, message: Message) -> None:
        election = self._election
        assert election is not None
        answer: Answer | None = None
        is_unsupported = False
        try:
            answer = await ask(self._calls, self._cluster_id, self._key, message, self._endpoints())
        except Unsupported:
            is_unsupported = True
        except PeerError as error:
            self._complaints.say(message.to, logging.DEBUG, "voter %d: %s", message.to.node_id, error)
        now_ms = self._now_ms()
        if answer is not None:
            if answer.leader_id in answer.endpoints:
                self.leadership.moved(answer.leader_id, answer.endpoints[answer.leader_id])
            if answer.code not in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
                text = "voter %d answers %s to %s"
                self._complaints.say(answer.code, logging.WARNING, text, message.to.node_id, answer.code, message.kind)
            election.answered(
                message, now_ms, answer.code, answer.epoch, answer.leader_id, is_granted=answer.is_granted
            )
        elif is_unsupported:
            election.not_supported(message, now_ms)
        else:
            election.not_answered(message, now_ms)
        self._settle()

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sending.discard(sending)
        self._ended(sending)

    # -- requests of other voters; raises Refused before it has started

    @property
    def _running(self) -> Election:
        if self._election is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller has not read its log yet")
        return self._election

    def asked_for_vote(self, question: VoteQuestion) -> VoteAnswer:
        answer = self._running.asked_for_vote(question, self._now_ms())
        self._settle()
        return answer

    def epoch_begun(
        self, epoch: Epoch, leader_id: int, asked: ReplicaKey | None, endpoint: HostPort | None
    ) -> ErrorCode:
        election = self._running
        code = election.epoch_begun(epoch, leader_id, asked, self._now_ms())
        if endpoint is not None and election.leader_id == leader_id:
            self.leadership.moved(leader_id, endpoint)
        self._settle()
        return code

    def epoch_ended(self, epoch: Epoch, leader_id: int, preferred: list[ReplicaKey]) -> ErrorCode:
        code = self._running.epoch_ended(epoch, leader_id, preferred, self._now_ms())
        self._settle()
        return code

    # -- for those who follow

    def leading(self, epoch: Epoch) -> Term:
        """The term, for a follower that knows of it; else Refused."""
        if self._is_stopping:
            raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, "this controller is stopping")
        own = self._running.epoch
        if epoch < own:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} is over, it is {own} now")
        if epoch > own:
            raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {epoch} is not known here yet")
        if self.term is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead")
        return self.term

    @property
    def epoch(self) -> Epoch:
        return self.told_leader()[1]

    def told_leader(self) -> tuple[int, Epoch]:
        election = self._election
        return (NO_LEADER, 0) if election is None else (election.leader_id, election.epoch)

    def leader_endpoint(self, listener: str) -> tuple[int, HostPort] | None:
        """Where the leader is reached by a listener of this name."""
        leader_id = self.told_leader()[0]
        if leader_id == self._key.node_id:
            address = self._endpoints().get(listener)
        else:
            address = self.leadership.addresses.get(leader_id)
        return None if address is None else (leader_id, address)

    # -- for the observer of this replica

    async def may_fetch(self) -> None:
        """Waits while this replica leads, or wants to."""
        await self._may_fetch.wait()

    def learn(self, epoch: Epoch, leader_id: int, endpoints: Mapping[int, HostPort]) -> bool:
        if leader_id in endpoints:
            self.leadership.moved(leader_id, endpoints[leader_id])
        is_news = self._running.learn(epoch, leader_id, self._now_ms())
        self._settle()
        return is_news

    def fetched(self, epoch: Epoch) -> None:
        self._running.fetched(epoch, self._now_ms())
        self._settle()

    async def flushed(self) -> None:
        """Returns when all that was fetched is on disk, if that has to be."""
        log = self._log.log
        while self._keeps and log.flushed_offset < log.end_offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushed.append(future)
            self._group_commit.flush_if_due()
            await future

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """The log is changed in steps: nobody is elected meanwhile."""
        self._cuts += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            yield
        finally:
            self._cuts -= 1
            self._settle()
