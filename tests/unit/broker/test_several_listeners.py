"""A node that listens at several addresses: all of them are served, and the registration tells of those for clients."""

from __future__ import annotations

from random import Random

import pytest
from broker_harness import ROOT, Node, RawClient, simulated

from semel.broker.identity import Identity, new_id, write_identity
from semel.wire.spec.add_partitions_to_txn import AddPartitionsToTxnRequest
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.write_txn_markers import WriteTxnMarkersRequest

METADATA, ENVELOPE, FETCH_SNAPSHOT = 3, 58, 59
ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS = 24, 27

SETTINGS = {
    "listeners": "OUTSIDE://:9092,INSIDE://:9094,CONTROLLER://:9093",
    "advertised.listeners": "OUTSIDE://outside.example:19092,INSIDE://broker:0,CONTROLLER://broker:0",
    "inter.broker.listener.name": "INSIDE",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@broker:9093",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


async def formatted(node: Node) -> None:
    """One of several does not format its directory by itself."""
    node.disk.make_dirs(ROOT)
    write_identity(node.disk, ROOT, Identity("cluster", 1, new_id(Random(1))))
    await node.start()


@simulated(settings=SETTINGS, starts=False)
async def test_every_listener_is_served(node: Node) -> None:
    await formatted(node)
    for port in (9092, 9094, 9093):
        client = RawClient(await node.world.host("client").network.connect("broker", port))
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        assert (await client.ask(request)).api_keys
        client.link.close()


@simulated(settings=SETTINGS, starts=False)
async def test_what_is_served_depends_on_the_listener(node: Node) -> None:
    await formatted(node)
    served: dict[int, set[int]] = {}
    most: dict[int, int | None] = {}
    for port in (9092, 9094, 9093):
        client = RawClient(await node.world.host("client").network.connect("broker", port))
        answer = await client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        served[port] = {one.api_key for one in answer.api_keys}
        most[port] = next((one.max_version for one in answer.api_keys if one.api_key == ADD_PARTITIONS_TO_TXN), None)
        client.link.close()
    assert served[9094] - served[9092] == {WRITE_TXN_MARKERS}
    assert (most[9092], most[9094]) == (3, 5), "of AddPartitionsToTxn, which clients send up to version 3"
    assert METADATA in served[9092] - served[9093]
    assert {ENVELOPE, FETCH_SNAPSHOT} <= served[9093] - served[9092]
    client = RawClient(await node.world.host("client").network.connect("broker", 9093))
    with pytest.raises(ConnectionError):
        await client.ask(MetadataRequest())
    client = RawClient(await node.world.host("client").network.connect("broker", 9092))
    with pytest.raises(ConnectionError):
        await client.ask(WriteTxnMarkersRequest())
    client = RawClient(await node.world.host("client").network.connect("broker", 9092))
    with pytest.raises(ConnectionError):
        await client.ask(AddPartitionsToTxnRequest(), 4)
    client = RawClient(await node.world.host("client").network.connect("broker", 9094))
    assert (await client.ask(AddPartitionsToTxnRequest(), 4)).error_code == 0


@simulated(settings=SETTINGS, starts=False)
async def test_clients_are_told_the_addresses_of_the_listener_that_they_came_by(node: Node) -> None:
    await formatted(node)
    told = {}
    for port in (9092, 9094):
        client = RawClient(await node.world.host("client").network.connect("broker", port))
        told[port] = [(one.host, one.port) for one in (await client.ask(MetadataRequest())).brokers]
        client.link.close()
    assert told == {9092: [("outside.example", 19092)], 9094: [("broker", 9094)]}


@simulated(settings=SETTINGS, starts=False)
async def test_brokers_and_clients_are_told_of_each_listener_that_is_not_for_controllers(node: Node) -> None:
    await formatted(node)
    (registered,) = node.broker.image.brokers.values()
    assert [(one.name, one.host, one.port) for one in registered.end_points] == [
        ("OUTSIDE", "outside.example", 19092),
        ("INSIDE", "broker", 9094),
    ]
