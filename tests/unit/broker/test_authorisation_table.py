"""Who may do what: for every served API, what a request asks the authoriser, and what a denial looks like.

The table is the contract. An API that is served and not in it fails the test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from broker_harness import Node, batch_of, fetch_request, produce_request, simulated

from semel.broker.authoriser import OPERATIONS, Operation, ResourceType
from semel.broker.handlers import HANDLERS
from semel.wire.apis import API
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request
from semel.wire.spec.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from semel.wire.spec.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from semel.wire.spec.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.create_acls import AclCreation, CreateAclsRequest
from semel.wire.spec.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest
from semel.wire.spec.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from semel.wire.spec.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.describe_acls import DescribeAclsRequest
from semel.wire.spec.describe_cluster import DescribeClusterRequest
from semel.wire.spec.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from semel.wire.spec.describe_log_dirs import DescribeLogDirsRequest
from semel.wire.spec.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from semel.wire.spec.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from semel.wire.spec.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
)
from semel.wire.spec.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from semel.wire.spec.elect_leaders import ElectLeadersRequest
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.list_config_resources import ListConfigResourcesRequest
from semel.wire.spec.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from semel.wire.spec.list_partition_reassignments import ListPartitionReassignmentsRequest
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic
from semel.wire.spec.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest
from semel.wire.spec.unregister_broker import UnregisterBrokerRequest
from semel.wire.spec.update_features import FeatureUpdate, UpdateFeaturesRequest

Call = tuple[Operation, ResourceType, str | None]


def on_topic(operation: Operation, name: str = "t") -> Call:
    return operation, ResourceType.TOPIC, name


def on_cluster(operation: Operation) -> Call:
    return operation, ResourceType.CLUSTER, "kafka-cluster"


ALL_OF_CLUSTER = [on_cluster(operation) for operation in OPERATIONS[ResourceType.CLUSTER]]
ALL_OF_TOPIC = [on_topic(operation) for operation in OPERATIONS[ResourceType.TOPIC]]
UNCHECKED = object()  # what comes of it depends on more than permissions
DENIED_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DENIED_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Row(NamedTuple):
    request: Request
    version: int
    asks: list[Call]  # of an authoriser that allows everything
    asks_when_denied: list[Call]
    code_of: Callable[[Any], Any]  # the codes in an answer
    denied: Any  # what they are when everything is denied
    allowed: Any = 0


ALTER = IncrementalAlterConfigsRequest(
    resources=[
        IncrementalAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[ConfigAlteration(name=setting, config_operation=0, value="1000")],
        )
        for kind, name, setting in ((2, "t", "segment.bytes"), (4, "1", "log.segment.bytes"))
    ]
)
REPLACE = AlterConfigsRequest(
    resources=[
        AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[AlterableConfig(name=setting, value="1000")]
        )
        for kind, name, setting in ((2, "t", "segment.bytes"), (4, "", "log.segment.bytes"))
    ]
)
DESCRIBE = DescribeConfigsRequest(
    resources=[
        DescribeConfigsResource(resource_type=2, resource_name="t"),
        DescribeConfigsResource(resource_type=4, resource_name="1"),
    ]
)


def codes(response: Any) -> list[int]:
    return [result.error_code for result in response.responses]


TABLE: dict[str, Row] = {
    "SaslHandshake": Row(
        SaslHandshakeRequest(mechanism="PLAIN"),
        1,
        [],
        [],
        lambda response: response.error_code,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.ILLEGAL_SASL_STATE,
    ),
    "SaslAuthenticate": Row(
        SaslAuthenticateRequest(auth_bytes=b"\0a\0b"),
        2,
        [],
        [],
        lambda response: response.error_code,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.ILLEGAL_SASL_STATE,
    ),
    "DescribeUserScramCredentials": Row(
        DescribeUserScramCredentialsRequest(users=None),
        0,
        [on_cluster(Operation.DESCRIBE)],
        [on_cluster(Operation.DESCRIBE)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "AlterUserScramCredentials": Row(
        AlterUserScramCredentialsRequest(
            upsertions=[
                ScramCredentialUpsertion(
                    name="a", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
                )
            ]
        ),
        0,
        [on_cluster(Operation.ALTER)],
        [on_cluster(Operation.ALTER)],
        lambda response: response.results[0].error_code,
        DENIED_CLUSTER,
    ),
    "Produce": Row(
        produce_request("t", batch_of(b"new")),
        12,
        [on_topic(Operation.WRITE)],
        [on_topic(Operation.WRITE)],
        lambda response: response.responses[0].partition_responses[0].error_code,
        DENIED_TOPIC,
    ),
    "Fetch": Row(
        fetch_request({("t", 0): 0}),
        12,
        [on_topic(Operation.READ)],
        [on_topic(Operation.READ)],
        lambda response: response.responses[0].partitions[0].error_code,
        DENIED_TOPIC,
    ),
    "ListOffsets": Row(
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
        ),
        11,
        [on_topic(Operation.DESCRIBE)],
        [on_topic(Operation.DESCRIBE)],
        lambda response: response.topics[0].partitions[0].error_code,
        DENIED_TOPIC,
    ),
    "Metadata": Row(
        MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
        13,
        [on_topic(Operation.DESCRIBE)],
        [on_topic(Operation.DESCRIBE)],
        lambda response: response.topics[0].error_code,
        DENIED_TOPIC,
    ),
    "Metadata of all topics": Row(
        MetadataRequest(topics=None),
        13,
        [on_topic(Operation.DESCRIBE)],
        [on_topic(Operation.DESCRIBE)],
        lambda response: [topic.error_code for topic in response.topics],
        [],
        [0],
    ),
    "Metadata with operations": Row(
        MetadataRequest(
            topics=[MetadataRequestTopic(name="t")],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        10,
        [on_cluster(Operation.DESCRIBE), *ALL_OF_CLUSTER, on_topic(Operation.DESCRIBE), *ALL_OF_TOPIC],
        [on_cluster(Operation.DESCRIBE), on_topic(Operation.DESCRIBE)],
        lambda response: (response.topics[0].error_code, response.cluster_authorized_operations == 0),
        (DENIED_TOPIC, True),
        (0, False),
    ),
    "Metadata that creates": Row(
        MetadataRequest(topics=[MetadataRequestTopic(name="new")]),
        13,
        [on_cluster(Operation.CREATE), on_topic(Operation.DESCRIBE, "new"), on_topic(Operation.DESCRIBE, "new")],
        [on_cluster(Operation.CREATE), on_topic(Operation.DESCRIBE, "new"), on_topic(Operation.DESCRIBE, "new")],
        lambda response: response.topics[0].error_code,
        DENIED_TOPIC,
    ),
    "ApiVersions": Row(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"),
        4,
        [],
        [],
        lambda response: response.error_code,
        0,
    ),
    "CreateTopics": Row(
        CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]),
        7,
        [on_cluster(Operation.CREATE), on_topic(Operation.DESCRIBE_CONFIGS, "new")],
        [on_cluster(Operation.CREATE), on_topic(Operation.CREATE, "new")],
        lambda response: response.topics[0].error_code,
        DENIED_TOPIC,
    ),
    "DeleteTopics": Row(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
        6,
        [on_topic(Operation.DELETE)],
        [on_topic(Operation.DELETE)],
        lambda response: codes(response)[0],
        DENIED_TOPIC,
    ),
    "DeleteRecords": Row(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])]
        ),
        2,
        [on_topic(Operation.DELETE)],
        [on_topic(Operation.DELETE)],
        lambda response: response.topics[0].partitions[0].error_code,
        DENIED_TOPIC,
    ),
    "InitProducerId": Row(
        InitProducerIdRequest(transactional_id=None),
        5,
        [on_cluster(Operation.IDEMPOTENT_WRITE)],
        [on_cluster(Operation.IDEMPOTENT_WRITE), (Operation.WRITE, ResourceType.TOPIC, None)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "InitProducerId with a transactional id": Row(
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000),
        5,
        [(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")],
        [(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")],
        lambda response: response.error_code,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        UNCHECKED,
    ),
    "OffsetForLeaderEpoch": Row(
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0)])]
        ),
        4,
        [on_cluster(Operation.CLUSTER_ACTION)],
        [on_cluster(Operation.CLUSTER_ACTION), on_topic(Operation.DESCRIBE)],
        lambda response: response.topics[0].partitions[0].error_code,
        DENIED_TOPIC,
    ),
    "DescribeAcls": Row(
        DescribeAclsRequest(),
        3,
        [on_cluster(Operation.DESCRIBE)],
        [on_cluster(Operation.DESCRIBE)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
        ErrorCode.SECURITY_DISABLED,
    ),
    "CreateAcls": Row(
        CreateAclsRequest(creations=[AclCreation()]),
        3,
        [on_cluster(Operation.ALTER)],
        [on_cluster(Operation.ALTER)],
        lambda response: response.results[0].error_code,
        DENIED_CLUSTER,
        ErrorCode.SECURITY_DISABLED,
    ),
    "DeleteAcls": Row(
        DeleteAclsRequest(filters=[DeleteAclsFilter()]),
        3,
        [on_cluster(Operation.ALTER)],
        [on_cluster(Operation.ALTER)],
        lambda response: response.filter_results[0].error_code,
        DENIED_CLUSTER,
        ErrorCode.SECURITY_DISABLED,
    ),
    "DescribeConfigs": Row(
        DESCRIBE,
        4,
        [on_topic(Operation.DESCRIBE_CONFIGS), on_cluster(Operation.DESCRIBE_CONFIGS)],
        [on_topic(Operation.DESCRIBE_CONFIGS), on_cluster(Operation.DESCRIBE_CONFIGS)],
        lambda response: [(result.error_code, bool(result.configs)) for result in response.results],
        [(DENIED_TOPIC, False), (DENIED_CLUSTER, False)],
        [(0, True), (0, True)],
    ),
    "AlterConfigs": Row(
        REPLACE,
        2,
        [on_topic(Operation.ALTER_CONFIGS), on_cluster(Operation.ALTER_CONFIGS)],
        [on_topic(Operation.ALTER_CONFIGS), on_cluster(Operation.ALTER_CONFIGS)],
        codes,
        [DENIED_TOPIC, DENIED_CLUSTER],
        [0, 0],
    ),
    "ListConfigResources": Row(
        ListConfigResourcesRequest(),
        1,
        [on_cluster(Operation.DESCRIBE_CONFIGS)],
        [on_cluster(Operation.DESCRIBE_CONFIGS)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "DescribeLogDirs": Row(
        DescribeLogDirsRequest(topics=None),
        4,
        [on_cluster(Operation.DESCRIBE)],
        [on_cluster(Operation.DESCRIBE)],
        lambda response: (response.error_code, len(response.results)),
        (DENIED_CLUSTER, 0),
        (0, 1),
    ),
    "CreatePartitions": Row(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)]),
        3,
        [on_topic(Operation.ALTER)],
        [on_topic(Operation.ALTER)],
        lambda response: response.results[0].error_code,
        DENIED_TOPIC,
    ),
    "ElectLeaders": Row(
        ElectLeadersRequest(topic_partitions=None),
        2,
        [on_cluster(Operation.ALTER)],
        [on_cluster(Operation.ALTER)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "AlterPartitionReassignments": Row(
        AlterPartitionReassignmentsRequest(),
        1,
        [on_cluster(Operation.ALTER)],
        [on_cluster(Operation.ALTER)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "ListPartitionReassignments": Row(
        ListPartitionReassignmentsRequest(),
        0,
        [on_cluster(Operation.DESCRIBE)],
        [on_cluster(Operation.DESCRIBE)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "UpdateFeatures": Row(
        UpdateFeaturesRequest(feature_updates=[FeatureUpdate(feature="group.version", max_version_level=1)]),
        2,
        [on_cluster(Operation.ALTER)],
        [on_cluster(Operation.ALTER)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "UnregisterBroker": Row(
        UnregisterBrokerRequest(broker_id=7),
        0,
        [on_cluster(Operation.ALTER)],
        [on_cluster(Operation.ALTER)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ),
    "IncrementalAlterConfigs": Row(
        ALTER,
        1,
        [on_topic(Operation.ALTER_CONFIGS), on_cluster(Operation.ALTER_CONFIGS)],
        [on_topic(Operation.ALTER_CONFIGS), on_cluster(Operation.ALTER_CONFIGS)],
        codes,
        [DENIED_TOPIC, DENIED_CLUSTER],
        [0, 0],
    ),
    "DescribeCluster": Row(
        DescribeClusterRequest(include_cluster_authorized_operations=True),
        2,
        [on_cluster(Operation.DESCRIBE), *ALL_OF_CLUSTER],
        [on_cluster(Operation.DESCRIBE)],
        lambda response: (response.error_code, response.cluster_authorized_operations == 0),
        (0, True),
        (0, False),
    ),
    "DescribeProducers": Row(
        DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0])]),
        0,
        [on_topic(Operation.READ)],
        [on_topic(Operation.READ)],
        lambda response: response.topics[0].partitions[0].error_code,
        DENIED_TOPIC,
    ),
    "DescribeQuorum": Row(
        DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequestTopic(
                    topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartition()]
                )
            ]
        ),
        2,
        [on_cluster(Operation.DESCRIBE)],
        [on_cluster(Operation.DESCRIBE)],
        lambda response: response.error_code,
        DENIED_CLUSTER,
    ),
    "DescribeTopicPartitions": Row(
        DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequestTopic(name="t")]),
        0,
        [on_topic(Operation.DESCRIBE), *ALL_OF_TOPIC],
        [on_topic(Operation.DESCRIBE)],
        lambda response: response.topics[0].error_code,
        DENIED_TOPIC,
    ),
    "DescribeTopicPartitions of all topics": Row(
        DescribeTopicPartitionsRequest(topics=[]),
        0,
        [on_topic(Operation.DESCRIBE), *ALL_OF_TOPIC],
        [on_topic(Operation.DESCRIBE)],
        lambda response: len(response.topics),
        0,
        1,
    ),
}


class Recorder:
    """Notes what it is asked, and allows it or not."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.denies: Callable[[Call], bool] = lambda call: False

    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        assert principal == "User:ANONYMOUS"
        self.calls.append((operation, resource, name))
        return not self.denies((operation, resource, name))


