"""A replica with its disk: what is written down before anybody is told, and who is told of what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from semel.config import BrokerConfig, topic_config
from semel.log.group_commit import GroupCommit
from semel.log.recovery import load_log
from semel.peer.errors import Unreachable
from semel.quorum.election import Timeouts, VoteQuestion
from semel.quorum.leadership import Leadership
from semel.quorum.quorum_replica import QuorumReplica
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.snapshot_files import SnapshotId
from semel.quorum.state_file import QuorumState, read_state
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.schema import Request
from semel.wire.spec.vote import VoteRequest, VoteResponse, VoteResponsePartition, VoteResponseTopic

DIRECTORY = "/data/__cluster_metadata-0"
TWO = ReplicaKey(2)


class Nobody:
    """An owner that does nothing."""

    def __init__(self) -> None:
        self.terms: list[int] = []

    async def committed_further(self) -> None: ...

    async def loaded(self, snapshot: SnapshotId) -> None: ...

    def leads(self, term: Term) -> None:
        self.terms.append(term.epoch)

    def leads_no_more(self, term: Term) -> None: ...


class Voters:
    """The others: they grant whatever they are asked. `seen` is what was recorded at each request; that it outlives a
    loss of power is said by test_quorum_files."""

    def __init__(self, disk: SimDisk) -> None:
        self.seen: list[tuple[Request, QuorumState | None]] = []
        self._disk = disk

    async def call(self, node_id: int, request: Request, response: Any, **_: Any) -> Any:
        self.seen.append((request, read_state(self._disk, DIRECTORY)))
        if not isinstance(request, VoteRequest):
            raise Unreachable("they do not listen any more")
        asked = request.topics[0].partitions[0]
        epoch = asked.replica_epoch
        answer = VoteResponsePartition(leader_id=-1, leader_epoch=epoch, vote_granted=True)
        return VoteResponse(topics=[VoteResponseTopic(partitions=[answer])])


def with_replica(
    scenario: Callable[[QuorumReplica, SimDisk, Voters, Nobody], Coroutine[Any, Any, None]],
) -> None:
    async def begin() -> None:
        disk = SimDisk(1)
        disk.make_dirs("/data")
        disk.sync_parents_now("/data")
        clock = SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
        log, _ = load_log(
            disk,
            DIRECTORY,
            topic_config({"flush.messages": "1"}, BrokerConfig()),
            recovery_point=0,
            start_offset=0,
            now_ms=clock.wall_ms(),
            was_clean=False,
        )
        broken: list[BaseException] = []
        others, owner = Voters(disk), Nobody()
        replica = QuorumReplica(
            "cluster",
            ReplicaKey(1, b"\x01" * 16),
            VoterSet(VoterNode(ReplicaKey(number)) for number in (1, 2, 3)),
            ReplicatedLog(disk, log, clock),
            GroupCommit(log, broken.append),
            owner,
            Leadership((), (), 0, Random(1), 1),
            others,
            others,
            disk,
            clock,
            Random(1),
            broken.append,
            timeouts=Timeouts(),
            keeps=True,
        )
        replica.start()
        await scenario(replica, disk, others, owner)
        await replica.stop()
        assert not broken

    run(begin())


def test_a_candidate_has_its_epoch_and_its_vote_on_disk_before_it_asks() -> None:
    async def scenario(replica: QuorumReplica, disk: SimDisk, others: Voters, owner: Nobody) -> None:
        await asyncio.sleep(3.0)
        votes = [(request.topics[0].partitions[0], state) for request, state in others.seen if _is_vote(request)]
        assert votes
        for asked, state in votes:
            assert state is not None
            if not asked.pre_vote:
                assert (state.epoch, state.voted_id) == (asked.replica_epoch, 1)
        assert owner.terms == [1]
        assert read_state(disk, DIRECTORY) == QuorumState(1, 1, 1, (1, 2, 3))

    with_replica(scenario)


def _is_vote(request: Any) -> bool:
    return isinstance(request, VoteRequest)


def test_a_vote_is_on_disk_before_it_is_answered() -> None:
    async def scenario(replica: QuorumReplica, disk: SimDisk, others: Voters, owner: Nobody) -> None:
        assert replica.asked_for_vote(VoteQuestion(7, TWO, 0, 0)).is_granted
        state = read_state(disk, DIRECTORY)
        assert state is not None
        assert (state.epoch, state.voted_id) == (7, 2)

    with_replica(scenario)


def test_nobody_is_elected_while_the_log_is_cut() -> None:
    async def scenario(replica: QuorumReplica, disk: SimDisk, others: Voters, owner: Nobody) -> None:
        with replica.cutting():
            await asyncio.sleep(60.0)
            assert not owner.terms
        await asyncio.sleep(3.0)
        assert owner.terms

    with_replica(scenario)


def test_a_leader_that_hears_of_nobody_resigns() -> None:
    async def scenario(replica: QuorumReplica, disk: SimDisk, others: Voters, owner: Nobody) -> None:
        await asyncio.sleep(3.0)
        assert replica.term is not None
        term = replica.term
        await asyncio.sleep(3.5)
        assert term.is_over

    with_replica(scenario)
