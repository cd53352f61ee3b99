"""One look at every API of transactions and at every error code that it answers, in the versions that know the code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from broker_harness import Node, simulated
from transaction_harness import (
    ID,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    coordinator,
    known,
    read_committed,
    started,
    with_transactions,
)

from semel.coordinator.shards import Shards
from semel.coordinator.txn.state import TransactionState
from semel.log.log import Cold
from semel.wire.errors import ErrorCode
from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from semel.wire.spec.init_producer_id import InitProducerIdRequest


@simulated()
async def test_without_its_topic_the_coordinator_is_not_available(node: Node) -> None:
    client = await node.client()
    await client.create_topic(TOPIC)
    producer = TransactionalProducer(client, V1)
    assert await producer.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    producer.producer_id, producer.epoch = 7, 0
    assert await producer.add(0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await producer.add_offsets("group") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await producer.commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await producer.write(b"a") == ErrorCode.NOT_ENOUGH_REPLICAS, "what a producer retries"
    producer.versions = V2
    assert await producer.write(b"a") == ErrorCode.NOT_ENOUGH_REPLICAS


@simulated()
async def test_while_its_shard_is_loaded_the_coordinator_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"a") == 0
    await node.stop()
    monkeypatch.setattr("semel.coordinator.shards._AT_ONCE_BYTES", 0)
    loading = asyncio.Event()
    load = Shards._load

    class HeldFile:
        async def warm(self, position: int, length: int) -> None:
            await loading.wait()

    def held(self: Any, shard: Any) -> Any:
        yield Cold(cast(Any, HeldFile()), 0, 1)
        yield from load(self, shard)

    monkeypatch.setattr(Shards, "_load", held)
    await node.start()
    producer.client = client = await node.client()
    assert coordinator(node).shards.is_loading
    assert await producer.init() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await producer.add(0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await producer.commit() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    batch = producer.batch(b"b")
    assert (await producer.send(batch)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    loading.set()
    await asyncio.sleep(0.1)
    assert (await producer.send(batch)).error_code == 0
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a", b"b"]


@simulated()
async def test_an_empty_transactional_id_is_an_invalid_request(node: Node) -> None:
    client = await with_transactions(node)
    producer = TransactionalProducer(client, V1, "")
    assert await producer.init() == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("claimed", [(5, -1), (-1, 5)])
@simulated()
async def test_half_an_identity_is_an_invalid_request(node: Node, claimed: tuple[int, int]) -> None:
    client = await with_transactions(node)
    request = InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=1000, producer_id=claimed[0], producer_epoch=claimed[1]
    )
    assert (await client.ask(request, 4)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [3, 4, 5])
@simulated()
async def test_a_replaced_producer_that_asks_for_an_epoch_is_fenced(node: Node, version: int) -> None:
    client = await with_transactions(node)
    old = await started(client, {**V1, "init": version})
    await started(client, V1)
    told = ErrorCode.INVALID_PRODUCER_EPOCH if version < 4 else ErrorCode.PRODUCER_FENCED
    assert await old.init(keeps_identity=True) == told
    assert (old.producer_id, old.epoch) == (known(node).producer_id, 0)


@pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
@simulated()
async def test_a_replaced_producer_that_asks_while_the_new_one_is_in_a_transaction_is_fenced(
    node: Node, versions: Mapping[str, int]
) -> None:
    client = await with_transactions(node)
    old = await started(client, versions)
    new = await started(client, versions)
    assert await new.add(0) == 0
    assert await old.init(keeps_identity=True) == ErrorCode.PRODUCER_FENCED
    old.producer_id += 1000
    assert await old.init(keeps_identity=True) == ErrorCode.PRODUCER_FENCED
    assert known(node).state == TransactionState.ONGOING
    assert await new.write(b"a") == 0
    assert await new.commit() == 0


@simulated()
async def test_a_producer_may_ask_for_an_epoch_inside_of_a_transaction_which_aborts_it(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"given up") == 0
    before = producer.identity
    assert await producer.init(keeps_identity=True) == 0
    assert producer.producer_id == before[0]
    assert producer.epoch > before[1]
    after = producer.identity
    producer.epoch = before[1]
    assert await producer.init(keeps_identity=True) == 0, "the answer was lost: it is told again"
    assert producer.identity == after
    await producer.transaction(b"again")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"again"]


@pytest.mark.parametrize("version", range(4))
@simulated()
async def test_a_fenced_join_is_told_what_its_version_can_say(node: Node, version: int) -> None:
    client = await with_transactions(node)
    old = await started(client, {**V1, "add": version, "offsets": version, "end": version})
    await started(client, V1)
    told = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
    assert await old.add(0) == told
    assert await old.add_offsets("group") == told
    assert await old.commit() == told


@simulated()
async def test_if_one_partition_cannot_join_none_does(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    answer = await client.ask(producer.add_request(0, 5), 3)
    codes = [part.partition_error_code for part in answer.results_by_topic_v3_and_below[0].results_by_partition]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert known(node).state == TransactionState.EMPTY


@pytest.mark.parametrize("commit", [True, False])
@simulated()
async def test_the_first_generation_cannot_end_what_has_not_begun(node: Node, commit: bool) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.end(commit=commit) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("commit", [True, False])
@simulated()
async def test_the_first_generation_cannot_change_its_mind(node: Node, commit: bool) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    await producer.transaction(b"a", commit=commit)
    await asyncio.sleep(0.1)
    assert await producer.end(commit=not commit) == ErrorCode.INVALID_TXN_STATE
    assert await producer.end(commit=commit) == 0, "a retry"


@pytest.mark.parametrize("commit", [True, False])
@simulated()
async def test_an_end_whose_answer_was_lost_is_told_the_same_again(node: Node, commit: bool) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    assert await producer.write(b"a") == 0
    request = producer.end_request(commit=commit)
    answers = [await client.ask(request, 5)]
    await asyncio.sleep(0.1)
    answers.append(await client.ask(request, 5))
    assert answers[0] == answers[1]
    assert answers[0].producer_epoch == producer.epoch + 1


@simulated()
async def test_the_second_generation_may_abort_without_having_written(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    assert await producer.commit() == ErrorCode.INVALID_TXN_STATE
    assert await producer.abort() == 0
    assert producer.epoch == 1
    await producer.transaction(b"a")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a"]


def for_brokers(producer: TransactionalProducer, *partitions: int, verify_only: bool) -> AddPartitionsToTxnRequest:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


@pytest.mark.parametrize("version", [4, 5])
@simulated()
async def test_brokers_add_and_verify_many_at_once(node: Node, version: int) -> None:
    client = await with_transactions(node, 2)
    producer = await started(client, V2)

    async def codes(*partitions: int, verify_only: bool) -> list[int]:
        answer = await client.ask(for_brokers(producer, *partitions, verify_only=verify_only), version)
        assert answer.error_code == 0
        results = answer.results_by_transaction[0].topic_results[0].results_by_partition
        return [result.partition_error_code for result in results]

    assert await codes(0, verify_only=True) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert known(node).state == TransactionState.EMPTY, "only verified"
    assert await codes(0, verify_only=False) == [0]
    assert await codes(0, 1, verify_only=True) == [0, ErrorCode.TRANSACTION_ABORTABLE]
    producer.epoch -= 1
    assert await codes(0, verify_only=True) == [ErrorCode.PRODUCER_FENCED]


@simulated()
async def test_a_client_that_joins_in_the_new_way_and_ends_in_the_old_one_is_ended_everywhere(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, {**V2, "end": 4})
    assert await producer.write(b"a") == 0
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a"]
    assert await producer.write(b"b") == 0
    assert await producer.abort() == 0
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a"]
    assert node.broker.topics.partition(TOPIC, 0).log.last_stable_offset == 4


@simulated()
async def test_a_partition_that_is_deleted_meanwhile_does_not_hold_the_end_up(node: Node) -> None:
    from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState

    client = await with_transactions(node)
    await client.create_topic("gone")
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.add(0, topic="gone") == 0
    assert await producer.write(b"a") == 0
    assert await producer.write(b"b", topic="gone") == 0
    answer = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]), 6)
    assert answer.responses[0].error_code == 0
    assert await producer.commit() == 0
    await asyncio.sleep(0.1)
    assert known(node).state == TransactionState.COMPLETE_COMMIT
    assert await read_committed(client) == [b"a"]
