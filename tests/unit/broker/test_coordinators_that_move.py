"""The leadership of a coordinator's partition goes to another node, and comes back: what was begun goes on there,
nobody is answered from a term that is over, and nothing that was delayed touches what has begun since."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from across_nodes import FEW, ONE_REPLICA, Across
from cluster_harness import Cluster, in_a_cluster, until
from transaction_harness import TOPIC, V1, V2

from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.coordinator.txn.state import TransactionState
from semel.peer.errors import Unreachable
from semel.wire.errors import ErrorCode
from semel.wire.spec.end_txn import EndTxnRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol

VERSIONS = pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
A, B = 2, 3


class Nobody:
    """A way to other nodes that leads nowhere."""

    async def call(self, node_id: int, *rest: Any, **options: Any) -> Any:
        await asyncio.sleep(0.01)
        raise Unreachable(f"node {node_id} is not there")


def join_request(group: str) -> JoinGroupRequest:
    """Version 3: it gets a place before it knows its id, and waits for others."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@VERSIONS
@in_a_cluster(brokers=3, settings=FEW)
async def test_the_next_coordinator_goes_on_with_an_open_transaction(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    across = Across(cluster)
    await across.prepared()
    name = across.name_on(A)
    producer = await across.producer(name, versions)
    if versions is V1:
        assert await producer.add(0, 1) == 0
    assert await producer.write_to(1, b"before") == 0
    await across.move(TRANSACTIONS_TOPIC, across.place(name), B)
    assert await producer.commit() == ErrorCode.NOT_COORDINATOR
    producer.client = await across.nodes[B].client()
    assert await producer.write_to(1, b"open already, so nobody is asked") == 0
    assert await producer.commit() == 0
    assert await across.read_committed(1) == [b"before", b"open already, so nobody is asked"]
    assert not across.nodes[A].broker.transactions.shards._loaded.get(across.place(name))


@VERSIONS
@in_a_cluster(brokers=3, settings=FEW)
async def test_a_decision_is_carried_out_by_the_next_coordinator_without_being_asked(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    across = Across(cluster)
    await across.prepared(replicas=2)
    name = across.name_on(A)
    producer = await across.producer(name, versions)
    away = across.nodes[across.leader(TOPIC, 2)]
    assert away.node_id not in (A, B)
    if versions is V1:
        assert await producer.add(2) == 0
    assert await producer.write_to(2, b"decided") == 0
    coordinators = across.nodes[A].broker.broker_part.coordinators  # type: ignore[union-attr]
    coordinators._remote_markers._caller = Nobody()  # type: ignore[union-attr]
    end = asyncio.ensure_future(producer.commit())
    await until(lambda: across.state(name) == TransactionState.PREPARE_COMMIT)
    old = across.nodes[A].broker.transactions
    await across.move(TRANSACTIONS_TOPIC, across.place(name), B)
    await until(lambda: across.state(name) == TransactionState.COMPLETE_COMMIT, 20)
    assert await across.read_committed(2) == [b"decided"]
    assert not old._markers._tasks, "markers of the term that is over have stopped"
    await asyncio.gather(end, return_exceptions=True)
    (entry,) = across.nodes[across.leader(TOPIC, 2)].broker.topics.partition(TOPIC, 2).log.producers.entries()
    assert (
        entry.coordinator_epoch == across.image.topics[TRANSACTIONS_TOPIC].partitions[across.place(name)].leader_epoch
    )


@in_a_cluster(brokers=3, settings=FEW)
async def test_the_next_transaction_is_let_in_when_the_last_one_has_its_marker_there(cluster: Cluster) -> None:
    """In its partition the last transaction is open still, in another epoch: that is not this one."""
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(A), V2)
    assert await producer.write_to(1, b"first") == 0
    coordinators = across.nodes[A].broker.broker_part.coordinators  # type: ignore[union-attr]
    remote = coordinators._remote_markers
    assert remote is not None
    remote._caller, caller = Nobody(), remote._caller
    assert await producer.commit() == 0
    assert await producer.write_to(1, b"second") == ErrorCode.NOT_ENOUGH_REPLICAS
    for queue in (remote, *remote._queues.values()):
        queue._caller = caller
    await until(lambda: across.state(producer.transactional_id) == TransactionState.COMPLETE_COMMIT)
    producer.sequences.clear()
    assert await producer.write_to(1, b"second") == 0
    assert await producer.commit() == 0
    assert await across.read_committed(1) == [b"first", b"second"]


@in_a_cluster(brokers=3, settings={**FEW, **ONE_REPLICA, "offsets.topic.replication.factor": "3"})
async def test_members_that_wait_are_told_at_once_and_their_timers_end(cluster: Cluster) -> None:
    across = Across(cluster)
    await across.prepared()
    group = across.name_on(A, OFFSETS_TOPIC)
    client = await across.nodes[A].client()
    joining = client.send(join_request(group), 3)
    await asyncio.sleep(1)
    assert not joining.done()
    side = across.nodes[A].broker.groups._of(group)
    await across.move(OFFSETS_TOPIC, across.place(group, OFFSETS_TOPIC), B)
    await asyncio.sleep(0.05)
    assert joining.done()
    assert joining.result().error_code == ErrorCode.NOT_COORDINATOR
    assert not side.timers._timers
    assert not side.rebalance.groups
    end_offset = (
        across.nodes[B].broker.topics.partition(OFFSETS_TOPIC, across.place(group, OFFSETS_TOPIC)).log.end_offset
    )
    await asyncio.sleep(400)
    log = across.nodes[B].broker.topics.partition(OFFSETS_TOPIC, across.place(group, OFFSETS_TOPIC)).log
    assert log.end_offset == end_offset, "who does not coordinate decides nothing"


@pytest.mark.parametrize("comes_back", [False, True], ids=["stays", "goes and comes back"])
@in_a_cluster(brokers=3, settings=FEW)
async def test_a_delayed_end_does_not_touch_a_later_transaction(cluster: Cluster, comes_back: bool) -> None:
    """First generation: the epoch of both transactions is the same. The first end is sent over a connection on which
    it does not get on, and the client gives that up."""
    across = Across(cluster)
    await across.prepared()
    name = across.name_on(A)
    producer = await across.producer(name, V1)
    assert await producer.add(1) == 0
    assert await producer.write_to(1, b"first") == 0
    delayed = producer.client
    request = EndTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=False
    )
    place = across.place(name)
    if comes_back:
        await across.move(TRANSACTIONS_TOPIC, place, B)
        producer.client = await across.nodes[B].client()
    else:
        producer.client = await across.nodes[A].client()
    assert await producer.commit() == 0
    assert await producer.add(1) == 0
    assert await producer.write_to(1, b"second") == 0
    if comes_back:
        await across.move(TRANSACTIONS_TOPIC, place, A)
        await until(lambda: not across.nodes[A].broker.transactions.shards.is_loading)
        with pytest.raises(ConnectionError):
            await delayed.ask(request, V1["end"])
        producer.client = await across.nodes[A].client()
    else:
        assert (await delayed.ask(request, V1["end"])).error_code == ErrorCode.NOT_COORDINATOR
    assert await producer.commit() == 0
    assert await across.read_committed(1) == [b"first", b"second"]


