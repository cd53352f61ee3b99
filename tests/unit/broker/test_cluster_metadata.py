"""The Metadata API, auto-creation, and what survives restarts and power cuts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_harness import BROKER, ROOT, Node, RawClient, batch_of, simulated

from semel.broker.authoriser import Operation
from semel.broker.identity import WrongDirectory
from semel.host.api import AlreadyLocked
from semel.log.errors import CorruptSegment
from semel.quorum.metadata_topic import TOPIC as METADATA_TOPIC
from semel.sim.power import PowerLost
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic


async def metadata(client: RawClient, *names: str, version: int = 13, **options: Any) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return await client.ask(MetadataRequest(topics=topics, **options), version)


def codes(response: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


# -- Metadata


@pytest.mark.parametrize("version", range(14))
@simulated(settings={"broker.rack": "cellar"})
async def test_nodes_topics_and_leaders_in_every_version(node: Node, version: int) -> None:
    client = await node.client()
    made = await client.create_topic("t", partitions=2)
    response = await metadata(client, "t", version=version)
    (found,) = response.brokers
    assert (found.node_id, found.host, found.port) == (1, "127.0.0.1", 9092)
    if version >= 1:
        assert found.rack == "cellar"
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == node.broker.cluster_id
    (topic,) = response.topics
    assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
    assert topic.topic_id == (made.topic_id if version >= 10 else NO_UUID)
    assert [(p.partition_index, p.leader_id, list(p.isr_nodes)) for p in topic.partitions] == [(0, 1, [1]), (1, 1, [1])]


@pytest.mark.parametrize("version", [0, 1, 12, 13])
@simulated()
async def test_all_topics_are_listed_for_whoever_asks_for_all(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.create_topic("__consumer_offsets", -1)
    request = MetadataRequest(topics=[] if version == 0 else None)
    response = await client.ask(request, version)
    assert set(codes(response)) == {"t", "__consumer_offsets"}
    if version >= 1:
        assert {topic.name for topic in response.topics if topic.is_internal} == {"__consumer_offsets"}
        nothing = await client.ask(MetadataRequest(topics=[]), version)
        assert not nothing.topics


@simulated()
async def test_topics_are_found_by_id(node: Node) -> None:
    client = await node.client()
    made = await client.create_topic("t")
    topics = [MetadataRequestTopic(name=None, topic_id=made.topic_id), MetadataRequestTopic(topic_id=b"\x09" * 16)]
    topics[1].name = None
    response = await client.ask(MetadataRequest(topics=topics))
    assert codes(response) == {"t": 0, None: ErrorCode.UNKNOWN_TOPIC_ID}
    topics[1].name = ""
    topics[0].name = ""
    response = await client.ask(MetadataRequest(topics=topics), 10)
    assert codes(response) == {"t": 0, "": ErrorCode.UNKNOWN_TOPIC_ID}


@simulated()
async def test_what_one_may_do_is_told_when_asked(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    response = await metadata(
        client, "t", version=10, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    assert response.cluster_authorized_operations & (1 << Operation.IDEMPOTENT_WRITE)
    assert response.topics[0].topic_authorized_operations & (1 << Operation.WRITE)
    silent = await metadata(client, "t", version=10)
    assert silent.topics[0].topic_authorized_operations == silent.cluster_authorized_operations == -(1 << 31)


@simulated(settings={"auto.create.topics.enable": "false"})
async def test_a_request_without_records_that_is_larger_than_any_real_one_closes_its_connection(node: Node) -> None:
    client = await node.client()
    few, many = [f"{number:0200}" for number in range(38_000)], [f"{number:0200}" for number in range(39_000)]
    assert len((await metadata(client, *few)).topics) == 38_000
    with pytest.raises(ConnectionError):
        await metadata(client, *many)
    assert codes(await metadata(await node.client(), "fine")) == {"fine": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# -- auto-creation


@pytest.mark.parametrize("version", [0, 1, 4, 13])
@simulated(settings={"num.partitions": "3"})
async def test_a_missing_topic_is_created_and_the_answer_waits_for_it(node: Node, version: int) -> None:
    client = await node.client()
    response = await metadata(client, "new", version=version)
    assert codes(response) == {"new": 0}
    assert len(response.topics[0].partitions) == 3
    assert (await client.produce("new", batch_of(b"a"), partition=2)).error_code == 0


@simulated()
async def test_a_missing_topic_is_created_once_for_all_who_ask_at_the_same_time(node: Node) -> None:
    clients = [await node.client() for _ in range(5)]
    node.hold_flushes(100)
    answers = await asyncio.gather(*(metadata(client, "new") for client in clients))
    assert [codes(answer) for answer in answers] == [{"new": 0}] * 5
    assert len({answer.topics[0].topic_id for answer in answers}) == 1


@simulated(settings={"num.partitions": "3"})
async def test_an_internal_topic_asked_for_by_name_is_made_as_its_coordinator_needs_it(node: Node) -> None:
    client = await node.client()
    response = await metadata(client, "__consumer_offsets")
    assert len(response.topics[0].partitions) == 50
    assert node.broker.topics.by_name["__consumer_offsets"].config.compacts


@simulated()
async def test_a_client_can_forbid_the_creation(node: Node) -> None:
    client = await node.client()
    response = await metadata(client, "new", allow_auto_topic_creation=False)
    assert codes(response) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not node.broker.topics.by_name


@simulated(settings={"auto.create.topics.enable": "false"})
async def test_the_node_can_forbid_the_creation(node: Node) -> None:
    client = await node.client()
    assert codes(await metadata(client, "new")) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not node.broker.topics.by_name


@simulated()
async def test_a_name_that_no_topic_can_have_is_told_so(node: Node) -> None:
    client = await node.client()
    assert codes(await metadata(client, "no name", METADATA_TOPIC)) == {
        "no name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        METADATA_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


# -- what survives


@pytest.mark.parametrize("how", ["restart", "killed_and_started", "power_cut_and_started"])
@simulated()
async def test_metadata_and_acknowledged_data_survive(node: Node, how: str) -> None:
    client = await node.client()
    cluster_id = node.broker.cluster_id
    made = await client.create_topic("t", partitions=2, configs={"retention.ms": "5000"})
    await client.create_topic("gone")
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]))
    await client.produce("t", batch_of(b"a"))
    for _ in range(3):
        await getattr(node, how)()
        client = await node.client()
        assert list(node.broker.topics.by_name) == ["t"]
        topic = node.broker.topics.by_name["t"]
        assert (topic.topic_id, len(topic.partitions), topic.config.retention_ms) == (made.topic_id, 2, 5000)
        assert await client.values("t") == [b"a"]
        assert node.broker.cluster_id == cluster_id
    assert not [error for error in node.broken if isinstance(error, Exception)]


@pytest.mark.parametrize("how", ["restart", "killed_and_started", "power_cut_and_started"])
@simulated()
async def test_leader_epochs_grow_at_every_start(node: Node, how: str) -> None:
    client = await node.client()
    await client.create_topic("t")
    epochs = []
    for _ in range(4):
        epochs.append((await metadata(client, "t")).topics[0].partitions[0].leader_epoch)
        await getattr(node, how)()
        client = await node.client()
    assert epochs == [0, 1, 2, 3]


@pytest.mark.parametrize("when", ["before", "during", "after"])
@simulated()
async def test_a_start_that_loses_power_at_any_disk_call_can_be_repeated(node: Node, when: Any) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    for call in range(1, 100):
        node.world.lose_power(BROKER)
        node.disk.crash_at(call, when)
        try:
            await asyncio.wait_for(node.start(), 60)
        except (PowerLost, TimeoutError):
            continue
        break
    assert 10 < call < 99, "each start was cut off one disk call later than the one before"
    assert 0 < node.broker.topics.partition("t", 0).leader_epoch <= call
    client = await node.client()
    assert await client.values("t") == [b"a"]


@pytest.mark.parametrize("how", ["restart", "killed_and_started", "power_cut_and_started"])
@pytest.mark.parametrize("seed", range(5))
@simulated()
async def test_a_topic_with_the_name_of_a_deleted_one_does_not_see_its_data(node: Node, how: str, seed: int) -> None:
    client = await node.client()
    node.disk.random.seed(seed)
    for round_number in range(3):
        made = await client.create_topic("t")
        assert made.error_code == 0
        assert await client.values("t") == []
        assert (await client.produce("t", batch_of(b"%d" % round_number, producer_id=5))).base_offset == 0
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    await client.create_topic("t")
    await getattr(node, how)()
    client = await node.client()
    assert await client.values("t") == []
    result = await client.produce("t", batch_of(b"x", producer_id=5, sequence=1))
    assert result.error_code == ErrorCode.UNKNOWN_PRODUCER_ID, "nor its producers"


@pytest.mark.parametrize("seed", range(10))
@simulated()
async def test_a_directory_that_a_power_cut_brings_back_is_not_taken_for_that_of_the_new_topic(
    node: Node, seed: int
) -> None:
    one, other = await node.client(), await node.client()
    old = await one.create_topic("t")
    await one.produce("t", batch_of(b"old", producer_id=5))
    node.disk.random.seed(seed)
    # Both decisions are durable with one flush; the removal of the old directory is not yet.
    node.hold_flushes(10)
    deleted = one.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    created = await other.create_topic("t")
    assert (await deleted).responses[0].error_code == created.error_code == 0
    await node.power_cut_and_started()
    client = await node.client()
    assert node.broker.topics.by_name["t"].topic_id == created.topic_id != old.topic_id
    assert await client.values("t") == []
    result = await client.produce("t", batch_of(b"x", producer_id=5, sequence=1))
    assert result.error_code == ErrorCode.UNKNOWN_PRODUCER_ID


@pytest.mark.parametrize("when", ["before", "after"])
@simulated(starts=False)
async def test_power_lost_anywhere_between_delete_and_recreate_never_shows_the_old_data(node: Node, when: Any) -> None:
    for call in range(1, 60):
        node.world.disks.pop(BROKER, None)
        node.world.wires.crash(BROKER)
        await node.start()
        client = await node.client()
        await client.create_topic("t")
        await client.produce("t", batch_of(b"old"))
        old_id = node.broker.topics.by_name["t"].topic_id
        last = node.disk.calls
        node.disk.crash_at(last + call, when)
        is_done = False
        try:
            async with asyncio.timeout(5):
                await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
                await client.create_topic("t")
                await client.produce("t", batch_of(b"new"))
                is_done = True
        except (TimeoutError, ConnectionError):
            pass
        await node.power_cut_and_started()
        client = await node.client()
        topic = node.broker.topics.by_name.get("t")
        if topic is not None:
            expected = {True: [[b"new"]], False: [[], [b"new"]]}[is_done] if topic.topic_id != old_id else [[b"old"]]
            assert await client.values("t") in expected, f"power lost {when} call {call}"
        else:
            assert not is_done
        if is_done:
            break
    else:
        raise AssertionError("the scenario has more disk calls than were tried")


# -- the directory


@simulated()
async def test_a_second_node_in_the_same_directory_is_refused(node: Node) -> None:
    from semel.broker.broker import Broker
    from semel.config import BrokerConfig

    second = Broker(node.host(), BrokerConfig({"log.dir": ROOT, "node.id": "1"}), node.broken.append)
    with pytest.raises(AlreadyLocked):
        await second.start()


@simulated()
async def test_another_node_is_told_whose_directory_it_is(node: Node) -> None:
    await node.stop()
    node.settings["node.id"] = "2"
    with pytest.raises(WrongDirectory, match="belongs to node 1"):
        await node.start()


@pytest.mark.parametrize("position", [0, 12, 30])
@simulated()
async def test_properties_that_are_damaged_are_told_in_words(node: Node, position: int) -> None:
    await node.stop()
    data = bytearray(node.disk.read_file(f"{ROOT}/meta.properties"))
    data[position] ^= 0x80
    node.disk.replace_file_now(f"{ROOT}/meta.properties", data)
    with pytest.raises(WrongDirectory, match="is damaged"):
        await node.start()


@simulated()
async def test_a_partition_that_cannot_be_opened_is_offline_and_the_others_go_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await node.client()
    await client.create_topic("bad")
    await client.create_topic("good")
    await client.produce("bad", batch_of(b"a"))
    await client.produce("good", batch_of(b"b"))
    await node.stop()
    from semel.broker import broker as broker_module

    load = broker_module.LogStore.load

    def damaged(self: Any, topic: str, *arguments: Any, **options: Any) -> Any:
        if topic == "bad":
            raise CorruptSegment("bad-0/0.log", 61, 0, "planted")
        return load(self, topic, *arguments, **options)

    monkeypatch.setattr(broker_module.LogStore, "load", damaged)
    await node.start()
    client = await node.client()
    assert await client.values("good") == [b"b"]
    assert (await client.produce("bad", batch_of(b"x"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.fetch("bad")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (topic,) = (await metadata(client, "bad")).topics
    assert (topic.partitions[0].error_code, topic.partitions[0].leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
