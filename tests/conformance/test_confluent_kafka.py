"""confluent-kafka (librdkafka) against a real broker: topics, idempotent produce with every codec, reads by place."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from sample_records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample, sample_records, stored_batches, stored_codecs

from real_broker import Brokers, RealBroker

COUNT = 200
WAIT_S = 20.0
FORGETFUL = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200"}
_numbers = itertools.count()


def new_name(word: str) -> str:
    return f"confluent-{word}-{next(_numbers)}"


def create(broker: RealBroker, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    client = admin(broker)  # its futures end with it
    client.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(WAIT_S)


def admin(broker: RealBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def producer(broker: RealBroker, **config: Any) -> Producer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Producer(
        {"bootstrap.servers": broker.address, "enable.idempotence": True, "acks": "all", "linger.ms": 5, **settings}
    )


def produce_all(sender: Producer, topic: str, samples: list[Sample], partition: int = 0) -> list[int]:
    """Offsets in the order of the samples; any failed delivery fails the test."""
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message)
        else:
            failed.append(error)

    for sample in samples:
        sender.produce(
            topic,
            sample.value,
            sample.key,
            partition,
            on_delivery=report,
            timestamp=sample.timestamp_ms,
            headers=list(sample.headers),
        )
    assert sender.flush(WAIT_S) == 0
    assert not failed
    assert len(delivered) == len(samples)
    return [message.offset() for message in delivered]


def consumer(broker: RealBroker, **config: Any) -> Consumer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "by-assignment",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **settings,
        }
    )


def read_all(broker: RealBroker, topic: str, offset: int, count: int, **config: Any) -> list[Message]:
    reader = consumer(broker, **config)
    messages: list[Message] = []
    try:
        reader.assign([TopicPartition(topic, 0, offset)])
        deadline = time.monotonic() + WAIT_S
        while len(messages) < count and time.monotonic() < deadline:
            for message in reader.consume(count - len(messages), 0.5):
                assert message.error() is None, message.error()
                messages.append(message)
    finally:
        reader.close()
    return messages


def as_sample(message: Message) -> Sample:
    headers = tuple((name, value or b"") for name, value in message.headers() or [])
    return Sample(message.key(), message.value(), headers, message.timestamp()[1])


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_that_are_refused_are_told_from_those_of_the_same_batch(broker: RealBroker, codec: str) -> None:
    """As librdkafka's own test 0011 wants it: ten of a hundred have no key, and the topic is compacted."""
    topic = new_name("refused")
    create(broker, topic, cleanup_policy="compact")
    told: dict[int, KafkaError] = {}
    client = producer(broker, linger_ms=500, compression_type=codec)
    for number in range(100):
        key = None if number % 10 == 9 else b"k"
        client.produce(topic, b"v", key, partition=0, on_delivery=lambda e, _, number=number: told.update({number: e}))
    assert client.flush(WAIT_S) == 0
    bad = {number for number, error in told.items() if error.code() == KafkaError.INVALID_RECORD}
    assert bad == set(range(9, 100, 10))
    others = {told[number].code() for number in range(100) if number not in bad}
    assert others == {KafkaError._INVALID_DIFFERENT_RECORD}


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_with_a_codec_is_read_from_start_offset_and_time(broker: RealBroker, codec: str) -> None:
    topic = new_name(codec)
    create(broker, topic)
    samples = sample_records(COUNT)
    offsets = produce_all(producer(broker, compression_type=codec, linger_ms=50), topic, samples)
    assert offsets == list(range(COUNT))
    # Batches that would not shrink are sent as they are.
    assert stored_codecs(broker.data, topic) <= {codec, "none"}
    assert codec in stored_codecs(broker.data, topic)
    assert all(header.is_idempotent for header in stored_batches(broker.data, topic))

    everything = read_all(broker, topic, OFFSET_BEGINNING, COUNT, check_crcs=True)
    assert [as_sample(message) for message in everything] == samples
    assert [message.offset() for message in everything] == offsets

    for start in (1, 57, COUNT - 1):
        assert [as_sample(m) for m in read_all(broker, topic, start, COUNT - start)] == samples[start:]

    reader = consumer(broker)
    for number, moment_ms in ((80, 80 * STEP_MS), (81, 80 * STEP_MS + 1), (0, -5), (-1, COUNT * STEP_MS)):
        wanted = TopicPartition(topic, 0, FIRST_TIMESTAMP_MS + moment_ms)
        (found,) = reader.offsets_for_times([wanted], WAIT_S)
        assert found.offset == number
    reader.close()
    assert [as_sample(m) for m in read_all(broker, topic, 80, COUNT - 80)] == samples[80:]


