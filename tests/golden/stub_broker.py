"""A stub broker on loopback: records the requests it is sent, and answers just well enough that a client goes on."""

import contextlib
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from semel.wire.apis import API, request_class, response_class
from semel.wire.codec import decoder
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_request_header, response_parts
from semel.wire.spec import (
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
)

TOPIC = "golden"
TOPIC_ID = bytes(range(16))
Seen = dict[tuple[int, int], bytes]


class Broker:
    """Answers for the stub: each returns the least that lets a client go on."""

    def __init__(self, port: int) -> None:
        self.port = port

    def api_versions(self, _: Any) -> Any:
        keys = [
            api_versions.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in API.values()
        ]
        return api_versions.ApiVersionsResponse(api_keys=keys)

    def metadata(self, request: Any) -> Any:
        names = [topic.name or TOPIC for topic in request.topics or ()] or [TOPIC]
        partition = metadata.MetadataResponsePartition(
            leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1], partition_index=0
        )
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="golden-cluster",
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(name=name, topic_id=TOPIC_ID, partitions=[partition]) for name in names
            ],
        )

    def describe_topic_partitions(self, request: Any) -> Any:
        partition = describe_topic_partitions.DescribeTopicPartitionsResponsePartition(
            leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        return describe_topic_partitions.DescribeTopicPartitionsResponse(
            topics=[
                describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
                    name=topic.name, topic_id=TOPIC_ID, partitions=[partition]
                )
                for topic in request.topics
            ]
        )

    def init_producer_id(self, _: Any) -> Any:
        return init_producer_id.InitProducerIdResponse(producer_id=1000, producer_epoch=0)

    def produce(self, request: Any) -> Any:
        return produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        produce.PartitionProduceResponse(index=partition.index) for partition in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def list_offsets(self, request: Any) -> Any:
        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index, offset=0, leader_epoch=0
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def fetch(self, request: Any) -> Any:
        time.sleep(0.05)
        return fetch.FetchResponse(
            responses=[
                fetch.FetchResponseTopic(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        fetch.FetchResponsePartition(partition_index=partition.partition, records=b"")
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def find_coordinator(self, request: Any) -> Any:
        return find_coordinator.FindCoordinatorResponse(
            node_id=1,
            host="127.0.0.1",
            port=self.port,
            coordinators=[
                find_coordinator.Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port)
                for key in request.coordinator_keys
            ],
        )

    def join_group(self, request: Any) -> Any:
        member_id = request.member_id or "member-1"
        protocol = request.protocols[0]
        return join_group.JoinGroupResponse(
            generation_id=1,
            protocol_type=request.protocol_type,
            protocol_name=protocol.name,
            leader=member_id,
            member_id=member_id,
            members=[join_group.JoinGroupResponseMember(member_id=member_id, metadata=protocol.metadata)],
        )

    def sync_group(self, request: Any) -> Any:
        return sync_group.SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=request.assignments[0].assignment if request.assignments else b"",
        )

    def consumer_group_heartbeat(self, request: Any) -> Any:
        assigned = consumer_group_heartbeat.AssignedTopicPartitions(topic_id=TOPIC_ID, partitions=[0])
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=max(request.member_epoch, 1),
            heartbeat_interval_ms=200,
            assignment=consumer_group_heartbeat.MemberAssignment(topic_partitions=[assigned]),
        )

    def offset_fetch(self, request: Any) -> Any:
        return offset_fetch.OffsetFetchResponse(
            topics=[
                offset_fetch.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or ()
            ],
            groups=[
                offset_fetch.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        offset_fetch.OffsetFetchResponseGroupTopic(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                offset_fetch.OffsetFetchResponseGroupPartition(
                                    partition_index=index, committed_offset=-1
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or ()
                    ],
                )
                for group in request.groups
            ],
        )

    def offset_commit(self, request: Any) -> Any:
        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        offset_commit.OffsetCommitResponsePartition(partition_index=partition.partition_index)
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def add_partitions_to_txn(self, request: Any) -> Any:
        return add_partitions_to_txn.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        add_partitions_to_txn.AddPartitionsToTxnPartitionResult(partition_index=index)
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def txn_offset_commit(self, request: Any) -> Any:
        return txn_offset_commit.TxnOffsetCommitResponse(
            topics=[
                txn_offset_commit.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def create_topics(self, request: Any) -> Any:
        return create_topics.CreateTopicsResponse(
            topics=[create_topics.CreatableTopicResult(name=topic.name) for topic in request.topics]
        )

    def delete_topics(self, request: Any) -> Any:
        names = request.topic_names or [topic.name for topic in request.topics]
        return delete_topics.DeleteTopicsResponse(
            responses=[delete_topics.DeletableTopicResult(name=name) for name in names]
        )

    def describe_configs(self, request: Any) -> Any:
        return describe_configs.DescribeConfigsResponse(
            results=[
                describe_configs.DescribeConfigsResult(
                    resource_type=resource.resource_type, resource_name=resource.resource_name
                )
                for resource in request.resources
            ]
        )

    def alter_configs(self, request: Any) -> Any:
        return alter_configs.AlterConfigsResponse(
            responses=[
                alter_configs.AlterConfigsResult(
                    resource_type=resource.resource_type, resource_name=resource.resource_name
                )
                for resource in request.resources
            ]
        )

    def incremental_alter_configs(self, request: Any) -> Any:
        return incremental_alter_configs.IncrementalAlterConfigsResponse(
            responses=[
                incremental_alter_configs.IncrementalAlterConfigsResult(
                    resource_type=resource.resource_type, resource_name=resource.resource_name
                )
                for resource in request.resources
            ]
        )

    def create_partitions(self, request: Any) -> Any:
        return create_partitions.CreatePartitionsResponse(
            results=[create_partitions.CreatePartitionsTopicResult(name=topic.name) for topic in request.topics]
        )

    def delete_records(self, request: Any) -> Any:
        return delete_records.DeleteRecordsResponse(
            topics=[
                delete_records.DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        delete_records.DeleteRecordsPartitionResult(partition_index=partition.partition_index)
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def delete_groups(self, request: Any) -> Any:
        return delete_groups.DeleteGroupsResponse(
            results=[delete_groups.DeletableGroupResult(group_id=name) for name in request.groups_names]
        )

    def consumer_group_describe(self, request: Any) -> Any:
        """No such group: librdkafka then asks with DescribeGroups."""
        return consumer_group_describe.ConsumerGroupDescribeResponse(
            groups=[
                consumer_group_describe.DescribedConsumerGroup(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
                for name in request.group_ids
            ]
        )

    def describe_groups(self, request: Any) -> Any:
        return describe_groups.DescribeGroupsResponse(
            groups=[describe_groups.DescribedGroup(group_id=name, group_state="Empty") for name in request.groups]
        )

    def create_acls(self, request: Any) -> Any:
        return create_acls.CreateAclsResponse(results=[create_acls.AclCreationResult() for _ in request.creations])

    def delete_acls(self, request: Any) -> Any:
        return delete_acls.DeleteAclsResponse(
            filter_results=[delete_acls.DeleteAclsFilterResult() for _ in request.filters]
        )


class StubServer(socketserver.ThreadingTCPServer):
    """Records what it is sent, and answers it."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StubConnection)
        self.port: int = self.server_address[1]
        self.broker = Broker(self.port)
        self.seen: Seen = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class StubConnection(socketserver.BaseRequestHandler):
    server: StubServer

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, EOFError):
            while True:
                (length,) = struct.unpack(">i", self._read(4))
                self._serve(self._read(length))

    def _read(self, length: int) -> bytes:
        received = self.request.recv(length, socket.MSG_WAITALL)
        if len(received) < length:
            raise EOFError
        return bytes(received)

    def _serve(self, frame: bytes) -> None:
        header = read_request_header(frame)
        self.server.seen.setdefault((header.api_key, header.api_version), frame)
        request, _ = decoder(request_class(header.api_key), header.api_version)(frame, header.body_position)
        answer = getattr(self.server.broker, API[header.api_key].module, None)
        response = answer(request) if answer else response_class(header.api_key)()
        if getattr(request, "acks", 1) != 0:
            parts: list[Any] = response_parts(header.correlation_id, response, header.api_version)
            self.request.sendall(b"".join(parts))


@contextlib.contextmanager
def stub_server() -> Iterator[StubServer]:
    with StubServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
