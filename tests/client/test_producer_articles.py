"""What the articles say of producers, as examples: which settings go with idempotence, and what it is good for.

The first of several requests fails by the proxy's hand: it answers with an error and passes on the others.
"""

from __future__ import annotations

from typing import Any

import pytest
from proxied_broker import behind, log_of

from semel.client.errors import BadSetting
from semel.client.producer.producer import Producer
from semel.sim.attack.fault_policy import Blow, Fault, ScriptedFaults

BATCHES = 5
RECORD_BYTES = 100


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight_requests_per_connection"),
        ({"acks": 1}, "acks"),
        ({"acks": "0"}, "acks"),
        ({"retries": 0}, "retries"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_contradicts_idempotence_is_refused_with_both_names(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(BadSetting) as refused:
        Producer(**settings)
    assert named in str(refused.value)
    assert "enable_idempotence" in str(refused.value)
    Producer(enable_idempotence=False, **settings)


def test_five_in_flight_are_allowed_and_idempotence_needs_no_word() -> None:
    Producer(max_in_flight_requests_per_connection=5)
    Producer(max_in_flight_requests_per_connection=5, acks=-1, retries=1, enable_idempotence=True)


def test_a_transactional_id_without_idempotence_is_refused_with_both_names() -> None:
    with pytest.raises(BadSetting) as refused:
        Producer(transactional_id="id", enable_idempotence=False)
    assert "transactional_id" in str(refused.value)
    assert "enable_idempotence" in str(refused.value)


def test_kafkas_own_spelling_is_refused_for_the_same_reasons() -> None:
    settings: dict[str, Any] = {"max.in.flight.requests.per.connection": 6, "enable.idempotence": "true"}
    with pytest.raises(BadSetting):
        Producer(**settings)


async def test_the_same_content_sent_twice_is_two_records(address: str, topic: str) -> None:
    """Duplicates are told by producer and sequence, never by content."""
    async with Producer(bootstrap_servers=address) as producer:
        first = await producer.send_and_wait(topic, b"same", key=b"key", partition=0, timestamp_ms=1_700_000_000_000)
        second = await producer.send_and_wait(topic, b"same", key=b"key", partition=0, timestamp_ms=1_700_000_000_000)
    assert (first.offset, second.offset) == (0, 1)
    assert log_of(address, topic) == [b"same", b"same"]


async def five_batches_of_which_the_first_fails(address: str, topic: str, **settings: Any) -> list[bytes]:
    """The log after five requests were in flight at once, and the first was refused once."""
    script = ScriptedFaults({("Produce", 2): Blow(Fault.REFUSE)})
    async with (
        behind(address, script) as door,
        Producer(
            bootstrap_servers=door, linger_ms=0, batch_size=RECORD_BYTES + 20, retry_backoff_ms=200, **settings
        ) as producer,
    ):
        await producer.send_and_wait(topic, b"warm", partition=0)
        values = [b"%d" % number + b"." * RECORD_BYTES for number in range(BATCHES)]
        deliveries = [await producer.send(topic, value, partition=0) for value in values]
        await producer.flush()
        results = [await delivery for delivery in deliveries]
        log = log_of(address, topic)
        assert [log[result.offset] for result in results] == values
        return [(value or b"")[:1] for value in log[1:]]


async def test_without_idempotence_a_failed_request_is_overtaken_by_those_in_flight_behind_it(
    address: str, topic: str
) -> None:
    log = await five_batches_of_which_the_first_fails(address, topic, enable_idempotence=False)
    assert sorted(log) == [b"0", b"1", b"2", b"3", b"4"]
    assert log[-1] == b"0"


async def test_without_idempotence_one_in_flight_keeps_the_order(address: str, topic: str) -> None:
    log = await five_batches_of_which_the_first_fails(
        address, topic, enable_idempotence=False, max_in_flight_requests_per_connection=1
    )
    assert log == [b"0", b"1", b"2", b"3", b"4"]


async def test_with_idempotence_the_order_is_kept_with_five_in_flight(address: str, topic: str) -> None:
    log = await five_batches_of_which_the_first_fails(address, topic)
    assert log == [b"0", b"1", b"2", b"3", b"4"]


async def test_without_idempotence_a_lost_answer_makes_two_of_one_record(address: str, topic: str) -> None:
    async with (
        behind(address, ScriptedFaults({("Produce", 1): Blow(Fault.CUT_AFTER)})) as door,
        Producer(bootstrap_servers=door, enable_idempotence=False) as producer,
    ):
        await producer.send_and_wait(topic, b"payment", partition=0)
    assert log_of(address, topic) == [b"payment", b"payment"]


async def test_with_idempotence_a_lost_answer_makes_no_difference(address: str, topic: str) -> None:
    async with (
        behind(address, ScriptedFaults({("Produce", 1): Blow(Fault.CUT_AFTER)})) as door,
        Producer(bootstrap_servers=door) as producer,
    ):
        assert (await producer.send_and_wait(topic, b"payment", partition=0)).offset == 0
    assert log_of(address, topic) == [b"payment"]


async def test_another_producer_does_not_know_what_the_first_has_sent(address: str, topic: str) -> None:
    """Idempotence lasts as long as the producer lives: after a restart only a transactional id remembers."""
    for _ in range(2):
        async with Producer(bootstrap_servers=address) as producer:
            await producer.send_and_wait(topic, b"payment", partition=0)
    assert log_of(address, topic) == [b"payment", b"payment"]
