"""The Apache Kafka that other tests run against: it starts, has the features they count on, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import apache_kafka
from apache_kafka import MECHANISMS, ApacheKafka, KafkaDied
from raw_client import RawClient
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from semel.wire.spec.metadata import MetadataRequest, MetadataResponse
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(apache_kafka.skip_reason() is not None, reason=str(apache_kafka.skip_reason())),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"), secure=True)
    try:
        yield node.start()
    finally:
        node.reap()


def api_versions(kafka: ApacheKafka) -> ApiVersionsResponse:
    with RawClient(kafka.port) as client:
        return client.call(
            ApiVersionsRequest(client_software_name="semel", client_software_version="1"), 4, ApiVersionsResponse
        )


def test_it_has_transactions_of_the_second_generation_and_the_new_group_protocol(kafka: ApacheKafka) -> None:
    answer = api_versions(kafka)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert answer.error_code == 0
    assert levels["transaction.version"] == 2
    assert levels["group.version"] == 1
    assert {0, 1, 22, 68} <= {api.api_key for api in answer.api_keys}


def test_it_offers_every_mechanism(kafka: ApacheKafka) -> None:
    with RawClient(kafka.ports["SASL_PLAINTEXT"]) as client:
        offered = client.call(SaslHandshakeRequest(mechanism="?"), 1, SaslHandshakeResponse).mechanisms
        assert set(offered) == set(MECHANISMS)


def test_it_keeps_topics_through_a_stop_and_a_kill(kafka: ApacheKafka) -> None:
    with RawClient(kafka.port) as client:
        wanted = CreateTopicsRequest(
            timeout_ms=10_000, topics=[CreatableTopic(name="kept", num_partitions=1, replication_factor=1)]
        )
        assert client.call(wanted, 7, CreateTopicsResponse).topics[0].error_code == 0
    assert kafka.stop() == 143
    assert not kafka.is_running
    kafka.start()
    assert kafka.kill() == -9
    kafka.start()
    with RawClient(kafka.port) as client:
        answer = client.call(MetadataRequest(topics=None), 9, MetadataResponse)
    assert "kept" in {topic.name for topic in answer.topics}
    assert kafka.log().count("Kafka Server started") == 3


def test_a_node_that_cannot_start_says_why_and_is_reaped(tmp_path: Path) -> None:
    node = ApacheKafka(tmp_path, settings={"num.partitions": "0"})
    with pytest.raises(KafkaDied, match=r"num\.partitions"):
        node.start()
    assert not node.is_running
