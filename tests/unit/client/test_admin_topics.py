"""Topics through the admin: created, described, grown and deleted, also when an answer is lost on the way."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from admin_fakes import FakeCluster, InTurn, faked
from admin_world import BETWEEN_ATTEMPTS_S, lost, on_broker, requests

from client_world import ClientWorld, batch_of
from semel.client.admin.admin import Admin
from semel.client.admin.outcome import AdminErrors
from semel.client.admin.values import ConfigSource, NewTopic, OffsetSpec
from semel.client.errors import BadSetting, BrokerRefused, TopicExists, UnknownTopic, UnsupportedByBroker
from semel.client.metadata import TopicPartition
from semel.sim.attack.fault_policy import Blow, Fault
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID, Response
from semel.wire.spec.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from semel.wire.spec.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


@on_broker()
async def test_a_topic_is_created_described_and_listed(world: ClientWorld, admin: Admin) -> None:
    made = await admin.create_topics(NewTopic("t", partitions=3, configs={"retention.ms": 1000, "preallocate": False}))
    assert (made["t"].partitions, made["t"].replication_factor, made["t"].answer_was_lost) == (3, 1, False)
    configs = made["t"].configs
    assert configs is not None
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("1000", ConfigSource.TOPIC)
    assert configs["preallocate"].value == "false"
    topic = (await admin.describe_topics("t"))["t"]
    assert topic.topic_id == made["t"].topic_id != NO_UUID
    assert sorted(topic.partitions) == [0, 1, 2]
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.replicas, partition.in_sync, partition.offline) == (1, (1,), (1,), ())
    assert list(await admin.list_topics()) == ["t"]


@on_broker()
async def test_internal_topics_are_listed_when_asked_for(world: ClientWorld, admin: Admin) -> None:
    await admin.fence_producers("somebody")
    assert list(await admin.list_topics()) == []
    listed = await admin.list_topics(include_internal=True)
    assert list(listed) == ["__transaction_state"]
    assert listed["__transaction_state"].is_internal


@on_broker()
async def test_a_topic_may_be_assigned_to_nodes(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", assignment={0: [1], 1: [1]}))
    assert sorted((await admin.describe_topics("t"))["t"].partitions) == [0, 1]
    with pytest.raises(BrokerRefused) as failed:
        await admin.create_topics(NewTopic("u", assignment={0: [9]}))
    assert failed.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@on_broker()
async def test_validation_creates_nothing(world: ClientWorld, admin: Admin) -> None:
    made = await admin.create_topics(NewTopic("t", 2, 1), validate_only=True)
    assert made["t"].partitions == 2
    assert await admin.list_topics() == {}
    with pytest.raises(BrokerRefused, match=r"retention\.ms"):
        await admin.create_topics(NewTopic("t", 2, 1, configs={"retention.ms": "soon"}), validate_only=True)
    await admin.create_topics(NewTopic("t", 2, 1))
    await admin.create_partitions({"t": 4}, validate_only=True)
    assert len((await admin.describe_topics("t"))["t"].partitions) == 2


@on_broker()
async def test_topics_fail_one_by_one(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("old", 1, 1))
    with pytest.raises(AdminErrors) as failed:
        await admin.create_topics([NewTopic("new", 1, 1), NewTopic("old", 1, 1), NewTopic("b/d", 1, 1)])
    assert list(failed.value.results) == ["new"]
    assert isinstance(failed.value.errors["old"], TopicExists)
    assert failed.value.errors["b/d"].code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert list(await admin.list_topics()) == ["new", "old"]
    with pytest.raises(BadSetting, match="None"):
        await admin.create_topics(NewTopic("x", 1, 1, configs={"retention.ms": None}))
    with pytest.raises(BadSetting, match="twice"):
        await admin.create_topics([NewTopic("x", 1, 1), NewTopic("x", 2, 1)])


@on_broker()
async def test_partitions_are_added(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    await admin.create_partitions({"t": 3}, assignment={"t": [[1], [1]]})
    assert len((await admin.describe_topics("t"))["t"].partitions) == 3
    with pytest.raises(BrokerRefused) as failed:
        await admin.create_partitions({"t": 2})
    assert failed.value.code == ErrorCode.INVALID_PARTITIONS
    with pytest.raises(UnknownTopic):
        await admin.create_partitions({"missing": 2})


@on_broker()
async def test_topics_are_deleted(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])
    with pytest.raises(AdminErrors) as failed:
        await admin.delete_topics(["a", "missing"])
    assert isinstance(failed.value.errors["missing"], UnknownTopic)
    assert list(await admin.list_topics()) == ["b"]
    await admin.delete_topics("b")
    with pytest.raises(UnknownTopic, match="'b'"):
        await admin.delete_topics("b")


@on_broker()
async def test_records_are_deleted_up_to_an_offset_or_all(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 2, 1))
    client = await world.node.client()
    assert (await client.produce("t", batch_of(b"a", b"b", b"c"))).error_code == 0
    place = TopicPartition("t", 0)
    assert await admin.delete_records({place: 2}) == {place: 2}
    assert (await admin.list_offsets("t", OffsetSpec.EARLIEST))[place].offset == 2
    assert await admin.delete_records({place: OffsetSpec.LATEST, TopicPartition("t", 1): 0}) == {
        place: 3,
        TopicPartition("t", 1): 0,
    }
    with pytest.raises(BrokerRefused, match="OFFSET_OUT_OF_RANGE") as failed:
        await admin.delete_records({place: 9})
    assert "seek" not in str(failed.value)
    with pytest.raises(BadSetting):
        await admin.delete_records({place: -2})
    with pytest.raises(UnknownTopic):
        await admin.delete_records({TopicPartition("t", 5): 0})


@on_broker(lost("DeleteRecords"))
async def test_records_written_meanwhile_survive_a_deletion_that_is_repeated(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    client = await world.node.client()
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    place = TopicPartition("t", 0)
    deletion = asyncio.ensure_future(admin.delete_records({place: OffsetSpec.LATEST}))
    await asyncio.sleep(BETWEEN_ATTEMPTS_S)
    assert requests(world, "DeleteRecords") == 1
    assert (await client.produce("t", batch_of(b"b"))).error_code == 0
    assert await deletion == {place: 1}
    assert requests(world, "DeleteRecords") == 2


@on_broker()
async def test_offsets_are_found_by_time(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    client = await world.node.client()
    for timestamp_ms in (1000, 3000, 2000):
        assert (await client.produce("t", batch_of(b"x", timestamp_ms=timestamp_ms))).error_code == 0
    place = TopicPartition("t", 0)

    async def found(at: int) -> tuple[int, int]:
        offset, timestamp_ms, _ = (await admin.list_offsets({place: at}))[place]
        return offset, timestamp_ms

    assert await found(1500) == (1, 3000)
    assert await found(OffsetSpec.MAX_TIMESTAMP) == (1, 3000)
    assert await found(4000) == (-1, -1)
    assert await found(OffsetSpec.EARLIEST) == (0, -1)
    assert await found(OffsetSpec.LATEST) == (3, -1)


# -- answers that are lost


@on_broker(lost("CreateTopics"))
async def test_a_topic_whose_answer_was_lost_counts_as_created_and_says_so(world: ClientWorld, admin: Admin) -> None:
    made = (await admin.create_topics(NewTopic("t", 3, 1)))["t"]
    assert made.answer_was_lost
    assert (made.partitions, made.replication_factor) == (3, 1)
    assert made.topic_id == (await admin.describe_topics("t"))["t"].topic_id


@on_broker({("CreateTopics", 2): Blow(Fault.CUT_AFTER)})
async def test_a_topic_that_is_there_in_another_shape_is_not_taken_for_ours(world: ClientWorld, admin: Admin) -> None:
    """The lost answer was a refusal: the topic was there before."""
    await admin.create_topics(NewTopic("t", 2, 1))
    with pytest.raises(TopicExists, match="other partitions"):
        await admin.create_topics(NewTopic("t", 3, 1))


@on_broker({("CreateTopics", 1): Blow(Fault.CUT_BEFORE)})
async def test_a_request_that_never_arrived_is_sent_again(world: ClientWorld, admin: Admin) -> None:
    assert not (await admin.create_topics(NewTopic("t", 1, 1)))["t"].answer_was_lost


@on_broker(lost("DeleteTopics"))
async def test_a_topic_that_is_gone_after_a_lost_answer_was_deleted(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    await admin.delete_topics("t")
    assert await admin.list_topics() == {}


@on_broker(lost("DeleteTopics"))
async def test_a_repeated_deletion_spares_a_new_topic_of_the_same_name(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    client = await world.node.client()
    deletion = asyncio.ensure_future(admin.delete_topics("t"))
    await asyncio.sleep(BETWEEN_ATTEMPTS_S)
    assert requests(world, "DeleteTopics") == 1
    assert (await client.create_topic("t", 2)).error_code == 0
    await deletion
    assert requests(world, "DeleteTopics") == 2
    assert len((await admin.describe_topics("t"))["t"].partitions) == 2


@on_broker(lost("CreatePartitions"))
async def test_partitions_that_are_there_after_a_lost_answer_were_added(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 1, 1))
    await admin.create_partitions({"t": 3})
    with pytest.raises(BrokerRefused):
        await admin.create_partitions({"t": 3})


@on_broker({("CreatePartitions", 1): Blow(Fault.CUT_AFTER)})
async def test_a_lost_refusal_is_refused_again(world: ClientWorld, admin: Admin) -> None:
    await admin.create_topics(NewTopic("t", 3, 1))
    with pytest.raises(BrokerRefused) as failed:
        await admin.create_partitions({"t": 2})
    assert failed.value.code == ErrorCode.INVALID_PARTITIONS


@faked(1)
async def test_what_was_never_sent_is_not_taken_for_served(cluster: FakeCluster) -> None:
    """The first attempt finds no connection, so the topic that is there is not ours."""
    cluster.topics = {"t": [1]}
    cluster.answers[CreateTopicsRequest] = lambda node_id, request: CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)]
    )
    async with cluster.admin(request_timeout_ms=1000) as admin:
        cluster.world.wires.part(["client"], ["node1"])
        call = asyncio.ensure_future(admin.create_topics(NewTopic("t", 1, 1)))
        await asyncio.sleep(1.5)
        cluster.world.wires.heal()
        with pytest.raises(TopicExists):
            await call


# -- nodes that lag behind


def created(node_id: int, request: CreateTopicsRequest) -> Response:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name) for topic in request.topics])


@faked(1, 2, 3)
async def test_creation_waits_until_every_node_tells_of_the_topic(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = created
    cluster.topics = {"t": [1, 2]}
    cluster.unknown_to = {3: {"t"}}
    async with cluster.admin() as admin:
        call = asyncio.ensure_future(admin.create_topics(NewTopic("t", 2, 1)))
        await asyncio.sleep(2)
        assert not call.done(), "node 3 does not know it yet"
        cluster.unknown_to = {}
        cluster.topics = {"t": [1, -1]}
        await asyncio.sleep(2)
        assert not call.done(), "one partition has no leader yet"
        cluster.topics = {"t": [1, 2]}
        async with asyncio.timeout(2):
            await call


@faked(1, 2)
async def test_creation_does_not_wait_when_told_so(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = created
    loop = asyncio.get_running_loop()
    async with cluster.admin() as admin:
        before_s = loop.time()
        await admin.create_topics(NewTopic("t", 2, 1), wait=False)
        await admin.create_topics(NewTopic("t", 2, 1), validate_only=True)
        assert loop.time() - before_s < 0.1


@faked(1, 2)
async def test_a_node_that_never_tells_is_reported_and_no_error(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = created
    cluster.topics = {"t": [1]}
    cluster.unknown_to = {2: {"t"}}
    seen: list[str] = []

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    handler = Seen()
    logging.getLogger("semel.client").addHandler(handler)
    try:
        async with cluster.admin(default_api_timeout_ms=5000) as admin:
            assert list(await admin.create_topics(NewTopic("t", 1, 1))) == ["t"]
    finally:
        logging.getLogger("semel.client").removeHandler(handler)
    assert seen == ["nodes [2] do not tell of the changed topics ['t'] yet"]


@faked(1, 2)
async def test_what_was_created_is_waited_for_also_when_another_topic_failed(cluster: FakeCluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda node_id, request: CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t"), CreatableTopicResult(name="bad", error_code=ErrorCode.INVALID_CONFIG)]
    )
    cluster.topics = {"t": [1]}
    cluster.unknown_to = {2: {"t"}}
    async with cluster.admin() as admin:
        call = asyncio.ensure_future(admin.create_topics([NewTopic("t", 1, 1), NewTopic("bad", 1, 1)]))
        await asyncio.sleep(2)
        assert not call.done()
        cluster.unknown_to = {}
        with pytest.raises(AdminErrors):
            await call


@faked(1, 2)
async def test_deletion_waits_until_no_node_tells_of_the_topic(cluster: FakeCluster) -> None:
    cluster.topics = {"t": [1]}
    cluster.answers[DeleteTopicsRequest] = lambda node_id, request: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name="t", topic_id=topic.topic_id) for topic in request.topics]
    )
    async with cluster.admin() as admin:
        call = asyncio.ensure_future(admin.delete_topics("t"))
        await asyncio.sleep(2)
        assert not call.done()
        cluster.topic_ids = {"t": b"another one....."}
        async with asyncio.timeout(2):
            await call
    (request,) = cluster.requests(DeleteTopicsRequest)
    assert [(topic.name, topic.topic_id) for topic in request.topics] == [(None, b"t".ljust(16, b"\1"))]


@faked(1)
async def test_old_brokers_delete_by_name(cluster: FakeCluster) -> None:
    cluster.limits = {20: 5, 3: 9}
    cluster.topics = {"t": [1]}

    def delete(node_id: int, request: Any) -> Response:
        assert list(request.topic_names) == ["t"]
        cluster.topics = {}
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])

    cluster.answers[DeleteTopicsRequest] = delete
    async with cluster.admin() as admin:
        await admin.delete_topics("t")


@faked(1)
async def test_a_topic_without_numbers_is_not_asked_of_a_broker_without_defaults(cluster: FakeCluster) -> None:
    cluster.limits = {19: 3}
    cluster.answers[CreateTopicsRequest] = created
    async with cluster.admin() as admin:
        with pytest.raises(UnsupportedByBroker):
            await admin.create_topics(NewTopic("t"))
        await admin.create_topics(NewTopic("t", assignment={0: [1]}), wait=False)
        await admin.create_topics(NewTopic("t", 1, 1), wait=False)
    assert cluster.versions_asked(CreateTopicsRequest) == [3, 3]


@faked(1)
async def test_a_timeout_of_the_controller_counts_as_a_lost_answer(cluster: FakeCluster) -> None:
    """The controller may have gone on after it gave up waiting."""

    def answer(code: int) -> Any:
        return lambda node_id, request: CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])

    cluster.topics = {"t": [1]}
    cluster.answers[CreateTopicsRequest] = InTurn(
        answer(ErrorCode.REQUEST_TIMED_OUT), answer(ErrorCode.TOPIC_ALREADY_EXISTS)
    )
    async with cluster.admin() as admin:
        assert (await admin.create_topics(NewTopic("t", 1, 1)))["t"].answer_was_lost
