"""Foreign clients on a node of semel with TLS and every mechanism: librdkafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest

import semel
from secured_node import ADMIN, CERTIFICATES, MECHANISMS, PASSWORD, SecuredNode
from semel.client.admin.security_values import ScramCredential, ScramMechanism

PATIENCE_S = 30
CA = str(CERTIFICATES / "ca.pem")
WAYS = [
    *((listener, mechanism) for listener in ("SASL_SSL", "SASL_PLAINTEXT") for mechanism in MECHANISMS),
    ("SSL", ""),
]
EVERY_WAY = pytest.mark.parametrize(("listener", "mechanism"), WAYS)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("secured"))
    try:
        made.start()
        asyncio.run(_add_scram(made))
        yield made
    finally:
        made.reap()


async def _add_scram(node: SecuredNode) -> None:
    async with semel.Admin(**node.as_admin()) as admin:
        for mechanism in (ScramMechanism.SHA_256, ScramMechanism.SHA_512):
            await admin.alter_user_scram_credentials(ScramCredential(ADMIN, PASSWORD, mechanism, 4096))


@EVERY_WAY
def test_librdkafka_writes_and_reads(node: SecuredNode, listener: str, mechanism: str) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    settings: dict[str, object] = {"bootstrap.servers": node.address(listener), "security.protocol": listener}
    if "SSL" in listener:
        settings |= {"ssl.ca.location": CA, "ssl.endpoint.identification.algorithm": "https"}
    if mechanism:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": ADMIN, "sasl.password": PASSWORD}
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    producer.produce(topic, b"a")
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"a")
    consumer.close()


def test_librdkafka_is_told_of_a_wrong_password(node: SecuredNode) -> None:
    told: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": node.address("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": CA,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": ADMIN,
            "sasl.password": "guessed",
            "error_cb": told.append,
        }
    )
    producer.produce("t", b"a")
    for _ in range(PATIENCE_S):
        producer.poll(1)
        if any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in told):
            break
    assert any("no such user, or a wrong password" in error.str() for error in told)


@EVERY_WAY
def test_kafka_python_writes_and_reads(node: SecuredNode, listener: str, mechanism: str) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    settings: dict[str, object] = {"bootstrap_servers": node.address(listener), "security_protocol": listener}
    if "SSL" in listener:
        settings["ssl_cafile"] = CA
    if mechanism:
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": ADMIN,
            "sasl_plain_password": PASSWORD,
        }
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"a").get(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_S * 1000, **settings
    )
    assert next(consumer).value == b"a"
    consumer.close()


@EVERY_WAY
async def test_aiokafka_writes_and_reads(node: SecuredNode, listener: str, mechanism: str) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    settings: dict[str, object] = {"bootstrap_servers": node.address(listener), "security_protocol": listener}
    if "SSL" in listener:
        settings["ssl_context"] = ssl.create_default_context(cafile=CA)
    if mechanism:
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": ADMIN,
            "sasl_plain_password": PASSWORD,
        }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"a")
    consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
    async with consumer:
        async with asyncio.timeout(PATIENCE_S):
            assert (await consumer.getone()).value == b"a"
