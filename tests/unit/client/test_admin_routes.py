"""How often the admin asks the controller, how long, and what is told when some of it fails; and the admin's life."""

from __future__ import annotations

import asyncio

import pytest
from admin_fakes import FakeCluster, faked

from semel.client.admin.admin import Admin
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import NewTopic
from semel.client.errors import (
    BadSetting,
    BrokerRefused,
    Closed,
    Disconnected,
    IllegalState,
    RetriableError,
    SemelError,
    TimedOut,
    TopicExists,
    UnknownTopic,
    UnsupportedByBroker,
)
from semel.wire.errors import ErrorCode
from semel.wire.schema import Response
from semel.wire.spec.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from semel.wire.spec.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def created(node_id: int, request: CreateTopicsRequest, code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


# -- the controller


@faked(1, 2, 3)
async def test_changes_go_to_the_controller(cluster: FakeCluster) -> None:
    cluster.controller_id = 3
    cluster.answers[CreateTopicsRequest] = created
    async with cluster.admin() as admin:
        await admin.create_topics(NewTopic("t", 1, 1), wait=False)
    assert cluster.nodes_asked(CreateTopicsRequest) == [3]


@faked(1, 2)
async def test_a_controller_that_is_no_broker_is_reached_through_any_broker(cluster: FakeCluster) -> None:
    cluster.controller_id = 100
    cluster.answers[CreateTopicsRequest] = created
    async with cluster.admin() as admin:
        await admin.create_topics(NewTopic("t", 1, 1), wait=False)
    assert cluster.nodes_asked(CreateTopicsRequest)[0] in (1, 2)


@faked(1, 2)
async def test_a_controller_that_has_moved_is_found_after_a_refresh(cluster: FakeCluster) -> None:
    def moved(node_id: int, request: CreateTopicsRequest) -> Response:
        if node_id == 2:
            return created(node_id, request)
        cluster.controller_id = 2
        return created(node_id, request, ErrorCode.NOT_CONTROLLER)

    cluster.answers[CreateTopicsRequest] = moved
    async with cluster.admin() as admin:
        await admin.create_topics(NewTopic("t", 1, 1), wait=False)
    assert cluster.nodes_asked(CreateTopicsRequest) == [1, 2]


@faked(1)
async def test_only_items_that_may_succeed_later_are_asked_for_again(cluster: FakeCluster) -> None:
    codes = {"good": ErrorCode.NONE, "bad": ErrorCode.INVALID_CONFIG, "late": ErrorCode.NOT_CONTROLLER}

    def answer(node_id: int, request: CreateTopicsRequest) -> Response:
        results = [CreatableTopicResult(name=one.name, error_code=codes[one.name]) for one in request.topics]
        codes["late"] = ErrorCode.NONE
        return CreateTopicsResponse(topics=results)

    cluster.answers[CreateTopicsRequest] = answer
    async with cluster.admin() as admin:
        with pytest.raises(AdminErrors) as failed:
            await admin.create_topics([NewTopic(name, 1, 1) for name in codes], wait=False)
    asked = [[topic.name for topic in request.topics] for request in cluster.requests(CreateTopicsRequest)]
    assert asked == [["good", "bad", "late"], ["late"]]
    assert set(failed.value.results) == {"good", "late"}
    assert set(failed.value.errors) == {"bad"}


# -- what is raised


@faked(1)
async def test_one_item_raises_its_own_error(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda node_id, request: created(
        node_id, request, ErrorCode.TOPIC_ALREADY_EXISTS
    )
    async with cluster.admin() as admin:
        with pytest.raises(TopicExists, match="'t'") as failed:
            await admin.create_topics([NewTopic("t", 1, 1)])
    assert failed.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


@faked(1)
async def test_several_items_raise_a_group_that_names_each_and_fits_except_star(cluster: FakeCluster) -> None:
    cluster.topics = {"there": [1]}
    taken: list[str] = []
    async with cluster.admin() as admin:
        try:
            await admin.describe_topics(["there", "missing", "lost"])
        except* UnknownTopic as group:
            taken = [str(error) for error in group.exceptions]
        with pytest.raises(SemelError) as failed:
            await admin.describe_topics(["there", "missing", "lost"])
    assert len(taken) == 2
    error = failed.value
    assert isinstance(error, AdminErrors)
    assert str(error).startswith("2 of 3 failed: ")
    assert "'missing'" in str(error)
    assert "'lost'" in str(error)
    assert set(error.errors) == {"missing", "lost"}
    assert list(error.results) == ["there"]


@faked(1)
async def test_a_reason_that_holds_for_all_items_is_told_once(cluster: FakeCluster) -> None:
    cluster.hidden = {19}
    async with cluster.admin() as admin:
        with pytest.raises(UnsupportedByBroker, match="CreateTopics"):
            await admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])


