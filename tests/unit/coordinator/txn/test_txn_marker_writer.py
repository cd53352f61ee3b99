"""Markers are written until they are everywhere; what goes wrong on the way is told, and nothing outlives the close."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from txn_samples import ID, P0, P1, S, in_state

from semel.coordinator.txn.markers import MarkerWriter
from semel.coordinator.txn.transactions import TopicPartition
from semel.log.errors import Refused
from semel.records.control import ControlType
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode

PREPARED = in_state(S.PREPARE_COMMIT, partitions=frozenset({P0, P1}))


class Leaders:
    """Take markers; before that, a partition refuses as often as it is told to."""

    def __init__(self, **refusals: list[ErrorCode]) -> None:
        self.refusals = {("out", int(name[1:])): codes for name, codes in refusals.items()}
        self.taken: list[tuple[TopicPartition, ControlType]] = []
        self.topics = {P0: b"out", P1: b"out"}
        """What the committed metadata say: topic ids by partition."""
        self.tries = 0
        self.elsewhere: set[TopicPartition] = set()
        self.is_slow = False
        self.flushes: list[asyncio.Future[None]] = []

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        return self.topics.get(partition)

    def is_elsewhere(self, partition: TopicPartition) -> bool:
        return partition in self.elsewhere

    def write_marker(
        self, partition: TopicPartition, kind: ControlType, producer_id: int, epoch: int, coordinator: int, bumps: bool
    ) -> asyncio.Future[None] | None:
        self.tries += 1
        waiting = self.refusals.get(partition, [])
        if waiting:
            raise Refused(waiting.pop(0), "not now")
        self.taken.append((partition, kind))
        if not self.is_slow:
            return None
        self.flushes.append(asyncio.get_running_loop().create_future())
        return self.flushes[-1]


class Endings:
    """Told which transactions are over; before that, the disk refuses as often as it is told to."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.over: list[str] = []

    def __call__(self, transactional_id: str) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.over.append(transactional_id)


def writer_to(leaders: Leaders, endings: Endings, is_coordinator: Callable[[], bool] = lambda: True) -> MarkerWriter:
    def done(transactional_id: str, epoch: int) -> bool:
        if not is_coordinator():
            return False
        endings(transactional_id)
        return True

    return MarkerWriter(leaders, done, lambda transactional_id, epoch: is_coordinator())


def at_once() -> None:
    """The decision is committed."""


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def runs(**arguments: Any) -> None:
        run(test(**arguments), loop=SimLoop(end_s=60))

    return runs


@in_virtual_time
async def test_a_partition_that_refuses_is_tried_again_and_only_that_one() -> None:
    leaders, endings = Leaders(p1=[ErrorCode.KAFKA_STORAGE_ERROR]), Endings()
    writer = writer_to(leaders, endings)
    writer.start(PREPARED, 3, at_once)
    await asyncio.sleep(1)
    assert leaders.taken == [(P0, ControlType.COMMIT), (P1, ControlType.COMMIT)]
    assert endings.over == [ID]


NEVER_SETTLED = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
]


@pytest.mark.parametrize("code", NEVER_SETTLED)
@in_virtual_time
async def test_no_refusal_makes_a_partition_leave_the_transaction(code: ErrorCode) -> None:
    """Its records would stay invisible for ever, and their commit be told as done."""
    leaders, endings = Leaders(p1=[code] * 20), Endings()
    writer_to(leaders, endings).start(PREPARED, 3, at_once)
    await asyncio.sleep(10)
    assert not endings.over
    await asyncio.sleep(40)
    assert endings.over == [ID]
    assert leaders.taken == [(P0, ControlType.COMMIT), (P1, ControlType.COMMIT)]


@in_virtual_time
async def test_a_partition_that_the_committed_metadata_lack_needs_no_marker() -> None:
    leaders, endings = Leaders(), Endings()
    del leaders.topics[P1]
    writer_to(leaders, endings).start(PREPARED, 3, at_once)
    assert endings.over == [ID]
    assert leaders.taken == [(P0, ControlType.COMMIT)]