async def prepared(node: Node) -> tuple[Any, Recorder]:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    recorder = node.authoriser
    assert isinstance(recorder, Recorder)
    recorder.calls.clear()
    return client, recorder


# Groups and transactions have a table of their own, beside the tests of their coordinators.
OF_COORDINATORS = {*range(8, 17), *range(24, 29), 42, 47, 65, 66, 68, 69}


def test_every_served_api_is_in_the_table() -> None:
    assert {API[key].name for key in HANDLERS if key not in OF_COORDINATORS} == {name.split(" ")[0] for name in TABLE}
    assert all(API[row.request.api_key].name == name.split(" ")[0] for name, row in TABLE.items())


@pytest.mark.parametrize("name", TABLE)
@simulated(authoriser=Recorder)
async def test_a_request_asks_for_exactly_these_permissions(node: Node, name: str) -> None:
    row = TABLE[name]
    client, recorder = await prepared(node)
    response = await client.ask(row.request, row.version)
    assert recorder.calls == row.asks
    assert row.allowed is UNCHECKED or row.code_of(response) == row.allowed


@pytest.mark.parametrize("name", TABLE)
@simulated(authoriser=Recorder)
async def test_a_denial_has_its_code_per_item_and_changes_nothing(node: Node, name: str) -> None:
    row = TABLE[name]
    client, recorder = await prepared(node)
    end_offset = node.broker.metadata.next_offset
    recorder.denies = lambda call: True
    response = await client.ask(row.request, row.version)
    assert recorder.calls == row.asks_when_denied
    assert row.code_of(response) == row.denied
    assert node.broker.metadata.next_offset == end_offset
    log = node.broker.topics.partition("t", 0).log
    assert (log.start_offset, log.end_offset) == (0, 1)


