"""Messages against bytes written by hand from the protocol's definition."""

from typing import Any

import pytest

from semel.wire.codec import Message, decode, decoder, encode, encoder
from semel.wire.errors import WireError
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature
from semel.wire.spec.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse, MemberAssignment
from semel.wire.spec.fetch import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic, SnapshotId
from semel.wire.spec.heartbeat import HeartbeatRequest, HeartbeatResponse
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest

OLD_PRODUCE = (
    b"\xff\xff"  # no transactional id
    b"\xff\xff\x00\x00\x75\x30"  # acks -1, timeout 30000 ms
    b"\x00\x00\x00\x01\x00\x05topic"
    b"\x00\x00\x00\x01\x00\x00\x00\x02"  # partition 2
    b"\x00\x00\x00\x03abc"
)
FLEXIBLE_PRODUCE = (
    b"\x04txn"  # a compact string counts one more than its length
    b"\xff\xff\x00\x00\x75\x30"
    b"\x02\x06topic"
    b"\x02\x00\x00\x00\x02"
    b"\x04abc\x00"  # records, then no tagged fields of partition, topic and request
    b"\x00\x00"
)


def produce(transactional_id: str | None) -> ProduceRequest:
    partition = PartitionProduceData(index=2, records=b"abc")
    topic = TopicProduceData(name="topic", partition_data=[partition])
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30000, topic_data=[topic])