@pytest.mark.parametrize("made_anew", [None, b"another topic of this name"])
@in_virtual_time
async def test_a_partition_leaves_when_its_topic_is_deleted_while_it_refuses(made_anew: bytes | None) -> None:
    """A topic that is made anew under its name meanwhile is another one: nothing of the transaction is in there."""
    leaders, endings = Leaders(p1=[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100), Endings()
    writer_to(leaders, endings).start(PREPARED, 3, at_once)
    await asyncio.sleep(5)
    assert not endings.over
    if made_anew is None:
        del leaders.topics[P1]
    else:
        leaders.topics[P1] = made_anew
    await asyncio.sleep(2)
    assert endings.over == [ID]
    assert leaders.taken == [(P0, ControlType.COMMIT)]


@in_virtual_time
async def test_a_coordinator_that_was_replaced_leaves_the_end_to_the_next_one() -> None:
    leaders, endings = Leaders(p1=[ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 100), Endings()
    is_coordinator = True
    writer = writer_to(leaders, endings, lambda: is_coordinator)
    writer.start(PREPARED, 3, at_once)
    await asyncio.sleep(5)
    is_coordinator = False
    await asyncio.sleep(2)
    tries = leaders.tries
    await asyncio.sleep(10)
    assert leaders.tries == tries
    assert not endings.over
    assert not writer._tasks


@in_virtual_time
async def test_a_coordinator_that_was_replaced_does_not_note_the_end_either() -> None:
    leaders, endings = Leaders(), Endings()
    writer_to(leaders, endings, lambda: False).start(PREPARED, 3, at_once)
    await asyncio.sleep(1)
    assert not endings.over


@in_virtual_time
async def test_what_is_loaded_anew_replaces_what_began_before() -> None:
    leaders, endings = Leaders(p0=[ErrorCode.KAFKA_STORAGE_ERROR]), Endings()
    writer = writer_to(leaders, endings)
    writer.start(PREPARED, 3, at_once)
    writer.carry_on(PREPARED, 4, at_once)
    await asyncio.sleep(1)
    assert endings.over == [ID], "once"
    assert not writer._tasks


@in_virtual_time
async def test_a_reason_is_told_once_however_often_a_partition_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    leaders = Leaders(p1=[ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 20)
    with caplog.at_level(logging.WARNING, "semel.coordinator"):
        writer_to(leaders, Endings()).start(PREPARED, 3, at_once)
        await asyncio.sleep(40)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"out-1 refuses the marker that ends the transaction of {ID!r} (PrepareCommit)"
    )


@in_virtual_time
async def test_an_end_that_cannot_be_noted_is_noted_later() -> None:
    leaders, endings = Leaders(), Endings(Refused(ErrorCode.NOT_COORDINATOR, "the disk is full"))
    writer_to(leaders, endings).start(PREPARED, 3, at_once)
    await asyncio.sleep(1)
    assert endings.over == [ID]
    assert len(leaders.taken) == 2, "the markers are there already"


@in_virtual_time
async def test_no_marker_is_written_before_the_decision_is_durable() -> None:
    leaders, endings = Leaders(), Endings()
    decided = asyncio.get_running_loop().create_future()
    writer_to(leaders, endings).start(in_state(S.PREPARE_ABORT), 3, lambda: decided)
    await asyncio.sleep(0.01)
    assert not leaders.taken
    decided.set_result(None)
    await asyncio.sleep(1)
    assert leaders.taken == [(P0, ControlType.ABORT)]


@in_virtual_time
async def test_a_mistake_of_ours_is_told_and_a_close_is_not_called_one(caplog: pytest.LogCaptureFixture) -> None:
    unhandled: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    leaders = Leaders()
    with caplog.at_level(logging.CRITICAL, "semel.coordinator"):
        broken = writer_to(leaders, Endings(ZeroDivisionError("a mistake")))
        broken.start(PREPARED, 3, at_once)
        await asyncio.sleep(1)
        assert caplog.records[0].exc_info is not None
        assert isinstance(caplog.records[0].exc_info[1], ZeroDivisionError)
        caplog.clear()
        leaders.is_slow = True
        closed = writer_to(leaders, Endings())
        closed.start(PREPARED, 3, at_once)
        await asyncio.sleep(0.01)
        await closed.close()
        await asyncio.sleep(0.01)
    assert not caplog.records
    assert not unhandled


@in_virtual_time
async def test_where_everything_is_durable_at_once_the_transaction_is_over_at_once() -> None:
    leaders, endings = Leaders(), Endings()
    writer = writer_to(leaders, endings)
    writer.start(PREPARED, 3, at_once)
    assert leaders.taken == [(P0, ControlType.COMMIT), (P1, ControlType.COMMIT)]
    assert endings.over == [ID]
    assert not writer._tasks


@in_virtual_time
async def test_what_was_left_over_at_a_restart_is_not_written_by_the_start_itself() -> None:
    leaders, endings = Leaders(), Endings()
    writer_to(leaders, endings).carry_on(PREPARED, 3, at_once)
    assert not leaders.taken
    await asyncio.sleep(0.01)
    assert len(leaders.taken) == 2
    assert endings.over == [ID]


@in_virtual_time
async def test_whoever_waits_for_the_decision_too_finds_the_markers_written() -> None:
    leaders = Leaders()
    decided, answer = (asyncio.get_running_loop().create_future() for _ in range(2))
    writer_to(leaders, Endings()).start(PREPARED, 3, lambda: decided)

    async def answered() -> int:
        await answer
        return len(leaders.taken)

    answering = asyncio.ensure_future(answered())
    await asyncio.sleep(0.01)
    decided.set_result(None)
    answer.set_result(None)
    assert await answering == 2


@in_virtual_time
async def test_markers_are_written_without_waiting_for_each_other_and_the_end_waits_for_all() -> None:
    leaders, endings = Leaders(), Endings()
    leaders.is_slow = True
    writer_to(leaders, endings).start(PREPARED, 3, at_once)
    assert len(leaders.taken) == 2
    for flush in reversed(leaders.flushes):
        assert not endings.over
        flush.set_result(None)
        await asyncio.sleep(0.01)
    assert endings.over == [ID]


@in_virtual_time
async def test_a_marker_that_is_lost_before_it_is_durable_is_written_again() -> None:
    leaders, endings = Leaders(), Endings()
    leaders.is_slow = True
    writer_to(leaders, endings).start(PREPARED, 3, at_once)
    leaders.is_slow = False
    leaders.flushes[0].set_exception(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is closed"))
    leaders.flushes[1].set_result(None)
    await asyncio.sleep(1)
    assert leaders.taken == [(p, ControlType.COMMIT) for p in (P0, P1, P0)]
    assert endings.over == [ID]


@in_virtual_time
async def test_a_close_returns_when_nothing_runs_any_more() -> None:
    leaders, endings = Leaders(), Endings()
    leaders.is_slow = True
    writer = writer_to(leaders, endings)
    writer.start(PREPARED, 3, at_once)
    await asyncio.sleep(0.01)
    await writer.close()
    for flush in leaders.flushes:
        flush.cancel()
    await asyncio.sleep(1)
    assert not endings.over


@in_virtual_time
async def test_what_has_ended_is_not_kept() -> None:
    leaders = Leaders()
    leaders.is_slow = True
    writer = writer_to(leaders, Endings())
    writer.start(PREPARED, 3, at_once)
    assert list(writer._tasks) == [ID]
    for flush in leaders.flushes:
        flush.set_result(None)
    await asyncio.sleep(1)
    assert not writer._tasks


@in_virtual_time
async def test_the_end_of_an_older_epoch_does_not_stop_what_a_newer_one_has_begun() -> None:
    leaders, endings = Leaders(p0=[ErrorCode.KAFKA_STORAGE_ERROR]), Endings()
    writer = writer_to(leaders, endings)
    writer.start(PREPARED, 3, at_once)
    writer.carry_on(PREPARED, 4, at_once)
    writer.stop(ID, 3)
    await asyncio.sleep(1)
    assert endings.over == [ID]
    leaders.refusals[P0] = [ErrorCode.KAFKA_STORAGE_ERROR] * 20
    writer.start(PREPARED, 4, at_once)
    writer.stop(ID, 4)
    await asyncio.sleep(0.01)
    assert not writer._tasks
    await asyncio.sleep(30)
    assert endings.over == [ID], "left to the next coordinator"


@in_virtual_time
async def test_a_decision_whose_commit_is_refused_is_waited_for_again_while_this_node_leads() -> None:
    leaders, endings, is_coordinator = Leaders(), Endings(), True
    commits = [asyncio.get_running_loop().create_future() for _ in range(2)]
    waiting = iter(commits)
    writer_to(leaders, endings, lambda: is_coordinator).start(PREPARED, 3, lambda: next(waiting))
    commits[0].set_exception(Refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few"))
    await asyncio.sleep(1)
    assert not leaders.taken
    commits[1].set_result(None)
    await asyncio.sleep(0.01)
    assert endings.over == [ID]


@in_virtual_time
async def test_an_end_is_answered_when_every_other_node_has_said_something() -> None:
    leaders, endings = Leaders(), Endings()
    leaders.is_slow, leaders.elsewhere = True, {P0, P1}
    writer = writer_to(leaders, endings)
    writer.start(PREPARED, 3, at_once)
    answer = writer.when_written(ID)
    assert answer is not None
    leaders.flushes[0].set_result(None)
    await asyncio.sleep(0.01)
    assert not answer.done()
    leaders.flushes[1].set_exception(Refused(ErrorCode.NOT_ENOUGH_REPLICAS, "not now"))
    await asyncio.sleep(0.01)
    assert answer.done()
    assert not endings.over
    leaders.is_slow = False
    await asyncio.sleep(1)
    assert endings.over == [ID]
    assert writer.when_written(ID) is None


@in_virtual_time
async def test_an_end_is_answered_after_a_second_whatever_the_other_nodes_do() -> None:
    leaders, endings = Leaders(), Endings()
    leaders.is_slow, leaders.elsewhere = True, {P0}
    writer = writer_to(leaders, endings)
    writer.start(PREPARED, 3, at_once)
    answer = writer.when_written(ID)
    assert answer is not None
    await asyncio.sleep(0.99)
    assert not answer.done()
    await asyncio.sleep(0.02)
    assert answer.done()
    assert not endings.over
    await writer.close()
    assert leaders.flushes[0].cancelled(), "what nobody waits for is not sent any more"
