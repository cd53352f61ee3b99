"""A controller and brokers: registration, metadata followed, requests sent on, and what happens when a node goes."""

from __future__ import annotations

import asyncio

from cluster_harness import (
    CONTROLLER_PORT,
    METADATA_DIRECTORY,
    ROOT,
    Cluster,
    ClusterNode,
    in_a_cluster,
    until,
)

from semel.wire.spec.metadata import MetadataRequest

SESSION_S = 9.0


async def told(node: ClusterNode) -> tuple[set[int], set[str]]:
    """Brokers and topics, as a client of this node is told of them."""
    client = await node.client()
    answer = await client.ask(MetadataRequest(topics=None), 12)
    client.close()
    return {one.node_id for one in answer.brokers}, {topic.name for topic in answer.topics}


def segments(node: ClusterNode) -> bytes:
    names = sorted(name for name in node.disk.list_dir(METADATA_DIRECTORY) if name.endswith(".log"))
    return b"".join(node.disk.read_file(f"{METADATA_DIRECTORY}/{name}") for name in names)


@in_a_cluster()
async def test_brokers_register_are_unfenced_and_tell_of_all(cluster: Cluster) -> None:
    await cluster.same_metadata()
    for node in cluster.brokers:
        assert (await told(node))[0] == {2, 3}
    registered = cluster.controller.broker.image.brokers
    assert {node_id: broker.fenced for node_id, broker in registered.items()} == {2: False, 3: False}
    assert [node.broker.node.broker_epoch for node in cluster.brokers] == [
        registered[node_id].broker_epoch for node_id in (2, 3)
    ]


@in_a_cluster()
async def test_the_metadata_log_is_the_same_bytes_everywhere(cluster: Cluster) -> None:
    client = await cluster.brokers[0].client()
    await client.create_topic("t", 3)
    await cluster.same_metadata()
    logs = {node.name: segments(node) for node in (cluster.controller, *cluster.brokers)}
    assert len(set(logs.values())) == 1
    assert logs["node1"]


@in_a_cluster()
async def test_a_topic_made_through_either_broker_is_on_all(cluster: Cluster) -> None:
    for number, node in enumerate(cluster.brokers):
        client = await node.client()
        made = await client.create_topic(f"t{number}", 4)
        assert (made.error_code, made.num_partitions) == (0, 4)
        again = await client.create_topic(f"t{number}", 4)
        assert again.error_code == 36
    await cluster.same_metadata()
    for node in cluster.brokers:
        assert (await told(node))[1] == {"t0", "t1"}
    leaders = {
        state.leader for topic in cluster.controller.broker.image.topics.values() for state in topic.partitions.values()
    }
    assert leaders == {2, 3}


@in_a_cluster()
async def test_brokers_go_on_without_the_controller_and_catch_up_when_it_is_back(cluster: Cluster) -> None:
    client = await cluster.brokers[0].client()
    await client.create_topic("before")
    await cluster.same_metadata()
    epoch = cluster.controller.broker.controller_part.replica.told_leader()[1]  # type: ignore[union-attr]
    await cluster.controller.kill()
    await asyncio.sleep(SESSION_S * 2)
    assert (await told(cluster.brokers[1])) == ({2, 3}, {"before"})
    await cluster.controller.start()
    assert cluster.controller.broker.controller_part.replica.epoch > epoch  # type: ignore[union-attr]
    await asyncio.sleep(SESSION_S * 2)
    client = await cluster.brokers[1].client()
    assert (await client.create_topic("after")).error_code == 0
    await cluster.same_metadata()
    assert (await told(cluster.brokers[0])) == ({2, 3}, {"before", "after"})
    assert len({segments(node) for node in (cluster.controller, *cluster.brokers)}) == 1


@in_a_cluster()
async def test_what_the_controller_lost_with_its_power_is_cut_from_the_logs_of_brokers(cluster: Cluster) -> None:
    await cluster.same_metadata()
    cluster.controller.disk.flush_latency_ms = (60_000, 60_000)
    client = await cluster.brokers[0].client()
    creating = asyncio.ensure_future(client.create_topic("lost"))
    first, second = (node.broker.store.logs["__cluster_metadata", 0] for node in cluster.brokers)
    leader = cluster.controller.broker.store.logs["__cluster_metadata", 0]
    end = leader.high_watermark
    await until(lambda: first.end_offset == second.end_offset == leader.end_offset > end)
    assert "lost" not in cluster.brokers[0].broker.image.topics
    await cluster.controller.lose_power()
    cluster.controller.disk.flush_latency_ms = (0, 0)
    await cluster.controller.start()
    await until(lambda: cluster.controller.broker.image.brokers.keys() == {2, 3})
    await cluster.same_metadata()
    # The request is sent on once more: the broker does not know what became of it.
    assert (await creating).error_code == 0
    await cluster.same_metadata()
    assert len({segments(node) for node in (cluster.controller, *cluster.brokers)}) == 1


