"""Requests captured from real clients: decoded and encoded again they are the same bytes.

`capture.py` made the files; their names say which client sent them, and which API and version they are.
"""

import re
from pathlib import Path

import pytest

from semel.wire.apis import API, request_class
from semel.wire.codec import decode
from semel.wire.frame import read_request_header, request_bytes
from semel.wire.spec.produce import ProduceRequest

FRAMES = sorted((Path(__file__).parent / "wire").glob("*.bin"))


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_a_captured_request_comes_back_byte_for_byte(path: Path) -> None:
    frame = path.read_bytes()
    header = read_request_header(frame)
    name = re.sub(r"^(confluent-kafka|kafka-python|aiokafka)-[\d.]+-", "", path.stem)
    assert name == f"{API[header.api_key].module.replace('_', '-')}-v{header.api_version}"
    request = decode(request_class(header.api_key), header.api_version, memoryview(frame)[header.body_position :])
    again = request_bytes(request, header.api_version, header.correlation_id, header.client_id)
    assert again == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_captured_produce_request_says_what_its_client_was_told_to_send(client: str) -> None:
    (path,) = (path for path in FRAMES if path.name.startswith(client) and "-produce-" in path.name)
    frame = path.read_bytes()
    header = read_request_header(frame)
    assert header.client_id == "golden-client"
    request = decode(ProduceRequest, header.api_version, frame[header.body_position :])
    assert (request.transactional_id, request.acks) == ("golden-txn", -1)
    (topic,) = request.topic_data
    assert topic.name == "golden"
    (partition,) = topic.partition_data
    assert partition.index == 0
    records = bytes(partition.records or b"")
    assert records[16] == 2, "the records are a batch of format 2"
    assert b"value" in records


def test_every_client_has_its_requests_here() -> None:
    clients = ("confluent-kafka", "kafka-python", "aiokafka")
    counts = {client: sum(path.name.startswith(client) for path in FRAMES) for client in clients}
    assert all(count >= 20 for count in counts.values()), counts
