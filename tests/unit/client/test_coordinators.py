"""Who coordinates a group or a transactional id: asked once, asked again when it has moved, and questions repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scripted_broker import Asked, ScriptedCluster, scripted, silent
from semel.client.cluster import Cluster
from semel.client.coordinators import CoordinatorKind, Coordinators
from semel.client.errors import Disconnected, NotAuthorised, TimedOut, UnsupportedByBroker
from semel.wire.errors import ErrorCode
from semel.wire.spec.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION = CoordinatorKind.TRANSACTION


@asynccontextmanager
async def coordinators(cluster: ScriptedCluster) -> AsyncIterator[Coordinators]:
    client = Cluster(cluster.host(), cluster.settings())
    try:
        await client.start()
        yield Coordinators(client)
    finally:
        await client.close()


async def ask(found: Coordinators, timeout_s: float = 20, **options: Any) -> InitProducerIdResponse:
    return await found.call(
        TRANSACTION,
        "id",
        InitProducerIdRequest(transactional_id="id"),
        InitProducerIdResponse,
        code_of=lambda answer: answer.error_code,
        timeout_s=timeout_s,
        **options,
    )


def answering(*codes: int) -> Any:
    """A rule: these codes one after the other, and then none."""
    left = list(codes)

    def rule(asked: Asked) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=left.pop(0) if left else 0, producer_id=5)

    return rule


@scripted(nodes=2)
async def test_a_coordinator_is_looked_for_once(cluster: ScriptedCluster) -> None:
    cluster.coordinator_id = 2
    async with coordinators(cluster) as found:
        assert [await found.find(TRANSACTION, "id") for _ in range(3)] == [2, 2, 2]
        (asked,) = cluster.all(FindCoordinatorRequest)
        assert (list(asked.body.coordinator_keys), asked.body.key_type) == (["id"], 1)
        await found.find(CoordinatorKind.GROUP, "id")
        assert cluster.all(FindCoordinatorRequest)[-1].body.key_type == 0
        found.forget(TRANSACTION, "id")
        await found.find(TRANSACTION, "id")
        assert len(cluster.all(FindCoordinatorRequest)) == 3


@scripted()
async def test_brokers_that_are_asked_for_one_at_a_time_are_understood(cluster: ScriptedCluster) -> None:
    cluster.limits[10] = (0, 3)
    async with coordinators(cluster) as found:
        assert await found.find(TRANSACTION, "id") == 1
        (asked,) = cluster.all(FindCoordinatorRequest)
        assert (asked.version, asked.body.key) == (3, "id")


@scripted()
async def test_a_coordinator_that_is_not_known_as_a_node_is_looked_for_among_the_nodes(
    cluster: ScriptedCluster,
) -> None:
    async with coordinators(cluster) as found:
        await cluster.add_node(2)
        cluster.coordinator_id = 2
        assert (await ask(found)).producer_id > 0
        assert cluster.all(InitProducerIdRequest)[-1].broker.node_id == 2


@scripted(nodes=2)
async def test_a_node_that_is_gone_is_no_coordinator_any_more(cluster: ScriptedCluster) -> None:
    cluster.coordinator_id = 2
    async with coordinators(cluster) as found:
        await ask(found)
        cluster.node(2).stop()
        del cluster.brokers[2]
        cluster.coordinator_id = 1
        assert (await ask(found)).producer_id > 0
        assert cluster.all(InitProducerIdRequest)[-1].broker.node_id == 1


@scripted(nodes=2)
async def test_a_node_that_has_left_the_cluster_is_not_named_any_more(cluster: ScriptedCluster) -> None:
    cluster.coordinator_id = 2
    async with coordinators(cluster) as found:
        assert await found.find(TRANSACTION, "id") == 2
        cluster.node(2).stop()
        del cluster.brokers[2]
        cluster.coordinator_id = 1
        await found._cluster.refresh()
        assert await found.find(TRANSACTION, "id") == 1


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@scripted()
async def test_a_coordinator_that_has_moved_is_looked_for_again(cluster: ScriptedCluster, code: int) -> None:
    cluster.rules[InitProducerIdRequest] = answering(code)
    async with coordinators(cluster) as found:
        assert (await ask(found)).producer_id == 5
        assert len(cluster.all(FindCoordinatorRequest)) == 2


@scripted()
async def test_one_that_only_needs_time_is_asked_again_and_not_looked_for(cluster: ScriptedCluster) -> None:
    cluster.rules[InitProducerIdRequest] = answering(*[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 4)
    async with coordinators(cluster) as found:
        assert (await ask(found)).producer_id == 5
        assert len(cluster.all(FindCoordinatorRequest)) == 1
        times_s = [asked.at_s for asked in cluster.all(InitProducerIdRequest)]
        assert times_s[-1] - times_s[-2] > 2 * (times_s[1] - times_s[0]), "after longer and longer pauses"


@scripted()
async def test_an_answer_that_stays_is_returned_as_it_is(cluster: ScriptedCluster) -> None:
    cluster.rules[InitProducerIdRequest] = answering(ErrorCode.PRODUCER_FENCED)
    async with coordinators(cluster) as found:
        assert (await ask(found)).error_code == ErrorCode.PRODUCER_FENCED
        cluster.rules[InitProducerIdRequest] = answering(ErrorCode.CONCURRENT_TRANSACTIONS)
        answer = await ask(found, retry=lambda code: False)
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS


@scripted()
async def test_a_lost_connection_is_got_over(cluster: ScriptedCluster) -> None:
    cluster.hold(InitProducerIdRequest)
    async with coordinators(cluster) as found:
        asking = asyncio.create_task(ask(found))
        (await cluster.next(InitProducerIdRequest)).cut()
        cluster.release(InitProducerIdRequest)
        assert (await asking).producer_id > 0


@scripted()
async def test_time_is_over_with_the_last_reason(cluster: ScriptedCluster) -> None:
    cluster.rules[InitProducerIdRequest] = answering(*[ErrorCode.CONCURRENT_TRANSACTIONS] * 1000)
    async with coordinators(cluster) as found:
        with pytest.raises(TimedOut, match=r"the coordinator of 'id' did not answer in time.*CONCURRENT_TRANSACTIONS"):
            await ask(found, timeout_s=3)
        assert cluster.loop.time() <= 3
        cluster.rules[InitProducerIdRequest] = silent
        began_s = cluster.loop.time()
        with pytest.raises(TimedOut, match="no answer"):
            await ask(found, timeout_s=3)
        assert cluster.loop.time() - began_s == pytest.approx(3)


@scripted()
async def test_what_is_hopeless_is_told_at_once(cluster: ScriptedCluster) -> None:
    async with coordinators(cluster) as found:
        with pytest.raises(UnsupportedByBroker):
            await ask(found, at_least=99)
        found.forget(TRANSACTION, "id")
        cluster.rules[FindCoordinatorRequest] = lambda asked: FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key="id",
                    error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    error_message="no rights to it",
                )
            ]
        )
        with pytest.raises(NotAuthorised, match=r"looking for the coordinator of 'id'.*no rights to it"):
            await ask(found)
        assert cluster.loop.time() < 1


@scripted()
async def test_a_coordinator_that_nobody_knows_yet_is_waited_for(cluster: ScriptedCluster) -> None:
    cluster.coordinator_id = 7
    async with coordinators(cluster) as found:
        asking = asyncio.create_task(ask(found))
        await asyncio.sleep(2)
        assert not asking.done()
        await cluster.add_node(7)
        assert (await asking).producer_id > 0


@scripted()
async def test_finding_alone_is_tried_once(cluster: ScriptedCluster) -> None:
    async with coordinators(cluster) as found:
        cluster.node(1).stop()
        await cluster.settle()
        with pytest.raises(Disconnected):
            await found.find(TRANSACTION, "id")