@faked(1, 2)
async def test_a_call_that_no_node_serves_is_unsupported_and_not_a_group(cluster: FakeCluster) -> None:
    cluster.hidden = {66}
    async with cluster.admin() as admin:
        with pytest.raises(UnsupportedByBroker, match="ListTransactions"):
            await admin.list_transactions()


@faked(1)
async def test_an_item_that_the_answer_leaves_out_has_failed(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda node_id, request: CreateTopicsResponse()
    async with cluster.admin() as admin:
        with pytest.raises(BrokerRefused, match="does not mention it"):
            await admin.create_topics(NewTopic("t", 1, 1))
    assert len(cluster.requests(CreateTopicsRequest)) == 1


@faked(1)
async def test_an_item_that_was_never_asked_for_is_ignored(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda node_id, request: CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name) for name in ("t", "t", "other")]
    )
    async with cluster.admin() as admin:
        assert list(await admin.create_topics(NewTopic("t", 1, 1), wait=False)) == ["t"]


@faked(1)
async def test_advice_for_producers_is_not_given_to_administrators(cluster: FakeCluster) -> None:
    cluster.coordinators = {"id": 1}
    cluster.answers[DescribeTransactionsRequest] = lambda node_id, request: DescribeTransactionsResponse(
        transaction_states=[DescribedTransaction(transactional_id="id", error_code=ErrorCode.PRODUCER_FENCED)]
    )
    async with cluster.admin() as admin:
        with pytest.raises(BrokerRefused, match="PRODUCER_FENCED") as failed:
            await admin.describe_transactions("id")
    assert "close this producer" not in str(failed.value)
    assert failed.value.code == ErrorCode.PRODUCER_FENCED


# -- time


@faked(1)
async def test_a_call_is_tried_again_until_its_time_is_over_and_tells_why(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda node_id, request: created(node_id, request, ErrorCode.NOT_CONTROLLER)
    loop = asyncio.get_running_loop()
    async with cluster.admin(default_api_timeout_ms=5000) as admin:
        before_s = loop.time()
        with pytest.raises(TimedOut, match="NOT_CONTROLLER") as failed:
            await admin.create_topics(NewTopic("t", 1, 1))
        assert 3 < loop.time() - before_s <= 5
    assert isinstance(failed.value.__cause__, RetriableError)
    attempts = len(cluster.requests(CreateTopicsRequest))
    assert 5 <= attempts <= 20, "with pauses that grow to a second"


@faked(1)
async def test_a_node_that_falls_silent_holds_a_call_no_longer_than_its_time(cluster: FakeCluster) -> None:
    async with cluster.admin(default_api_timeout_ms=4000) as admin:
        cluster.world.wires.part(["client"], ["node1"])
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        with pytest.raises(TimedOut):
            await admin.list_topics()
        assert loop.time() - before_s == pytest.approx(4, abs=0.1)
        cluster.world.wires.heal()


@faked(1, 2)
async def test_a_call_that_is_cancelled_leaves_nothing_behind(cluster: FakeCluster) -> None:
    async with cluster.admin() as admin:
        cluster.world.wires.part(["client"], ["node1", "node2"])
        tasks_before = asyncio.all_tasks()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await admin.list_groups()
        # Connections that are being made belong to the cluster, not to the call.
        left = {task for task in asyncio.all_tasks() - tasks_before if "_make" not in repr(task.get_coro())}
        assert not left
        cluster.world.wires.heal()


# -- life


@faked(1)
async def test_an_admin_must_be_started_and_cannot_be_used_after_close(cluster: FakeCluster) -> None:
    admin = cluster.admin()
    with pytest.raises(IllegalState, match="not started"):
        await admin.list_topics()
    await admin.start()
    with pytest.raises(IllegalState, match="already"):
        await admin.start()
    await admin.close()
    await admin.stop()
    for call in (admin.list_topics, admin.start):
        with pytest.raises(Closed):
            await call()


@faked(1)
async def test_calls_that_wait_when_the_admin_is_closed_end(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [-1]}
    admin = cluster.admin()
    await admin.start()
    call = asyncio.ensure_future(admin.list_offsets("t"))
    await asyncio.sleep(1)
    await admin.close()
    with pytest.raises(Closed):
        await call


@faked(1)
async def test_a_cluster_that_is_not_there_is_told_with_its_address(cluster: FakeCluster) -> None:
    admin = Admin(host=cluster.world.host("client"), bootstrap_servers="nowhere:1", bootstrap_timeout_ms=2000)
    with pytest.raises(Disconnected, match="nowhere:1"):
        await admin.start()
    with pytest.raises(Closed):
        await admin.list_topics()


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(BadSetting, match="default_api_timeout_ms"):
        Admin(default_api_timeout=1)
