"""What must not be done, and what becomes of it, among nodes: wrong clusters, strange envelopes, silent controllers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import RawClient
from cluster_harness import CLIENTS_PORT, CONTROLLER_PORT, METADATA_DIRECTORY, ROOT, Cluster, in_a_cluster, until

from semel.broker.identity import Identity, new_id, write_identity
from semel.broker.lifecycle import CannotJoin
from semel.quorum.metadata_topic import TOPIC, TOPIC_ID
from semel.quorum.observer import WrongCluster
from semel.wire.codec import encode
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_response, request_bytes
from semel.wire.schema import Request
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from semel.wire.spec.describe_cluster import DescribeClusterRequest
from semel.wire.spec.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from semel.wire.spec.envelope import DefaultPrincipalData, EnvelopeRequest
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, ReplicaState
from semel.wire.spec.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartition,
    FetchSnapshotRequestTopic,
    SnapshotId,
)
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.unregister_broker import UnregisterBrokerRequest

SESSION_S = 9.0
ANYONE = (0).to_bytes(2, "big") + encode(DefaultPrincipalData(type="User", name="anyone"), 0)
DESCRIBE_QUORUM = DescribeQuorumRequest(
    topics=[DescribeQuorumRequestTopic(topic_name=TOPIC, partitions=[DescribeQuorumRequestPartition()])]
)


def frame(request: Request, version: int, correlation_id: int = 5) -> bytes:
    return request_bytes(request, version, correlation_id, "somebody")[4:]


def envelope(data: bytes, principal: bytes | None, address: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)


# -- starting


@in_a_cluster(starts=False)
async def test_a_node_of_another_cluster_is_refused_in_one_line_and_leaves_nothing_open(cluster: Cluster) -> None:
    await cluster.controller.start()
    stranger = cluster.brokers[0]
    write_identity(stranger.disk, ROOT, Identity("another-cluster", 2, new_id(cluster.world.random("id"))))
    with pytest.raises(WrongCluster, match="another-cluster") as refused:
        await stranger.start()
    assert "\n" not in str(refused.value)
    with pytest.raises(ConnectionError):
        await cluster.world.host("somebody").network.connect(stranger.name, CLIENTS_PORT)
    stranger.disk.lock(f"{ROOT}/.lock").close()
    assert not cluster.controller.broker.image.brokers


@in_a_cluster(starts=False, settings={"initial.broker.registration.timeout.ms": "5000"})
async def test_a_broker_without_a_controller_gives_up(cluster: Cluster) -> None:
    lonely = cluster.brokers[0]
    with pytest.raises(CannotJoin, match="within 5 s"):
        await lonely.start()
    lonely.disk.lock(f"{ROOT}/.lock").close()


@in_a_cluster(starts=False)
async def test_brokers_may_be_started_before_their_controller(cluster: Cluster) -> None:
    starting = [asyncio.ensure_future(node.start()) for node in cluster.brokers]
    await asyncio.sleep(20.0)
    assert not any(one.done() for one in starting)
    await cluster.controller.start()
    await asyncio.gather(*starting)


@in_a_cluster(starts=False)
async def test_nothing_is_served_to_clients_before_the_broker_is_unfenced(cluster: Cluster) -> None:
    first = cluster.brokers[0]
    starting = asyncio.ensure_future(first.start())
    await asyncio.sleep(1.0)
    client = await first.client()
    asked = client.send(MetadataRequest(topics=None), 12)
    await asyncio.sleep(5.0)
    assert not asked.done()
    await cluster.controller.start()
    assert [one.node_id for one in (await asked).brokers] == [2]
    await starting


# -- the controller and its brokers


@in_a_cluster()
async def test_a_broker_that_was_unregistered_while_it_lives_registers_again(cluster: Cluster) -> None:
    first, second = cluster.brokers
    client = await first.client()
    epoch = second.broker.node.broker_epoch
    assert (await client.ask(UnregisterBrokerRequest(broker_id=3), 0)).error_code == 0
    await until(lambda: second.broker.node.broker_epoch > epoch)
    await until(lambda: 3 in first.broker.image.brokers and not first.broker.image.brokers[3].fenced)


@in_a_cluster()
async def test_a_broker_that_was_paused_is_unfenced_when_it_goes_on(cluster: Cluster) -> None:
    first, second = cluster.brokers
    cluster.world.wires.part([second.name], [cluster.controller.name])
    await asyncio.sleep(SESSION_S * 2)
    assert first.broker.image.brokers[3].fenced
    epoch = second.broker.node.broker_epoch
    cluster.world.wires.rejoin([second.name], [cluster.controller.name])
    await until(lambda: not first.broker.image.brokers[3].fenced)
    assert second.broker.node.broker_epoch == epoch
    await cluster.same_metadata()


@in_a_cluster()
async def test_a_heartbeat_of_an_earlier_start_is_refused(cluster: Cluster) -> None:
    epoch = cluster.brokers[0].broker.node.broker_epoch
    client = await cluster.controller.client(CONTROLLER_PORT)
    for stale, code in ((epoch - 1, ErrorCode.STALE_BROKER_EPOCH), (epoch, ErrorCode.NONE)):
        request = BrokerHeartbeatRequest(broker_id=2, broker_epoch=stale, current_metadata_offset=1 << 30)
        assert (await client.ask(request, 1)).error_code == code


# -- sending on


@in_a_cluster()
async def test_what_cannot_be_sent_on_closes_the_connection_in_time(cluster: Cluster) -> None:
    await cluster.controller.kill()
    client = await cluster.brokers[0].client()
    with pytest.raises(ConnectionError):
        async with asyncio.timeout(35.0):
            await client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)]), 7)
    client = await cluster.brokers[0].client()
    assert (await client.ask(MetadataRequest(topics=None), 12)).brokers


@in_a_cluster()
async def test_a_request_waits_for_a_controller_that_is_started_again(cluster: Cluster) -> None:
    client = await cluster.brokers[0].client()
    await cluster.controller.kill()
    making = asyncio.ensure_future(client.create_topic("t"))
    await asyncio.sleep(5.0)
    await cluster.controller.start()
    assert (await making).error_code == 0


@in_a_cluster()
async def test_an_envelope_is_answered_as_what_is_in_it(cluster: Cluster) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    inner = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)])
    request = envelope(frame(inner, 7), ANYONE, bytes((10, 0, 0, 1)))
    answer = await client.ask(request, 0)
    assert answer.error_code == 0
    correlation_id, response = read_response(CreateTopicsResponse, 7, answer.response_data)
    assert correlation_id == 5
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 0)]
    assert "t" in cluster.controller.broker.image.topics


STRANGE: list[tuple[Any, Any, Any, ErrorCode]] = [
    (frame(MetadataRequest(topics=None), 12), ANYONE, bytes(4), ErrorCode.INVALID_REQUEST),
    (frame(EnvelopeRequest(), 0), ANYONE, bytes(4), ErrorCode.INVALID_REQUEST),
    (frame(BrokerHeartbeatRequest(broker_id=2), 1), ANYONE, bytes(4), ErrorCode.INVALID_REQUEST),
    (b"", ANYONE, bytes(4), ErrorCode.INVALID_REQUEST),
    (b"\0" * 8, ANYONE, bytes(4), ErrorCode.INVALID_REQUEST),
    (b"\x00\x13\x00\x7f" + bytes(8), ANYONE, bytes(4), ErrorCode.UNSUPPORTED_VERSION),
    (frame(DESCRIBE_QUORUM, 2)[:-1], ANYONE, bytes(4), ErrorCode.INVALID_REQUEST),
    (frame(DESCRIBE_QUORUM, 2), None, bytes(4), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    (frame(DESCRIBE_QUORUM, 2), b"\0\1" + ANYONE[2:], bytes(4), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    (frame(DESCRIBE_QUORUM, 2), ANYONE[:-1], bytes(4), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    (frame(DESCRIBE_QUORUM, 2), ANYONE, bytes(5), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize("number", range(len(STRANGE)))
@in_a_cluster(brokers=1)
async def test_strange_envelopes_are_refused(cluster: Cluster, number: int) -> None:
    data, principal, address, code = STRANGE[number]
    client = await cluster.controller.client(CONTROLLER_PORT)
    answer = await client.ask(envelope(data, principal, address), 0)
    assert (answer.error_code, answer.response_data) == (code, None)


@in_a_cluster(brokers=1)
async def test_clients_cannot_send_envelopes_nor_fetch_the_metadata_log(cluster: Cluster) -> None:
    for request, version in (
        (envelope(frame(DESCRIBE_QUORUM, 2), ANYONE, bytes(4)), 0),
        (FetchSnapshotRequest(), 1),
    ):
        client = await cluster.brokers[0].client()
        with pytest.raises(ConnectionError):
            await client.ask(request, version)
    client = await cluster.brokers[0].client()
    answer = await fetched(client, 0, 0, 1)
    assert answer.error_code or answer.responses[0].partitions[0].error_code


@in_a_cluster(brokers=1)
async def test_the_levels_of_loggers_are_changed_on_the_node_that_has_them(cluster: Cluster) -> None:
    def change(kind: int, name: str, setting: str, value: str) -> IncrementalAlterConfigsRequest:
        config = ConfigAlteration(name=setting, config_operation=0, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        return IncrementalAlterConfigsRequest(resources=[resource])

    client = await cluster.brokers[0].client()
    before = cluster.controller.broker.metadata.next_offset
    answer = await client.ask(change(8, "2", "semel.rpc", "INFO"), 1)
    assert [one.error_code for one in answer.responses] == [0]
    assert cluster.controller.broker.metadata.next_offset == before
    await client.create_topic("t")
    answer = await client.ask(change(2, "t", "retention.ms", "1000"), 1)
    assert [one.error_code for one in answer.responses] == [0]
    assert cluster.controller.broker.image.config(2, "t") == {"retention.ms": "1000"}


# -- the metadata log on the wire


async def fetched(client: RawClient, offset: int, last_epoch: int, epoch: int, version: int = 17, **more: Any) -> Any:
    partition = FetchRequestPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        replica_id=7,
        replica_state=ReplicaState(replica_id=7),
        topics=[FetchRequestTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        **{"max_wait_ms": 0, **more},
    )
    return await client.ask(request, version)


@pytest.mark.parametrize("version", [12, 13, 14, 15, 16, 17, 18])
@in_a_cluster(brokers=1)
async def test_the_log_is_given_in_each_version_with_its_leader(cluster: Cluster, version: int) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    (partition,) = (await fetched(client, 0, 0, 1, version)).responses[0].partitions
    assert partition.error_code == 0
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
    assert partition.high_watermark == cluster.controller.broker.metadata.next_offset
    directory = METADATA_DIRECTORY
    assert bytes(partition.records) == cluster.controller.disk.read_file(f"{directory}/{0:020d}.log")


@in_a_cluster(brokers=1)
async def test_who_does_not_know_the_epoch_is_told_of_it(cluster: Cluster) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        answer = await fetched(client, 0, 0, epoch)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == code
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
        assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [(1, "node1", CONTROLLER_PORT)]


@in_a_cluster(brokers=1)
async def test_impossible_positions_are_refused_and_not_counted(cluster: Cluster) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    for offset, last_epoch in ((-1, 0), (0, -2), (0, 2)):
        (partition,) = (await fetched(client, offset, last_epoch, 1)).responses[0].partitions
        assert partition.error_code == ErrorCode.INVALID_REQUEST
    (partition,) = (await fetched(client, 1 << 40, 1, 1)).responses[0].partitions
    assert partition.diverging_epoch.end_offset == cluster.controller.broker.metadata.next_offset
    described = await client.ask(DESCRIBE_QUORUM, 2)
    assert [one.replica_id for one in described.topics[0].partitions[0].observers] == [2]


@in_a_cluster(brokers=1)
async def test_other_clusters_and_other_topics_are_refused(cluster: Cluster) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    assert (await fetched(client, 0, 0, 1, cluster_id="x")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (await fetched(client, 0, 0, 1, cluster_id=cluster.cluster_id)).error_code == 0
    assert (await client.ask(FetchRequest(), 17)).error_code == ErrorCode.INVALID_REQUEST


@in_a_cluster(brokers=1)
async def test_a_fetch_at_the_end_waits_for_news_or_for_its_time(cluster: Cluster) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    end = cluster.controller.broker.metadata.next_offset
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    (partition,) = (await fetched(client, end, 1, 1, max_wait_ms=500)).responses[0].partitions
    assert loop.time() - began_s == pytest.approx(0.5, abs=0.05)
    assert not partition.records
    waiting = asyncio.ensure_future(fetched(client, end, 1, 1, max_wait_ms=60_000))
    await asyncio.sleep(0.1)
    await (await cluster.brokers[0].client()).create_topic("t")
    (partition,) = (await waiting).responses[0].partitions
    assert partition.records


@in_a_cluster(brokers=1)
async def test_snapshots_are_given_in_pieces_and_only_those_that_are_there(cluster: Cluster) -> None:
    part = cluster.controller.broker.controller_part
    assert part is not None
    client = await cluster.controller.client(CONTROLLER_PORT)

    def asked(snapshot: tuple[int, int], position: int, epoch: int = 1) -> FetchSnapshotRequest:
        wanted = FetchSnapshotRequestPartition(
            snapshot_id=SnapshotId(end_offset=snapshot[0], epoch=snapshot[1]),
            position=position,
            current_leader_epoch=epoch,
        )
        topic = FetchSnapshotRequestTopic(name=TOPIC, partitions=[wanted])
        return FetchSnapshotRequest(max_bytes=100, topics=[topic])

    async def piece(*what: Any) -> Any:
        return (await client.ask(asked(*what), 1)).topics[0].partitions[0]

    assert (await piece((0, 0), 0)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    await part.metadata.snapshot()
    (snapshot,) = part.replica.term.snapshots()
    data = cluster.controller.disk.read_file(f"{METADATA_DIRECTORY}/{snapshot.name}")
    found = b""
    while len(found) < len(data):
        one = await piece(snapshot, len(found))
        assert (one.error_code, one.size, one.position) == (0, len(data), len(found))
        found += bytes(one.unaligned_records)
    assert found == data
    assert (await piece(snapshot, len(data))).error_code == ErrorCode.POSITION_OUT_OF_RANGE
    assert (await piece(snapshot, -1)).error_code == ErrorCode.POSITION_OUT_OF_RANGE
    assert (await piece(snapshot, 0, 0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    (partition,) = (await fetched(client, 0, 0, 1)).responses[0].partitions
    assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch) == snapshot


@in_a_cluster()
async def test_the_quorum_is_described_by_brokers_and_the_controller_alike(cluster: Cluster) -> None:
    for node, port in ((cluster.controller, CONTROLLER_PORT), (cluster.brokers[0], CLIENTS_PORT)):
        client = await node.client(port)
        answer = await client.ask(DESCRIBE_QUORUM, 2)
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch) == (1, 1)
        assert [one.replica_id for one in partition.current_voters] == [1]
        assert [one.replica_id for one in partition.observers] == [2, 3]
        assert all(one.replica_directory_id != bytes(16) for one in partition.observers)
        assert [(one.name, one.host, one.port) for one in answer.nodes[0].listeners] == [
            ("CONTROLLER", "node1", CONTROLLER_PORT)
        ]


@in_a_cluster(brokers=1)
async def test_controllers_describe_themselves(cluster: Cluster) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    answer = await client.ask(DescribeClusterRequest(endpoint_type=2), 2)
    assert (answer.cluster_id, answer.controller_id) == (cluster.cluster_id, 1)
    assert [(one.broker_id, one.host, one.port) for one in answer.brokers] == [(1, "node1", CONTROLLER_PORT)]
    answer = await client.ask(DescribeClusterRequest(endpoint_type=1), 2)
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
