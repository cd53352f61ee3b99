"""Codes that end a transaction and codes that end the producer."""

from __future__ import annotations

from typing import Any

import pytest

from semel.client.errors import (
    AbortTransactionError,
    BadRecord,
    BrokerRefused,
    NotAuthorised,
    OutOfOrderSequence,
    ProducerFenced,
    RestartProducerError,
    SemelError,
    TransactionalIdExpired,
    UnsupportedByBroker,
)
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.wire.errors import ErrorCode

ID: dict[str, Any] = {"transactional_id": "payments", "transaction_timeout_ms": 60_000}
PARTITION = TopicPartition("in", 3)

BREAKING = [
    (ErrorCode.PRODUCER_FENCED, ProducerFenced),
    (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, TransactionalIdExpired),
    (ErrorCode.INVALID_TXN_STATE, RestartProducerError),
    (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NotAuthorised),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NotAuthorised),
    (ErrorCode.UNSUPPORTED_VERSION, UnsupportedByBroker),
]
FAILING = [
    (ErrorCode.INVALID_RECORD, BadRecord),
    (ErrorCode.TRANSACTION_ABORTABLE, AbortTransactionError),
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, OutOfOrderSequence),
    (ErrorCode.UNKNOWN_PRODUCER_ID, OutOfOrderSequence),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NotAuthorised),
    (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerRefused),
]


async def every_call_raises(producer: Producer, kind: type[SemelError]) -> None:
    for call in (
        producer.send("t", b"x"),
        producer.send_and_wait("t", b"x"),
        producer.init_transactions(),
        producer.begin(),
        producer.commit(),
        producer.abort(),
        producer.send_offsets_to_transaction({PARTITION: 1}, "g"),
    ):
        with pytest.raises(kind):
            await call
    with pytest.raises(kind):
        async with producer.transaction():
            pass
