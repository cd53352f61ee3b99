"""Messages that are new in Apache Kafka 4.4, against the bytes of its own encoder (kafka-clients 4.4.0)."""

from __future__ import annotations

import pytest

from semel.wire.codec import decode, encode
from semel.wire.schema import Message
from semel.wire.spec.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, SupportedFeature
from semel.wire.spec.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from semel.wire.spec.describe_log_dirs import DescribeLogDirsResponse, LogDirDescription
from semel.wire.spec.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    RecordError,
    TopicProduceResponse,
)
from semel.wire.spec.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TOPIC_ID = bytes(range(1, 17))
JAVA = {"client_software_name": "apache-kafka-java", "client_software_version": "4.4.0"}

CASES: list[tuple[int, str, Message]] = [
    (
        5,
        "126170616368652d6b61666b612d6a61766106342e342e3017633256745a5777746447567a64484d744d4441774d410000000100",
        ApiVersionsRequest(**JAVA, cluster_id="c2VtZWwtdGVzdHMtMDAwMA", node_id=1),
    ),
    (5, "126170616368652d6b61666b612d6a61766106342e342e3000ffffffff00", ApiVersionsRequest(**JAVA)),
    (
        5,
        "0000020012000000050000000000020014020e67726f75702e76657273696f6e000000010001080000000000000007",
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=18, max_version=5)],
            supported_features=[SupportedFeature(name="group.version", max_version=1)],
            finalized_features_epoch=7,
        ),
    ),
    (
        6,
        "027402670000000000000fa0000200000005026d00020102030405060708090a0b0c0d0e0f10020000000300000000"
        "0000004d000000010278000000",
        TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=4000,
            producer_epoch=2,
            generation_id=5,
            member_id="m",
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=3, committed_offset=77, committed_leader_epoch=1, committed_metadata="x"
                        )
                    ],
                )
            ],
        ),
    ),
    (
        6,
        "00000000020102030405060708090a0b0c0d0e0f1002000000030071000000",
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic_id=TOPIC_ID,
                    partitions=[TxnOffsetCommitResponsePartition(partition_index=3, error_code=113)],
                )
            ]
        ),
    ),
    (3, "030267026800", DeleteGroupsRequest(groups_names=["g", "h"])),
    (
        3,
        "0000000003026700440a6e6f7420656d7074790002680000000000",
        DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id="g", error_code=68, error_message="not empty"),
                DeletableGroupResult(group_id="h"),
            ]
        ),
    ),
    (
        5,
        "000000000000020000032f640100000000000000090000000000000008010000",
        DescribeLogDirsResponse(
            results=[LogDirDescription(log_dir="/d", total_bytes=9, usable_bytes=8, is_cordoned=True)]
        ),
    ),
    (
        9,
        "02027402000000000057ffffffffffffffffffffffffffffffff0000000000000000030000000a076e6f206b657900"
        "0000005a0000036e6f00000000000000",
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="t",
                    partition_responses=[
                        PartitionProduceResponse(
                            error_code=87,
                            base_offset=-1,
                            log_start_offset=0,
                            error_message="no",
                            record_errors=[
                                RecordError(batch_index=10, batch_index_error_message="no key"),
                                RecordError(batch_index=90),
                            ],
                        )
                    ],
                )
            ]
        ),
    ),
]


@pytest.mark.parametrize(("version", "hexadecimal", "message"), CASES, ids=lambda case: type(case).__name__)
def test_the_bytes_are_those_of_kafkas_own_encoder(version: int, hexadecimal: str, message: Message) -> None:
    data = bytes.fromhex(hexadecimal)
    assert encode(message, version) == data
    assert decode(type(message), version, data) == message
