"""Captures the requests that real clients send, for the golden tests.

A stub broker on loopback answers just well enough that confluent-kafka, kafka-python and aiokafka go on to their next
request. The first frame of each API and version is kept as `wire/<client>-<its version>-<api>-v<version>.bin`, without
its length. Run it again after a client was upgraded:

    python tests/golden/capture.py
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from stub_broker import TOPIC, stub_server

from semel.wire.apis import API

FRAMES = Path(__file__).parent / "wire"


def attempt(action: Callable[[], Any]) -> None:
    """The stub's answers disappoint some clients; their requests have been captured all the same."""
    try:
        action()
    except Exception as disappointment:
        print(f"    {type(disappointment).__name__}: {str(disappointment)[:100]}")


def run_confluent_kafka(address: str) -> None:
    from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
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

    common = {"bootstrap.servers": address, "client.id": "golden-client"}
    producer = Producer({**common, "transactional.id": "golden-txn", "linger.ms": 1})
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce(TOPIC, b"value", key=b"key", headers={"header": b"1"})
    producer.flush(5)
    classic = Consumer(
        {**common, "group.id": "golden-group", "enable.auto.commit": False, "heartbeat.interval.ms": 100}
    )
    classic.subscribe([TOPIC])
    classic.poll(2)
    offsets = [TopicPartition(TOPIC, 0, 5, "metadata")]
    producer.send_offsets_to_transaction(offsets, classic.consumer_group_metadata(), 5)
    producer.commit_transaction(5)
    attempt(lambda: classic.commit(offsets=offsets, asynchronous=False))
    attempt(lambda: classic.committed([TopicPartition(TOPIC, 0)], 3))
    attempt(lambda: classic.offsets_for_times([TopicPartition(TOPIC, 0, 1)], 3))
    classic.poll(1)
    classic.close()
    modern = Consumer({**common, "group.id": "golden-848", "group.protocol": "consumer"})
    modern.subscribe([TOPIC])
    modern.poll(2)
    modern.close()
    admin = AdminClient(common)
    topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    setting = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    acl = (ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:golden", "*")
    rule = AclBinding(*acl, AclOperation.READ, AclPermissionType.ALLOW)
    rules = AclBindingFilter(*acl, AclOperation.ANY, AclPermissionType.ANY)
    partition = TopicPartition(TOPIC, 0, 1)
    for futures in (
        lambda: admin.create_topics([NewTopic(TOPIC, 3, 1, config={"retention.ms": "1000"})]),
        lambda: admin.create_partitions([NewPartitions(TOPIC, 5)]),
        lambda: admin.describe_configs([topic]),
        lambda: admin.incremental_alter_configs([ConfigResource(topic.restype, TOPIC, incremental_configs=[setting])]),
        lambda: admin.alter_configs([ConfigResource(topic.restype, TOPIC, set_config={"retention.ms": "1000"})]),
        lambda: admin.create_acls([rule]),
        lambda: {0: admin.describe_acls(rules)},
        lambda: admin.delete_acls([rules]),
        lambda: admin.describe_consumer_groups(["golden-group"], include_authorized_operations=True),
        lambda: {0: admin.list_consumer_groups()},
        lambda: admin.delete_consumer_groups(["golden-group"]),
        lambda: {0: admin.describe_cluster(include_authorized_operations=True)},
        lambda: admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED),
        lambda: admin.delete_records([partition]),
        lambda: admin.describe_user_scram_credentials(["golden"]),
        lambda: admin.delete_topics([TOPIC]),
    ):
        attempt(lambda futures=futures: [future.result(5) for future in futures().values()])


def run_kafka_python(address: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
    from kafka.structs import OffsetAndMetadata

    common = {"bootstrap_servers": address, "client_id": "golden-client"}
    partition = TopicPartition(TOPIC, 0)
    producer = KafkaProducer(**common, transactional_id="golden-txn", acks="all")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"value", key=b"key", headers=[("header", b"1")])
    producer.flush(5)
    offsets = {partition: OffsetAndMetadata(5, "metadata", -1)}
    attempt(lambda: producer.send_offsets_to_transaction(offsets, "golden-group"))
    attempt(producer.commit_transaction)
    attempt(lambda: producer.close(2))
    consumer = KafkaConsumer(
        TOPIC, **common, group_id="golden-group", enable_auto_commit=False, heartbeat_interval_ms=100
    )
    consumer.poll(2000)
    attempt(lambda: consumer.commit(offsets))
    attempt(lambda: consumer.offsets_for_times({partition: 1}))
    consumer.poll(500)
    attempt(consumer.close)
    admin = KafkaAdminClient(**common)
    for action in (
        lambda: admin.create_topics([NewTopic(TOPIC, 3, 1)]),
        lambda: admin.create_partitions({TOPIC: NewPartitions(5)}),
        lambda: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)]),
        lambda: admin.describe_cluster(),
        lambda: admin.list_groups(),
        lambda: admin.describe_groups(["golden-group"]),
        lambda: admin.delete_groups(["golden-group"]),
        lambda: admin.list_group_offsets("golden-group"),
        lambda: admin.delete_records({partition: 1}),
        lambda: admin.describe_log_dirs(),
        lambda: admin.delete_topics([TOPIC]),
    ):
        attempt(action)
    attempt(admin.close)


def run_aiokafka(address: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    common = {"bootstrap_servers": address, "client_id": "golden-client"}
    partition = TopicPartition(TOPIC, 0)

    async def transaction() -> None:
        producer = AIOKafkaProducer(**common, transactional_id="golden-txn")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"value", key=b"key", headers=[("header", b"1")])
            await producer.send_offsets_to_transaction({partition: 5}, "golden-group")
        await producer.stop()

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            TOPIC, **common, group_id="golden-group", enable_auto_commit=False, heartbeat_interval_ms=100
        )
        await consumer.start()
        await consumer.getmany(timeout_ms=1000)
        await consumer.commit({partition: 5})
        await consumer.offsets_for_times({partition: 1})
        await consumer.stop()

    async def administrate() -> None:
        admin = AIOKafkaAdminClient(**common)
        await admin.start()
        for action in (
            lambda: admin.create_topics([NewTopic(TOPIC, 3, 1)]),
            lambda: admin.create_partitions({TOPIC: NewPartitions(5)}),
            lambda: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)]),
            lambda: admin.list_consumer_groups(),
            lambda: admin.describe_consumer_groups(["golden-group"]),
            lambda: admin.delete_topics([TOPIC]),
        ):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(action(), 5)
        await admin.close()

    for scenario in (transaction, consume, administrate):
        attempt(lambda scenario=scenario: asyncio.run(asyncio.wait_for(scenario(), 20)))


CLIENTS = {"confluent-kafka": run_confluent_kafka, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka}


def capture() -> None:
    """Each client runs in a process of its own: librdkafka ends its process on some answers it did not expect."""
    FRAMES.mkdir(exist_ok=True)
    for name in CLIENTS:
        print(name)
        with stub_server() as server:
            subprocess.run([sys.executable, __file__, name, server.address], timeout=120, check=False)
            for (key, version), frame in sorted(server.seen.items()):
                api = API[key].module.replace("_", "-")
                (FRAMES / f"{name}-{package_version(name)}-{api}-v{version}.bin").write_bytes(frame)
            print(f"  {len(server.seen)} requests captured")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        CLIENTS[sys.argv[1]](sys.argv[2])
    else:
        capture()
