"""What the tests of the log room share: topic settings in small, batches, and a log on a simulated disk."""

from __future__ import annotations

from typing import Any

from semel.config import BrokerConfig, TopicConfig, topic_config
from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.log.log import Appended, Log
from semel.log.recovery import Recovered, load_log
from semel.records.batch import BatchHeader, check_crc, read_header, whole_batches
from semel.records.build import build_batch
from semel.records.control import ControlType
from semel.sim.disk import SimDisk
from semel.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/events-0"


def settings(**overrides: Any) -> TopicConfig:
    """Topic settings by Kafka's names with underscores: segment_bytes=600."""
    texts = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    return topic_config({"index.interval.bytes": "100", **texts}, BrokerConfig())


def batch(
    *values: bytes | None,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
    **more: Any,
) -> bytearray:
    return build_batch(
        list(values) or [b"value"],
        base_timestamp_ms=timestamp_ms,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
        **more,
    )


def header_of(
    producer: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    """A header as `Producers.check` sees it, without records behind it."""
    attributes = 0x10 if transactional else 0
    return BatchHeader(0, 49, 0, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, producer, epoch, sequence, count)


def write(log: Log, data: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    return log.append(data, read_header(data), leader_epoch, now_ms)


def mark(
    log: Log, kind: ControlType, producer: int, epoch: int = 0, *, coordinator_epoch: int = 0, **more: Any
) -> Appended:
    return log.append_marker(kind, producer, epoch, coordinator_epoch, 0, NOW_MS, **more)


def new_log(disk: SimDisk | None = None, **overrides: Any) -> Log:
    log, _ = load(disk or SimDisk(), **overrides)
    return log


def load(
    disk: SimDisk,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    start_offset: int = 0,
    config: TopicConfig | None = None,
    **overrides: Any,
) -> tuple[Log, Recovered]:
    if not disk.exists("/data"):
        disk.make_dirs("/data")
        disk.sync_dir_now("/")
    return load_log(
        disk,
        DIRECTORY,
        config or settings(**overrides),
        recovery_point=recovery_point,
        start_offset=start_offset,
        now_ms=NOW_MS,
        was_clean=clean,
    )


def read(
    log: Log, offset: int, max_bytes: int = 1 << 30, up_to: int | None = None, *, at_least_one: bool = True
) -> bytes:
    found = log.read(
        offset, max_bytes, log.end_offset if up_to is None else up_to, at_least_one=at_least_one, warmed=True
    )
    if found is None:
        return b""
    assert isinstance(found, FileRange)
    data = found.read()
    found.release()
    return data


def batches_from(log: Log, offset: int) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from `offset` to the end, fetched piece by piece, CRCs checked."""
    found: list[tuple[BatchHeader, bytes]] = []
    while offset < log.end_offset:
        data = read(log, offset)
        if not data:
            break
        for position, header in whole_batches(data):
            assert check_crc(data, position, header)
            found.append((header, data[position : position + header.size_bytes]))
            offset = header.next_offset
    return found


def offsets_from(log: Log, offset: int) -> list[int]:
    return [header.base_offset for header, _ in batches_from(log, offset)]


def code_of(refused: Any) -> ErrorCode:
    assert isinstance(refused.value, Refused)
    return refused.value.code


def segment_path(log: Log, number: int = 0) -> str:
    return log.segments[number].path
