"""A client without any convenience: one connection, one request, one answer. It retries nothing and hides nothing."""

from __future__ import annotations

import itertools
import socket
from types import TracebackType
from typing import TypeVar

from semel.records.batch import whole_batches
from semel.records.build import build_batch
from semel.records.read import Record, read_records
from semel.wire.apis import response_class
from semel.wire.frame import read_response, request_bytes
from semel.wire.schema import Request, Response
from semel.wire.spec.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from semel.wire.spec.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

R = TypeVar("R", bound=Response)


class Disconnected(ConnectionError):
    """The broker closed the connection before it had answered."""


class RawClient:
    """Blocking; every wait ends after `timeout_s`."""

    def __init__(self, port: int, timeout_s: float = 20.0) -> None:
        self._correlation_ids = itertools.count(1)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- bytes and frames

    def send(self, request: Request, version: int) -> int:
        correlation_id = next(self._correlation_ids)
        self.socket.sendall(request_bytes(request, version, correlation_id, "raw"))
        return correlation_id

    def read_exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.socket.recv(count)
            if not part:
                raise Disconnected("the broker closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def read_frame(self) -> bytes:
        return self.read_exactly(int.from_bytes(self.read_exactly(4), "big"))

    def call(self, request: Request, version: int, answer: type[R]) -> R:
        correlation_id = self.send(request, version)
        answered, response = read_response(answer, version, self.read_frame())
        assert answered == correlation_id
        return response

    def call_any(self, request: Request, version: int) -> Response:
        return self.call(request, version, response_class(request.api_key))

    # -- what most tests need

    def make_topic(self, name: str) -> None:
        """By auto-creation."""
        answer = self.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9, MetadataResponse)
        assert [topic.error_code for topic in answer.topics] == [0]

    def new_producer_id(self) -> int:
        answer = self.call(InitProducerIdRequest(transaction_timeout_ms=60_000), 4, InitProducerIdResponse)
        assert answer.error_code == 0
        return answer.producer_id

    def produce(self, topic: str, partition: int, batch: bytes | bytearray, acks: int = -1) -> PartitionProduceResponse:
        answer = self.call(produce_request(topic, partition, batch, acks), 9, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> FetchResponsePartition:
        answer = self.call(fetch_request(topic, partition, offset, max_bytes), 11, FetchResponse)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def read_log(self, topic: str, partition: int) -> list[Record]:
        """Everything up to the high watermark."""
        records: list[Record] = []
        offset = 0
        while True:
            part = self.fetch(topic, partition, offset)
            assert part.error_code == 0
            data = memoryview(bytes(part.records or b""))
            for position, header in whole_batches(data):
                batch = data[position : position + header.size_bytes]
                records += [record for record in read_records(batch, header) if record.offset >= offset]
                offset = max(offset, header.next_offset)
            if offset >= part.high_watermark:
                return records


def produce_request(topic: str, partition: int, batch: bytes | bytearray, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str, partition: int, offset: int, max_bytes: int = 1 << 20, max_wait_ms: int = 0
) -> FetchRequest:
    wanted = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max(max_bytes, 1),
        session_epoch=-1,
        topics=[FetchRequestTopic(topic=topic, partitions=[wanted])],
    )


def batch_of(
    values: list[bytes], *, timestamp_ms: int, producer_id: int = -1, sequence: int = -1, codec: int = 0
) -> bytearray:
    return build_batch(
        list(values),
        base_timestamp_ms=timestamp_ms,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
