"""One epoch of leading the metadata log: what is committed when, who is told, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.config import BrokerConfig, topic_config
from semel.log.errors import Refused
from semel.log.group_commit import GroupCommit
from semel.log.recovery import load_log
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.term import NotLeading, Term, committed_by_majority
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.records.build import build_batch
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.errors import ErrorCode

DIRECTORY = "/data/__cluster_metadata-0"
ONE, TWO, THREE = (ReplicaKey(node_id, bytes([node_id]) * 16) for node_id in (1, 2, 3))


def batch(count: int = 1) -> bytearray:
    return build_batch([b"v"] * count, base_timestamp_ms=1_700_000_000_000)


def voters(*keys: ReplicaKey) -> VoterSet:
    return VoterSet(VoterNode(key) for key in keys)


def in_a_term(
    voting: VoterSet, scenario: Callable[[Term, ReplicatedLog], Coroutine[Any, Any, None]], *, is_alone: bool = False
) -> None:
    async def begin() -> None:
        disk = SimDisk(1)
        disk.make_dirs("/data")
        config = topic_config({"flush.messages": "1"}, BrokerConfig())
        clock = SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
        log, _ = load_log(
            disk, DIRECTORY, config, recovery_point=0, start_offset=0, now_ms=clock.wall_ms(), was_clean=False
        )
        replicated = ReplicatedLog(disk, log, clock)

        def broken(error: BaseException) -> None:
            raise error

        term = Term(ONE, 3, replicated, voting, GroupCommit(log, broken), disk, clock, is_alone=is_alone)
        await scenario(term, replicated)

    run(begin())


@pytest.mark.parametrize(
    ("ends", "committed"), [([5], 5), ([5, 3], 3), ([5, 3, 4], 4), ([9, 3, 4, 5], 4), ([9, 9, 1, 1, 5], 5)]
)
def test_a_majority_has_what_is_committed(ends: list[int], committed: int) -> None:
    assert committed_by_majority(ends) == committed


def test_an_only_voter_commits_what_it_has_flushed() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        assert term.append(batch()) == 0
        assert term.append(batch(2)) == 2
        committed = term.when_committed(2)
        assert committed is not None
        assert term.high_watermark == -1
        await committed
        assert term.high_watermark == 3 == log.log.flushed_offset
        assert term.when_committed(1) is None

    in_a_term(voters(ONE), scenario)


def test_nothing_is_committed_before_a_majority_has_the_first_record() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        term.append(batch(3))
        await asyncio.sleep(1)
        assert log.log.flushed_offset == 3
        term.fetched(TWO, 0)
        assert term.high_watermark == -1
        term.fetched(TWO, 1)
        assert term.high_watermark == 1
        term.fetched(THREE, 2)
        assert term.high_watermark == 2
        term.fetched(TWO, 3)
        assert term.high_watermark == 3

    in_a_term(voters(ONE, TWO, THREE), scenario)


def test_what_the_leader_has_not_flushed_counts_for_nothing() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        term.append(batch(3))
        term.fetched(TWO, 3)
        assert (log.log.flushed_offset, term.high_watermark) == (0, -1)
        term.fetched(THREE, 3)
        assert term.high_watermark == 3, "two of three have it, if not the leader itself"

    in_a_term(voters(ONE, TWO, THREE), scenario)


def test_a_leader_that_is_no_voter_does_not_count_nor_does_an_observer() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        term.append(batch(3))
        await asyncio.sleep(1)
        term.fetched(ReplicaKey(7, bytes(16)), 3)
        term.fetched(TWO, 3)
        assert term.high_watermark == -1
        term.fetched(THREE, 3)
        assert term.high_watermark == 3

    in_a_term(voters(TWO, THREE), scenario)


def test_a_node_with_another_disk_is_not_the_voter_of_its_name() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        term.append(batch(3))
        await asyncio.sleep(1)
        term.fetched(ReplicaKey(2, b"another directory"[:16]), 3)
        assert term.high_watermark == -1
        term.fetched(TWO, 3)
        assert term.high_watermark == 3

    in_a_term(voters(ONE, TWO, THREE), scenario)


def test_the_high_watermark_does_not_go_back_with_other_voters() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        term.append(batch(3))
        await asyncio.sleep(1)
        term.fetched(TWO, 3)
        term.voters = voters(ONE, TWO, THREE, ReplicaKey(4, b"4" * 16))
        term.advance()
        assert term.high_watermark == 3

    in_a_term(voters(ONE, TWO, THREE), scenario)


def test_a_node_alone_knows_what_is_committed_before_it_has_written() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        committed = term.when_committed(term.append(batch()))
        assert committed is not None
        await committed
        assert term.high_watermark == 1

    in_a_term(voters(ONE), scenario, is_alone=True)


def test_who_waits_is_told_that_the_term_is_over() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        woken: list[bool] = []
        term.watch(scenario, lambda: woken.append(term.is_over))
        committed = term.when_committed(term.append(batch()))
        assert committed is not None
        term.end()
        assert woken[-1]
        with pytest.raises(NotLeading):
            await committed
        with pytest.raises(NotLeading):
            term.append(batch())
        late = term.when_committed(0)
        assert late is not None
        with pytest.raises(NotLeading):
            await late
        await asyncio.sleep(1)
        assert log.committed_end == -1, "what is flushed later is not committed by this term"

    in_a_term(voters(ONE), scenario)


@pytest.mark.parametrize(("epoch", "code"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_follower_of_another_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        term.check_epoch(3)
        with pytest.raises(Refused) as refused:
            term.check_epoch(epoch)
        assert refused.value.code == code

    in_a_term(voters(ONE), scenario)


def test_a_term_that_is_over_is_led_by_another() -> None:
    async def scenario(term: Term, log: ReplicatedLog) -> None:
        term.end()
        with pytest.raises(Refused) as refused:
            term.check_epoch(3)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_a_term(voters(ONE), scenario)