class FileRange:
    """Stands for records that are not in memory."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def test_an_old_version_has_wide_lengths_and_no_tags() -> None:
    assert encode(produce(None), 3) == OLD_PRODUCE
    assert decode(ProduceRequest, 3, OLD_PRODUCE) == produce(None)


def test_a_flexible_version_has_compact_lengths_and_tags() -> None:
    assert encode(produce("txn"), 9) == FLEXIBLE_PRODUCE
    assert decode(ProduceRequest, 9, FLEXIBLE_PRODUCE) == produce("txn")


def test_fields_that_a_version_lacks_are_dropped_and_come_back_as_defaults() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="instance")
    assert encode(request, 0) == b"\x00\x01g\x00\x00\x00\x01\x00\x01m"
    assert decode(HeartbeatRequest, 0, encode(request, 0)).group_instance_id is None


@pytest.mark.parametrize("frame", [FLEXIBLE_PRODUCE, bytearray(FLEXIBLE_PRODUCE), memoryview(FLEXIBLE_PRODUCE)])
def test_records_are_a_view_of_the_bytes_they_came_in(frame: Any) -> None:
    records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"abc"
    assert records.obj is (frame.obj if isinstance(frame, memoryview) else frame)


def fetch_response_parts(records: Any) -> list[Any]:
    partition = FetchResponsePartition(partition_index=1, records=records)
    response = FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])
    parts: list[Any] = []
    encoder(FetchResponse, 12)(response, parts.append)
    return parts


def test_records_are_passed_on_by_reference() -> None:
    for records in (b"records", memoryview(b"records"), FileRange(1 << 30)):
        parts = fetch_response_parts(records)
        assert any(part is records for part in parts)


def test_records_in_several_parts_carry_the_sum_of_their_lengths() -> None:
    stored = FileRange(1000)
    parts = fetch_response_parts([b"abc", (stored, memoryview(b"de"))])
    at = parts.index(stored)
    assert parts[at - 1] == b"abc"
    assert parts[at + 1] == b"de"
    assert parts[at - 2].endswith(b"\xee\x07"), "1005 bytes, counted one more as a compact length"


def test_wide_memoryviews_count_their_bytes() -> None:
    parts = fetch_response_parts(memoryview(b"12345678").cast("Q"))
    assert b"".join(parts) == b"".join(fetch_response_parts(b"12345678"))


def test_a_message_whose_records_are_not_in_memory_has_no_bytes() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=FileRange(3))])])
    with pytest.raises(WireError):
        encode(request, 9)


def test_null_and_empty_are_told_apart() -> None:
    assert decode(MetadataRequest, 9, b"\x00\x01\x00\x00\x00").topics is None
    assert decode(MetadataRequest, 9, b"\x01\x01\x00\x00\x00").topics == ()
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    assert decode(MetadataRequest, 1, b"\x00\x00\x00\x00").topics == ()


def test_null_is_refused_in_versions_that_do_not_allow_it() -> None:
    with pytest.raises(WireError, match=r"MetadataRequest\.topics"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")


def test_a_nullable_struct_is_announced_by_one_byte() -> None:
    without = encode(ConsumerGroupHeartbeatResponse(), 0)
    with_one = encode(ConsumerGroupHeartbeatResponse(assignment=MemberAssignment()), 0)
    assert without.endswith(b"\xff\x00")
    assert with_one == without[:-2] + b"\x01\x01\x00\x00"
    with pytest.raises(WireError):
        decode(ConsumerGroupHeartbeatResponse, 0, without[:-2] + b"\x02\x00")


def test_tagged_fields_are_written_in_order_of_their_tags_and_left_out_when_default() -> None:
    assert encode(ApiVersionsResponse(), 3) == b"\x00\x00\x01\x00\x00\x00\x00\x00"
    features = [FinalizedFeature(name="f", max_version_level=2, min_version_level=1)]
    encoded = encode(ApiVersionsResponse(finalized_features_epoch=5, finalized_features=features), 3)
    assert encoded == (
        b"\x00\x00\x01\x00\x00\x00\x00\x02"  # error, no keys, throttle, two tagged fields
        b"\x01\x08\x00\x00\x00\x00\x00\x00\x00\x05"
        b"\x02\x08\x02\x02f\x00\x02\x00\x01\x00"
    )
    assert decode(ApiVersionsResponse, 3, encoded).finalized_features == features


def test_a_tagged_struct_is_left_out_when_it_holds_defaults_only() -> None:
    partition = FetchResponsePartition(snapshot_id=SnapshotId())
    encoded = encode(FetchResponse(responses=[FetchResponseTopic(partitions=[partition])]), 12)
    assert encoded == encode(FetchResponse(responses=[FetchResponseTopic(partitions=[FetchResponsePartition()])]), 12)


NAMES = b"\x05name\x041.0"


def test_unknown_tagged_fields_are_skipped() -> None:
    request = ApiVersionsRequest(client_software_name="name", client_software_version="1.0")
    assert decode(ApiVersionsRequest, 3, NAMES + b"\x02\x09\x03abc\xff\x01\x00") == request
    epoch = b"\x01\x08\x00\x00\x00\x00\x00\x00\x00\x05"
    response = decode(ApiVersionsResponse, 3, b"\x00\x00\x01\x00\x00\x00\x00\x02" + epoch + b"\x63\x01?")
    assert response.finalized_features_epoch == 5


def test_of_a_tag_that_comes_twice_the_last_one_counts() -> None:
    tags = b"".join(b"\x01\x08" + value.to_bytes(8, "big") for value in (5, 6))
    assert decode(ApiVersionsResponse, 3, b"\x00\x00\x01\x00\x00\x00\x00\x02" + tags).finalized_features_epoch == 6


def test_tags_may_come_in_any_order() -> None:
    tags = b"\x03\x01\x01" + b"\x01\x08" + bytes(7) + b"\x05"
    response = decode(ApiVersionsResponse, 3, b"\x00\x00\x01\x00\x00\x00\x00\x02" + tags)
    assert (response.finalized_features_epoch, response.zk_migration_ready) == (5, True)


@pytest.mark.parametrize(
    "tag", [b"\x01\x07" + bytes(8), b"\x01\x09" + bytes(9), b"\x01\x08" + bytes(7), b"\x09\x05abc"]
)
def test_a_tagged_field_whose_size_is_wrong_is_refused(tag: bytes) -> None:
    with pytest.raises(WireError):
        decode(ApiVersionsResponse, 3, b"\x00\x00\x01\x00\x00\x00\x00\x01" + tag)


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("a string that runs past the end", b"\x7fname\x041.0\x00"),
        ("a string that is not UTF-8", b"\x05\xff\xfe\xfd\xfc\x041.0\x00"),
        ("a null string", b"\x00\x041.0\x00"),
        ("a length of more than 32 bits", b"\xff\xff\xff\xff\xff\x01" + bytes(9)),
        ("a byte too many", NAMES + b"\x00\x00"),
        ("no tag count", NAMES),
        ("a tag count without tags", NAMES + b"\x01"),
        ("an enormous tag count", NAMES + b"\xff\xff\xff\xff\x0f"),
        ("a tag beyond the end", NAMES + b"\x01\x09\xff\xff\xff\xff\x0f"),
        ("a string longer than Kafka's strings", b"\x81\x80\x02" + b"a" * 0x8000 + b"\x041.0\x00"),
    ],
)
def test_malformed_bytes_are_refused(what: str, body: bytes) -> None:
    with pytest.raises(WireError):
        decode(ApiVersionsRequest, 3, body)


@pytest.mark.parametrize(
    ("cls", "version", "body"),
    [
        (SaslHandshakeRequest, 0, b"\x00\x05SCRA"),
        (SaslAuthenticateRequest, 0, b"\x00\x00\x00\x05abcd"),
        (ApiVersionsRequest, 3, NAMES + b"\x01\x09\x04abc"),
        (ApiVersionsResponse, 3, b"\x00\x00\x01\x00\x00\x00\x00\x01\x09\x04abc"),
    ],
)
def test_a_last_field_that_runs_past_the_end_is_refused_where_it_stands(
    cls: type[Message], version: int, body: bytes
) -> None:
    """Nothing follows that could notice it: the decoder itself must."""
    with pytest.raises(WireError, match="past the end"):
        decoder(cls, version)(body, 0)


PRODUCE_START = b"\xff\xff\xff\xff\x00\x00\x75\x30"


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x02"])
def test_an_array_longer_than_the_bytes_that_remain_is_refused_before_it_is_made(length: bytes) -> None:
    """Two topics take twelve bytes at least, a name's length and an array's length each; here are eleven."""
    with pytest.raises(WireError, match="cannot hold"):
        decode(ProduceRequest, 3, PRODUCE_START + length + bytes(11))


def test_an_array_of_the_smallest_elements_fills_the_bytes_that_remain() -> None:
    request = decode(ProduceRequest, 3, PRODUCE_START + b"\x00\x00\x00\x02" + bytes(12))
    assert request.topic_data == [TopicProduceData(), TopicProduceData()]


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"])
def test_an_array_length_below_zero_is_refused(length: bytes) -> None:
    with pytest.raises(WireError, match="length -"):
        decode(ProduceRequest, 3, PRODUCE_START + length + bytes(20))


def test_a_string_length_below_null_is_refused() -> None:
    with pytest.raises(WireError):
        decode(ProduceRequest, 3, b"\xff\xfe" + OLD_PRODUCE[2:])


@pytest.mark.parametrize("version", [-1, 2, 14, 1000])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(WireError, match="no version"):
        decoder(ProduceRequest, version)
    with pytest.raises(WireError, match="no version"):
        encode(ProduceRequest(), version)


def test_functions_are_made_once() -> None:
    assert decoder(FetchRequest, 12) is decoder(FetchRequest, 12)
    assert encoder(FetchRequest, 12) is encoder(FetchRequest, 12)
    assert encoder(FetchRequest, 12) is not encoder(FetchRequest, 11)


def test_any_other_byte_than_zero_is_true() -> None:
    response = decode(ApiVersionsResponse, 3, b"\x00\x00\x01\x00\x00\x00\x00\x01\x03\x01\x02")
    assert response.zk_migration_ready is True


def test_a_small_message_has_the_size_the_protocol_says() -> None:
    assert encode(HeartbeatResponse(error_code=27), 0) == b"\x00\x1b"
    assert encode(HeartbeatResponse(error_code=27), 1) == b"\x00\x00\x00\x00\x00\x1b"
    assert encode(HeartbeatResponse(error_code=27), 4) == b"\x00\x00\x00\x00\x00\x1b\x00"
