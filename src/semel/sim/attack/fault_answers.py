"""Answers that the fault proxy changes or makes up itself: brokers that lead past it, versions to hide, refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from semel.sim.attack.fault_policy import Passing
from semel.wire.apis import request_class, response_class
from semel.wire.codec import decoder
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_request_header, read_response, response_parts
from semel.wire.spec.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 0, 1, 3, 10, 18, 60
INIT_PRODUCER_ID, ADD_OFFSETS, END_TXN = 22, 25, 26
NAMING_BROKERS = frozenset({PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
NO_OFFSET = -1

# What a broker that knows only the first generation of transactions offers.
FIRST_GENERATION_LIMITS = {PRODUCE: 11, INIT_PRODUCER_ID: 4, ADD_OFFSETS: 3, END_TXN: 4, 28: 4}
FIRST_GENERATION_HIDDEN = frozenset({"transaction.version"})

REFUSALS = {
    PRODUCE: ErrorCode.NOT_ENOUGH_REPLICAS,
    INIT_PRODUCER_ID: ErrorCode.CONCURRENT_TRANSACTIONS,
    ADD_OFFSETS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    END_TXN: ErrorCode.NOT_COORDINATOR,
}
"""What may be said instead of serving a request: nothing was done, and it may be asked again."""

DENIALS = {
    PRODUCE: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ADD_OFFSETS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    END_TXN: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What may be said after a request was served, as if it had not been."""


def needs_answer(frame: bytes, request: Passing) -> bool:
    """A produce with acks 0 gets none."""
    return request.api_key != PRODUCE or body_of(frame, request).acks != 0


def refusal(frame: bytes, request: Passing) -> bytes:
    """The answer to a request that is not passed on."""
    code = REFUSALS[request.api_key]
    if request.api_key != PRODUCE:
        answer: Any = response_class(request.api_key)()
        answer.error_code = code
        return _frame_of(request, answer)
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_unwritten(data.index, code) for data in topic.partition_data],
        )
        for topic in body_of(frame, request).topic_data
    ]
    return _frame_of(request, ProduceResponse(responses=topics))


def denial(frame: bytes, request: Passing) -> bytes:
    """What the broker has answered, turned into an error wherever it said that all went well."""
    answer = _answer(frame, request)
    code = DENIALS[request.api_key]
    if request.api_key != PRODUCE:
        if answer.error_code == ErrorCode.NONE:
            answer.error_code = code
        return _frame_of(request, answer)
    for topic in answer.responses:
        topic.partition_responses = [
            _unwritten(part.index, code) if part.error_code == ErrorCode.NONE else part
            for part in topic.partition_responses
        ]
    return _frame_of(request, answer)


async def staying_behind(
    frame: bytes, request: Passing, door: Callable[[str, int], Awaitable[tuple[str, int]]]
) -> bytes:
    """An answer in which every broker is named by its door in the proxy."""
    if request.api_key not in NAMING_BROKERS:
        return frame
    answer = _answer(frame, request)
    if request.api_key in (PRODUCE, FETCH):
        named = list(answer.node_endpoints)
    elif request.api_key == FIND_COORDINATOR:
        named = [answer, *answer.coordinators]
    else:
        named = list(answer.brokers)
    for broker in named:
        if broker.host and broker.port > 0:
            broker.host, broker.port = await door(broker.host, broker.port)
    return _frame_of(request, answer) if named else frame


def limited(frame: bytes, request: Passing, limits: Mapping[int, int], hidden_features: Iterable[str]) -> bytes:
    """An answer to ApiVersions that offers less."""
    if int.from_bytes(frame[8:10], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
        request = request._replace(version=0)
    answer = _answer(frame, request)
    for entry in answer.api_keys:
        entry.max_version = min(entry.max_version, limits.get(entry.api_key, entry.max_version))
    for name in ("supported_features", "finalized_features"):
        setattr(answer, name, [feature for feature in getattr(answer, name) if feature.name not in hidden_features])
    return _frame_of(request, answer)


def _unwritten(index: int, code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=NO_OFFSET)


def body_of(frame: bytes, request: Passing) -> Any:
    """What a request's frame asks for."""
    content = memoryview(frame)[4:]
    position = read_request_header(content).body_position
    return decoder(request_class(request.api_key), request.version)(content, position)[0]


def _answer(frame: bytes, request: Passing) -> Any:
    return read_response(response_class(request.api_key), request.version, memoryview(frame)[4:])[1]


def _frame_of(request: Passing, answer: Any) -> bytes:
    parts: list[Any] = response_parts(request.correlation_id, answer, request.version)
    return b"".join(parts)
