"""`semel log` on a data directory that Apache Kafka has written: while it runs, after a stop, after a kill."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

import apache_kafka
from apache_kafka import ApacheKafka
from raw_client import RawClient
from semel.cli.main import main
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.host.real import real_host
from semel.wire.spec.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(apache_kafka.skip_reason() is not None, reason=str(apache_kafka.skip_reason())),
    pytest.mark.timeout(300),
]
SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.index.interval.bytes": "4096",
    "log.cleanup.policy": "delete",
    "transaction.state.log.segment.bytes": str(1 << 20),
    "log.cleaner.backoff.ms": "200",
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"}


async def work(address: str, transactional_id: str, rounds: int) -> None:
    """Transactions that commit and abort, with offsets of a group in them, beside records outside of any."""
    plain = Producer(host=real_host(), bootstrap_servers=address, compression_type="lz4")
    producer = Producer(host=real_host(), bootstrap_servers=address, transactional_id=transactional_id)
    await plain.start()
    await producer.start()
    await producer.init_transactions()
    try:
        for number in range(rounds):
            await producer.begin()
            for size in (1_000, 100_000, 200_000):
                await producer.send("kept", bytes(size), key=b"%d" % number, partition=0)
                await producer.send("table", bytes(size), key=b"%d" % (number % 2), partition=0)
                await plain.send("kept", b"%d" % number * 1000, partition=0)
            await producer.send_offsets_to_transaction({TopicPartition("kept", 0): number}, "readers")
            await (producer.abort() if number % 3 == 0 else producer.commit())
    finally:
        await plain.close()
        await producer.close()


def create_table(kafka: ApacheKafka) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in COMPACTED.items()]
    topic = CreatableTopic(name="table", num_partitions=1, replication_factor=1, configs=configs)
    with RawClient(kafka.port) as client:
        answer = client.call(CreateTopicsRequest(timeout_ms=10_000, topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


def wait_until_compacted(kafka: ApacheKafka) -> None:
    deadline = time.monotonic() + 60
    while "table 0" not in (kafka.data / "cleaner-offset-checkpoint").read_text():
        assert time.monotonic() < deadline, "Kafka has not compacted"
        time.sleep(0.2)


def checked(data: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """What is wrong, if anything."""
    main(["log", "check", str(data), "--records", "--json"])
    document = json.loads(capsys.readouterr().out)
    return [finding for finding in document["findings"] if finding["severity"] != "note"]


def test_a_directory_of_apache_kafka_is_read_and_has_nothing_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = ApacheKafka(tmp_path, settings=SETTINGS)
    try:
        kafka.start()
        create_table(kafka)
        asyncio.run(work(kafka.address, "first", 12))
        wait_until_compacted(kafka)
        assert checked(kafka.data, capsys) == [], "while it runs"
        kafka.stop()
        assert checked(kafka.data, capsys) == [], "after a stop"
        main(["log", "dump", str(kafka.data / "kept-0"), "--json"])
        batches = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {batch["transaction"] for batch in batches} == {None, "committed", "aborted"}
        assert sum(batch.get("marker", {}).get("type") == "ABORT" for batch in batches) == 4
        assert len({batch["file"] for batch in batches}) > 2
        for topic, word in (("__consumer_offsets", "OffsetCommitKey"), ("__transaction_state", "CompleteCommit")):
            main(["log", "dump", str(kafka.data), "--topic", topic, "--decode"])
            assert word in capsys.readouterr().out

        kafka.start()
        asyncio.run(work(kafka.address, "second", 5))
        time.sleep(0.2)
        kafka.kill()
        assert checked(kafka.data, capsys) == [], "after a kill"
        kafka.start()
        asyncio.run(work(kafka.address, "third", 2))
        kafka.stop()
        assert checked(kafka.data, capsys) == [], "after its recovery"
        flipped = sorted((kafka.data / "kept-0").glob("*.log"))[1]
        data = bytearray(flipped.read_bytes())
        data[5_000] ^= 4
        flipped.write_bytes(data)
        assert [finding["file"] for finding in checked(kafka.data, capsys)] == [str(flipped)]
    finally:
        kafka.reap()
