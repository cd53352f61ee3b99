"""Requests that ask for much with few bytes, and answers that nobody expected to be long: each as a client may send it.

An attack is a function of a client; it returns when it was answered, or when its connection was closed.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from raw_client import RawClient, batch_of
from semel.wire.frame import request_bytes
from semel.wire.schema import Request, Response
from semel.wire.spec.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from semel.wire.spec.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest
from semel.wire.spec.delete_groups import DeleteGroupsRequest
from semel.wire.spec.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from semel.wire.spec.describe_groups import DescribeGroupsRequest
from semel.wire.spec.describe_producers import DescribeProducersRequest
from semel.wire.spec.describe_producers import DescribeProducersTopic as ProducersOfTopic
from semel.wire.spec.describe_topic_partitions import DescribeTopicPartitionsRequest
from semel.wire.spec.describe_topic_partitions import DescribeTopicPartitionsRequestTopic as PartitionsOfTopic
from semel.wire.spec.describe_transactions import DescribeTransactionsRequest
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel.wire.spec.leave_group import LeaveGroupRequest, LeavingMember
from semel.wire.spec.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic
from semel.wire.spec.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from semel.wire.spec.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestGroupTopic
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MANY = 20_000
GROUP_RESOURCE, TOPIC_RESOURCE = 32, 2
TOPIC, WIDE_TOPIC = "attacked", "wide"
WIDE_PARTITIONS = 2000
PRODUCERS = 1000

Attack = Callable[[int], object]


def ask(request: Request, version: int) -> Attack:
    def attack(port: int) -> Response | None:
        with RawClient(port, timeout_s=120) as client, suppress(ConnectionError):
            return client.call_any(request, version)
        return None

    return attack


def names(prefix: str, count: int = MANY) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def prepare(port: int) -> None:
    """What the attacks ask about."""
    with RawClient(port, timeout_s=120) as client:
        topics = [
            CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1),
            CreatableTopic(name=WIDE_TOPIC, num_partitions=WIDE_PARTITIONS, replication_factor=1),
        ]
        client.call_any(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        first = client.new_producer_id()
        for number in range(PRODUCERS):
            batch = batch_of([b"x"], timestamp_ms=1_700_000_000_000, producer_id=first + number, sequence=0)
            assert client.produce(TOPIC, 0, batch, acks=1).error_code == 0


def configs(resources: Sequence[tuple[int, str]]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in resources],
        include_synonyms=True,
        include_documentation=True,
    )


def new_topics(prefix: str, count: int, *, validate_only: bool) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names(prefix, count)]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=validate_only)


def produce(entries: int) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=None) for _ in range(entries)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


def fetch(partitions: int, *, epoch: int, index_of: Callable[[int], int] = lambda number: number) -> FetchRequest:
    wanted = [
        FetchRequestPartition(partition=index_of(number), fetch_offset=0, partition_max_bytes=1000)
        for number in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=epoch,
        topics=[FetchRequestTopic(topic=WIDE_TOPIC, partitions=wanted)],
    )


def join(group: str, metadata_bytes: int, protocols: int = 1) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=bytes(metadata_bytes)) for name in names("p", protocols)
        ],
    )


def commit(group: str, topic: str, partitions: int) -> OffsetCommitRequest:
    offsets = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
        for number in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)],
    )


def sessions(port: int, count: int = 60) -> list[RawClient]:
    """Many fetch sessions of many partitions, which are left open."""
    frame = request_bytes(fetch(MANY, epoch=0), 11, 1, "raw")
    clients = []
    for _ in range(count):
        client = RawClient(port, timeout_s=120)
        clients.append(client)
        client.socket.sendall(frame)
        client.read_frame()
    return clients


def members(port: int, count: int = 40, metadata_bytes: int = 7 << 20) -> list[RawClient]:
    """Members of one group with much metadata, which wait for their answers."""
    frame = request_bytes(join("heavy", metadata_bytes), 3, 1, "raw")
    clients = [RawClient(port, timeout_s=120) for _ in range(count)]
    for client in clients:
        with suppress(ConnectionError):
            client.socket.sendall(frame)
    return clients


def claims(port: int, count: int = 1000, claimed_bytes: int = 100 << 20, sent_bytes: int = 5 << 10) -> list[RawClient]:
    """Frames that are announced and do not come."""
    start = struct.pack(">ihhih", claimed_bytes, 0, 9, 1, -1)
    clients = []
    for _ in range(count):
        client = RawClient(port)
        client.socket.sendall(start + bytes(sent_bytes - len(start)))
        clients.append(client)
    return clients


def stalled(port: int, count: int = 4, claimed_bytes: int = 100 << 20, sent_bytes: int = 1_200_000) -> list[RawClient]:
    """Frames that stop in the middle; a large request of another client is answered all the same."""
    clients = claims(port, count, claimed_bytes, sent_bytes)
    with RawClient(port, timeout_s=60) as client:
        answer = client.produce("nowhere", 0, bytes(2 << 20))
        assert answer.error_code
    return clients


def strange(port: int) -> None:
    """Numbers and names that ended in tracebacks, or in lines of their own in the log."""
    forged = "x\n2026-01-01 00:00:00,000 CRITICAL semel forged\r\x1b[31m"
    for version in (2, 3, 4):
        request = commit(forged, TOPIC, 1)
        request.retention_time_ms = (1 << 63) - 1
        ask(request, version)(port)
    for count in (9001, 20_001):
        wrong = CreatePartitionsTopic(name=TOPIC, count=count, assignments=[CreatePartitionsAssignment(broker_ids=[1])])
        ask(CreatePartitionsRequest(topics=[wrong], timeout_ms=1000, validate_only=True), 3)(port)
    for _ in range(2000):
        ask(FindCoordinatorRequest(key_type=0, key=forged), 3)(port)
        with RawClient(port) as client, suppress(ConnectionError):
            client.socket.sendall(struct.pack(">ihhih", 10, 9999, 0, 1, -1))


def at_the_same_time(attack: Attack, count: int) -> Attack:
    def attacks(port: int) -> None:
        threads = [threading.Thread(target=attack, args=(port,), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)

    return attacks


# Those of the trials, and their like at other APIs.
ATTACKS: dict[str, Attack] = {
    "DescribeConfigs, one topic 20,000 times": ask(configs([(TOPIC_RESOURCE, TOPIC)] * MANY), 4),
    "DescribeConfigs, 20,000 groups": ask(configs([(GROUP_RESOURCE, name) for name in names("g")]), 4),
    "DescribeProducers, one partition 1,000 times": ask(
        DescribeProducersRequest(topics=[ProducersOfTopic(name=TOPIC, partition_indexes=[0] * 1000)]), 0
    ),
    "Produce, a million entries": ask(produce(1_000_000), 9),
    "Produce, 40,000 entries": ask(produce(40_000), 9),
    "CreateTopics, 10,000 topics, validated": ask(new_topics("never", 10_000, validate_only=True), 7),
    "CreateTopics, 5,000 topics": ask(new_topics("made", 5000, validate_only=False), 7),
    "Metadata, all topics": ask(MetadataRequest(topics=None), 9),
    "Metadata, 20,000 unknown topics": ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names("u")], allow_auto_topic_creation=False), 9
    ),
    "DescribeTopicPartitions, 20,000 unknown topics": ask(
        DescribeTopicPartitionsRequest(topics=[PartitionsOfTopic(name=n) for n in names("u")]), 0
    ),
    "DeleteTopics, 5,000 topics": ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names("made", 5000)], timeout_ms=60_000), 6
    ),
    "Fetch, 20,000 unknown partitions": ask(fetch(MANY, epoch=-1), 11),
    "Fetch, one partition 20,000 times": ask(fetch(MANY, epoch=-1, index_of=lambda _: 0), 11),
    "Fetch, 2,000 empty partitions": ask(fetch(WIDE_PARTITIONS, epoch=-1), 11),
    "ListOffsets, 2,000 partitions by time": ask(
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=WIDE_TOPIC,
                    partitions=[ListOffsetsPartition(partition_index=i, timestamp=1) for i in range(WIDE_PARTITIONS)],
                )
            ]
        ),
        7,
    ),
    "ListOffsets, one partition 20,000 times": ask(
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=1) for _ in range(MANY)]
                )
            ]
        ),
        7,
    ),
    "OffsetCommit, 2,000 partitions": ask(commit("committer", WIDE_TOPIC, WIDE_PARTITIONS), 8),
    "OffsetCommit, 20,000 unknown partitions": ask(commit("committer", WIDE_TOPIC, MANY), 8),
    "OffsetFetch, 20,000 partitions": ask(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="committer",
                    topics=[OffsetFetchRequestGroupTopic(name=WIDE_TOPIC, partition_indexes=list(range(MANY)))],
                )
            ]
        ),
        8,
    ),
    "OffsetFetch, one group 20,000 times": ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="committer", topics=None)] * MANY), 8
    ),
    "DescribeGroups, 20,000 groups": ask(DescribeGroupsRequest(groups=names("g")), 5),
    "FindCoordinator, 20,000 keys": ask(FindCoordinatorRequest(key_type=0, coordinator_keys=names("g")), 4),
    "DescribeTransactions, 20,000 ids": ask(DescribeTransactionsRequest(transactional_ids=names("t")), 0),
    "DeleteGroups, 20,000 groups": ask(DeleteGroupsRequest(groups_names=names("g")), 2),
    "DeleteRecords, 2,000 partitions": ask(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=WIDE_TOPIC,
                    partitions=[DeleteRecordsPartition(partition_index=i, offset=-1) for i in range(WIDE_PARTITIONS)],
                )
            ]
        ),
        2,
    ),
    "LeaveGroup, 20,000 members": ask(
        LeaveGroupRequest(group_id="g", members=[LeavingMember(member_id=name) for name in names("m")]), 4
    ),
    "JoinGroup, 20,000 protocols": ask(join("many protocols", 10, MANY), 3),
    "AddPartitionsToTxn, 20,000 partitions": ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="nobody",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=WIDE_TOPIC, partitions=list(range(MANY)))],
        ),
        3,
    ),
    "20 at the same time: DescribeConfigs, 2,000 groups": at_the_same_time(
        ask(configs([(GROUP_RESOURCE, name) for name in names("g", 2000)]), 4), 20
    ),
}

# What these have opened is returned, and to be closed.
LEFT_OPEN: dict[str, Attack] = {
    "60 fetch sessions of 20,000 partitions": sessions,
    "40 members of a group with 7 MB of metadata each": members,
    "1,000 claims of 100 MB with 5 KB sent": claims,
    "4 claims of 100 MB with 1.2 MB sent, which stop": stalled,
    "strange numbers, and names with lines in them": strange,
}
