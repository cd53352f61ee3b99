"""What is known of a topic before rows are staged for it, and how long that is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from semel.client.admin.values import ConfigEntry, ConfigSource
from semel.client.errors import NotAuthorised
from semel.spark.topic_facts import TopicBook, TopicFacts, read_facts
from semel.sync import Admin


class Clock:
    now_ms = 0

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_facts_are_read_from_the_topics_settings() -> None:
    told = {
        "max.message.bytes": "5000",
        "compression.type": "zstd",
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "10",
        "message.timestamp.after.max.ms": "20",
    }
    entries = {name: ConfigEntry(name, value, ConfigSource.TOPIC) for name, value in told.items()}
    assert read_facts("out", 3, entries) == TopicFacts("out", 3, 5000, 4, True, 10, 20, True)
    assert read_facts("out", 3, {}) == TopicFacts("out", 3)
    plain = {"compression.type": ConfigEntry("compression.type", "producer", ConfigSource.DEFAULT)}
    assert read_facts("out", 3, plain).codec is None
    uncompressed = {"compression.type": ConfigEntry("compression.type", "uncompressed", ConfigSource.TOPIC)}
    assert read_facts("out", 3, uncompressed).codec == 0


def test_facts_are_asked_for_again_after_a_while(
    address: str, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, name = Clock(), new_topic(partitions=2, **{"max.message.bytes": 3000})
    book = TopicBook({"bootstrap_servers": address}, clock)
    assert (book.facts(name).partition_count, book.facts(name).max_batch_bytes) == (2, 3000)
    with Admin(bootstrap_servers=address) as admin:
        admin.create_partitions({name: 5})
    assert book.facts(name).partition_count == 2
    clock.now_ms += 60_000
    assert book.facts(name).partition_count == 5
    clock.now_ms += 60_000

    def denied(*_: Any, **__: Any) -> Any:
        raise NotAuthorised("describing is not allowed")

    monkeypatch.setattr(Admin, "describe_configs", denied)
    assert book.facts(name) == TopicFacts(name, 5), "Kafka's defaults"
    book.close()


def test_a_topic_is_made_on_demand_if_the_broker_does_that(address: str, unique: Callable[[str], str]) -> None:
    book = TopicBook({"bootstrap_servers": address}, Clock())
    assert book.facts(unique("new")).partition_count >= 1
    book.close()
