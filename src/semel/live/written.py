"""What stands in the partitions of a cluster, batch by batch, markers and internal topics included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from semel.client.cluster import Cluster
from semel.client.errors import RetriableError, SemelError, error_for
from semel.client.metadata import NO_NODE
from semel.coordinator.txn.state import TransactionState
from semel.log.inspection.decode import Undecodable, decoder_for
from semel.records.batch import BatchHeader, whole_batches
from semel.records.control import read_control
from semel.records.read import Record, read_records
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from semel.wire.spec.group_records import OffsetCommitKey, OffsetCommitValue
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from semel.wire.spec.transaction_log import TransactionLogKey, TransactionLogValue

_LATEST = -1
_FETCH_BYTES = 1 << 20
_LAST_VERSION_BY_NAME = 12
_SHOWN_CHARACTERS = 40
STATE_LABELS = {state.value: state.label for state in TransactionState}


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Written(NamedTuple):
    """One record, or a marker. `key` names what it is about: a transactional id or a group; None for other records."""

    place: Place
    offset: int
    what: str
    producer_id: int
    key: str | None = None
    state: str | None = None
    """Of a record of `__transaction_state`."""


async def end_of(cluster: Cluster, place: Place) -> int:
    """The offset that the next record will have, as far as everything before it is committed. Raises SemelError."""
    asked = ListOffsetsPartition(partition_index=place.partition, timestamp=_LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=place.topic, partitions=[asked])]
    )
    answer = await cluster.call(_leader(cluster, place), request, ListOffsetsResponse)
    partition = answer.topics[0].partitions[0]
    if partition.error_code != ErrorCode.NONE:
        raise error_for(partition.error_code, f"asking for the end of {place}")
    return partition.offset


async def written_from(cluster: Cluster, place: Place, offset: int) -> tuple[list[Written], int]:
    """What has been written from an offset on, open transactions included, and where it ends. Raises SemelError."""
    found: list[Written] = []
    while True:
        data = await _fetch(cluster, place, offset)
        before = offset
        for at, header in whole_batches(data):
            if header.next_offset > offset:
                found += _in_batch(place, data[at : at + header.size_bytes], header)
                offset = header.next_offset
        if offset == before:
            return found, offset


async def values_of(cluster: Cluster, place: Place) -> list[bytes]:
    """The values of all records of a small partition, in order. Raises SemelError."""
    found: list[bytes] = []
    offset = 0
    while True:
        before = offset
        data = await _fetch(cluster, place, offset)
        for at, header in whole_batches(data):
            if header.next_offset > offset and not header.is_control:
                found += [record.value or b"" for record in read_records(data[at : at + header.size_bytes], header)]
            offset = max(offset, header.next_offset)
        if offset == before:
            return found


async def _fetch(cluster: Cluster, place: Place, offset: int) -> bytes:
    asked = FetchRequestPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        topics=[FetchRequestTopic(topic=place.topic, partitions=[asked])],
    )
    answer = await cluster.call(_leader(cluster, place), request, FetchResponse, at_most=_LAST_VERSION_BY_NAME)
    error_code = answer.error_code or answer.responses[0].partitions[0].error_code
    if error_code != ErrorCode.NONE:
        raise error_for(error_code, f"reading {place} from offset {offset}")
    return bytes(answer.responses[0].partitions[0].records or b"")


def _leader(cluster: Cluster, place: Place) -> int:
    leader_id = cluster.leader_of(*place)
    if leader_id == NO_NODE:
        raise RetriableError(f"{place} has no leader now")
    return leader_id


async def partition_count(cluster: Cluster, topic: str) -> int | None:
    """None while there is no such topic."""
    if topic not in cluster.topics or not cluster.topics[topic].is_usable:
        cluster.watch([topic])
        try:
            await cluster.refresh()
        except SemelError:
            return None
    known = cluster.topics.get(topic)
    return len(known.partitions) if known is not None and known.is_usable else None


# -- as text


def _in_batch(place: Place, batch: bytes, header: BatchHeader) -> Iterator[Written]:
    if header.is_control:
        marker = read_control(batch, header)
        if marker is not None:
            what = f"marker {marker.kind.name}, producer {header.producer_id} epoch {header.producer_epoch}"
            yield Written(place, header.base_offset, what, header.producer_id)
        return
    decoder = decoder_for(place.topic)
    for record in read_records(batch, header):
        if decoder is None:
            yield Written(place, record.offset, _data_text(record, header), header.producer_id)
            continue
        try:
            key, value = decoder(record)
        except Undecodable:
            continue
        if isinstance(key, TransactionLogKey):
            state = value if isinstance(value, TransactionLogValue) else None
            label = None if state is None else STATE_LABELS.get(state.transaction_status)
            yield Written(
                place, record.offset, _state_text(state, label), header.producer_id, key.transactional_id, label
            )
        elif isinstance(key, OffsetCommitKey):
            yield Written(place, record.offset, _offset_text(key, value, header), header.producer_id, key.group)


def _data_text(record: Record, header: BatchHeader) -> str:
    key = "" if record.key is None else f"{_bytes_text(record.key)} = "
    value = "null" if record.value is None else _bytes_text(record.value)
    return f"{key}{value}{_by(header, header.base_sequence + record.offset - header.base_offset)}"


def _by(header: BatchHeader, sequence: int) -> str:
    if header.producer_id < 0:
        return ""
    shown = f", producer {header.producer_id} epoch {header.producer_epoch}"
    if header.base_sequence >= 0:
        shown += f" sequence {sequence}"
    return shown + (", in the transaction" if header.is_transactional else "")


def _state_text(state: TransactionLogValue | None, label: str | None) -> str:
    if state is None:
        return "forgotten"
    places = [f"{one.topic}/{index}" for one in state.transaction_partitions or () for index in one.partition_ids]
    shown = f"{label or state.transaction_status}, producer {state.producer_id} epoch {state.producer_epoch}"
    return shown + (f", partitions {' '.join(places)}" if places else "")


def _offset_text(key: OffsetCommitKey, value: object, header: BatchHeader) -> str:
    if not isinstance(value, OffsetCommitValue):
        return f"group {key.group} has no offset of {key.topic}/{key.partition} any more"
    return f"group {key.group} has read {key.topic}/{key.partition} up to {value.offset}{_by(header, -1)}"


def _bytes_text(data: bytes) -> str:
    try:
        text = data.decode()
        shown = json.dumps(text, ensure_ascii=False) if text.isprintable() else f"0x{data.hex()}"
    except UnicodeDecodeError:
        shown = f"0x{data.hex()}"
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
