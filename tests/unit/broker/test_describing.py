"""DescribeCluster, DescribeLogDirs, DescribeTopicPartitions, DescribeProducers and ApiVersions through the wire."""

from __future__ import annotations

import pytest
from broker_harness import NOW_MS, ROOT, Node, RawClient, batch_of, simulated

from semel.broker.authoriser import Operation
from semel.broker.handlers import HANDLERS
from semel.controller.levels import LEVEL_OF_A_NODE_ALONE, SUPPORTED_FEATURES, features_at
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.describe_cluster import DescribeClusterRequest
from semel.wire.spec.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsRequestTopic
from semel.wire.spec.describe_producers import DescribeProducersRequest, DescribeProducersTopic, ProducerState
from semel.wire.spec.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)

# -- ApiVersions


@pytest.mark.parametrize("version", range(6))
@simulated()
async def test_what_is_served_is_advertised(node: Node, version: int) -> None:
    client = await node.client()
    request = ApiVersionsRequest(client_software_name="semel", client_software_version="1.0")
    response = await client.ask(request, version)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert advertised == {key: (served.advertised_min, served.max_version) for key, served in HANDLERS.items()}
    assert advertised[0] == (0, 13), "librdkafka stops compressing when it does not see Produce 0"
    if version >= 3:
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        assert levels == features_at(LEVEL_OF_A_NODE_ALONE)
        assert levels["metadata.version"] == 7


@simulated()
async def test_a_feature_that_begins_at_zero_is_kept_from_clients_that_fail_over_it(node: Node) -> None:
    """KAFKA-17011: Java's admin of before 3.9 cannot read a least level of 0."""
    client = await node.client()
    request = ApiVersionsRequest(client_software_name="semel", client_software_version="1.0")

    async def supported(version: int) -> dict[str, tuple[int, int]]:
        response = await client.ask(request, version)
        return {feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features}

    assert await supported(3) == {"metadata.version": (7, 30)}
    assert await supported(4) == SUPPORTED_FEATURES


@simulated()
async def test_a_client_that_reached_another_node_than_it_meant_is_told_to_start_again(node: Node) -> None:
    """KIP-1242."""
    client = await node.client()
    cluster_id = node.broker.cluster_id

    async def code(cluster_id: str | None, node_id: int, version: int = 5) -> ErrorCode:
        request = ApiVersionsRequest(
            client_software_name="x", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        response = await client.ask(request, version)
        assert bool(response.api_keys) == (response.error_code == 0)
        return ErrorCode(response.error_code)

    assert await code(None, -1) == ErrorCode.NONE
    assert await code(cluster_id, 1) == ErrorCode.NONE
    assert await code("another", 1) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert await code(cluster_id, 2) == ErrorCode.REBOOTSTRAP_REQUIRED
    for half in ((None, 1), (cluster_id, -1)):
        assert await code(*half) == ErrorCode.INVALID_REQUEST
    assert await code("another", 2, version=4) == ErrorCode.NONE, "an older version does not carry them"


@pytest.mark.parametrize("name", ["", "-x", "x y", "x-"])
@simulated()
async def test_a_client_whose_software_has_no_proper_name_is_told(node: Node, name: str) -> None:
    client = await node.client()
    for request in (
        ApiVersionsRequest(client_software_name=name, client_software_version="1"),
        ApiVersionsRequest(client_software_name="x", client_software_version=name),
    ):
        assert (await client.ask(request, 3)).error_code == ErrorCode.INVALID_REQUEST


# -- DescribeCluster


@pytest.mark.parametrize("version", range(3))
@simulated(settings={"broker.rack": "cellar"})
async def test_the_cluster_is_one_node(node: Node, version: int) -> None:
    client = await node.client()
    response = await client.ask(DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id) == (0, node.broker.cluster_id)
    assert response.controller_id == 1
    (found,) = response.brokers
    assert (found.broker_id, found.host, found.port, found.rack) == (1, "127.0.0.1", 9092, "cellar")
    assert response.cluster_authorized_operations == -(1 << 31)


@simulated()
async def test_what_one_may_do_with_the_cluster_is_told_when_asked(node: Node) -> None:
    client = await node.client()
    response = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert response.cluster_authorized_operations & (1 << Operation.IDEMPOTENT_WRITE)
    assert not response.cluster_authorized_operations & (1 << Operation.READ)


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
@simulated()
async def test_other_endpoints_are_refused(node: Node, kind: int, code: ErrorCode) -> None:
    client = await node.client()
    response = await client.ask(DescribeClusterRequest(endpoint_type=kind))
    assert (response.error_code, list(response.brokers)) == (code, [])
    assert response.error_message


# -- DescribeLogDirs


@pytest.mark.parametrize("version", range(1, 6))
@simulated()
async def test_partitions_are_listed_with_their_size(node: Node, version: int) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=2)
    await client.create_topic("u")
    batch = batch_of(b"x" * 1000)
    await client.produce("t", batch, partition=1)
    response = await client.ask(DescribeLogDirsRequest(topics=None), version)
    (found,) = response.results
    assert found.log_dir == ROOT
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in found.topics
        for partition in topic.partitions
    }
    assert sizes == {("t", 0): 0, ("t", 1): len(batch), ("u", 0): 0}
    if version >= 4:
        assert found.total_bytes == node.disk.total_bytes(ROOT)
        assert not found.is_cordoned
        assert 0 < found.usable_bytes == node.disk.free_bytes(ROOT) < found.total_bytes


