"""Questions to coordinators on other nodes: one under way to each, one entry for each transactional id."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from wire_to_brokers import Call, Wire, turns

from semel.broker.remote_joins import Codes, RemoteJoins
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.peer.errors import TimedOut, Unreachable, Unsupported
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

A, B = 2, 3
P0, P1 = ("t", 0), ("t", 1)
ME = Identity(7, 1)

Test = Callable[[RemoteJoins, Wire], Coroutine[Any, Any, None]]


def with_wire(test: Test) -> Callable[[], None]:
    @functools.wraps(test)
    def runs() -> None:
        async def scenario() -> None:
            wire = Wire()
            joins = RemoteJoins(wire)
            await test(joins, wire)
            await joins.close()

        run(scenario(), loop=SimLoop(end_s=60))

    del runs.__wrapped__  # type: ignore[attr-defined]
    return runs


def ask(
    joins: RemoteJoins,
    *places: tuple[str, int],
    node: int = A,
    name: str = "id",
    claimed: Identity = ME,
    verify_only: bool = True,
) -> asyncio.Task[Codes]:
    return asyncio.ensure_future(joins.ask(node, name, claimed, places, verify_only=verify_only))


def answer(call: Call, code: int = 0, without: str = "") -> None:
    """The same code for everything that was asked."""
    call.answer.set_result(
        AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                                for index in topic.partitions
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in call.request.transactions
                if one.transactional_id != without
            ]
        )
    )


def names(call: Call) -> list[str]:
    return [one.transactional_id for one in call.request.transactions]


async def refusal(task: asyncio.Task[Codes]) -> ErrorCode:
    with pytest.raises(Refused) as error:
        await task
    return error.value.code


@with_wire
async def test_one_request_is_under_way_and_what_comes_meanwhile_goes_into_the_next(
    joins: RemoteJoins, wire: Wire
) -> None:
    first = ask(joins, P0)
    await turns()
    later = [ask(joins, P0, name=f"id{number}") for number in range(3)]
    elsewhere = ask(joins, P0, node=B)
    await turns()
    assert names(wire.only(A)) == ["id"]
    assert names(wire.only(B)) == ["id"], "another node does not wait for this one"
    answer(wire.only(B))
    assert await elsewhere == {P0: 0}
    answer(wire.only(A))
    assert await first == {P0: 0}
    await turns()
    assert names(wire.only(A)) == ["id0", "id1", "id2"]
    answer(wire.only(A), ErrorCode.TRANSACTION_ABORTABLE)
    assert [await one for one in later] == [{P0: ErrorCode.TRANSACTION_ABORTABLE}] * 3
    assert wire.versions == (4, 5)


@with_wire
async def test_what_one_producer_asks_meanwhile_is_asked_once(joins: RemoteJoins, wire: Wire) -> None:
    first = ask(joins, P0, name="other")
    await turns()
    one, two = ask(joins, P0), ask(joins, P0, P1)
    await turns()
    answer(wire.only(A))
    await turns()
    (wanted,) = wire.only(A).request.transactions
    assert [(topic.name, list(topic.partitions)) for topic in wanted.topics] == [("t", [0, 1])]
    answer(wire.only(A))
    assert await one == {P0: 0}
    assert await two == {P0: 0, P1: 0}
    await first


@with_wire
async def test_a_newer_epoch_fences_what_still_waits_of_an_older_one(joins: RemoteJoins, wire: Wire) -> None:
    under_way = ask(joins, P0, claimed=Identity(7, 1))
    await turns()
    waiting = ask(joins, P0, claimed=Identity(7, 1))
    await turns()
    newer = ask(joins, P0, claimed=Identity(7, 2))
    assert await refusal(waiting) == ErrorCode.INVALID_PRODUCER_EPOCH
    late = ask(joins, P0, claimed=Identity(7, 1))
    assert await refusal(late) == ErrorCode.INVALID_PRODUCER_EPOCH
    answer(wire.only(A))
    await under_way
    await turns()
    assert [one.producer_epoch for one in wire.only(A).request.transactions] == [2]
    answer(wire.only(A))
    assert await newer == {P0: 0}


@pytest.mark.parametrize(
    "other", [{"claimed": Identity(8, 0)}, {"verify_only": False}], ids=["another id", "another kind"]
)
def test_another_question_of_the_same_name_takes_the_place(other: Any) -> None:
    @with_wire
    async def scenario(joins: RemoteJoins, wire: Wire) -> None:
        under_way = ask(joins, P0, name="other")
        await turns()
        waiting = ask(joins, P0)
        await turns()
        newest = ask(joins, P0, **other)
        assert await refusal(waiting) == ErrorCode.NETWORK_EXCEPTION, "its producer asks again"
        answer(wire.only(A))
        await turns()
        answer(wire.only(A))
        await under_way
        assert await newest == {P0: 0}

    scenario()


@pytest.mark.parametrize("error", [Unreachable("gone"), TimedOut("slow")])
def test_without_an_answer_the_producer_is_to_ask_again(error: Any) -> None:
    @with_wire
    async def scenario(joins: RemoteJoins, wire: Wire) -> None:
        asked = ask(joins, P0)
        await turns()
        wire.only(A).fails(error)
        assert await refusal(asked) == ErrorCode.NETWORK_EXCEPTION

    scenario()


@with_wire
async def test_an_answer_that_leaves_somebody_out_is_none(joins: RemoteJoins, wire: Wire) -> None:
    asked = ask(joins, P0)
    await turns()
    answer(wire.only(A), without="id")
    assert await refusal(asked) == ErrorCode.NETWORK_EXCEPTION


@with_wire
async def test_a_refusal_of_the_whole_request_is_one_of_each_question(joins: RemoteJoins, wire: Wire) -> None:
    asked = ask(joins, P0)
    await turns()
    refused = AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wire.only(A).answer.set_result(refused)
    assert await refusal(asked) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@with_wire
async def test_a_broker_that_cannot_be_asked_only_lets_through_what_has_joined_already(
    joins: RemoteJoins, wire: Wire
) -> None:
    only_verified, added = ask(joins, P0), ask(joins, P1, name="new", verify_only=False)
    await turns()
    wire.only(A).fails(Unsupported("version 3 at most"))
    assert await only_verified == {P0: 0}
    assert await refusal(added) == ErrorCode.INVALID_TXN_STATE


@with_wire
async def test_whoever_waits_at_a_stop_is_told(joins: RemoteJoins, wire: Wire) -> None:
    under_way, waiting = ask(joins, P0), ask(joins, P0, name="other")
    await turns()
    later = ask(joins, P0, name="later")
    await asyncio.sleep(0)
    await joins.close()
    for one in (under_way, waiting, later):
        assert await refusal(one) == ErrorCode.NETWORK_EXCEPTION