@in_a_cluster(brokers=3, settings=FEW)
async def test_a_client_that_was_connected_before_is_served_when_it_has_connected_again(cluster: Cluster) -> None:
    across = Across(cluster)
    await across.prepared()
    name = across.name_on(A)
    producer = await across.producer(name, V1)
    await across.move(TRANSACTIONS_TOPIC, across.place(name), B)
    await across.move(TRANSACTIONS_TOPIC, across.place(name), A)
    with pytest.raises(ConnectionError):
        await producer.add(1)
    producer.client = await across.nodes[A].client()
    assert await producer.add(1) == 0
    assert await producer.write_to(1, b"a") == 0
    assert await producer.commit() == 0


@in_a_cluster(brokers=3, settings=FEW)
async def test_a_new_term_of_the_same_node_closes_no_connection(cluster: Cluster) -> None:
    across = Across(cluster)
    await across.prepared()
    name = across.name_on(A)
    producer = await across.producer(name, V1)
    assert await producer.add(1) == 0
    assert await producer.write_to(1, b"a") == 0
    before = across.nodes[A].broker.transactions.shards.for_key(name)
    await across.move(TRANSACTIONS_TOPIC, across.place(name), A)
    assert await producer.commit() == 0
    assert across.nodes[A].broker.transactions.shards.for_key(name) is not before
    older, producer.client = producer.client, await across.nodes[A].client()
    assert await producer.add(1) == 0
    await across.move(TRANSACTIONS_TOPIC, across.place(name), A)
    assert await producer.add(2, on=older) == ErrorCode.NOT_COORDINATOR, "the order of connections is still known"


@VERSIONS
@in_a_cluster(brokers=3, settings=FEW)
async def test_what_too_few_replicas_have_is_never_answered_as_done(cluster: Cluster, versions: dict[str, int]) -> None:
    across = Across(cluster)
    await across.prepared()
    name = across.name_on(A)
    producer = await across.producer(name, versions)
    if versions is V1:
        assert await producer.add(0) == 0
    assert await producer.write_to(0, b"a") == 0
    others = [node for node_id, node in across.nodes.items() if node_id != A]
    cluster.world.wires.part([across.nodes[A].name], [node.name for node in others])
    assert await producer.commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE, "written, and not committed in time"
    assert await producer.commit() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await across.read_committed(0) == []
    cluster.world.wires.heal()
    await until(lambda: across.state(name) == TransactionState.COMPLETE_COMMIT)
    assert await across.read_committed(0) == [b"a"]


@VERSIONS
@in_a_cluster(brokers=3, settings=FEW)
async def test_a_decision_that_is_refused_for_want_of_replicas_leaves_no_trace(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    across = Across(cluster)
    await across.prepared()
    name = across.name_on(A)
    producer = await across.producer(name, versions)
    if versions is V1:
        assert await producer.add(0) == 0
    assert await producer.write_to(0, b"a") == 0
    others = [node for node_id, node in across.nodes.items() if node_id != A]
    for node in others:
        await node.kill()
    place = across.place(name)
    partition = across.nodes[A].broker.topics.partition(TRANSACTIONS_TOPIC, place)
    await until(lambda: partition.replicas is not None and not partition.replicas.has_enough)
    before = across.known(name), partition.log.end_offset
    assert await producer.commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await producer.init(keeps_identity=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (across.known(name), partition.log.end_offset) == before
    for node in others:
        await node.start()
    await until(lambda: partition.replicas is not None and partition.replicas.has_enough)
    assert await producer.commit() == 0
    assert await across.read_committed(0) == [b"a"]
