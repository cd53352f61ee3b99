"""kcat, the command line client on librdkafka, against a real broker. Skipped where kcat is not installed."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess

import pytest
from sample_records import CODECS, stored_batches, stored_codecs

from real_broker import RealBroker

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(
    KCAT is None, reason="kcat is not on the PATH (Debian and Ubuntu: apt-get install kcat)"
)
COUNT = 150
_numbers = itertools.count()


def new_name(word: str) -> str:
    return f"kcat-{word}-{next(_numbers)}"


def kcat(broker: RealBroker, *arguments: str, given: str = "") -> str:
    assert KCAT is not None
    ran = subprocess.run(
        [KCAT, "-b", broker.address, *arguments], input=given, capture_output=True, text=True, timeout=30, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def lines(count: int) -> list[str]:
    return [f"key {number % 7}|value {number} {'again ' * (number % 30)}" for number in range(count)]


def produce(broker: RealBroker, topic: str, sent: list[str], *arguments: str) -> None:
    idempotent = ("-X", "enable.idempotence=true", "-X", "linger.ms=50")
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K|", *idempotent, *arguments, given="\n".join(sent) + "\n")


def consume(broker: RealBroker, topic: str, offset: str) -> list[dict[str, object]]:
    read = kcat(broker, "-C", "-q", "-e", "-J", "-t", topic, "-p", "0", "-o", offset)
    return [json.loads(line) for line in read.splitlines()]


def as_line(record: dict[str, object]) -> str:
    return f"{record['key']}|{record['payload']}"


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_with_a_codec_is_read_from_start_offset_and_time(broker: RealBroker, codec: str) -> None:
    topic = new_name(codec)
    sent = lines(COUNT)
    produce(broker, topic, sent[:100], "-z", codec, "-H", "source=kcat")
    produce(broker, topic, sent[100:], "-z", codec)
    assert codec in stored_codecs(broker.data, topic)
    assert all(header.is_idempotent for header in stored_batches(broker.data, topic))

    everything = consume(broker, topic, "beginning")
    assert [as_line(record) for record in everything] == sent
    assert [record["offset"] for record in everything] == list(range(COUNT))
    assert everything[0]["headers"] == ["source", "kcat"]
    assert [as_line(record) for record in consume(broker, topic, "57")] == sent[57:]
    assert [as_line(record) for record in consume(broker, topic, "-10")] == sent[-10:]

    moment = everything[100]["ts"]
    first = next(number for number, record in enumerate(everything) if record["ts"] >= moment)  # type: ignore[operator]
    assert [as_line(record) for record in consume(broker, topic, f"s@{moment}")] == sent[first:]
    assert f"offset {first}" in kcat(broker, "-Q", "-t", f"{topic}:0:{moment}")


def test_metadata_lists_the_node_and_its_topics(broker: RealBroker) -> None:
    topic = new_name("listed")
    produce(broker, topic, lines(1))
    listed = json.loads(kcat(broker, "-L", "-J"))
    assert [node["name"] for node in listed["brokers"]] == [broker.address]
    (found,) = [entry for entry in listed["topics"] if entry["topic"] == topic]
    assert [partition["partition"] for partition in found["partitions"]] == [0]
    assert found["partitions"][0]["leader"] == listed["brokers"][0]["id"]


def test_the_broker_logged_no_failure(broker: RealBroker) -> None:
    assert "Traceback" not in broker.log()
