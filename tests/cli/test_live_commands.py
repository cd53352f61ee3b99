"""`semel top` and `--watch` on running brokers, Apache Kafka among them where there is one."""

from __future__ import annotations

import json
from collections.abc import Callable

from command_calls import Semel

from semel.sync import Producer


def test_top_tells_of_groups_that_lag_and_transactions_that_are_open(
    semel: Semel, topic: str, unique: Callable[[str], str]
) -> None:
    group, name = unique("group"), unique("txn")
    semel("produce", topic, "a", "b", "c", "--partition", "0")
    semel("consume", topic, "--group", group, "--count", "2")
    with Producer(bootstrap_servers=semel.address, transactional_id=name) as producer:
        producer.begin()
        producer.send(topic, b"held").result()
        pictures = [json.loads(line) for line in semel("top", "--count", "2", "--every", "0.2", "--json").lines]
        text = semel("top", "--count", "1").out
        producer.abort()
    first, second = pictures
    assert first["topics"] is None, "there are no rates before the second look"
    assert isinstance(second["topics"], list)
    assert all(node["round_trip_ms"] > 0 for node in second["nodes"])
    lag = {one["group"]: one["lag"] for one in second["groups"]}
    assert lag[group] >= 1
    (held,) = [one for one in second["transactions"] if one["transactional_id"] == name]
    assert held["state"] == "Ongoing"
    assert [place.rpartition("/")[0] for place in held["partitions"]] == [topic]
    assert "LAG" in text
    assert name in text


def test_watching_describes_again_and_again(semel: Semel, topic: str, unique: Callable[[str], str]) -> None:
    group = unique("group")
    semel("produce", topic, "a", "--partition", "0")
    semel("consume", topic, "--group", group, "--count", "1")
    again = ("--watch", "--count", "2", "--every", "0.1")
    lines = semel("group", "describe", group, *again, "--json").lines
    assert [json.loads(line)[0]["group"] for line in lines] == [group, group]
    assert semel("topic", "describe", topic, *again).out.count(f"topic  {topic}") == 2
