"""Client calls that write what they do into the history: sends, polls, the ends of transactions."""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Iterable
from typing import NamedTuple

from semel.client.consumer.consumer import Consumer
from semel.client.errors import (
    AbortTransactionError,
    CorruptRecords,
    FatalError,
    PositionError,
    RestartProducerError,
    RetriableError,
    SemelError,
)
from semel.client.metadata import TopicPartition
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.client.values import Message
from semel.sim.history import NO_TRANSACTION, NO_VALUE, End, Init, Outcome, Poll, Send
from semel.sim.workload.access import Access, place_of

PADDINGS = (0, 0, 10, 100)


def written(value: int, padding: int = 0) -> bytes:
    return b"%d %s" % (value, b"." * padding)


def value_of(message: Message) -> int:
    try:
        return int((message.value or b"").split(b" ")[0])
    except (ValueError, AttributeError):
        return NO_VALUE


async def send(
    access: Access,
    producer: Producer,
    process: str,
    partition: TopicPartition,
    random: random_module.Random,
    *,
    transaction: int = NO_TRANSACTION,
    source: int = NO_VALUE,
) -> Delivery:
    """A new value. If the call itself raises, the record was not taken, and so is not written."""
    history = access.history
    value = history.next_value()
    operation = history.begin(
        Send(process=process, place=place_of(partition), value=value, transaction=transaction, source=source)
    )

    def settled(delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            access.counts["written"] += 1
            history.sent(operation, delivery.result().offset)
        else:
            history.end(operation, Outcome.INFO, str(error))

    try:
        return await producer.send(
            partition.topic,
            written(value, random.choice(PADDINGS)),
            partition=partition.partition,
            on_delivery=settled,
        )
    except SemelError as error:
        history.end(operation, Outcome.FAIL, str(error))
        raise


async def delivered(deliveries: Iterable[Delivery]) -> None:
    """Waits for them, however they end."""
    for delivery in deliveries:
        try:
            await delivery
        except SemelError:
            pass  # it is in the history


async def init(access: Access, producer: Producer, process: str) -> bool:
    """Takes over the transactional id; false if another was quicker."""
    operation = access.history.begin(Init(process=process))
    while True:
        try:
            await producer.init_transactions()
        except RetriableError:
            continue
        except RestartProducerError as error:
            access.history.end(operation, Outcome.INFO, str(error))
            return False
        access.history.ok(operation)
        return True


class Ended(NamedTuple):
    is_committed: bool
    is_usable: bool
    """Whether the producer can go on."""


async def end_until_answered(producer: Producer, *, is_commit: bool) -> None:
    """A commit or an abort that got no answer is asked for again."""
    while True:
        try:
            await (producer.commit() if is_commit else producer.abort())
            return
        except RetriableError:
            await asyncio.sleep(0)


async def end(access: Access, producer: Producer, process: str, transaction: int, *, is_commit: bool) -> Ended:
    """Ends the transaction: as asked, or by an abort if it cannot be committed. A refused commit is over; one that got
    no answer is asked for again; one whose producer is fenced may or may not have come through."""
    operation = access.history.begin(End(process=process, transaction=transaction, is_commit=is_commit))
    try:
        await end_until_answered(producer, is_commit=is_commit)
    except AbortTransactionError as error:
        access.history.end(operation, Outcome.FAIL if is_commit else Outcome.INFO, str(error))
        if not is_commit:
            return Ended(False, False)
        return await end(access, producer, process, transaction, is_commit=False)
    except (RestartProducerError, FatalError) as error:
        access.history.end(operation, Outcome.INFO, str(error))
        return Ended(False, False)
    access.history.ok(operation)
    access.counts["committed" if is_commit else "aborted"] += 1
    return Ended(is_commit, True)


def _try_again(consumer: Consumer, partition: TopicPartition, offset: int) -> None:
    """From the same place: somebody may have mended it. Without a word from us the consumer leaves it alone."""
    try:
        consumer.seek(partition, offset)
    except SemelError:
        pass  # it is somebody else's by now


async def poll(
    access: Access, consumer: Consumer, process: str, *, timeout_ms: int, max_records: int | None = None
) -> dict[TopicPartition, list[Message]]:
    """Empty also when a partition cannot be read on: the history tells, and others may go on."""
    history = access.history
    operation = history.begin(Poll(process=process, reads_committed=consumer.settings.reads_committed))
    try:
        found = await consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
    except (PositionError, RetriableError) as error:
        history.end(operation, Outcome.FAIL if isinstance(error, PositionError) else Outcome.INFO, str(error))
        await asyncio.sleep(timeout_ms / 1000)
        if isinstance(error, CorruptRecords) and error.partition is not None:
            _try_again(consumer, error.partition, error.offset)
        return {}
    history.polled(
        operation,
        {
            place_of(partition): [(message.offset, value_of(message)) for message in messages]
            for partition, messages in found.items()
        },
    )
    access.counts["read"] += sum(map(len, found.values()))
    return found
