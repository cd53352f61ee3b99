"""The frame around a message: a length, a header that pairs answers with requests, and the body.

Request header version 1 is key, version, correlation id and client id; version 2, used by flexible versions, adds
tagged fields after the client id, which stays an int16 string. Response header version 0 is the correlation id; version
1 adds tagged fields. ApiVersions is always answered with version 0: its client may not know yet what the broker speaks.
"""

from struct import Struct as Packer
from struct import error as struct_error
from typing import Any, NamedTuple, TypeVar

from semel.wire.apis import API
from semel.wire.codec import decoder, encoder
from semel.wire.decoding import skip_tags
from semel.wire.encoding import Part
from semel.wire.errors import UnknownApi, WireError
from semel.wire.primitives import Buffer
from semel.wire.schema import Request, Response, has_records

R = TypeVar("R", bound=Response)

API_VERSIONS = 18
FRAME_BYTES_MAX = (1 << 31) - 1
JOIN_BYTES_MAX = 4096
"""Parts up to this size are copied together: cheaper than one more entry in a gathering write."""

_request_start = Packer(">hhih")
_response_start = Packer(">ii")
_flexible_response_start = Packer(">iix")
_correlation_id = Packer(">i")
_length_and_start = Packer(">ihhih")


class RequestHeader(NamedTuple):
    """What stands before a request's body, and the position at which the body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(buffer: Buffer, position: int = 0) -> RequestHeader:
    """The header at `position` of a frame without its length.

    A key that is not in the table raises UnknownApi. A known key with a version that nobody serves is returned like any
    other, since even then the header's form is known: the caller compares it with the versions it serves.
    """
    try:
        api_key, api_version, correlation_id, length = _request_start.unpack_from(buffer, position)
        api = API.get(api_key)
        if api is None:
            raise UnknownApi(api_key, api_version, correlation_id)
        position += 10
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(buffer):
                raise WireError("the client id runs past the end")
            client_id = str(buffer[position:end], "utf-8")
            position = end
        elif length != -1:
            raise WireError(f"the client id has length {length}")
        if api_version >= api.flexible_from:
            position = _skip_header_tags(buffer, position)
        return RequestHeader(api_key, api_version, correlation_id, client_id, position)
    except (struct_error, IndexError):
        raise WireError("a request header ends too early") from None
    except UnicodeDecodeError:
        raise WireError("the client id is not UTF-8") from None


def request_parts(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Part]:
    """A whole frame in parts, its length first: small parts joined, records handed on by reference."""
    try:
        name = b"" if client_id is None else client_id.encode()
    except UnicodeEncodeError:
        raise WireError("the client id cannot be written as UTF-8") from None
    name_length = -1 if client_id is None else len(name)
    parts: list[Any] = [name, b"\0"] if version >= request.flexible_from else [name]
    encoder(type(request), version)(request, parts.append)
    length = _frame_length(parts, _request_start.size)
    try:
        header = _length_and_start.pack(length, request.api_key, version, correlation_id, name_length)
    except struct_error:
        raise WireError("correlation id or client id do not fit the request header") from None
    return _joined([header, *parts])


def request_bytes(request: Request, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole frame, its length first."""
    try:
        return b"".join(request_parts(request, version, correlation_id, client_id))  # type: ignore[arg-type]
    except TypeError:
        raise WireError(f"{type(request).__name__} carries records that are not in memory") from None


def response_parts(correlation_id: int, response: Response, version: int) -> list[Part]:
    """A whole frame in parts, its length first: small parts joined, records handed on by reference."""
    parts: list[Any] = []
    encoder(type(response), version)(response, parts.append)
    return framed_response(correlation_id, type(response), version, parts)


def framed_response(correlation_id: int, cls: type[Response], version: int, parts: list[Any]) -> list[Part]:
    """The same of a body that is encoded already."""
    if has_records(cls, version, version >= cls.flexible_from):
        return _joined([response_start(correlation_id, cls, version, sum(map(len, parts))), *parts])
    body = b"".join(parts)
    start = response_start(correlation_id, cls, version, len(body))
    return [start + body] if len(body) <= JOIN_BYTES_MAX else [start, body]


def response_start(correlation_id: int, cls: type[Response], version: int, body_bytes: int) -> bytes:
    """What stands before the body of an answer: its length, then its header."""
    is_flexible = version >= cls.flexible_from and cls.api_key != API_VERSIONS
    start = _flexible_response_start if is_flexible else _response_start
    length = body_bytes + start.size - 4
    if length > FRAME_BYTES_MAX:
        raise WireError(f"a frame cannot hold {length} bytes")
    try:
        return start.pack(length, correlation_id)
    except struct_error:
        raise WireError(f"{correlation_id!r} is no correlation id") from None


def read_response(cls: type[R], version: int, buffer: Buffer) -> tuple[int, R]:
    """The correlation id and the message of a frame without its length. The message must fill the frame."""
    try:
        (correlation_id,) = _correlation_id.unpack_from(buffer, 0)
        position = _correlation_id.size
        if version >= cls.flexible_from and cls.api_key != API_VERSIONS:
            position = _skip_header_tags(buffer, position)
    except (struct_error, IndexError):
        raise WireError("a response header ends too early") from None
    response, end = decoder(cls, version)(buffer, position)
    if end != len(buffer):
        raise WireError(f"{cls.__name__} version {version} is followed by {len(buffer) - end} bytes too many")
    return correlation_id, response


def _skip_header_tags(buffer: Buffer, position: int) -> int:
    count = buffer[position]
    return skip_tags(buffer, position + 1, len(buffer), count) if count else position + 1


def _frame_length(parts: list[Any], header_bytes: int) -> int:
    length = sum(map(len, parts)) + header_bytes
    if length > FRAME_BYTES_MAX:
        raise WireError(f"a frame cannot hold {length} bytes")
    return length


def _joined(parts: list[Any]) -> list[Part]:
    """Runs of small bytes become one part each."""
    joined: list[Part] = []
    run: list[bytes] = []
    for part in parts:
        if part.__class__ is bytes and len(part) <= JOIN_BYTES_MAX:
            run.append(part)
            continue
        if run:
            joined.append(b"".join(run))
            run.clear()
        joined.append(part)
    if run:
        joined.append(b"".join(run))
    return joined