@pytest.mark.parametrize("name", ["Metadata", "Produce", "Fetch", "ListOffsets", "DeleteTopics", "DeleteRecords"])
@simulated(authoriser=Recorder)
async def test_who_may_not_see_a_topic_is_not_told_whether_it_is_there(node: Node, name: str) -> None:
    row = TABLE[name]
    client, recorder = await prepared(node)
    recorder.denies = lambda call: True
    there = row.code_of(await client.ask(row.request, row.version))
    recorder.denies = lambda call: False
    await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    recorder.denies = lambda call: True
    gone = row.code_of(await client.ask(row.request, row.version))
    assert there == gone == DENIED_TOPIC


@simulated(authoriser=Recorder)
async def test_one_denied_topic_does_not_harm_the_others(node: Node) -> None:
    client, recorder = await prepared(node)
    await client.create_topic("secret")
    recorder.denies = lambda call: call[2] == "secret"
    response = await client.ask(fetch_request({("t", 0): 0, ("secret", 0): 0}), 12)
    assert {topic.topic: topic.partitions[0].error_code for topic in response.responses} == {
        "t": 0,
        "secret": DENIED_TOPIC,
    }


@simulated(authoriser=Recorder)
async def test_who_may_create_a_topic_but_not_see_settings_is_told_less(node: Node) -> None:
    client, recorder = await prepared(node)
    recorder.denies = lambda call: call[0] == Operation.DESCRIBE_CONFIGS
    result = await client.create_topic("new")
    assert (result.error_code, result.topic_config_error_code) == (0, DENIED_TOPIC)
    assert (result.num_partitions, list(result.configs or ())) == (-1, [])


