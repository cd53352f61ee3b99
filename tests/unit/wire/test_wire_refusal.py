"""What cannot be encoded is refused with the name of the field, never with an error of the struct module."""

from typing import Any

import pytest

from semel.wire.codec import encode, encoder
from semel.wire.errors import WireError
from semel.wire.schema import Message
from semel.wire.spec.api_versions import ApiVersionsResponse
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest
from semel.wire.spec.broker_registration import BrokerListener, BrokerRegistrationRequest
from semel.wire.spec.describe_client_quotas import DescribeClientQuotasResponse, QuotaEntry, QuotaValue
from semel.wire.spec.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartition,
    FetchSnapshotRequestTopic,
)
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.list_groups import ListGroupsRequest
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from semel.wire.spec.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

Anything: Any = object()


def produce(**partition: Any) -> ProduceRequest:
    data = PartitionProduceData(**partition)
    return ProduceRequest(topic_data=[TopicProduceData(name="a"), TopicProduceData(name="b", partition_data=[data])])


def heartbeat(**fields: Any) -> HeartbeatRequest:
    return HeartbeatRequest(**fields)


CASES: list[tuple[str, Message, int, str]] = [
    ("an integer too large", heartbeat(generation_id=1 << 31), 4, "HeartbeatRequest.generation_id"),
    ("an integer too small", heartbeat(generation_id=-(1 << 31) - 1), 0, "HeartbeatRequest.generation_id"),
    ("a string for an integer", heartbeat(generation_id="1"), 4, "HeartbeatRequest.generation_id"),
    ("a float for an integer", heartbeat(generation_id=1.0), 4, "HeartbeatRequest.generation_id"),
    ("null for an integer", heartbeat(generation_id=None), 4, "HeartbeatRequest.generation_id"),
    ("null for a string", heartbeat(group_id=None), 4, "HeartbeatRequest.group_id"),
    ("bytes for a string", heartbeat(group_id=b"g"), 0, "HeartbeatRequest.group_id"),
    ("half a character", heartbeat(group_id="\ud800"), 4, "HeartbeatRequest.group_id"),
    ("a string too long, flexible", heartbeat(member_id="m" * 0x8000), 4, "HeartbeatRequest.member_id"),
    ("a string too long, old", heartbeat(member_id="m" * 0x8000), 0, "HeartbeatRequest.member_id"),
    ("a nested integer", produce(index=1 << 40), 9, "ProduceRequest.topic_data[1].partition_data[0].index"),
    ("text for records", produce(records="text"), 9, "ProduceRequest.topic_data[1].partition_data[0].records"),
    ("text among records", produce(records=[b"", "text"]), 3, "ProduceRequest.topic_data[1].partition_data[0].records"),
    ("a number for records", produce(records=5), 9, "ProduceRequest.topic_data[1].partition_data[0].records"),
    ("a short id", ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")]), 13, "topic_data[0].topic_id"),
    ("text for an id", MetadataRequest(topics=[MetadataRequestTopic(topic_id="x" * 16)]), 10, "topics[0].topic_id"),  # type: ignore[arg-type]
    ("null before it is allowed", MetadataRequest(topics=None), 0, "MetadataRequest.topics"),
    (
        "a null name before it is allowed",
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]),
        9,
        "topics[0].name",
    ),
    ("a string for an array", ListGroupsRequest(states_filter="Stable"), 4, "ListGroupsRequest.states_filter"),  # type: ignore[arg-type]
    ("a set for an array", ListGroupsRequest(states_filter={"Stable"}), 4, "ListGroupsRequest.states_filter"),  # type: ignore[arg-type]
    ("null for an array", ListGroupsRequest(states_filter=None), 4, "ListGroupsRequest.states_filter"),  # type: ignore[arg-type]
    ("a number in an array of strings", ListGroupsRequest(states_filter=["a", 5]), 4, "states_filter[1]"),  # type: ignore[list-item]
    ("a wrong struct", MetadataResponse(brokers=[Anything]), 1, "MetadataResponse.brokers[0]"),
    ("null in an array", MetadataResponse(brokers=[MetadataResponseBroker(), None]), 1, "brokers[1]"),  # type: ignore[list-item]
    ("a number for a truth", BrokerHeartbeatRequest(want_fence=2), 0, "BrokerHeartbeatRequest.want_fence"),  # type: ignore[arg-type]
    ("null for a truth", BrokerHeartbeatRequest(want_fence=None), 0, "BrokerHeartbeatRequest.want_fence"),  # type: ignore[arg-type]
    ("text for a truth", BrokerHeartbeatRequest(want_fence="no"), 0, "BrokerHeartbeatRequest.want_fence"),  # type: ignore[arg-type]
    ("a short id under a tag", BrokerHeartbeatRequest(offline_log_dirs=[b""]), 1, "offline_log_dirs[0]"),
    ("null under a tag", BrokerHeartbeatRequest(offline_log_dirs=None), 1, "offline_log_dirs"),  # type: ignore[arg-type]
    (
        "a large number under a tag",
        ApiVersionsResponse(finalized_features_epoch=1 << 63),
        3,
        "finalized_features_epoch",
    ),
    ("a port too large", BrokerRegistrationRequest(listeners=[BrokerListener(port=65536)]), 0, "listeners[0].port"),
    ("a number for bytes", SyncGroupRequest(assignments=[SyncGroupRequestAssignment(assignment=5)]), 0, "assignment"),  # type: ignore[arg-type]
    ("text for bytes", SyncGroupRequest(assignments=[SyncGroupRequestAssignment(assignment="a")]), 4, "assignment"),  # type: ignore[arg-type]
    (
        "text for a float",
        DescribeClientQuotasResponse(entries=[QuotaEntry(values=[QuotaValue(value="1")])]),  # type: ignore[arg-type]
        1,
        "entries[0].values[0].value",
    ),
    (
        "null for a struct",
        FetchSnapshotRequest(
            topics=[FetchSnapshotRequestTopic(partitions=[FetchSnapshotRequestPartition(snapshot_id=None)])]  # type: ignore[arg-type]
        ),
        0,
        "topics[0].partitions[0].snapshot_id",
    ),
]


@pytest.mark.parametrize(("what", "message", "version", "path"), CASES, ids=[case[0] for case in CASES])
def test_a_value_that_does_not_fit_is_refused_by_name(what: str, message: Message, version: int, path: str) -> None:
    with pytest.raises(WireError) as refused:
        encode(message, version)
    assert path in str(refused.value)


def test_bytes_may_come_as_any_buffer() -> None:
    expected = encode(SyncGroupRequest(assignments=[SyncGroupRequestAssignment(assignment=b"abc")]), 4)
    for buffer in (bytearray(b"abc"), memoryview(b"abc")):
        assignment = SyncGroupRequestAssignment(assignment=buffer)  # type: ignore[arg-type]
        assert encode(SyncGroupRequest(assignments=[assignment]), 4) == expected


def test_a_message_of_another_class_is_refused() -> None:
    with pytest.raises(WireError, match="HeartbeatRequest"):
        encoder(ProduceRequest, 9)(heartbeat(), [].append)  # type: ignore[arg-type]


def test_a_refusal_shows_a_long_value_in_short() -> None:
    with pytest.raises(WireError) as refused:
        encode(heartbeat(member_id="m" * 100_000), 4)
    assert len(str(refused.value)) < 200
