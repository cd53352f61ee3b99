"""/metrics, /health and /ready of real nodes: what is counted is what was done, by every path of a produce."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from raw_client import RawClient
from real_broker import RealBroker
from semel.metrics.node_metrics import SECTIONS
from semel.records.build import build_batch
from semel.records.compression import Codec
from semel.wire.errors import ErrorCode
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

Samples = dict[tuple[str, tuple[str, ...]], float]
TOPIC = "counted"


class MonitoredBroker(RealBroker):
    def command(self) -> list[str]:
        return [*super().command(), "--metrics", "0"]

    @property
    def monitoring(self) -> str:
        found = re.search(r"metrics at (\S+)/metrics", self.stdout)
        assert found is not None, self.stdout
        return found[1]

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.monitoring + path, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def samples(self) -> Samples:
        status, text = self.page("/metrics")
        assert status == 200
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture(params=["fsync", "os"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MonitoredBroker]:
    broker = MonitoredBroker(tmp_path, flush=request.param)
    try:
        yield broker.start()
    finally:
        broker.kill()


def create_topic(client: RawClient) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


def produce_request(batch: bytearray, topic: str = TOPIC) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def produce(client: RawClient, batch: bytearray) -> int:
    response = client.call(produce_request(batch), 9, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def test_every_batch_is_counted_once_by_whatever_path_it_came(broker: MonitoredBroker) -> None:
    now_ms = int(time.time() * 1000)
    with RawClient(broker.port) as client:
        create_topic(client)
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        producer_id = client.call(asked, 4, InitProducerIdResponse).producer_id

        def batch(sequence: int, count: int = 2, codec: Codec = Codec.NONE, epoch: int = 0) -> bytearray:
            return build_batch(
                [b"value"] * count,
                base_timestamp_ms=now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                codec=codec,
            )

        sent = [batch(2 * number) for number in range(20)]  # the first by the ordinary path, then by the fast one
        size_bytes = sum(map(len, sent))
        assert [produce(client, one) for one in sent] == [0] * 20
        compressed = batch(40, codec=Codec.GZIP)  # by the long path
        size_bytes += len(compressed)
        assert produce(client, compressed) == 0
        assert [produce(client, batch(40, codec=Codec.GZIP)), produce(client, batch(38))] == [0, 0]  # retries
        assert produce(client, batch(99)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(client, batch(0, epoch=1)) == 0
        size_bytes += len(batch(0, epoch=1))
        assert produce(client, batch(42)) == ErrorCode.INVALID_PRODUCER_EPOCH
    found = broker.samples()
    assert found["kafka_server_brokertopicmetrics_messagesin_total", (TOPIC,)] == 44
    assert found["semel_batches_in_total", (TOPIC,)] == 22
    assert found["kafka_server_brokertopicmetrics_bytesin_total", (TOPIC,)] == size_bytes
    assert found["semel_duplicate_batches_total", (TOPIC,)] == 2
    assert found["kafka_server_brokertopicmetrics_failedproducerequests_total", (TOPIC,)] == 2
    assert found["kafka_network_requestmetrics_requests_total", ("Produce",)] == 26
    assert found["semel_request_seconds_count", ("Produce",)] == 26
    assert found["semel_request_seconds_sum", ("Produce",)] > 0
    errors = {key[1]: value for key, value in found.items() if key[0] == "kafka_network_requestmetrics_errors_total"}
    assert errors == {
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "Produce"): 1,
        ("INVALID_PRODUCER_EPOCH", "Produce"): 1,
    }
    assert found["semel_producers_fenced_total", ()] == 1
    assert found["kafka_log_log_logendoffset", ("0", TOPIC)] == 44
    assert found["kafka_log_log_size", ("0", TOPIC)] == size_bytes
    if broker.flush == "fsync":
        assert found["semel_flush_records_total", ()] >= 44
        assert found["semel_flush_seconds_count", ()] > 0


def test_requests_that_are_pipelined_are_counted_one_by_one(broker: MonitoredBroker) -> None:
    now_ms = int(time.time() * 1000)
    with RawClient(broker.port) as client:
        create_topic(client)
        for _ in range(3):
            for _ in range(50):
                client.send(produce_request(build_batch([b"value"], base_timestamp_ms=now_ms)), 9)
            for _ in range(50):
                client.read_frame()
    found = broker.samples()
    assert found["kafka_network_requestmetrics_requests_total", ("Produce",)] == 150
    assert found["kafka_server_brokertopicmetrics_messagesin_total", (TOPIC,)] == 150


@pytest.mark.parametrize("broker", ["fsync"], indirect=True)
def test_health_readiness_and_every_declared_metric_are_there(broker: MonitoredBroker) -> None:
    assert broker.page("/health") == (200, "ok\n")
    assert broker.page("/ready") == (200, "ready\n")
    assert broker.page("/metrics.html")[0] == 404
    with RawClient(broker.port) as client:
        create_topic(client)
    _, text = broker.page("/metrics")
    told = {family.name for family in text_string_to_metric_families(text)}
    declared = {metric.name for section in SECTIONS.values() for metric in section}
    # These have samples only where there are errors, groups, and too many series.
    assert declared - told == {
        "kafka_network_requestmetrics_errors",
        "kafka_consumergroup_members",
        "kafka_consumergroup_current_offset",
        "kafka_consumergroup_lag",
        "semel_metrics_left_out",
    }
    assert "process_resident_memory_bytes" in told