@simulated(authoriser=Recorder)
async def test_who_may_create_one_topic_needs_no_permission_on_the_cluster(node: Node) -> None:
    client, recorder = await prepared(node)
    recorder.denies = lambda call: call[1] == ResourceType.CLUSTER
    assert (await client.create_topic("new")).error_code == 0
    response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="auto")]))
    assert response.topics[0].error_code == 0
    recorder.denies = lambda call: call[0] == Operation.CREATE
    response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="more")]))
    assert response.topics[0].error_code == DENIED_TOPIC


@simulated(authoriser=Recorder)
async def test_a_denied_topic_named_by_id_keeps_its_name_to_itself(node: Node) -> None:
    client, recorder = await prepared(node)
    topic_id = node.broker.topics.by_name["t"].topic_id
    recorder.denies = lambda call: True
    deleted = (await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)]))).responses[0]
    assert (deleted.name, deleted.error_code) == (None, DENIED_TOPIC)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    described = (await client.ask(request)).topics[0]
    assert (described.name, described.error_code) == (None, DENIED_TOPIC)


@pytest.mark.parametrize("codec", [0, 4])
@simulated(authoriser=Recorder)
async def test_large_batches_are_authorised_before_they_are_opened(node: Node, codec: int) -> None:
    import random

    client, recorder = await prepared(node)
    recorder.denies = lambda call: True
    batch = batch_of(random.Random(1).randbytes(200_000), codec=codec)
    assert (await client.produce("t", batch)).error_code == DENIED_TOPIC
    assert set(recorder.calls) == {on_topic(Operation.WRITE)}
