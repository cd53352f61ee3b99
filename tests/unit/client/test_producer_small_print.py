"""Small print of the producer: versions of a generation, whose host it is, and what a lane knows after a failure."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from transaction_failures import ID

from scripted_broker import ScriptedCluster, scripted
from semel.client.errors import BadRecord, BadSetting, IllegalState, UnsupportedByBroker
from semel.client.producer.producer import Producer
from semel.host.api import Host
from semel.wire.spec.end_txn import EndTxnRequest
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import ProduceRequest


@scripted()
async def test_the_first_generation_ends_and_writes_with_its_own_versions_though_newer_ones_are_served(
    cluster: ScriptedCluster,
) -> None:
    """The broker knows the second generation and has not switched it on."""
    cluster.topic("t")
    cluster.features = {"transaction.version": 1}
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"1")
        await producer.commit()
    assert {asked.version for asked in cluster.all(EndTxnRequest)} == {4}
    assert {asked.version for asked in cluster.all(ProduceRequest)} == {11}


@scripted()
async def test_the_second_generation_ends_and_writes_with_versions_that_only_it_has(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer(**ID) as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"1")
        await producer.commit()
    assert {asked.version for asked in cluster.all(EndTxnRequest)} == {5}
    assert all(asked.version >= 12 for asked in cluster.all(ProduceRequest))


@scripted()
async def test_what_could_not_be_sent_leaves_no_hole_in_the_sequence(cluster: ScriptedCluster) -> None:
    """The broker is replaced by one that we understand: what follows does not count on what never went."""
    cluster.topic("t")
    served = dict(cluster.limits)
    cluster.limits[ProduceRequest.api_key] = (90, 99)
    async with cluster.producer() as producer:
        with pytest.raises(UnsupportedByBroker):
            await producer.send_and_wait("t", b"1")
        cluster.limits.clear()
        cluster.limits.update(served)
        cluster.node(1).cut_all()
        await asyncio.sleep(1)
        assert (await producer.send_and_wait("t", b"2")).offset == 0
    assert [sent.sequence for sent in cluster.produced] == [0]
    assert cluster.logs("t") == [b"2"]


class SpiedHost:
    """Notes whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_producer_closes_its_own_host_and_leaves_that_of_others_alone(is_ours: bool) -> None:
    spied: Any = SpiedHost()
    producer = Producer(bootstrap_servers="localhost:1", host=None if is_ours else cast(Host, spied))
    producer._host = spied
    await producer.close()
    await producer.close()
    assert spied.closed == (1 if is_ours else 0)


@scripted()
async def test_a_second_init_asks_nobody_for_an_epoch(cluster: ScriptedCluster) -> None:
    """It would be answered, and raise the epoch under a producer that was told that the call is not possible."""
    async with cluster.producer(**ID) as producer:
        await producer.init_transactions()
        with pytest.raises(IllegalState):
            await producer.init_transactions()
        assert len(cluster.all(InitProducerIdRequest)) == 1


@scripted()
async def test_every_time_that_fits_into_a_record_may_be_given(cluster: ScriptedCluster) -> None:
    cluster.topic("t")
    async with cluster.producer() as producer:
        await producer.send_and_wait("t", b"late", timestamp_ms=2**63 - 1)
        with pytest.raises(BadRecord):
            await producer.send("t", b"later", timestamp_ms=2**63)


def test_what_contradicts_itself_in_a_connection_is_refused_by_a_producer_too() -> None:
    with pytest.raises(BadSetting, match="ssl_endpoint_identification_algorithm"):
        Producer(bootstrap_servers="localhost:1", ssl_endpoint_identification_algorithm="http")
