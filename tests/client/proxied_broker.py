"""A fault proxy before a running broker, and what the broker's logs hold, read past it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from raw_client import RawClient
from semel.host.real import real_host
from semel.records.batch import BatchHeader, whole_batches
from semel.records.control import ControlType, read_control
from semel.records.read import record_values
from semel.sim.attack.fault_policy import Faults
from semel.sim.attack.fault_proxy import FaultProxy

MARKER_PATIENCE_S = 10.0


@asynccontextmanager
async def behind(address: str, faults: Faults, **options: Any) -> AsyncIterator[str]:
    """The address by which to reach the broker through the proxy. What fails tells what the proxy did."""
    host = real_host()
    proxy = FaultProxy(host, faults, **options)
    name, _, port = address.rpartition(":")
    try:
        yield await proxy.open(name, int(port))
        proxy.check()
    except BaseException as failure:
        failure.add_note(proxy.report())
        raise
    finally:
        await proxy.close()
        host.close()


def connect(address: str) -> RawClient:
    return RawClient(int(address.rpartition(":")[2]))


def log_of(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    with connect(address) as client:
        return [record.value for record in client.read_log(topic, partition)]


def committed_values(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    """What the log shows to a reader of committed data, by its markers, in the order of commits. Kafka answers the end
    of a transaction before its markers are written: these may come a moment later."""
    deadline = time.monotonic() + MARKER_PATIENCE_S
    while True:
        values, hanging = _values_by_markers(address, topic, partition)
        if not hanging:
            return values
        assert time.monotonic() < deadline, f"transactions of {hanging} hang"
        time.sleep(0.05)


def _values_by_markers(address: str, topic: str, partition: int) -> tuple[list[bytes | None], list[int]]:
    """Those of ended transactions, and the producers of others."""
    values: list[bytes | None] = []
    open_by_producer: dict[int, list[bytes | None]] = {}
    with connect(address) as client:
        for header, batch in batches(client, topic, partition):
            if header.is_control:
                marker = read_control(batch, header)
                ended = open_by_producer.pop(header.producer_id, [])
                if marker is not None and marker.kind == ControlType.COMMIT:
                    values += ended
            elif header.is_transactional:
                open_by_producer.setdefault(header.producer_id, []).extend(record_values(batch, header))
            else:
                values += record_values(batch, header)
    return values, list(open_by_producer)


def batches(client: RawClient, topic: str, partition: int) -> Iterator[tuple[BatchHeader, bytes]]:
    offset = 0
    while True:
        part = client.fetch(topic, partition, offset)
        assert part.error_code == 0
        data = bytes(part.records or b"")
        for position, header in whole_batches(data):
            offset = header.next_offset
            yield header, data[position : position + header.size_bytes]
        if offset >= part.high_watermark:
            return
