"""`semel txn trace` and `semel experiment` on running brokers: ours, and Apache Kafka when it is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from command_calls import Semel

import semel as client
from semel.client.admin.admin import Admin
from semel.client.admin.settings import AdminSettings
from semel.client.cluster import Cluster
from semel.client.settings import load
from semel.host.real import real_host
from semel.live.proxy import HOST, Exchange, Proxy
from semel.live.transaction_trace import Step, TransactionTrace

Steps = list[dict[str, Any]]


def trace(semel: Semel, *options: str) -> Steps:
    return list(semel("txn", "trace", "--json", *options).documents)


def asked(steps: Steps) -> list[str]:
    """The requests, without those that only look for a coordinator and those that were asked to come again."""
    return [
        step["api"]
        for step in steps
        if step["api"] is not None and step["api"] != "FindCoordinator" and not step["is_refused"]
    ]


def written(steps: Steps, topic: str) -> list[str]:
    return [one["what"] for step in steps for one in step["writes"] if one["topic"].startswith(topic)]


def states(steps: Steps) -> list[str]:
    return [what.split(",")[0] for what in written(steps, "__transaction_state")]


def test_a_transaction_of_the_second_generation_is_shown_with_all_it_writes(semel: Semel) -> None:
    steps = trace(semel)
    assert asked(steps) == ["InitProducerId", "Produce", "Produce", "TxnOffsetCommit", "EndTxn"]
    assert states(steps) == ["Empty", "Ongoing", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    first, second, *markers = written(steps, "trace-invoices")
    assert first.startswith('"42" = "10.00 EUR", producer')
    assert second.endswith("epoch 0 sequence 0, in the transaction")
    assert [marker.split(",")[0] for marker in markers] == ["marker COMMIT"] * 2
    assert all(marker.endswith("epoch 1") for marker in markers), "each end raises the epoch"
    offset, marker = written(steps, "__consumer_offsets")
    assert "up to 2" in offset
    assert marker.startswith("marker COMMIT")


def test_in_the_first_generation_partitions_join_before_they_are_written_to(semel: Semel) -> None:
    steps = trace(semel, "--generation", "1", "--abort")
    join = "AddPartitionsToTxn"
    assert asked(steps) == [
        "InitProducerId",
        join,
        "Produce",
        join,
        "Produce",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ]
    assert states(steps)[-2:] == ["PrepareAbort", "CompleteAbort"]
    markers = [what for what in written(steps, "trace-invoices") if what.startswith("marker")]
    assert [marker.split(",")[0] for marker in markers] == ["marker ABORT"] * 2
    assert all(marker.endswith("epoch 0") for marker in markers)


def test_a_trace_leaves_no_topic_and_no_group_behind(semel: Semel) -> None:
    trace(semel)
    assert not [line for line in semel("topic", "list").lines if line.startswith("trace-")]
    assert not [line for line in semel("group", "list").lines if line.startswith("trace-")]


def test_a_trace_reads_well(semel: Semel) -> None:
    text = semel("txn", "trace").out
    assert "who coordinates transactional id trace-" in text
    assert ": CompleteCommit, producer" in text
    assert ": Empty, producer" in text


async def test_another_program_is_traced_and_its_plain_records_are_not(address: str, topic: str) -> None:
    steps: list[Step] = []
    host = real_host()
    cluster = Cluster(host, load(AdminSettings, {"bootstrap_servers": address}))
    await cluster.start()
    trace = TransactionTrace(cluster, steps.append)
    node, port = address.rsplit(":", 1)
    try:
        async with Proxy(trace) as proxy:
            behind = f"{HOST}:{await proxy.port_for(node, int(port))}"
            async with client.Producer(bootstrap_servers=behind) as plain:
                await plain.send_and_wait(topic, b"not in a transaction")
            name = f"id-{topic}"
            async with (
                client.Producer(bootstrap_servers=behind, transactional_id=name) as producer,
                producer.transaction(),
            ):
                await producer.send(topic, b"in a transaction")
            await trace.ended()
    finally:
        await cluster.close()
        host.close()
    values = [one.what for step in steps for one in step.writes if one.place.topic == topic]
    assert [value.split(",")[0] for value in values] == ['"in a transaction"', "marker COMMIT"]


async def test_all_that_a_client_says_goes_through_the_proxy(address: str, topic: str) -> None:
    seen: list[str] = []

    class Listener:
        async def asked(self, exchange: Exchange) -> None:
            seen.append("?" if exchange.api is None else exchange.api.name)

        async def answered(self, exchange: Exchange, frame: bytes) -> None:
            pass

        def lost(self, exchange: Exchange) -> None:
            pass

    node, port = address.rsplit(":", 1)
    async with Proxy(Listener()) as proxy:
        behind = f"{HOST}:{await proxy.port_for(node, int(port))}"
        async with client.Producer(bootstrap_servers=behind) as producer:
            await producer.send_and_wait(topic, b"one")
        async with client.Consumer(
            topic, bootstrap_servers=behind, group_id=f"group-{topic}", auto_offset_reset="earliest"
        ) as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 60)).value == b"one"
        async with Admin(bootstrap_servers=behind) as admin:
            await admin.describe_groups(f"group-{topic}")
    assert {"Metadata", "Produce", "Fetch", "FindCoordinator", "OffsetFetch"} <= set(seen)
    assert "ConsumerGroupDescribe" in seen or "DescribeGroups" in seen


def test_a_request_that_fails_breaks_order_without_idempotence_and_not_with_it(semel: Semel) -> None:
    document = semel("experiment", "in-flight", "--json").document
    told = {
        (one["idempotence"], one["in_flight"], one["failure"]): (one["verdict"], one["log"])
        for one in document["failures"]
    }
    assert told[False, 5, "refused"] == ("out of order", [0, 2, 3, 4, 5, 1, 6])
    assert told[False, 1, "refused"][0] == "in order"
    assert told[True, 5, "refused"][0] == "in order"
    assert told[False, 5, "answer lost"][0] == "doubled"
    assert told[True, 5, "answer lost"][0] == "in order"
    window = document["window"]
    assert window["log"] == [0, 1, 2, 3, 4, 5]
    assert window["answer_to_the_first_again"] in ("DUPLICATE_SEQUENCE_NUMBER", "OUT_OF_ORDER_SEQUENCE_NUMBER")


def test_the_assignors_give_what_is_said_of_them_and_the_group_votes(semel: Semel) -> None:
    document = semel("experiment", "assignors", "--json").document
    given = [
        {member: " ".join(owned) for member, owned in example["given"].items()} for example in document["examples"]
    ]
    assert given[0] == {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"}
    assert given[1] == {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}
    assert given[2] == {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}
    assert given[3] == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}
    assert document["chosen"] == "sticky"
