import pytest

from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("record", "version", "encoded"),
    [
        (
            FeatureLevelRecord(name="metadata.version", feature_level=25),
            0,
            b"\x01\x0c\x00" + b"\x11metadata.version\x00\x19\x00",
        ),
        (TopicRecord(name="t", topic_id=TOPIC_ID), 0, b"\x01\x02\x00" + b"\x02t" + TOPIC_ID + b"\x00"),
        (NoOpRecord(), 0, b"\x01\x14\x00" + b"\x00"),
        (
            ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=3000),
            0,
            b"\x01\x0f\x00" + b"\x00\x00\x00\x01" + b"\0\0\0\0\0\0\0\x02" + b"\0\0\0\0\0\0\x0b\xb8" + b"\x00",
        ),
        (
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1, isr=[1]),
            0,
            b"\x01\x05\x00" + bytes(4) + TOPIC_ID + b"\x02" + b"\x00\x05\x02\0\0\0\x01" + b"\x01\x04\xff\xff\xff\xff",
        ),
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=-1),
            0,
            b"\x01\x11\x00" + b"\x00\x00\x00\x01" + b"\0\0\0\0\0\0\0\x09" + b"\x01\x00\x01\xff",
        ),
        (
            PartitionRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
            ),
            0,
            b"\x01\x03\x00" + bytes(4) + TOPIC_ID + b"\x02\0\0\0\x01" * 2 + b"\x01\x01" + b"\0\0\0\x01" + bytes(9),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MetadataRecord) else "",
)
def test_a_record_is_framed_by_its_type_and_version(record: MetadataRecord, version: int, encoded: bytes) -> None:
    assert encode_metadata_record(record, version) == encoded
    assert decode_metadata_record(encoded) == record


def test_tags_are_written_in_ascending_order_whatever_the_order_of_the_fields() -> None:
    """The directories of a partition change came later than the eligible leader replicas, with a higher tag."""
    change = PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        leader_recovery_state=1,
        directories=[TOPIC_ID],
        eligible_leader_replicas=[2],
        last_known_elr=[],
    )
    assert encode_metadata_record(change, 2) == (
        b"\x01\x05\x02"
        + bytes(4)
        + TOPIC_ID
        + b"\x04"  # four tagged fields
        + b"\x05\x01\x01"
        + b"\x06\x05\x02\0\0\0\x02"
        + b"\x07\x01\x01"
        + b"\x08\x11\x02"
        + TOPIC_ID
    )


def test_null_and_empty_in_sync_replicas_are_different_changes() -> None:
    unchanged = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)
    emptied = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[])
    assert decode_metadata_record(encode_metadata_record(unchanged, 2)).isr is None  # type: ignore[attr-defined]
    assert decode_metadata_record(encode_metadata_record(emptied, 2)).isr == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\x00\x14\x00\x00",
        b"\x02\x14\x00\x00",
        b"\x01\x7f\x00\x00",
        b"\x01\x14\x01\x00",
        b"\x01\x14\x00",
        b"\x01\x14\x00\x00\x00",
    ],
)
def test_a_record_that_is_not_described_or_not_whole_is_refused(encoded: bytes) -> None:
    with pytest.raises(WireError):
        decode_metadata_record(encoded)