def test_partitions_keep_their_own_order_and_offsets(broker: RealBroker) -> None:
    topic = new_name("partitions")
    create(broker, topic, partitions=4)
    sender = producer(broker)
    for partition in range(4):
        produce_all(sender, topic, sample_records(20, seed=partition), partition)
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    seen: dict[int, list[Sample]] = {partition: [] for partition in range(4)}
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, seen.values())) < 80 and time.monotonic() < deadline:
        for message in reader.consume(80, 0.5):
            seen[message.partition()].append(as_sample(message))
    assert [reader.get_watermark_offsets(TopicPartition(topic, p), WAIT_S) for p in range(4)] == [(0, 20)] * 4
    reader.close()
    assert seen == {partition: sample_records(20, seed=partition) for partition in range(4)}


def test_a_reader_at_the_end_gets_what_comes_next(broker: RealBroker) -> None:
    topic = new_name("tail")
    create(broker, topic)
    sender = producer(broker)
    samples = sample_records(30)
    produce_all(sender, topic, samples[:10])
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, 10)])
    assert reader.poll(0.3) is None
    produce_all(sender, topic, samples[10:])
    seen: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(seen) < 20 and time.monotonic() < deadline:
        seen += reader.consume(20, 0.5)
    reader.close()
    assert [as_sample(message) for message in seen] == samples[10:]


def test_an_offset_beyond_the_end_is_out_of_range(broker: RealBroker) -> None:
    topic = new_name("range")
    create(broker, topic)
    produce_all(producer(broker), topic, sample_records(3))
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, 1000)])
    message = reader.poll(WAIT_S)
    reader.close()
    assert message is not None
    assert message.error() is not None
    assert message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def test_large_messages_of_one_megabyte_come_back_whole(broker: RealBroker) -> None:
    topic = new_name("large")
    create(broker, topic, max_message_bytes=str(4 << 20))
    samples = [Sample(b"k", bytes([number]) * (1 << 20), (), FIRST_TIMESTAMP_MS) for number in range(5)]
    sender = producer(broker, message_max_bytes=4 << 20, linger_ms=0)
    assert produce_all(sender, topic, samples) == list(range(5))
    compressed = producer(broker, message_max_bytes=4 << 20, linger_ms=0, compression_type="lz4")
    assert produce_all(compressed, topic, samples) == list(range(5, 10))
    read = read_all(broker, topic, 0, 10, fetch_message_max_bytes=100_000)
    assert [as_sample(message) for message in read] == samples * 2


def test_large_compressed_batches_of_several_connections_do_not_mix(broker: RealBroker) -> None:
    """Batches that are opened away from the loop stay what they were while other connections are read."""
    topics = [new_name("mix") for _ in range(4)]
    senders = []
    for topic in topics:
        create(broker, topic)
        senders.append(producer(broker, compression_type="gzip", compression_level=1, linger_ms=50, batch_size=250_000))
    failed: list[KafkaError] = []
    wanted: dict[str, list[bytes]] = {topic: [] for topic in topics}
    chance = random.Random(11)
    for _, (topic, sender) in itertools.product(range(300), zip(topics, senders, strict=True)):
        value = chance.randbytes(5000) + bytes(1000)
        wanted[topic].append(value)
        sender.produce(topic, value, partition=0, on_delivery=lambda error, _: error and failed.append(error))
    for sender in senders:
        assert sender.flush(WAIT_S) == 0
    assert not failed
    for topic in topics:
        headers = stored_batches(broker.data, topic)
        assert stored_codecs(broker.data, topic) == {"gzip"}
        assert max(header.size_bytes for header in headers) > 150_000
        assert [message.value() for message in read_all(broker, topic, 0, 300)] == wanted[topic]


