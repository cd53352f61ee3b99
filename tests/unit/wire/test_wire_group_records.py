"""The records of `__consumer_offsets`, byte by byte as Kafka writes them."""

from __future__ import annotations

import pytest

from semel.wire.errors import WireError
from semel.wire.schema import Message
from semel.wire.spec.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    SubscribedTopic,
    TopicPartitions,
    key_bytes,
    read_group_record,
    value_bytes,
)

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("key", "key_data", "value", "value_data"),
    [
        (
            OffsetCommitKey(group="g", topic="t", partition=7),
            b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x07",
            OffsetCommitValue(offset=42, leader_epoch=3, metadata="m", commit_timestamp=1),
            b"\x00\x03" + bytes(7) + b"\x2a" + b"\x00\x00\x00\x03" + b"\x00\x01m" + bytes(7) + b"\x01",
        ),
        (
            OffsetCommitKey(group="g", topic="t", partition=7),
            b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x07",
            OffsetCommitValue(offset=42, metadata="m", commit_timestamp=1, expire_timestamp=2),
            b"\x00\x01" + bytes(7) + b"\x2a" + b"\x00\x01m" + bytes(7) + b"\x01" + bytes(7) + b"\x02",
        ),
        (
            GroupMetadataKey(group="g"),
            b"\x00\x02\x00\x01g",
            GroupMetadataValue(
                protocol_type="consumer",
                generation=2,
                protocol="range",
                leader="a",
                current_state_timestamp=5,
                members=[
                    GroupMember(
                        member_id="a",
                        client_id="c",
                        client_host="/h",
                        rebalance_timeout=6,
                        session_timeout=7,
                        subscription=b"s",
                        assignment=b"as",
                    )
                ],
            ),
            b"\x00\x03\x00\x08consumer\x00\x00\x00\x02\x00\x05range\x00\x01a"
            + bytes(7)
            + b"\x05\x00\x00\x00\x01\x00\x01a\xff\xff\x00\x01c\x00\x02/h\x00\x00\x00\x06\x00\x00\x00\x07"
            + b"\x00\x00\x00\x01s\x00\x00\x00\x02as",
        ),
        (
            ConsumerGroupMetadataKey(group_id="g"),
            b"\x00\x03\x00\x01g",
            ConsumerGroupMetadataValue(epoch=9),
            b"\0\0\0\0\0\x09\0",
        ),
        (
            ConsumerGroupPartitionMetadataKey(group_id="g"),
            b"\x00\x04\x00\x01g",
            ConsumerGroupPartitionMetadataValue(
                topics=[SubscribedTopic(topic_id=TOPIC_ID, topic_name="t", num_partitions=3)]
            ),
            b"\0\0\x02" + TOPIC_ID + b"\x02t\0\0\0\x03\x01\0\0",
        ),
        (
            ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"),
            b"\x00\x05\x00\x01g\x00\x01a",
            ConsumerGroupMemberMetadataValue(
                client_id="c", client_host="h", subscribed_topic_names=["t"], rebalance_timeout_ms=5
            ),
            b"\0\0\x00\x00\x02c\x02h\x02\x02t\x00\0\0\0\x05\x00\x00",
        ),
        (
            ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            b"\x00\x06\x00\x01g",
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
            b"\0\0\0\0\0\x04\0",
        ),
        (
            ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="a"),
            b"\x00\x07\x00\x01g\x00\x01a",
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[1])]
            ),
            b"\0\0\x02" + TOPIC_ID + b"\x02\0\0\0\x01\0\0",
        ),
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
            b"\x00\x08\x00\x01g\x00\x01a",
            ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, previous_member_epoch=2, state=1),
            b"\0\0\0\0\0\x03\0\0\0\x02\x01\x01\x01\0",
        ),
        (
            ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"),
            b"\x00\x10\x00\x01g\x00\x03t.*",
            ConsumerGroupRegularExpressionValue(topics=["t"], version=1, timestamp=2),
            b"\0\0\x02\x02t" + bytes(7) + b"\x01" + bytes(7) + b"\x02\0",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_a_record_has_the_bytes_that_kafka_gives_it(
    key: Message, key_data: bytes, value: Message, value_data: bytes
) -> None:
    assert key_bytes(key) == key_data
    assert value_bytes(value) == value_data
    assert read_group_record(key_data, value_data) == (key, value)
    assert read_group_record(key_data, None) == (key, None)


def test_older_and_newer_versions_of_values_are_read() -> None:
    key = key_bytes(OffsetCommitKey(group="g", topic="t"))
    oldest = b"\x00\x00" + bytes(7) + b"\x05" + b"\x00\x00" + bytes(8)
    newest = b"\x00\x04" + bytes(7) + b"\x05" + b"\0\0\0\x01" + b"\x01" + bytes(8) + b"\x01\x00\x10" + TOPIC_ID
    for data, epoch in ((oldest, -1), (newest, 1)):
        read = read_group_record(key, data)
        assert read is not None
        value = read[1]
        assert isinstance(value, OffsetCommitValue)
        assert (value.offset, value.leader_epoch) == (5, epoch)
    # Kafka before 0.9 wrote the key as version 0.
    assert read_group_record(b"\x00\x00" + key[2:], oldest) is not None


def test_a_kind_that_is_not_known_is_passed_over() -> None:
    assert read_group_record(b"\x00\x0b\x00\x01g", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"", None), (b"\x00", None), (b"\x00\x02\x00\x05g", None), (b"\x00\x03\x00\x01g", b"\x00\x63")]
)
def test_damaged_records_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(WireError):
        read_group_record(key, value)
