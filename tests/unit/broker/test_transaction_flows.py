"""Whole transactions of both generations through the wire: what is read, what is refused, what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from broker_harness import Node, batch_of, simulated
from transaction_harness import (
    OLD,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    check_replay_equals_live,
    committed_part,
    committed_values,
    described,
    hold_markers,
    known,
    markers,
    read_all,
    read_committed,
    started,
    with_transactions,
)

from semel.coordinator.txn.state import TransactionState
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import ApiVersionsRequest

generations = pytest.mark.parametrize("versions", [OLD, V1, V2], ids=["old clients", "first", "second"])


@generations
@simulated()
async def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(
    node: Node, versions: Mapping[str, int]
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    await producer.transaction(b"a", b"b")
    await producer.transaction(b"c", commit=False)
    await producer.transaction(b"d")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a", b"b", b"d"]
    assert await read_all(client) == [b"a", b"b", b"c", b"d"]
    check_replay_equals_live(node)


@simulated()
async def test_the_first_generation_keeps_its_epoch_and_its_sequences(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    before = producer.identity
    await producer.transaction(b"a")
    await producer.transaction(b"b")
    await asyncio.sleep(0.1)
    assert producer.identity == before
    assert await markers(client) == [("COMMIT", 0), ("COMMIT", 0)]


@simulated()
async def test_the_second_generation_is_told_a_new_epoch_at_every_end(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    producer_id, epoch = producer.identity
    await producer.transaction(b"a")
    assert producer.identity == (producer_id, epoch + 1)
    await producer.transaction(b"b", commit=False)
    assert producer.identity == (producer_id, epoch + 2)
    await asyncio.sleep(0.1)
    assert await markers(client) == [("COMMIT", epoch + 1), ("ABORT", epoch + 2)]


@simulated()
async def test_the_second_generation_is_a_feature_of_the_cluster(node: Node) -> None:
    client = await node.client()
    answer = await client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"))
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    supported = {feature.name: feature.max_version for feature in answer.supported_features}
    assert finalized["transaction.version"] == supported["transaction.version"] == 2


@generations
@simulated()
async def test_an_open_transaction_holds_readers_back_and_plain_records_behind_it_keep_their_order(
    node: Node, versions: Mapping[str, int]
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    assert (await client.produce(TOPIC, batch_of(b"before"))).error_code == 0
    if versions is not V2:
        assert await producer.add(0) == 0
    assert await producer.write(b"inside") == 0
    assert (await client.produce(TOPIC, batch_of(b"behind"))).error_code == 0
    part = await committed_part(client)
    assert committed_values(part) == [b"before"]
    assert (part.last_stable_offset, part.high_watermark) == (1, 3)
    assert await read_all(client) == [b"before", b"inside", b"behind"]
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    part = await committed_part(client)
    assert committed_values(part) == [b"before", b"inside", b"behind"]
    assert part.last_stable_offset == part.high_watermark == 4


@simulated()
async def test_the_aborted_list_names_the_transactions_of_the_range_and_where_they_begin(node: Node) -> None:
    client = await with_transactions(node)
    one = await started(client, V1, "one")
    two = await started(client, V2, "two")
    assert await one.add(0) == 0
    assert await one.write(b"one, aborted") == 0
    assert await two.write(b"two, committed") == 0
    assert await two.commit() == 0
    assert await one.write(b"one, aborted, more") == 0
    assert await one.abort() == 0
    await asyncio.sleep(0.1)
    part = await committed_part(client)
    aborted = [(found.producer_id, found.first_offset) for found in part.aborted_transactions or ()]
    assert aborted == [(one.producer_id, 0)]
    assert committed_values(part) == [b"two, committed"]


@simulated()
async def test_the_last_stable_offset_never_goes_back_and_never_passes_an_open_transaction(node: Node) -> None:
    client = await with_transactions(node)
    producers = [await started(client, versions, f"id-{number}") for number, versions in enumerate((V1, V2, V1, V2))]
    log = node.broker.topics.partition(TOPIC, 0).log
    lowest = 0
    opened: dict[int, int] = {}

    def check() -> None:
        nonlocal lowest
        stable = log.last_stable_offset
        assert stable >= lowest
        assert stable <= min(opened.values(), default=log.end_offset)
        lowest = stable

    for turn in range(60):
        number = node.host().random.randrange(4)
        producer = producers[number]
        if number in opened and turn % 3:
            assert await producer.end(commit=turn % 2 == 0) == 0
            del opened[number]
        else:
            if producer.versions is V1:
                assert await producer.add(0) == 0
            began = log.end_offset
            assert await producer.write(b"x") == 0
            opened.setdefault(number, began)
        check()
        await asyncio.sleep(0.01)
        check()


@simulated()
async def test_the_end_of_a_transaction_is_readable_only_when_its_marker_is_durable(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"a") == 0
    write_marker = node.broker.markers.write_marker

    def slow_disk(*arguments: Any) -> asyncio.Future[None] | None:
        # The decision is durable; its marker is written now, and hangs on its way to the disk.
        node.hold_flushes(2000)
        return write_marker(*arguments)

    node.broker.markers.write_marker = slow_disk  # type: ignore[method-assign]
    assert await producer.commit() == 0
    await asyncio.sleep(1)
    assert node.broker.topics.partition(TOPIC, 0).log.end_offset == 2, "the marker is written"
    assert (await committed_part(client)).last_stable_offset == 0
    node.let_flushes_go()
    await asyncio.sleep(3)
    assert await read_committed(client) == [b"a"]


@generations
@simulated()
async def test_the_end_is_answered_when_it_is_decided_and_others_wait_for_the_markers(
    node: Node, versions: Mapping[str, int]
) -> None:
    client = await with_transactions(node)
    producer = await started(client, versions)
    if versions is not V2:
        assert await producer.add(0) == 0
    assert await producer.write(b"a") == 0
    may_write = hold_markers(node)
    assert await producer.commit() == 0
    assert known(node).state == TransactionState.PREPARE_COMMIT
    assert (await described(client)).transaction_state == "PrepareCommit"
    another = await node.client()
    assert await producer.add(0, on=another) == ErrorCode.CONCURRENT_TRANSACTIONS
    newer = TransactionalProducer(await node.client(), versions)
    assert await newer.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await read_committed(client) == []
    may_write.set()
    await asyncio.sleep(0.1)
    assert known(node).state == TransactionState.COMPLETE_COMMIT
    assert await read_committed(client) == [b"a"]
    assert await producer.add(0, on=another) == 0


@simulated()
async def test_a_request_that_comes_while_the_markers_are_written_waits_for_them(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    for number in range(20):
        assert await producer.add(0) == 0, "right after the end of the last one"
        assert await producer.write(b"%d" % number) == 0
        assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"%d" % number for number in range(20)]


@simulated()
async def test_a_transaction_spans_partitions_and_topics(node: Node) -> None:
    client = await with_transactions(node, 3)
    await client.create_topic("other")
    for versions in (V1, V2):
        producer = await started(client, versions)
        if versions is V1:
            assert await producer.add(0, 1, 2) == 0
            assert await producer.add(0, topic="other") == 0
        for partition in range(3):
            assert await producer.write(b"%d" % partition, partition=partition) == 0
        assert await producer.write(b"x", topic="other") == 0
        assert {topic.topic: list(topic.partitions) for topic in (await described(client)).topics} == {
            "other": [0],
            TOPIC: [0, 1, 2],
        }
        assert await producer.commit() == 0
        await asyncio.sleep(0.1)
    for partition in range(3):
        assert await read_committed(client, partition) == [b"%d" % partition] * 2
    assert await read_committed(client, topic="other") == [b"x"] * 2


@simulated()
async def test_one_request_of_the_second_generation_joins_all_of_its_partitions_at_once(node: Node) -> None:
    client = await with_transactions(node, 4)
    producer = await started(client, V2)
    before = node.flushes("__transaction_state")
    request = producer.produce_request({index: producer.batch(b"x", partition=index) for index in range(4)})
    answer = await client.ask(request, 12)
    assert [part.error_code for part in answer.responses[0].partition_responses] == [0] * 4
    assert node.flushes("__transaction_state") - before == 1
    assert len(known(node).partitions) == 4