def test_a_batch_over_the_topics_limit_is_refused_and_the_next_is_taken(broker: RealBroker) -> None:
    topic = new_name("limit")
    create(broker, topic, max_message_bytes="2000")
    sender = producer(broker, linger_ms=0)
    errors: list[KafkaError | None] = []
    sender.produce(topic, b"x" * 5000, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(WAIT_S) == 0
    sender.produce(topic, b"y" * 100, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(WAIT_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None
    assert [m.value() for m in read_all(broker, topic, 0, 1)] == [b"y" * 100]


def test_a_producer_creates_its_topic_and_a_reader_without_leave_does_not(broker: RealBroker) -> None:
    topic = new_name("made-by-producer")
    samples = sample_records(5)
    assert produce_all(producer(broker), topic, samples) == list(range(5))
    assert [as_sample(message) for message in read_all(broker, topic, 0, 5)] == samples

    missing = new_name("missing")
    reader = consumer(broker, allow_auto_create_topics=False)
    reader.assign([TopicPartition(missing, 0, 0)])
    error = reader.list_topics(missing, WAIT_S).topics[missing].error
    reader.close()
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert missing not in admin(broker).list_topics(timeout=WAIT_S).topics


def test_without_auto_creation_an_unknown_topic_is_an_error_for_the_producer(brokers: Brokers) -> None:
    broker = brokers.start(settings={"auto.create.topics.enable": "false"})
    sender = producer(broker, message_timeout_ms=3000, topic_metadata_propagation_max_ms=500)
    errors: list[KafkaError | None] = []
    sender.produce("nowhere", b"x", on_delivery=lambda error, _: errors.append(error))
    sender.flush(WAIT_S)
    assert len(errors) == 1
    assert errors[0] is not None
    assert errors[0].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert "nowhere" not in admin(broker).list_topics(timeout=WAIT_S).topics


def test_a_producer_that_was_forgotten_goes_on_under_another_epoch(brokers: Brokers) -> None:
    """docs/clients.md: UNKNOWN_PRODUCER_ID."""
    broker = brokers.start(settings=FORGETFUL)
    samples = sample_records(4, seed=12)
    sender = producer(broker)
    produce_all(sender, "forgotten", samples[:2])
    time.sleep(3)
    produce_all(sender, "forgotten", samples[2:])
    assert [as_sample(message) for message in read_all(broker, "forgotten", 0, 4)] == samples


def test_access_rules_are_switched_off(broker: RealBroker) -> None:
    client = admin(broker)
    rule = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    with pytest.raises(KafkaException) as refused:
        client.create_acls([rule])[rule].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    # librdkafka reads the code of this answer, and does not pass it on.
    assert client.describe_acls(everything).result(WAIT_S) == []


def test_a_producer_that_was_idle_past_the_limit_goes_on(brokers: Brokers) -> None:
    broker = brokers.start(settings={"connections.max.idle.ms": "1500"})
    sender = producer(broker)
    samples = sample_records(30)
    produce_all(sender, "idle", samples[:10])
    for part in (samples[10:20], samples[20:]):
        time.sleep(3.2)  # two sweeps
        produce_all(sender, "idle", part)
    assert [as_sample(message) for message in read_all(broker, "idle", 0, 30)] == samples


def test_topics_are_created_described_widened_and_deleted(broker: RealBroker) -> None:
    topic = new_name("admin")
    client = admin(broker)
    create(broker, topic, partitions=2, retention_ms="86400000")
    with pytest.raises(KafkaException) as again:
        create(broker, topic)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    bad = client.create_topics([NewTopic(new_name("bad"), 1, 3)])
    with pytest.raises(KafkaException) as factor:
        next(iter(bad.values())).result(WAIT_S)
    assert factor.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    bad = client.create_topics([NewTopic(new_name("bad"), 1, 1, config={"retention.ms": "soon"})])
    with pytest.raises(KafkaException) as config:
        next(iter(bad.values())).result(WAIT_S)
    assert config.value.args[0].code() == KafkaError.INVALID_CONFIG
    bad = client.create_topics([NewTopic("no/slashes", 1, 1)])
    with pytest.raises(KafkaException) as name:
        next(iter(bad.values())).result(WAIT_S)
    assert name.value.args[0].code() == KafkaError.TOPIC_EXCEPTION

    checked = new_name("validated-only")
    client.create_topics([NewTopic(checked, 1, 1)], validate_only=True)[checked].result(WAIT_S)
    assert checked not in client.list_topics(timeout=WAIT_S).topics

    client.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_S)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
    assert [partition.id for partition in described.partitions] == list(range(5))
    assert all(partition.leader.id == described.partitions[0].leader.id for partition in described.partitions)
    with pytest.raises(KafkaException) as fewer:
        client.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    assert fewer.value.args[0].code() == KafkaError.INVALID_PARTITIONS

    client.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    assert topic not in client.list_topics(timeout=WAIT_S).topics
    with pytest.raises(KafkaException) as gone:
        client.delete_topics([topic])[topic].result(WAIT_S)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_under_its_old_name_is_empty(broker: RealBroker) -> None:
    topic = new_name("again")
    create(broker, topic)
    produce_all(producer(broker), topic, sample_records(10))
    client = admin(broker)
    client.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    create(broker, topic)
    samples = sample_records(3, seed=99)
    assert produce_all(producer(broker), topic, samples) == [0, 1, 2]
    assert [as_sample(message) for message in read_all(broker, topic, 0, 3)] == samples


def test_settings_are_described_and_altered(broker: RealBroker) -> None:
    topic = new_name("settings")
    client = admin(broker)
    create(broker, topic, retention_ms="86400000")
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def described(wanted: ConfigResource) -> dict[str, ConfigEntry]:
        entries: dict[str, ConfigEntry] = next(iter(client.describe_configs([wanted]).values())).result(WAIT_S)
        return entries

    before = described(resource)
    assert before["retention.ms"].value == "86400000"
    assert not before["retention.ms"].is_default
    assert before["max.message.bytes"].is_default

    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "1234", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    next(iter(client.incremental_alter_configs([change]).values())).result(WAIT_S)
    after = described(resource)
    assert after["max.message.bytes"].value == "1234"
    assert set(after["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    assert after["retention.ms"].value == "604800000"

    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "many", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    with pytest.raises(KafkaException) as refused:
        next(iter(client.incremental_alter_configs([wrong]).values())).result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG

    replaced = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "3600000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        next(iter(client.alter_configs([replaced]).values())).result(WAIT_S)
    assert described(resource)["retention.ms"].value == "3600000"
    assert described(resource)["max.message.bytes"].is_default

    node = next(iter(client.list_topics(timeout=WAIT_S).brokers))
    of_broker = described(ConfigResource(ResourceType.BROKER, str(node)))
    flush_messages = of_broker["log.flush.interval.messages"].value
    assert flush_messages == ("1" if broker.flush == "fsync" else str((1 << 63) - 1))

    with pytest.raises(KafkaException) as unknown:
        described(ConfigResource(ResourceType.TOPIC, new_name("nowhere")))
    assert unknown.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_records_are_deleted_up_to_an_offset(broker: RealBroker) -> None:
    topic = new_name("delete-records")
    create(broker, topic)
    samples = sample_records(40)
    produce_all(producer(broker), topic, samples)
    client = admin(broker)
    wanted = TopicPartition(topic, 0, 25)
    deleted = next(iter(client.delete_records([wanted]).values())).result(WAIT_S)
    assert deleted.low_watermark == 25
    assert [as_sample(message) for message in read_all(broker, topic, OFFSET_BEGINNING, 15)] == samples[25:]
    beyond = TopicPartition(topic, 0, 41)
    with pytest.raises(KafkaException) as refused:
        next(iter(client.delete_records([beyond]).values())).result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_by_kind(broker: RealBroker) -> None:
    topic = new_name("list-offsets")
    create(broker, topic)
    samples = sample_records(30)
    # The newest timestamp stands in the middle.
    produce_all(producer(broker, linger_ms=0), topic, samples[:10] + samples[20:] + samples[10:20])
    client = admin(broker)

    def offset(kind: OffsetSpec) -> int:
        futures = client.list_offsets({TopicPartition(topic, 0): kind})
        found: int = next(iter(futures.values())).result(WAIT_S).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 30
    assert offset(OffsetSpec.max_timestamp()) == 19
    assert offset(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 25 * STEP_MS)) == 15
    assert offset(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 99 * STEP_MS)) == -1


def test_the_cluster_is_described(broker: RealBroker) -> None:
    client = admin(broker)
    cluster = client.describe_cluster().result(WAIT_S)
    assert cluster.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.address]
    assert cluster.controller.id == cluster.nodes[0].id
    assert client.list_topics(timeout=WAIT_S).cluster_id == cluster.cluster_id


def test_the_broker_logged_no_failure(broker: RealBroker) -> None:
    assert "Traceback" not in broker.log()
