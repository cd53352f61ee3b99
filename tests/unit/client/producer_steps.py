"""What many tests of the producer do: batches of one record, refusals, and the fates of deliveries."""

from __future__ import annotations

from math import inf
from typing import Any

from scripted_broker import Asked
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.client.producer.transactions import State

ONE_RECORD_EACH: dict[str, Any] = {"batch_size": 1, "linger_ms": 0}
IMPATIENT: dict[str, Any] = {
    **ONE_RECORD_EACH,
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 8_000,
    "retry_backoff_ms": 100,
}


async def sent_each(producer: Producer, *values: bytes) -> list[Delivery]:
    """Each in a batch of its own."""
    return [await producer.send("t", value) for value in values]


async def fate(delivery: Delivery) -> str:
    try:
        await delivery
    except Exception as error:
        return type(error).__name__
    return "written"


async def fates(deliveries: list[Delivery]) -> list[str]:
    return [await fate(delivery) for delivery in deliveries]


def refusing(code: int, times: float = inf, **fields: Any) -> Any:
    """A rule: so many produces are refused, the rest is taken."""
    left = times

    def rule(asked: Asked) -> None:
        nonlocal left
        left -= 1
        asked.refuse(code, **fields) if left >= 0 else asked.accept()

    return rule


def state_of(producer: Producer) -> State:
    assert producer._transactions is not None
    return producer._transactions.state
