"""Requests with many entries, and answers of many bytes: others are served meanwhile, and memory has its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import (
    Node,
    RawClient,
    batch_of,
    fetch_request,
    partition_of,
    produce_request,
    simulated,
    values_in,
)

from semel.broker import topics as topics_module
from semel.rpc import slices as slices_module
from semel.rpc.budget import Owner
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest
from semel.wire.spec.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from semel.wire.spec.describe_groups import DescribeGroupsRequest
from semel.wire.spec.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from semel.wire.spec.describe_transactions import DescribeTransactionsRequest
from semel.wire.spec.fetch import FetchResponse, ForgottenTopic
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic
from semel.wire.spec.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData

INITIAL = 0
MANY = 10_000  # more than a slice has of the simulator's steps
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32


async def until(happened: Callable[[], bool]) -> None:
    """Looks in every turn of the loop."""
    for _ in range(1000):
        if happened():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


def mentioned(response: FetchResponse) -> dict[str, int]:
    return {topic.topic: partition.error_code for topic in response.responses for partition in topic.partitions}


def unknown_topics(count: int = MANY) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


@simulated()
async def test_a_small_request_is_answered_while_a_long_one_is_worked_on(node: Node) -> None:
    one, other = await node.client(), await node.client()
    long = one.send(unknown_topics())
    await until(lambda: node.broker.budget.bytes_of(Owner.REQUEST) > 0)
    small = await other.ask(unknown_topics(1))
    assert len(small.topics) == 1
    assert not long.done()
    assert len((await long).topics) == MANY
    assert node.broker.budget.used_bytes == 0


@simulated()
async def test_answers_come_in_order_also_when_one_is_long(node: Node) -> None:
    client = await node.client()
    answers = [client.send(unknown_topics(count)) for count in (1, MANY, 2, 3)]
    assert [len((await answer).topics) for answer in answers] == [1, MANY, 2, 3]


@simulated()
async def test_a_client_that_goes_while_its_request_is_worked_on_leaves_nothing_behind(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"x" * 1000))
    offsets = {("t", 0): 0} | {("nothing", number): 0 for number in range(MANY)}
    for request in (unknown_topics(), fetch_request(offsets)):
        for turns in (1, 3, 6, 10):
            leaving = await node.client()
            answer = leaving.send(request, 12)
            await asyncio.sleep(0.001)
            for _ in range(turns):
                await asyncio.sleep(0)
            leaving.close()
            await asyncio.sleep(1)
            assert answer.done()
            assert node.broker.budget.used_bytes == 0
    node.check_pins()


@simulated(settings={"max.request.entries": "1000"})
async def test_a_request_of_more_entries_than_may_be_closes_its_connection(node: Node) -> None:
    client = await node.client()
    assert len((await client.ask(unknown_topics(1000))).topics) == 1000
    with pytest.raises(ConnectionError):
        await client.ask(unknown_topics(1001))
    entries = [PartitionProduceData(index=0, records=None)] * 600
    produce = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=name, partition_data=entries) for name in "ab"])
    with pytest.raises(ConnectionError):
        await (await node.client()).ask(produce, 9)
    assert node.broker.budget.used_bytes == 0


def configs(*resources: tuple[int, str, list[str] | None]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ]
    )


@simulated()
async def test_a_resource_that_is_named_again_is_described_once_with_all_that_was_asked(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    topic = (await client.ask(configs(*[(TOPIC_RESOURCE, "t", None)] * MANY))).results
    assert len(topic) == 1
    names = ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"]
    asked = [(GROUP_RESOURCE, "g", [name]) for name in names]
    (group,) = (await client.ask(configs(*asked, *asked))).results
    assert sorted(config.name for config in group.configs) == names
    (all_of_it,) = (await client.ask(configs(*asked, (GROUP_RESOURCE, "g", None), *asked))).results
    assert len(all_of_it.configs) > 2


@pytest.mark.parametrize(
    ("request_", "answers"),
    [
        (
            DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0] * 1000)] * 2),
            lambda response: [one for topic in response.topics for one in topic.partitions],
        ),
        (
            ListOffsetsRequest(
                topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)] * 1000)] * 2
            ),
            lambda response: [one for topic in response.topics for one in topic.partitions],
        ),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 1000), lambda response: response.topics),
        (DescribeGroupsRequest(groups=["g"] * 1000), lambda response: response.groups),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["g"] * 1000), lambda response: response.coordinators),
        (DescribeTransactionsRequest(transactional_ids=["t"] * 1000), lambda response: response.transaction_states),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 1000),
            lambda response: response.groups,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@simulated()
async def test_what_is_named_again_is_answered_once(node: Node, request_: Request, answers: Any) -> None:
    client = await node.client()
    await client.create_topic("t")
    version = 9 if isinstance(request_, OffsetFetchRequest) else None
    assert len(answers(await client.ask(request_, version))) == 1


@simulated()
async def test_more_partitions_than_kafka_makes_in_one_request_are_refused_and_none_is_made(node: Node) -> None:
    client = await node.client()
    topics = [CreatableTopic(name=name, num_partitions=5001, replication_factor=1) for name in "ab"]
    response = await client.ask(CreateTopicsRequest(topics=topics))
    assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}
    assert not node.broker.image.topics


@simulated()
async def test_partitions_that_are_not_open_yet_are_served_when_somebody_asks_for_them(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_module, "_SLICE_MS", 0)  # one in each turn of the loop
    client = await node.client()
    answer = client.send(
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=500, replication_factor=1)])
    )
    topics = node.broker.topics
    await until(lambda: "t" in topics.by_name)
    assert len(topics.online()) < 500, "the others are opened in slices"
    assert topics.partition("t", 499).log.end_offset == 0
    assert (await answer).topics[0].error_code == 0
    assert (await client.produce("t", batch_of(b"a"), partition=498)).error_code == 0
    await asyncio.sleep(1)
    assert len(topics.online()) == 500
    assert topics.partition("t", 498).log.end_offset == 1


@simulated()
async def test_no_flush_commits_more_decisions_of_one_request_than_a_turn_can_carry_out(node: Node) -> None:
    client = await node.client()
    node.hold_flushes(100)
    names = [f"t{number}" for number in range(120)]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answer = client.send(CreateTopicsRequest(topics=topics))
    await asyncio.sleep(0.05)
    assert len(node.broker.controller.metadata.decided.topics) == 50
    assert [topic.error_code for topic in (await answer).topics] == [0] * 120
    assert len(node.broker.image.topics) == 120


# -- produce


@simulated()
async def test_a_produce_of_many_partitions_writes_all_of_them_and_tells_each_what_came_of_it(node: Node) -> None:
    client, other = await node.client(), await node.client()
    await client.create_topic("t", 3)
    batches = [batch_of(b"%d" % number) for number in range(3000)]
    data = [PartitionProduceData(index=n % 4, records=memoryview(batch)) for n, batch in enumerate(batches)]
    answer = client.send(ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)]), 9)
    small = other.send(unknown_topics(1))
    results = (await answer).responses[0].partition_responses
    assert (await small).topics
    expected = [(n % 4, 3 if n % 4 == 3 else 0, -1 if n % 4 == 3 else n // 4) for n in range(3000)]
    assert [(one.index, one.error_code, one.base_offset) for one in results] == expected
    assert await client.values("t", 700) == [b"%d" % number for number in range(2800, 3000, 4)]
    assert node.broker.budget.used_bytes == 0


@simulated()
async def test_a_long_produce_keeps_its_records_while_others_are_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it came whole, it lay in the buffer into which all connections are read: mostly it does."""
    monkeypatch.setattr(slices_module, "_STEPS", 5)
    client, other = await node.client(), await node.client()
    names = [MetadataRequestTopic(name="x" * 1000) for _ in range(50)]
    for topic in "abcdefgh":
        await client.create_topic(topic)
        data = [PartitionProduceData(index=0, records=memoryview(batch_of(b"%d" % n))) for n in range(200)]
        answer = client.send(ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=topic, partition_data=data)]), 9)
        partition = node.broker.topics.partition(topic, 0)
        await until(lambda partition=partition: partition.log.end_offset > 0)
        assert (await other.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False))).topics
        assert not answer.done()
        assert {one.error_code for one in (await answer).responses[0].partition_responses} == {0}
        assert await client.values(topic, 0) == [b"%d" % n for n in range(200)]


