"""Makes the batches beside this file, with other people's encoders. Run it by hand when a client may have changed:

    python tests/golden/records/capture.py

kafka-python and aiokafka build batches in the process. librdkafka sends them to its own mock broker, from which they
are fetched as they lie there, with a hand-made Fetch request.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

HERE = Path(__file__).parent
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BASE_TIMESTAMP_MS = 1_700_000_000_000
PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE = 4321, 7, 2_147_483_640

Headers = list[tuple[str, bytes | None]]


def sample() -> list[tuple[int, bytes | None, bytes | None, Headers]]:
    """(timestamp, key, value, headers): plain, keyed, null, empty and long ones, some out of order in time."""
    records: list[tuple[int, bytes | None, bytes | None, Headers]] = [
        (BASE_TIMESTAMP_MS, None, b"first", []),
        (
            BASE_TIMESTAMP_MS + 5,
            b"key",
            b"value",
            [("trace", b"\x00\x01"), ("empty", b""), ("none", None), ("grüße", b"x")],
        ),
        (BASE_TIMESTAMP_MS + 3, b"tombstone", None, []),
        (BASE_TIMESTAMP_MS + 86_400_000, b"", b"", [("twice", b"1"), ("twice", b"2")]),
        (BASE_TIMESTAMP_MS + 9, b"long" * 50, b"a long value, " * 5000, []),
    ]
    records += [(BASE_TIMESTAMP_MS + i, b"k%d" % i, b"v" * i, []) for i in range(100)]
    return records


def from_kafka_python(codec: int) -> bytes:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=PRODUCER_ID,
        producer_epoch=PRODUCER_EPOCH,
        base_sequence=BASE_SEQUENCE,
        batch_size=2**20,
    )
    for offset, (timestamp, key, value, headers) in enumerate(sample()):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def from_aiokafka(codec: int) -> bytes:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=PRODUCER_ID,
        producer_epoch=PRODUCER_EPOCH,
        base_sequence=BASE_SEQUENCE,
        batch_size=2**20,
    )
    for offset, (timestamp, key, value, headers) in enumerate(sample()):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def from_librdkafka(codec: str) -> bytes:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "mock",
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 200,
            "batch.num.messages": 1000,
        }
    )
    for timestamp, key, value, headers in sample():
        producer.produce("golden", value=value, key=key, headers=headers, timestamp=timestamp, partition=0)
    producer.flush(10)
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    return fetch(broker.host, broker.port)


def fetch(host: str, port: int) -> bytes:
    """All records of partition 0 of the topic `golden`, by Fetch version 4."""
    topic = b"golden"
    body = struct.pack(">hhih", 1, 4, 1, 4) + b"gold"
    body += struct.pack(">iiiib", -1, 500, 1, 2**24, 0)
    body += struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iiqi", 1, 0, 0, 2**24)
    with socket.create_connection((host, port), 10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    # correlation, throttle, topics, name, partitions, partition, error, high watermark, last stable offset, aborted
    position = 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, position)
    position += 4 + max(aborted, 0) * 16
    (length,) = struct.unpack_from(">i", answer, position)
    records = answer[position + 4 :]
    if length != len(records) or length == 0:
        raise SystemExit(f"unexpected answer: {answer[:100]!r}")
    return records


if __name__ == "__main__":
    for name, number in CODECS.items():
        (HERE / f"kafka_python_{name}.bin").write_bytes(from_kafka_python(number))
        (HERE / f"aiokafka_{name}.bin").write_bytes(from_aiokafka(number))
        (HERE / f"librdkafka_{name}.bin").write_bytes(from_librdkafka(name))
