"""Every transaction ends: what takes too long is aborted, its producer is told so, and may go on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping

import pytest
from broker_harness import Node, RawClient, batch_of, simulated
from transaction_harness import (
    ID,
    OLD,
    TOPIC,
    V1,
    V2,
    TransactionalProducer,
    check_replay_equals_live,
    coordinator,
    known,
    read_committed,
    started,
    with_transactions,
)

from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import LAST_EPOCH, entry
from semel.wire.errors import ErrorCode

TIMEOUT_MS = 5000
# Kafka looks every ten seconds.
OVERDUE_S = 16


async def timed_out(node: Node, versions: Mapping[str, int]) -> tuple[RawClient, TransactionalProducer]:
    client = await with_transactions(node)
    producer = await started(client, versions, timeout_ms=TIMEOUT_MS)
    if versions is not V2:
        assert await producer.add(0) == 0
    assert await producer.write(b"too slow") == 0
    assert (await client.produce(TOPIC, batch_of(b"behind"))).error_code == 0
    await asyncio.sleep(OVERDUE_S)
    assert known(node).state == TransactionState.COMPLETE_ABORT
    return client, producer


@pytest.mark.parametrize("versions", [OLD, V1, V2], ids=["old clients", "first", "second"])
@simulated()
async def test_an_overdue_transaction_is_aborted_and_readers_go_on(node: Node, versions: Mapping[str, int]) -> None:
    client, producer = await timed_out(node, versions)
    assert known(node).epoch == producer.epoch + 1
    assert await read_committed(client) == [b"behind"]
    check_replay_equals_live(node)


@simulated()
async def test_a_transaction_that_is_in_time_is_left_alone(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=60_000)
    assert await producer.add(0) == 0
    await asyncio.sleep(40)
    assert await producer.write(b"a") == 0
    assert await producer.commit() == 0


@pytest.mark.parametrize("version", [3, 10, 11, 12])
@simulated()
async def test_a_produce_after_a_time_out_is_told_what_its_version_can_say(node: Node, version: int) -> None:
    _, producer = await timed_out(node, V1)
    producer.versions = {**V1, "produce": version}
    told = ErrorCode.INVALID_PRODUCER_EPOCH if version < 11 else ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.write(b"more") == told


@simulated(settings={"transaction.partition.verification.enable": "false"})
async def test_without_verification_the_log_knows_the_old_epoch_and_the_coordinator_why_it_is_old(node: Node) -> None:
    _, producer = await timed_out(node, V1)
    assert await producer.write(b"more") == ErrorCode.TRANSACTION_ABORTABLE
    producer.versions = OLD
    assert await producer.write(b"more") == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@simulated()
async def test_no_version_of_the_join_that_clients_use_knows_of_time_outs(node: Node, version: int) -> None:
    _, producer = await timed_out(node, V1)
    producer.versions = {**V1, "add": version}
    assert await producer.add(0) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", range(5))
@simulated()
async def test_a_join_of_offsets_after_a_time_out_is_told_what_its_version_can_say(node: Node, version: int) -> None:
    _, producer = await timed_out(node, V1)
    producer.versions = {**V1, "offsets": version}
    told = ErrorCode.INVALID_PRODUCER_EPOCH if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.add_offsets("group") == told


@pytest.mark.parametrize("version", range(6))
@simulated()
async def test_a_commit_after_a_time_out_is_told_what_its_version_can_say(node: Node, version: int) -> None:
    _, producer = await timed_out(node, V1)
    producer.versions = {**V1, "end": version}
    told = ErrorCode.INVALID_PRODUCER_EPOCH if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.commit() == told


@simulated()
async def test_the_first_generation_aborts_asks_for_another_epoch_and_goes_on(node: Node) -> None:
    client, producer = await timed_out(node, V1)
    assert await producer.abort() == 0
    assert await producer.init(keeps_identity=True) == 0
    await producer.transaction(b"again")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"behind", b"again"]


@simulated()
async def test_the_second_generation_aborts_and_goes_on_with_the_epoch_that_it_is_told(node: Node) -> None:
    client, producer = await timed_out(node, V2)
    producer_id, epoch = producer.identity
    assert await producer.abort() == 0
    assert producer.identity == (producer_id, epoch + 1)
    await producer.transaction(b"again")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"behind", b"again"]


@simulated()
async def test_a_time_out_in_the_last_epoch_is_followed_by_a_new_id(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2, timeout_ms=TIMEOUT_MS)
    set_epoch(node, producer, LAST_EPOCH)
    old_id = producer.producer_id
    assert await producer.write(b"too slow") == 0
    await asyncio.sleep(OVERDUE_S)
    assert await producer.commit() == ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.abort() == 0
    assert producer.producer_id != old_id
    assert producer.epoch == 0
    await producer.transaction(b"again")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"again"]


def set_epoch(node: Node, producer: TransactionalProducer, epoch: int) -> None:
    """As if the producer had ended that many transactions."""
    shard = coordinator(node).shards.for_key(producer.transactional_id)
    shard.append([entry(shard.state.by_id[producer.transactional_id]._replace(epoch=epoch))])
    producer.epoch = epoch


@simulated()
async def test_the_second_generation_passes_the_last_epoch_without_a_break(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V2)
    set_epoch(node, producer, LAST_EPOCH - 1)
    old_id = producer.producer_id
    await producer.transaction(b"a")
    assert producer.identity == (old_id, LAST_EPOCH)
    await producer.transaction(b"b")
    assert producer.producer_id != old_id
    assert producer.epoch == 0
    await producer.transaction(b"c")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a", b"b", b"c"]
    check_replay_equals_live(node)


@simulated()
async def test_the_first_generation_gets_a_new_id_after_the_last_epoch(node: Node) -> None:
    client = await with_transactions(node)
    old = await started(client, V1)
    set_epoch(node, old, LAST_EPOCH)
    await old.transaction(b"a")
    new = await started(client, V1)
    assert new.producer_id != old.producer_id
    assert new.epoch == 0
    assert await old.add(0) == ErrorCode.PRODUCER_FENCED
    await new.transaction(b"b")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a", b"b"]


@simulated()
async def test_a_takeover_of_an_open_transaction_in_the_last_epoch_gets_a_new_id(node: Node) -> None:
    client = await with_transactions(node)
    for versions in (V1, V2):
        old = await started(client, versions, f"id-{versions['end']}")
        set_epoch(node, old, LAST_EPOCH)
        if versions is V1:
            assert await old.add(0) == 0
        assert await old.write(b"left open") == 0
        new = await started(client, versions, old.transactional_id)
        assert (new.producer_id != old.producer_id, new.epoch) == (True, 0)
        await new.transaction(b"new")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"new", b"new"]


@simulated(settings={"transactional.id.expiration.ms": "3600000"})
async def test_an_id_that_nobody_uses_expires_and_comes_back_with_another_producer_id(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    await producer.transaction(b"a")
    await asyncio.sleep(2 * 3600 + 60)
    shard = coordinator(node).shards.for_key(ID)
    assert ID not in shard.state.by_id
    check_replay_equals_live(node)
    client = await node.client()  # idle connections are closed meanwhile
    producer.client = client
    assert await producer.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.commit() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.write(b"late") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    old_id = producer.producer_id
    assert await producer.init(keeps_identity=True) == 0, "a producer that recovers from this very error"
    assert producer.producer_id != old_id
    await producer.transaction(b"b")
    await asyncio.sleep(0.1)
    assert await read_committed(client) == [b"a", b"b"]


@simulated(settings={"transactional.id.expiration.ms": "3600000"})
async def test_an_id_in_use_does_not_expire(node: Node) -> None:
    client = await with_transactions(node)
    for _ in range(6):
        producer = await started(await node.client(), V1, timeout_ms=800_000)
        assert producer.producer_id == known(node).producer_id
        first = producer.producer_id
        await asyncio.sleep(1800)
        assert known(node).producer_id == first
    client.close()


@simulated(settings={"transactional.id.expiration.ms": "3600000"})
async def test_an_expired_id_stays_expired_after_a_restart(node: Node) -> None:
    client = await with_transactions(node)
    await (await started(client, V1)).transaction(b"a")
    await asyncio.sleep(2 * 3600 + 60)
    await node.power_cut_and_started()
    assert ID not in coordinator(node).shards.for_key(ID).state.by_id


@simulated()
async def test_a_disk_that_refuses_once_does_not_end_the_upkeep(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=TIMEOUT_MS)
    assert await producer.add(0) == 0
    assert await producer.write(b"too slow") == 0
    await asyncio.sleep(1)
    node.disk.fail_at("write", 1, errno.ENOSPC)
    await asyncio.sleep(13)
    assert known(node).state == TransactionState.ONGOING
    await asyncio.sleep(10)
    assert known(node).state == TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("nth", [1, 2, 3])
@simulated()
async def test_a_disk_that_refuses_the_decision_a_marker_or_the_end_does_not_leave_a_transaction_hanging(
    node: Node, nth: int
) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1)
    assert await producer.add(0) == 0
    assert await producer.write(b"a") == 0
    node.disk.fail_at("write", nth, errno.ENOSPC)
    code = await producer.commit()
    if nth == 1:
        assert code == ErrorCode.NOT_COORDINATOR, "which clients retry"
        assert known(node).state == TransactionState.ONGOING, "a refused append changes nothing"
        assert await producer.commit() == 0
    else:
        assert code == 0
    await asyncio.sleep(1)
    assert known(node).state == TransactionState.COMPLETE_COMMIT
    assert await read_committed(client) == [b"a"]
    await producer.transaction(b"b")


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
@simulated()
async def test_a_transaction_timeout_is_bounded(node: Node, timeout_ms: int) -> None:
    client = await with_transactions(node)
    producer = TransactionalProducer(client, V1)
    assert await producer.init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await producer.init(timeout_ms=900_000) == 0
    assert await producer.init(timeout_ms=1) == 0


DAYS_10_MS = 10 * 24 * 3_600_000


@pytest.mark.parametrize("by_ms", [DAYS_10_MS, -DAYS_10_MS])
@simulated()
async def test_a_wall_clock_that_is_set_neither_shortens_nor_lengthens_a_transaction(node: Node, by_ms: int) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=60_000)
    assert await producer.add(0) == 0
    assert await producer.write(b"too slow") == 0
    node.set_clock(by_ms)
    await asyncio.sleep(45)
    assert known(node).state == TransactionState.ONGOING
    await asyncio.sleep(26)
    assert known(node).state == TransactionState.COMPLETE_ABORT
    assert not any(term.deadlines_ms for term in coordinator(node)._terms.values())


@simulated()
async def test_a_transaction_that_began_by_a_wrong_clock_does_not_hold_readers_for_longer_than_its_time(
    node: Node,
) -> None:
    """It survives a restart, after which only wall clocks tell what has passed: ten days less than nothing."""
    node.set_clock(DAYS_10_MS)
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=60_000)
    assert await producer.add(0) == 0
    assert await producer.write(b"too slow") == 0
    node.set_clock(-DAYS_10_MS)
    await node.killed_and_started()
    await asyncio.sleep(45)
    assert known(node).state == TransactionState.ONGOING
    await asyncio.sleep(26)
    assert known(node).state == TransactionState.COMPLETE_ABORT


@simulated()
async def test_what_has_passed_before_a_restart_counts(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=60_000)
    assert await producer.add(0) == 0
    await asyncio.sleep(50)
    await node.killed_and_started()
    await asyncio.sleep(21)
    assert known(node).state == TransactionState.COMPLETE_ABORT


@simulated()
async def test_the_next_transaction_has_its_whole_time(node: Node) -> None:
    client = await with_transactions(node)
    producer = await started(client, V1, timeout_ms=60_000)
    for _ in range(3):
        assert await producer.add(0) == 0
        await asyncio.sleep(40)
        assert await producer.commit() == 0
    assert not any(term.deadlines_ms for term in coordinator(node)._terms.values())


@simulated(settings={"transactional.id.expiration.ms": "7200000"})
async def test_no_id_expires_because_the_wall_clock_was_set(node: Node) -> None:
    client = await with_transactions(node)
    await (await started(client, V1)).transaction(b"a")
    await asyncio.sleep(1)
    node.set_clock(DAYS_10_MS)
    await asyncio.sleep(3600 + 60)
    assert ID in coordinator(node).shards.for_key(ID).state.by_id
    await asyncio.sleep(3 * 3600)
    assert ID not in coordinator(node).shards.for_key(ID).state.by_id