@simulated()
async def test_a_long_produce_is_answered_when_all_of_it_is_durable(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", 2)
    node.hold_flushes(100)
    data = [PartitionProduceData(index=n % 2, records=memoryview(batch_of(b"x"))) for n in range(200)]
    answer = client.send(ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)]), 9)
    await asyncio.sleep(0.05)
    assert not answer.done()
    assert {one.error_code for one in (await answer).responses[0].partition_responses} == {0}
    assert node.broker.topics.partition("t", 1).log.high_watermark == 100


@simulated()
async def test_a_long_produce_without_an_answer_that_fails_ends_its_connection(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    data = [PartitionProduceData(index=n % 2, records=memoryview(batch_of(b"x"))) for n in range(200)]
    request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t", partition_data=data)])
    client.send(request, 9, is_answered=False)
    await asyncio.wait_for(client.is_closed.wait(), 5)


# -- fetches


def everything(count: int, **options: Any) -> Any:
    return fetch_request({("t", index): 0 for index in range(count)}, **options)


@simulated()
async def test_a_fetch_of_many_partitions_finds_what_was_written_while_it_looked(node: Node) -> None:
    client, producer = await node.client(), await node.client()
    await client.create_topic("t", 5000)
    partition = node.broker.topics.partition("t", 0)
    answer = client.send(everything(5000, max_wait_ms=60_000), 12)
    # It has looked at the first ones, and goes on with others.
    await until(lambda: bool(partition.watchers))
    assert not answer.done()
    await producer.produce("t", batch_of(b"meanwhile"))
    assert values_in(partition_of(await asyncio.wait_for(answer, 1), "t")) == [b"meanwhile"]
    node.check_pins()


@simulated()
async def test_a_fetch_of_many_partitions_waits_and_is_woken(node: Node) -> None:
    client, producer = await node.client(), await node.client()
    await client.create_topic("t", 500)
    first = await client.ask(everything(500, session_epoch=INITIAL), 12)
    assert first.session_id
    waiting = client.send(fetch_request({}, max_wait_ms=60_000, session_id=first.session_id, session_epoch=1), 12)
    await asyncio.sleep(5)
    assert not waiting.done()
    await producer.produce("t", batch_of(b"news"), partition=499)
    assert mentioned(await asyncio.wait_for(waiting, 1)) == {"t": 0}
    without = client.send(everything(500, max_wait_ms=3000, min_bytes=10_000), 12)
    await asyncio.sleep(2)
    assert not without.done()
    assert len((await asyncio.wait_for(without, 2)).responses[0].partitions) == 500


@simulated(settings={"max.incremental.fetch.session.partitions": "100"})
async def test_a_session_has_no_more_partitions_than_it_may(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", 102)
    large = await client.ask(everything(101, session_epoch=INITIAL), 12)
    assert (large.error_code, large.session_id) == (0, 0)
    assert len(large.responses[0].partitions) == 101
    kept = await client.ask(everything(100, session_epoch=INITIAL), 12)
    assert kept.session_id
    more = fetch_request({("t", 100): 0, ("t", 101): 0}, session_id=kept.session_id, session_epoch=1)
    assert (await client.ask(more, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(node.broker.fetch_sessions) == 0
    assert node.broker.budget.used_bytes == 0


@simulated(settings={"queued.max.request.bytes": str(1 << 20), "socket.request.max.bytes": str(1 << 20)})
async def test_sessions_share_a_part_of_the_memory(node: Node) -> None:
    """A quarter of a megabyte, and some six hundred bytes for each partition."""
    client = await node.client()
    await client.create_topic("t", 150)
    answers = [await client.ask(everything(150, session_epoch=INITIAL), 12) for _ in range(4)]
    kept = [answer.session_id for answer in answers if answer.session_id]
    assert len(kept) == 2
    assert node.broker.budget.bytes_of(Owner.SESSION) <= 256 << 10
    forgotten = ForgottenTopic(topic="t", partitions=list(range(140)))
    smaller = fetch_request({}, session_id=kept[0], session_epoch=1, forgotten_topics_data=[forgotten])
    assert (await client.ask(smaller, 12)).error_code == 0
    assert (await client.ask(everything(100, session_epoch=INITIAL), 12)).session_id, "there is room again"


# -- answers that nobody reads


@simulated()
async def test_what_is_not_read_counts_until_it_is(node: Node) -> None:
    client = await node.client()
    for number in range(50):
        await client.create_topic(f"topic-{number}", 20)
    stuck = await node.client()
    stuck.link.pause_reading()
    for _ in range(100):
        stuck.send(MetadataRequest(topics=None))
    await asyncio.sleep(1)
    counted = node.broker.budget.bytes_of(Owner.ANSWER)
    assert counted > 500_000
    stuck.link.resume_reading()
    await asyncio.sleep(5)
    assert node.broker.budget.used_bytes == 0
    assert (await RawClient.ask(stuck, produce_request("topic-0", batch_of(b"a")), 9)).responses
