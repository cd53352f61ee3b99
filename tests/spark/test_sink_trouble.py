"""The commit in trouble, against a real broker: killed at every step, overtaken at every step, too slow, unanswered."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sink_world import FakeCheckpoint, Row, SinkWorld, committed_rows, rows_of

from real_broker import Brokers, RealBroker, clean_environment
from semel.client.admin.values import NewTopic
from semel.client.errors import BadSetting, Disconnected
from semel.host.real import real_host
from semel.sim.attack.fault_policy import Blow, Fault, ScriptedFaults
from semel.sim.attack.fault_proxy import FaultProxy
from semel.spark.adoption import marker_of
from semel.spark.committer import Publication
from semel.spark.sink_errors import BatchTooSlow, OutcomeUnknown, Overtaken, SinkError
from semel.spark.steps import COMMIT_STEPS, VARIABLE, Step, parse
from semel.sync import Admin

PARTITIONS = 3
SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
PROTOCOL_STEPS = [step for step in COMMIT_STEPS if step is not Step.CLEANED]
ROWS = rows_of(1, 0) + rows_of(1, 1)
LEVELS = ("read_committed", "read_uncommitted")


@pytest.fixture(scope="module")
def module_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    yield made
    made.reap()


@pytest.fixture(scope="module")
def node(module_brokers: Brokers) -> RealBroker:
    return module_brokers.start(flush="os", settings=SETTINGS)


@pytest.fixture
def world(node: RealBroker, tmp_path: Path, unique: Callable[[str], str]) -> SinkWorld:
    """Batch 0 is committed, batch 1 is planned."""
    topic = unique("out")
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topics(NewTopic(topic, partitions=PARTITIONS, replication_factor=1))
    world = SinkWorld(node.address, FakeCheckpoint(tmp_path / "checkpoint"), topic)
    asyncio.run(world.run_batch(0, rows_of(0)))
    world.checkpoint.plan(1)
    return world


def stage(world: SinkWorld, **options: Any) -> list[Any]:
    return [world.stage(rows_of(1, task), 1, **options) for task in range(2)]


def judge(world: SinkWorld, batch: list[Row] = ROWS) -> None:
    """Batch 0 and batch 1 once each, and the marker says so."""
    assert sorted(world.committed()) == sorted(rows_of(0) + batch)
    _, marker = marker_of({"kafka.bootstrap.servers": world.address, "checkpointLocation": str(world.checkpoint.path)})
    assert marker is not None
    assert marker.number == 1


async def test_what_counts_as_published_is_in_the_log_and_seen_by_nobody_yet(world: SinkWorld) -> None:
    seen: list[int] = []

    async def reached(where: Step, batch_id: int) -> None:
        if where is Step.PUBLISHED:
            seen.extend(len(committed_rows(world.address, world.topic, level)) for level in LEVELS)

    await world.commit(1, stage(world), reached)
    assert seen == [len(rows_of(0)), len(rows_of(0)) + len(ROWS)]


# -- killed


@pytest.mark.parametrize("step", PROTOCOL_STEPS)
def test_a_commit_that_is_killed_at_any_step_is_made_once_by_the_next_run(world: SinkWorld, step: Step) -> None:
    folder = Path(__file__).parent
    command = [sys.executable, str(folder / "commit_program.py"), world.address, str(world.checkpoint.path)]
    command += [world.checkpoint.query_id, world.topic, "1"]

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(folder), str(folder.parent)])
        environment = clean_environment(PYTHONPATH=path, **variables)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    killed = run(**{VARIABLE: f"{step}@1:kill"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    second = run()
    assert second.stdout.strip() == str(step is not Step.ENDED), second.stderr
    judge(world)


# -- overtaken


@pytest.mark.parametrize("step", PROTOCOL_STEPS)
async def test_a_zombie_that_wakes_up_at_any_step_changes_nothing(world: SinkWorld, step: Step) -> None:
    asleep, wake_up = asyncio.Event(), asyncio.Event()

    async def reached(where: Step, batch_id: int) -> None:
        if where is step:
            asleep.set()
            await wake_up.wait()

    zombie = asyncio.create_task(world.commit(1, stage(world, run_id="zombie"), reached))
    await asleep.wait()
    is_new = await world.commit(1, stage(world))
    assert is_new is (step is not Step.ENDED)
    world.area.clean(1)
    wake_up.set()
    if step is Step.ENDED:
        assert await zombie
    elif step in (Step.CHECKED, Step.INITIALISED):
        assert await zombie is False  # it reads the marker after the other one has ended: the batch is done
    else:
        with pytest.raises((Overtaken, SinkError)):
            await zombie
    judge(world)


@pytest.mark.parametrize("step", [Step.MARKER_READ, Step.PUBLISHED])
async def test_a_commit_that_was_overtaken_says_so(world: SinkWorld, step: Step) -> None:
    async def reached(where: Step, batch_id: int) -> None:
        if where is step:
            await world.commit(1, stage(world))

    with pytest.raises(Overtaken, match="only one run may use a checkpoint"):
        await world.commit(1, stage(world, run_id="zombie"), reached)
    judge(world)


async def test_many_commits_at_once_publish_once(world: SinkWorld) -> None:
    commits = [world.commit(1, stage(world, run_id=f"run{number}")) for number in range(6)]
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert [outcome for outcome in outcomes if outcome is True] in ([True], [])
    for outcome in outcomes:
        assert isinstance(outcome, bool | Overtaken), outcome
    await world.commit(1, stage(world))
    judge(world)


# -- too slow


async def test_a_transaction_that_ran_out_of_time_tells_size_rate_and_remedy(world: SinkWorld) -> None:
    world.producer["transaction_timeout_ms"] = 600

    async def reached(where: Step, batch_id: int) -> None:
        if where is Step.PUBLISHED:
            await asyncio.sleep(1.5)

    with pytest.raises(BatchTooSlow, match=r"20 records of .* MB/s.*kafka\.transaction\.timeout\.ms"):
        await world.commit(1, stage(world), reached)
    assert sorted(world.committed()) == sorted(rows_of(0)), "nothing of it is seen"
    world.producer["transaction_timeout_ms"] = 60_000
    assert await world.commit(1, stage(world))
    judge(world)


async def test_a_batch_that_is_sent_too_slowly_is_given_up_on_the_way(world: SinkWorld) -> None:
    world.producer["transaction_timeout_ms"] = 400
    blocks = 0

    async def reached(where: Step, batch_id: int) -> None:
        nonlocal blocks
        if where is Step.HALF_PUBLISHED:
            blocks += 1
            await asyncio.sleep(0.5)

    staged = [world.stage(rows_of(1, task), 1) for task in range(5)]
    with pytest.raises(BatchTooSlow, match="maxOffsetsPerTrigger"):
        await world.commit(1, staged, reached)
    assert blocks == 1, "no more was sent once time was over"


# -- no answer


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        (api, fault)
        for api in ("InitProducerId", "Produce", "EndTxn", "ListOffsets", "Fetch", "FindCoordinator")
        for fault in (Fault.CUT_BEFORE, Fault.CUT_AFTER)
    ],
)
async def test_a_lost_question_or_answer_is_got_over(world: SinkWorld, api: str, fault: Fault) -> None:
    host = real_host()
    proxy = FaultProxy(host, ScriptedFaults({(api, 1): Blow(fault)}))
    name, _, port = world.address.rpartition(":")
    door = await proxy.open(name, int(port))
    try:
        staged = stage(world)
        world.connection["bootstrap_servers"] = world.producer["bootstrap_servers"] = door
        await world.commit(1, staged)
    finally:
        await proxy.close()
        host.close()
    judge(world)


async def test_an_end_that_is_never_answered_is_looked_up_by_the_marker(world: SinkWorld) -> None:
    """The answer to EndTxn is lost, and so is every repetition, until the client gives up."""
    host = real_host()
    script = {("EndTxn", number): Blow(Fault.CUT_AFTER) for number in range(1, 200)}
    proxy = FaultProxy(host, ScriptedFaults(script))
    name, _, port = world.address.rpartition(":")
    door = await proxy.open(name, int(port))
    world.producer |= {"max_block_ms": 500, "request_timeout_ms": 400, "delivery_timeout_ms": 500}
    try:
        staged = stage(world)
        world.connection["bootstrap_servers"] = world.producer["bootstrap_servers"] = door
        assert await world.commit(1, staged) is False, "the second attempt finds what the first has done"
    finally:
        await proxy.close()
        host.close()
    judge(world)


async def test_a_write_without_a_marker_says_when_its_end_is_not_known(
    world: SinkWorld, unique: Callable[[str], str]
) -> None:
    host = real_host()
    script = {("EndTxn", number): Blow(Fault.CUT_AFTER) for number in range(1, 400)}
    proxy = FaultProxy(host, ScriptedFaults(script))
    name, _, port = world.address.rpartition(":")
    door = await proxy.open(name, int(port))
    try:
        staged = stage(world)
        world.producer |= {
            "bootstrap_servers": door,
            "max_block_ms": 300,
            "request_timeout_ms": 200,
            "delivery_timeout_ms": 300,
            "transaction_timeout_ms": 1000,
        }
        with pytest.raises(OutcomeUnknown, match="txnAppId"):
            await world.committer().commit(Publication(staged, unique("batch"), None))
    finally:
        await proxy.close()
        host.close()


@pytest.mark.parametrize("step", PROTOCOL_STEPS)
async def test_a_broker_that_dies_at_any_step_is_waited_for(world: SinkWorld, node: RealBroker, step: Step) -> None:
    has_died = False

    async def reached(where: Step, batch_id: int) -> None:
        nonlocal has_died
        if where is step and not has_died:
            has_died = True
            node.kill()
            node.start()

    assert await world.commit(1, stage(world), reached)
    assert has_died
    judge(world)


async def test_a_broker_that_is_down_when_the_commit_begins_is_waited_for(world: SinkWorld, node: RealBroker) -> None:
    staged = stage(world)
    world.connection["bootstrap_timeout_ms"] = world.producer["bootstrap_timeout_ms"] = 200
    node.kill()
    commit = asyncio.create_task(world.commit(1, staged))
    await asyncio.sleep(1.0)
    node.start()
    assert await commit
    judge(world)


async def test_a_broker_that_stays_away_is_given_up(world: SinkWorld, node: RealBroker) -> None:
    staged = stage(world)
    world.connection["bootstrap_timeout_ms"] = world.producer["bootstrap_timeout_ms"] = 200
    node.kill()
    try:
        with pytest.raises(Disconnected, match="is it running"):
            await world.commit(1, staged, retry_for_s=1.0)
    finally:
        node.start()


async def test_more_time_than_the_brokers_allow_is_refused_with_a_remedy(world: SinkWorld) -> None:
    world.producer["transaction_timeout_ms"] = 2_000_000_000
    with pytest.raises(BadSetting, match=r"transaction\.max\.timeout\.ms"):
        await world.commit(1, stage(world))


# -- the hook


def test_steps_are_asked_for_by_name(tmp_path: Path) -> None:
    assert [(entry.step, entry.batch_id, entry.action) for entry in parse("ended@3:kill, staged:fail")] == [
        (Step.ENDED, 3, "kill"),
        (Step.STAGED, None, "fail"),
    ]
    assert parse("") == ()
    for text in ("nowhere:kill", "ended", "ended:explode", "ended:pause", "ended@x:kill", "ended:kill=now"):
        with pytest.raises(ValueError):
            parse(text)
