"""Batches that other clients encoded (records/capture.py says how) are read, and made again where the bytes are ours to
choose: compressed bytes differ from one compressor to the next, uncompressed batches are equal byte for byte.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from semel.records.batch import check_crc, read_header, walk, whole_batches
from semel.records.build import build_batch
from semel.records.compact import record_keys
from semel.records.compression import Codec
from semel.records.read import Record, read_records, record_values

GOLDEN = Path(__file__).parent / "records"
_spec = importlib.util.spec_from_file_location("golden_records_capture", GOLDEN / "capture.py")
assert _spec is not None
assert _spec.loader is not None
capture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(capture)

SAMPLE = capture.sample()
EXPECTED = [
    Record(offset, timestamp, key, value, tuple(headers))
    for offset, (timestamp, key, value, headers) in enumerate(SAMPLE)
]
CLIENTS = ["kafka_python", "aiokafka", "librdkafka"]


@pytest.mark.parametrize("codec", capture.CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_batch_of_another_client_is_read(client: str, codec: str) -> None:
    batch = (GOLDEN / f"{client}_{codec}.bin").read_bytes()
    [(position, header)] = whole_batches(batch)
    assert position == 0
    assert header.codec == Codec[codec.upper()]
    assert header.record_count == len(SAMPLE)
    assert check_crc(batch, 0, header)
    if client != "librdkafka":  # its mock broker gave out producer ids of its own
        assert header.producer_id == capture.PRODUCER_ID
        assert header.producer_epoch == capture.PRODUCER_EPOCH
        assert header.last_sequence == (capture.BASE_SEQUENCE + len(SAMPLE) - 1) % 2**31
        assert header.is_transactional == (client == "kafka_python")
    timestamps = [timestamp for timestamp, *_ in SAMPLE]
    assert walk(batch, header) == (min(timestamps), max(timestamps), 1)
    assert header.max_timestamp == max(timestamps)
    assert read_records(batch) == EXPECTED
    assert record_values(batch) == [value for _, _, value, _ in SAMPLE]
    assert record_keys(batch) == [(r.offset, r.key, r.value is not None, r.timestamp_ms) for r in EXPECTED]


@pytest.mark.parametrize("client", CLIENTS)
def test_our_uncompressed_batch_equals_that_of_another_client(client: str) -> None:
    theirs = (GOLDEN / f"{client}_none.bin").read_bytes()
    header = read_header(theirs)
    timestamps, keys, values, headers = map(list, zip(*SAMPLE, strict=True))
    ours = build_batch(
        values,
        keys=keys,
        headers=headers,
        timestamps_ms=timestamps,
        base_timestamp_ms=header.base_timestamp,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    assert bytes(ours) == theirs


@pytest.mark.parametrize("codec", capture.CODECS)
def test_another_client_reads_our_batch(codec: str) -> None:
    aiokafka = pytest.importorskip("aiokafka.record.default_records")
    kafka_python = pytest.importorskip("kafka.record.default_records")
    timestamps, keys, values, headers = map(list, zip(*SAMPLE, strict=True))
    batch = bytes(
        build_batch(
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=timestamps,
            base_timestamp_ms=capture.BASE_TIMESTAMP_MS,
            codec=Codec[codec.upper()],
        )
    )
    for module in (aiokafka, kafka_python):
        theirs = module.DefaultRecordBatch(batch)
        assert theirs.validate_crc()
        assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == EXPECTED
