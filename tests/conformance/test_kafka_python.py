"""kafka-python against a real broker: topics, idempotent produce with every codec, reads by assignment, admin calls."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from sample_records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample, sample_records, stored_batches, stored_codecs

from real_broker import Brokers, RealBroker

COUNT = 200
WAIT_S = 20.0
FORGETFUL = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200"}
_numbers = itertools.count()


def new_name(word: str) -> str:
    return f"kafka-python-{word}-{next(_numbers)}"


def admin(broker: RealBroker) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=broker.address)


def create(broker: RealBroker, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    client = admin(broker)
    client.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": settings}})
    client.close()


def producer(broker: RealBroker, **config: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=broker.address, enable_idempotence=True, acks="all", **{"linger_ms": 5, **config}
    )


def produce_all(sender: KafkaProducer, topic: str, samples: list[Sample], partition: int = 0) -> list[int]:
    futures = [
        sender.send(
            topic,
            value=sample.value,
            key=sample.key,
            headers=list(sample.headers),
            partition=partition,
            timestamp_ms=sample.timestamp_ms,
        )
        for sample in samples
    ]
    sender.flush(WAIT_S)
    return [future.get(WAIT_S).offset for future in futures]


def consumer(broker: RealBroker, **config: Any) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=broker.address,
        group_id=None,
        auto_offset_reset=config.pop("auto_offset_reset", "none"),
        consumer_timeout_ms=int(WAIT_S * 1000),
        **config,
    )


def read_all(broker: RealBroker, topic: str, offset: int | None, count: int, **config: Any) -> list[Any]:
    """From the beginning when `offset` is None."""
    reader = consumer(broker, **config)
    place = TopicPartition(topic, 0)
    reader.assign([place])
    if offset is None:
        reader.seek_to_beginning(place)
    else:
        reader.seek(place, offset)
    records = list(itertools.islice(reader, count))
    reader.close()
    return records


def as_sample(record: Any) -> Sample:
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


def test_a_producer_that_was_forgotten_fails_once_and_goes_on(brokers: Brokers) -> None:
    """docs/clients.md: UNKNOWN_PRODUCER_ID."""
    broker = brokers.start(settings=FORGETFUL)
    create(broker, "forgotten")
    client = producer(broker)
    assert [client.send("forgotten", b"v", partition=0).get(WAIT_S).offset for _ in range(2)] == [0, 1]
    time.sleep(3)
    with pytest.raises(UnknownProducerIdError):
        client.send("forgotten", b"v", partition=0).get(WAIT_S)
    assert client.send("forgotten", b"v", partition=0).get(WAIT_S).offset == 2
    client.close()


def test_records_that_are_refused_are_told_from_those_of_the_same_batch(broker: RealBroker) -> None:
    topic = new_name("refused")
    create(broker, topic, cleanup_policy="compact")
    client = producer(broker, linger_ms=500)
    sent = [client.send(topic, b"v", key=None if number % 5 == 4 else b"k", partition=0) for number in range(10)]
    client.flush(timeout=WAIT_S)
    kinds = [type(future.exception) for future in sent]
    assert [kind is InvalidRecordError for kind in kinds] == [number % 5 == 4 for number in range(10)]
    assert "part of a batch" in str(sent[0].exception)
    assert "no key" in str(sent[4].exception)
    client.close()


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_with_a_codec_is_read_from_start_offset_and_time(broker: RealBroker, codec: str) -> None:
    topic = new_name(codec)
    create(broker, topic)
    samples = sample_records(COUNT)
    sender = producer(broker, compression_type=None if codec == "none" else codec, linger_ms=50)
    assert produce_all(sender, topic, samples) == list(range(COUNT))
    sender.close()
    assert codec in stored_codecs(broker.data, topic)
    assert all(header.is_idempotent for header in stored_batches(broker.data, topic))

    everything = read_all(broker, topic, None, COUNT, check_crcs=True)
    assert [as_sample(record) for record in everything] == samples
    assert [record.offset for record in everything] == list(range(COUNT))
    for start in (1, 57, COUNT - 1):
        assert [as_sample(record) for record in read_all(broker, topic, start, COUNT - start)] == samples[start:]

    reader = consumer(broker)
    place = TopicPartition(topic, 0)
    for number, moment_ms in ((80, 80 * STEP_MS), (81, 80 * STEP_MS + 1), (0, -5)):
        found = reader.offsets_for_times({place: FIRST_TIMESTAMP_MS + moment_ms})[place]
        assert (found.offset, found.timestamp) == (number, samples[number].timestamp_ms)
    assert reader.offsets_for_times({place: FIRST_TIMESTAMP_MS + COUNT * STEP_MS})[place] is None
    assert reader.beginning_offsets([place]) == {place: 0}
    assert reader.end_offsets([place]) == {place: COUNT}
    reader.close()
    assert [as_sample(record) for record in read_all(broker, topic, 80, COUNT - 80)] == samples[80:]


def test_an_offset_beyond_the_end_is_out_of_range(broker: RealBroker) -> None:
    topic = new_name("range")
    create(broker, topic)
    with producer(broker) as sender:
        produce_all(sender, topic, sample_records(3))
    with pytest.raises(OffsetOutOfRangeError):
        read_all(broker, topic, 1000, 1)


def test_large_messages_of_one_megabyte_come_back_whole(broker: RealBroker) -> None:
    topic = new_name("large")
    create(broker, topic, max_message_bytes=str(4 << 20))
    samples = [Sample(b"k", bytes([number]) * (1 << 20), (), FIRST_TIMESTAMP_MS) for number in range(3)]
    with producer(broker, max_request_size=4 << 20) as sender:
        assert produce_all(sender, topic, samples) == [0, 1, 2]
    read = read_all(broker, topic, 0, 3, max_partition_fetch_bytes=100_000)
    assert [as_sample(record) for record in read] == samples


def test_a_batch_over_the_topics_limit_is_refused_and_the_next_is_taken(broker: RealBroker) -> None:
    topic = new_name("limit")
    create(broker, topic, max_message_bytes="2000")
    with producer(broker, linger_ms=0) as sender, pytest.raises(MessageSizeTooLargeError):
        sender.send(topic, b"x" * 5000, partition=0).get(WAIT_S)
    # kafka-python ends an idempotent producer with such an error; another one goes on.
    with producer(broker, linger_ms=0) as sender:
        assert sender.send(topic, b"y" * 100, partition=0).get(WAIT_S).offset == 0


def test_a_producer_creates_its_topic(broker: RealBroker) -> None:
    topic = new_name("made-by-producer")
    samples = sample_records(5)
    with producer(broker) as sender:
        assert produce_all(sender, topic, samples) == list(range(5))
    assert [as_sample(record) for record in read_all(broker, topic, 0, 5)] == samples


def test_without_auto_creation_an_unknown_topic_is_an_error(brokers: Brokers) -> None:
    broker = brokers.start(settings={"auto.create.topics.enable": "false"})
    with (
        producer(broker, max_block_ms=1500) as sender,
        pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)),
    ):
        sender.send("nowhere", b"x").get(WAIT_S)
    client = admin(broker)
    assert client.list_topics() == []
    client.close()


def test_a_producer_that_was_idle_past_the_limit_goes_on(brokers: Brokers) -> None:
    broker = brokers.start(settings={"connections.max.idle.ms": "500"})
    samples = sample_records(30)
    with producer(broker) as sender:
        produce_all(sender, "idle", samples[:10])
        for part in (samples[10:20], samples[20:]):
            time.sleep(1.2)
            produce_all(sender, "idle", part)
    assert [as_sample(record) for record in read_all(broker, "idle", 0, 30)] == samples


def test_topics_are_created_described_widened_and_deleted(broker: RealBroker) -> None:
    topic = new_name("admin")
    client = admin(broker)
    create(broker, topic, partitions=2)
    with pytest.raises(TopicAlreadyExistsError):
        create(broker, topic)
    with pytest.raises(InvalidReplicationFactorError):
        client.create_topics({new_name("bad"): {"num_partitions": 1, "replication_factor": 3}})
    with pytest.raises(InvalidConfigurationError):
        create(broker, new_name("bad"), retention_ms="soon")
    with pytest.raises(InvalidTopicError):
        create(broker, "no/slashes")
    checked = new_name("validated-only")
    client.create_topics([checked], validate_only=True)
    assert checked not in client.list_topics()

    client.create_partitions({topic: 5})
    (described,) = client.describe_topics([topic])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == list(range(5))
    with pytest.raises(InvalidPartitionsError):
        client.create_partitions({topic: 3})

    client.delete_topics([topic])
    assert topic not in client.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        client.delete_topics([topic])
    client.close()


def test_settings_are_described_and_altered(broker: RealBroker) -> None:
    topic = new_name("settings")
    create(broker, topic, retention_ms="86400000")
    client = admin(broker)

    def described(**options: Any) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        configs = client.describe_configs([resource], config_filter="all", **options)["topic"][topic]
        return {name: config["value"] for name, config in configs.items()}

    assert described()["retention.ms"] == "86400000"
    change = {"max.message.bytes": "1234", "cleanup.policy": ("APPEND", "compact"), "retention.ms": ("DELETE", None)}
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
    after = described(include_synonyms=True)
    assert after["max.message.bytes"] == "1234"
    assert set(after["cleanup.policy"].split(",")) == {"delete", "compact"}
    assert after["retention.ms"] == "604800000"
    refused = client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "many"})])
    assert "InvalidConfigurationError" in repr(refused)
    assert described()["max.message.bytes"] == "1234"
    client.close()


def test_records_are_deleted_up_to_an_offset_and_offsets_are_listed(broker: RealBroker) -> None:
    topic = new_name("delete-records")
    create(broker, topic)
    samples = sample_records(40)
    with producer(broker) as sender:
        produce_all(sender, topic, samples)
    client = admin(broker)
    place = TopicPartition(topic, 0)
    client.delete_records({place: 25})
    kinds = {"earliest": (OffsetSpec.EARLIEST, 25), "latest": (OffsetSpec.LATEST, 40)}
    kinds["newest"] = (OffsetSpec.MAX_TIMESTAMP, 39)
    for kind, offset in kinds.values():
        assert client.list_partition_offsets({place: kind})[place].offset == offset
    client.close()
    assert [as_sample(record) for record in read_all(broker, topic, None, 15)] == samples[25:]


def test_the_cluster_its_disks_and_its_producers_are_described(broker: RealBroker) -> None:
    topic = new_name("described")
    create(broker, topic)
    with producer(broker) as sender:
        produce_all(sender, topic, sample_records(10))
    client = admin(broker)
    cluster = client.describe_cluster()
    assert cluster["cluster_id"]
    assert [(node["host"], node["port"]) for node in cluster["brokers"]] == [("127.0.0.1", broker.port)]
    disks = client.describe_log_dirs()
    assert str(broker.data) in str(disks)
    assert topic in str(disks)
    active = client.describe_producers([TopicPartition(topic, 0)])
    assert "last_sequence" in str(active)
    client.close()


def test_the_broker_logged_no_failure(broker: RealBroker) -> None:
    assert "Traceback" not in broker.log()
