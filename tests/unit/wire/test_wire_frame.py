from typing import Any

import pytest

from semel.wire.errors import UnknownApi, WireError
from semel.wire.frame import RequestHeader, read_request_header, read_response, request_bytes, response_parts
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel.wire.spec.heartbeat import HeartbeatRequest, HeartbeatResponse

OLD_HEARTBEAT = b"\x00\x0c\x00\x00\x00\x00\x00\x07\x00\x02me" + b"\x00\x01g\x00\x00\x00\x01\x00\x01m"
FLEXIBLE_HEARTBEAT = b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x02me\x00" + b"\x02g\x00\x00\x00\x01\x02m\x00\x00"
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class FileRange:
    def __len__(self) -> int:
        return 100_000


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize(("version", "frame"), [(0, OLD_HEARTBEAT), (4, FLEXIBLE_HEARTBEAT)])
def test_a_request_is_a_length_a_header_and_a_body(version: int, frame: bytes) -> None:
    assert request_bytes(HEARTBEAT, version, 7, "me") == framed(frame)


def test_the_header_says_where_the_body_begins() -> None:
    assert read_request_header(OLD_HEARTBEAT) == RequestHeader(12, 0, 7, "me", 12)
    assert read_request_header(FLEXIBLE_HEARTBEAT) == RequestHeader(12, 4, 7, "me", 13)
    assert read_request_header(memoryview(b"????" + OLD_HEARTBEAT), 4).body_position == 16


def test_the_client_id_may_be_null() -> None:
    frame = request_bytes(HEARTBEAT, 4, 7, None)
    assert read_request_header(frame, 4).client_id is None
    assert read_request_header(request_bytes(HEARTBEAT, 4, 7, ""), 4).client_id == ""


def test_tagged_fields_of_the_header_are_skipped() -> None:
    frame = b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x00" + b"\x01\x05\x02??"
    assert read_request_header(frame).body_position == len(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        OLD_HEARTBEAT[:9],
        b"\x00\x0c\x00\x00\x00\x00\x00\x07\x00\x03me",
        b"\x00\x0c\x00\x00\x00\x00\x00\x07\xff\xfe",
        b"\x00\x0c\x00\x00\x00\x00\x00\x07\x00\x01\xff",
        b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x00",
        b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x00\x01\x05\x03??",
    ],
)
def test_a_malformed_header_is_refused(frame: bytes) -> None:
    with pytest.raises(WireError):
        read_request_header(frame)


def test_an_unknown_api_is_refused_with_what_could_be_read() -> None:
    with pytest.raises(UnknownApi) as refused:
        read_request_header(b"\x03\xe7\x00\x05\x00\x00\x00\x2a\xff\xff")
    assert (refused.value.api_key, refused.value.api_version, refused.value.correlation_id) == (999, 5, 42)


def test_a_header_can_be_read_in_versions_that_nobody_serves() -> None:
    """The broker must answer an ApiVersions request from the future, and needs its correlation id."""
    header = read_request_header(b"\x00\x12\x00\x63\x00\x00\x00\x2a\x00\x01c\x00" + b"whatever")
    assert header == RequestHeader(18, 99, 42, "c", 12)


def test_an_old_response_begins_with_the_correlation_id() -> None:
    assert response_parts(7, HeartbeatResponse(error_code=27), 0) == [framed(b"\x00\x00\x00\x07\x00\x1b")]


def test_a_flexible_response_has_tags_in_its_header() -> None:
    body = b"\x00\x00\x00\x00\x00\x1b\x00"
    assert response_parts(7, HeartbeatResponse(error_code=27), 4) == [framed(b"\x00\x00\x00\x07\x00" + body)]


def test_api_versions_is_always_answered_with_the_old_header() -> None:
    body = b"\x00\x00\x01\x00\x00\x00\x00\x00"
    assert response_parts(7, ApiVersionsResponse(), 3) == [framed(b"\x00\x00\x00\x07" + body)]
    assert read_response(ApiVersionsResponse, 3, b"\x00\x00\x00\x07" + body) == (7, ApiVersionsResponse())


def test_a_request_for_api_versions_has_the_new_header() -> None:
    frame = request_bytes(ApiVersionsRequest(client_software_name="n", client_software_version="v"), 3, 7, "c")
    assert frame[4:] == b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x01c\x00" + b"\x02n\x02v\x00"


@pytest.mark.parametrize("version", [0, 1, 4])
def test_a_response_is_read_back(version: int) -> None:
    frame = b"".join(response_parts(-5, HeartbeatResponse(error_code=27), version))  # type: ignore[arg-type]
    assert read_response(HeartbeatResponse, version, frame[4:]) == (-5, HeartbeatResponse(error_code=27))


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x07", b"\x00\x00\x00\x07\x01\x01"])
def test_a_malformed_response_header_is_refused(frame: bytes) -> None:
    with pytest.raises(WireError):
        read_response(HeartbeatResponse, 4, frame)


def test_a_response_followed_by_more_is_refused() -> None:
    with pytest.raises(WireError):
        read_response(HeartbeatResponse, 0, b"\x00\x00\x00\x07\x00\x1b\x00")


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [FetchResponsePartition(partition_index=index, records=each) for index, each in enumerate(records)]
    return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=partitions)])


def test_records_stay_parts_of_their_own_and_count_into_the_length() -> None:
    stored, view = FileRange(), memoryview(bytes(5000))
    parts = response_parts(7, fetch_response(stored, view, None), 12)
    before, first, between, second, after = parts
    assert (first, second) == (stored, view)
    assert all(isinstance(part, bytes) for part in (before, between, after))
    assert int.from_bytes(bytes(before)[:4], "big") == sum(map(len, parts)) - 4  # type: ignore[arg-type]


def test_small_parts_are_sent_as_one() -> None:
    assert len(response_parts(7, fetch_response(b"small", None, b"records"), 12)) == 1
    assert len(response_parts(7, fetch_response(bytes(5000)), 12)) == 3


def test_a_frame_that_no_length_can_state_is_refused() -> None:
    class Enormous:
        def __len__(self) -> int:
            return (1 << 31) - 10

    with pytest.raises(WireError):
        response_parts(7, fetch_response(Enormous()), 12)


@pytest.mark.parametrize("client_id", ["c" * 40_000, "\ud800"])
def test_a_client_id_that_does_not_fit_is_refused(client_id: str) -> None:
    with pytest.raises(WireError):
        request_bytes(HEARTBEAT, 0, 1, client_id)


def test_a_correlation_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(WireError):
        request_bytes(HEARTBEAT, 0, 1 << 31, "c")
    with pytest.raises(WireError):
        response_parts(1 << 31, HeartbeatResponse(), 0)
