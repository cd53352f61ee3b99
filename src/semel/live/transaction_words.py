"""The requests of a transaction and their answers, in a few words each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest
from semel.wire.spec.add_partitions_to_txn import AddPartitionsToTxnRequest
from semel.wire.spec.end_txn import EndTxnRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.produce import ProduceRequest, ProduceResponse
from semel.wire.spec.txn_offset_commit import TxnOffsetCommitRequest

_REQUESTS = (
    FindCoordinatorRequest,
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    ProduceRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)
TRACED = frozenset(request.api_key for request in _REQUESTS)
"""The APIs that a transaction of a client consists of."""
_ERROR_FIELDS = ("error_code", "partition_error_code")


def request_text(request: Request, topic_names: Mapping[bytes, str]) -> str:
    """What is asked. Topics are named where the request has only their ids."""
    match request:
        case FindCoordinatorRequest():
            kind = {0: "group", 1: "transactional id"}.get(request.key_type, f"key of kind {request.key_type}")
            return f"who coordinates {kind} {' '.join(request.coordinator_keys) or request.key}?"
        case InitProducerIdRequest():
            return f"an id and an epoch for transactional id {request.transactional_id}"
        case AddPartitionsToTxnRequest():
            return "joins the transaction: " + _joined(
                f"{topic.name}/{index}" for topic in request.v3_and_below_topics for index in topic.partitions
            )
        case ProduceRequest():
            return "records for " + _joined(
                f"{topic.name or topic_names.get(topic.topic_id, topic.topic_id.hex())}/{data.index}"
                for topic in request.topic_data
                for data in topic.partition_data
            )
        case AddOffsetsToTxnRequest():
            return f"joins the transaction: the offsets of group {request.group_id}"
        case TxnOffsetCommitRequest():
            offsets = _joined(
                f"{topic.name or topic_names.get(topic.topic_id, topic.topic_id.hex())}/{one.partition_index} "
                f"up to {one.committed_offset}"
                for topic in request.topics
                for one in topic.partitions
            )
            return f"group {request.group_id} has read {offsets}"
        case EndTxnRequest():
            return "commit" if request.committed else "abort"
    return ""


def answer_text(response: Response) -> str:
    """What the answer brings; empty where it says no more than that all went well."""
    if isinstance(response, FindCoordinatorResponse):
        return _joined(f"node {one.node_id}" for one in response.coordinators or (response,))
    if isinstance(response, ProduceResponse):
        return _joined(
            f"at offset {one.base_offset}" for topic in response.responses for one in topic.partition_responses
        )
    producer_id = getattr(response, "producer_id", -1)
    return f"producer {producer_id} epoch {getattr(response, 'producer_epoch', -1)}" if producer_id >= 0 else ""


def error_of(response: Response) -> str | None:
    """The names of the errors in an answer, wherever they stand in it."""
    codes = {code for code in _codes(response) if code != ErrorCode.NONE}
    return _joined(_error_name(code) for code in sorted(codes)) if codes else None


def _codes(value: Any) -> Iterable[int]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _codes(one)
    elif hasattr(value, "_fields"):
        for name in value._fields:
            field = getattr(value, name)
            if name in _ERROR_FIELDS and isinstance(field, int):
                yield field
            else:
                yield from _codes(field)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))