@simulated()
async def test_only_the_partitions_asked_for_are_listed(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=2)
    wanted = [
        DescribeLogDirsRequestTopic(topic="t", partitions=[1, 7]),
        DescribeLogDirsRequestTopic(topic="nobody", partitions=[0]),
    ]
    response = await client.ask(DescribeLogDirsRequest(topics=wanted))
    ((topic,),) = (found.topics for found in response.results)
    assert [(topic.name, partition.partition_index) for partition in topic.partitions] == [("t", 1)]


# -- DescribeTopicPartitions


async def page(
    client: RawClient, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = await client.ask(request)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def listed(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]


@simulated()
async def test_partitions_are_described_with_their_leaders(node: Node) -> None:
    client = await node.client()
    made = await client.create_topic("t")
    (topic,) = (await page(client, "t")).topics
    assert (topic.topic_id, topic.is_internal) == (made.topic_id, False)
    assert topic.topic_authorized_operations & (1 << Operation.READ)
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch, list(partition.isr_nodes)) == (1, 0, [1])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("by_name", [True, False])
@simulated()
async def test_pages_put_together_are_everything_once_and_in_order(node: Node, limit: int, by_name: bool) -> None:
    client = await node.client()
    for name, partitions in (("c", 2), ("a", 3), ("b", 1)):
        await client.create_topic(name, partitions=partitions)
    names = ["c", "b", "a"] if by_name else []
    found: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(10):
        response = await page(client, *names, limit=limit, cursor=cursor)
        assert 1 <= len(listed(response)) <= limit
        assert all(topic.partitions for topic in response.topics)
        found += listed(response)
        if response.next_cursor is None:
            break
        cursor = response.next_cursor.topic_name, response.next_cursor.partition_index
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


@simulated(settings={"max.request.partition.size.limit": "2"})
async def test_the_limits_of_the_node_and_of_the_request_both_count(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t", partitions=3)
    assert len(listed(await page(client, limit=100))) == 2
    assert len(listed(await page(client, limit=0))) == 1


@simulated()
async def test_unknown_topics_have_their_code_when_they_are_named(node: Node) -> None:
    client = await node.client()
    response = await page(client, "nobody", "no name")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("no name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [("t", -1), ("u", 0)])
@simulated()
async def test_a_cursor_that_no_page_could_have_returned_is_refused(node: Node, cursor: tuple[str, int]) -> None:
    client = await node.client()
    await client.create_topic("t")
    response = await page(client, "t", cursor=cursor)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


@simulated()
async def test_a_cursor_past_the_last_partition_gives_an_empty_topic(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    response = await page(client, "t", cursor=("t", 9))
    assert (listed(response), response.next_cursor) == ([], None)


# -- DescribeProducers


@simulated()
async def test_producers_of_a_partition_are_described(node: Node) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a", b"b", producer_id=7, epoch=3))
    topics = [
        DescribeProducersTopic(name="t", partition_indexes=[0, 5]),
        DescribeProducersTopic(name="nobody", partition_indexes=[0]),
    ]
    response = await client.ask(DescribeProducersRequest(topics=topics))
    (known, missing), (unknown,) = (topic.partitions for topic in response.topics)
    (producer,) = known.active_producers
    assert producer.last_timestamp >= NOW_MS
    producer.last_timestamp = NOW_MS
    assert producer == ProducerState(
        producer_id=7,
        producer_epoch=3,
        last_sequence=1,
        last_timestamp=NOW_MS,
        coordinator_epoch=-1,
        current_txn_start_offset=-1,
    )
    assert missing.error_code == unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_message