@in_a_cluster()
async def test_a_broker_that_dies_is_fenced_after_its_session_and_unfenced_when_it_is_back(cluster: Cluster) -> None:
    first, second = cluster.brokers
    epoch = second.broker.node.broker_epoch
    await second.kill()
    await asyncio.sleep(SESSION_S / 2)
    assert not cluster.controller.broker.image.brokers[3].fenced
    await asyncio.sleep(SESSION_S)
    assert cluster.controller.broker.image.brokers[3].fenced
    assert (await told(first))[0] == {2}
    await second.start()
    assert second.broker.node.broker_epoch > epoch
    await cluster.same_metadata()
    assert (await told(first))[0] == {2, 3} == (await told(second))[0]


@in_a_cluster()
async def test_a_broker_that_comes_back_at_once_waits_for_the_end_of_its_old_session(cluster: Cluster) -> None:
    second = cluster.brokers[1]
    await second.kill()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await second.start()
    assert SESSION_S / 2 < loop.time() - began_s < SESSION_S * 2


@in_a_cluster()
async def test_a_clean_stop_is_a_controlled_one_and_the_next_start_says_which_epoch_it_ended(cluster: Cluster) -> None:
    second = cluster.brokers[1]
    epoch = second.broker.node.broker_epoch
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await second.stop()
    assert loop.time() - began_s < 5.0
    assert cluster.controller.broker.image.brokers[3].fenced
    mark = second.disk.read_file(f"{ROOT}/.kafka_cleanshutdown")
    assert mark.partition(b"\n")[0] == b'{"version":0,"brokerEpoch":%d}' % epoch
    began_s = loop.time()
    await second.start()
    assert loop.time() - began_s < 2.0, "nobody waits for a session that has ended"
    assert second.broker.store.previous_broker_epoch == epoch
    assert not second.disk.exists(f"{ROOT}/.kafka_cleanshutdown")


@in_a_cluster()
async def test_a_broker_goes_on_from_its_own_log(cluster: Cluster) -> None:
    second = cluster.brokers[1]
    client = await cluster.brokers[0].client()
    await client.create_topic("t", 20)
    await cluster.same_metadata()
    await second.stop()
    before = second.disk.read_file(f"{METADATA_DIRECTORY}/{'0' * 20}.log")
    sent = cluster.world.wires
    assert sent is not None
    asked: list[int] = []
    leader = cluster.controller.broker.controller_part.replica.term  # type: ignore[union-attr]
    read = leader.read
    leader.read = lambda offset, *rest, **more: (asked.append(offset), read(offset, *rest, **more))[1]  # type: ignore
    await second.start()
    end = len(before)
    assert second.disk.read_file(f"{METADATA_DIRECTORY}/{'0' * 20}.log")[:end] == before
    known = max(offset for offset in range(second.broker.metadata.next_offset) if offset not in asked)
    assert known > 0
    assert 0 not in asked


@in_a_cluster()
async def test_a_broker_without_its_metadata_loads_a_snapshot(cluster: Cluster) -> None:
    first, second = cluster.brokers
    client = await first.client()
    for number in range(3):
        await client.create_topic(f"t{number}", 5)
    await cluster.same_metadata()
    part = cluster.controller.broker.controller_part
    assert part is not None
    await part.metadata.snapshot()
    await client.create_topic("later")
    await second.stop()
    second.disk.remove_tree(METADATA_DIRECTORY)
    await second.start()
    await cluster.same_metadata()
    assert second.broker.image == cluster.controller.broker.image
    assert (await told(second))[1] == {"t0", "t1", "t2", "later"}
    names = second.disk.list_dir(METADATA_DIRECTORY)
    assert [name for name in names if ".checkpoint" in name] == [part.replica.term.snapshots()[0].name]
    assert "quorum-state" in names
    await second.stop()
    await second.start()
    await cluster.same_metadata()
    assert second.broker.image == cluster.controller.broker.image


@in_a_cluster()
async def test_a_broker_writes_snapshots_of_its_own(cluster: Cluster) -> None:
    first = cluster.brokers[0]
    following = first.broker.quorum_part
    assert following is not None
    following.metadata.snapshot_after_bytes = 500
    client = await first.client()
    for number in range(5):
        await client.create_topic(f"t{number}", 5)
    await cluster.same_metadata()
    names = [name for name in first.disk.list_dir(METADATA_DIRECTORY) if name.endswith(".checkpoint")]
    assert len(names) == 1
    await first.stop()
    await first.start()
    await cluster.same_metadata()
    assert first.broker.image == cluster.controller.broker.image


@in_a_cluster()
async def test_an_internal_topic_is_made_for_a_broker_that_needs_it(cluster: Cluster) -> None:
    node = cluster.brokers[0].broker
    await node.roles.internal_topics.ensure("__consumer_offsets")
    assert "__consumer_offsets" in node.image.topics
    first = await node.producer_ids.next()
    other = await cluster.brokers[1].broker.producer_ids.next()
    assert first // 1000 != other // 1000


@in_a_cluster(brokers=1)
async def test_the_controller_serves_nothing_to_clients(cluster: Cluster) -> None:
    client = await cluster.controller.client(CONTROLLER_PORT)
    try:
        await client.ask(MetadataRequest(topics=None), 12)
    except ConnectionError:
        return
    raise AssertionError("it has answered")
