"""What producers and consumers count, as a dict and by prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import semel
import semel.sync
from real_broker import RealBroker
from semel.client.prometheus import register


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealBroker]:
    broker = RealBroker(tmp_path)
    try:
        yield broker.start()
    finally:
        broker.kill()


async def test_what_was_sent_and_read_is_counted(broker: RealBroker) -> None:
    address = broker.address
    async with semel.Producer(bootstrap_servers=address, client_id="writer", linger_ms=20) as producer:
        assert producer.metrics()["records_sent"] == 0
        for _ in range(10):
            await producer.send("counted", b"value")
        await producer.flush()
        with pytest.raises(semel.errors.SemelError):
            await producer.send_and_wait("counted", b"x" * 2_000_000)
        sent = producer.metrics()
        assert sent["records_sent"] == 10
        assert 1 <= sent["batches_sent"] <= 10
        assert sent["records_per_batch"] == 10 / sent["batches_sent"]
        assert sent["bytes_sent"] > 10 * len(b"value")
        assert sent["requests"] >= 1
        assert 0 < sent["request_seconds_average"] <= max(sent["request_seconds_p99"], sent["request_seconds_average"])
        registry = CollectorRegistry()
        register(producer, registry)
        async with semel.Consumer(
            "counted", bootstrap_servers=address, client_id="reader", auto_offset_reset="earliest"
        ) as consumer:
            register(consumer, registry)
            read = 0
            while read < 4:
                found = await consumer.getmany(timeout_ms=1000, max_records=4 - read)
                read += sum(map(len, found.values()))
            told = consumer.metrics()
            assert (told["records_read"], told["lag"]) == (4, 6)
            assert told["lag_of_partitions"] == {semel.TopicPartition("counted", 0): 6}
            assert told["bytes_fetched"] >= sent["bytes_sent"]
            assert told["fetches"] >= 1
            lag = {"client_id": "reader", "topic": "counted", "partition": "0"}
            assert registry.get_sample_value("semel_consumer_lag", lag) == 6
            async for _ in consumer:
                break
            assert consumer.metrics()["records_read"] > 4
        assert registry.get_sample_value("semel_producer_records_sent_total", {"client_id": "writer"}) == 10
        count = registry.get_sample_value("semel_producer_request_seconds_count", {"client_id": "writer"})
        assert count == producer.metrics()["requests"]


def test_the_blocking_clients_tell_the_same(broker: RealBroker) -> None:
    with semel.sync.Producer(bootstrap_servers=broker.address) as producer:
        producer.send_and_wait("counted", b"value")
        assert producer.metrics()["records_sent"] == 1


async def test_a_broker_that_restarts_shows_in_retries(broker: RealBroker) -> None:
    async with semel.Producer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait("counted", b"before")
        broker.kill()
        delivery = await producer.send("counted", b"during")
        broker.start()
        await delivery
        assert producer.metrics()["records_sent"] == 2
        assert producer.metrics()["records_failed"] == 0
