"""Real directories of a node that was killed or stopped, damaged by hand: what was acknowledged is served, or the
partition is offline with its reason, and one command gives up what is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raw_client import RawClient, batch_of
from real_broker import RealBroker, clean_environment
from semel.client.admin.values import NewTopic
from semel.client.metadata import TopicPartition
from semel.sync import Admin, Consumer, Producer
from semel.wire.errors import ErrorCode

TOPIC = "payments"
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealBroker]:
    broker = RealBroker(tmp_path)
    try:
        yield broker.start()
    finally:
        broker.reap()


def semel(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "semel.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=60, check=False)


def write(broker: RealBroker, first: int, count: int, *, batches: bool = True) -> None:
    with Producer(bootstrap_servers=broker.address, delivery_timeout_ms=3000, request_timeout_ms=2000) as producer:
        for number in range(first, first + count):
            producer.send(TOPIC, b"%d" % number, partition=0)
            if batches:
                producer.flush()


def read(broker: RealBroker, partition: int = 0) -> list[bytes]:
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    found: list[bytes] = []
    with Consumer(bootstrap_servers=broker.address, **options) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition)])
        for _ in range(8):
            for messages in consumer.poll(timeout_ms=100).values():
                found += [bytes(message.value or b"") for message in messages]
    return found


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def positions(path: Path) -> list[int]:
    dumped = semel("log", "dump", path, "--json")
    return [json.loads(line)["position"] for line in dumped.stdout.splitlines()]


@pytest.mark.parametrize(("count", "hurt"), [(20, 0), (20, 7), (20, 19), (1, 0)])
def test_a_bit_that_flips_a_second_after_the_acknowledgement_costs_nothing_in_silence(
    broker: RealBroker, count: int, hurt: int
) -> None:
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics(NewTopic(TOPIC, 2))
    write(broker, 0, count)
    time.sleep(1)
    path = broker.data / f"{TOPIC}-0" / SEGMENT
    at = positions(path)[hurt]
    flip(path, at + 64)
    content = path.read_bytes()
    broker.kill()
    broker.start()
    assert path.read_bytes() == content, "nothing is cut"
    assert (path.parent / f"{SEGMENT}.damaged-at-{at}").exists()
    with RawClient(broker.port) as client:
        answer = client.produce(TOPIC, 0, batch_of([b"x"], timestamp_ms=1))
        assert answer.error_code == client.fetch(TOPIC, 0, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"{TOPIC}-0 is offline" in broker.log()
    assert read(broker, 1) == [], "the other partition is served"
    assert TOPIC in semel("log", "check", broker.data).stdout
    refused = semel("log", "accept-loss", path.parent)
    assert (refused.returncode, "a node is at work there" in refused.stderr) == (1, True)
    broker.stop()
    done = semel("log", "accept-loss", path.parent)
    assert (done.returncode, f"kept as {SEGMENT}.damaged-at-{at}" in done.stdout) == (0, True), done
    broker.start()
    write(broker, count, 1)
    assert read(broker) == [b"%d" % number for number in range(count + 1) if number != hurt]


def test_only_a_torn_last_batch_is_cut_and_it_is_kept(broker: RealBroker) -> None:
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics(NewTopic(TOPIC, 1))
    write(broker, 0, 5)
    broker.kill()
    path = broker.data / f"{TOPIC}-0" / SEGMENT
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    broker.start()
    assert (path.parent / f"{SEGMENT}.cut-at-{len(whole)}").read_bytes() == whole[:40]
    assert read(broker) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_damaged_metadata_log_ends_the_start_in_one_line_that_says_what_helps(
    broker: RealBroker, is_clean: bool
) -> None:
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics(NewTopic(TOPIC, 1))
    write(broker, 0, 3)
    path = broker.data / "__cluster_metadata-0" / SEGMENT
    time.sleep(1)
    broker.stop() if is_clean else broker.kill()
    flip(path, positions(path)[0] + 70)
    content = path.read_bytes()
    for _ in range(2):
        refused = semel("serve", "--data", broker.data, "--port", 0)
        told = [line for line in refused.stderr.splitlines() if line.startswith("semel serve: ")]
        assert refused.returncode != 0
        assert len(told) == 1
        assert f"semel log accept-loss {path.parent}" in told[0]
        assert "Traceback" not in refused.stderr
        assert path.read_bytes() == content
    done = semel("log", "accept-loss", path.parent)
    assert done.returncode == 0, done
    broker.start()
    assert read(broker) == [b"0", b"1", b"2"], "the rest of the metadata counts"


def test_a_missing_metadata_log_is_not_an_empty_cluster(broker: RealBroker) -> None:
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics(NewTopic(TOPIC, 1))
    write(broker, 0, 3)
    broker.stop()
    (broker.data / "__cluster_metadata-0").rename(broker.data.parent / "away")
    refused = semel("serve", "--data", broker.data, "--port", 0)
    assert (refused.returncode != 0, "__cluster_metadata-0 is missing" in refused.stderr) == (True, True)
    assert "Traceback" not in refused.stderr
    (broker.data.parent / "away").rename(broker.data / "__cluster_metadata-0")
    broker.start()
    assert read(broker) == [b"0", b"1", b"2"]
    write(broker, 3, 1)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_aborted_records_stay_unread_whatever_becomes_of_their_index(tmp_path: Path, is_clean: bool) -> None:
    broker = RealBroker(tmp_path, settings={"log.segment.bytes": "3000"})
    try:
        broker.start()
        with Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topics(NewTopic(TOPIC, 1))
        with Producer(bootstrap_servers=broker.address, transactional_id="till") as producer:
            for number in range(60):
                producer.begin_transaction()
                producer.send(TOPIC, b"%d " % number + b"." * 80, partition=0)
                producer.flush()
                if number % 2:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        time.sleep(1)
        directory = broker.data / f"{TOPIC}-0"
        committed = [b"%d " % number + b"." * 80 for number in range(1, 60, 2)]
        assert read(broker) == committed
        for harm in ("removed", "emptied", "cut", "flipped"):
            broker.stop() if is_clean else broker.kill()
            for path in sorted(directory.glob("*.txnindex"))[:3]:
                if harm == "removed":
                    path.unlink()
                elif harm == "emptied":
                    path.write_bytes(b"")
                elif harm == "cut":
                    path.write_bytes(path.read_bytes()[:-34])
                else:
                    flip(path, 9)
            broker.start()
            assert "made anew from the log" in broker.log(), harm
            assert read(broker) == committed, harm
    finally:
        broker.reap()
