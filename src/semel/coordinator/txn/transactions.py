"""What `__transaction_state` says: one transaction record per transactional id, the newest counts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from semel.coordinator.shard import Entry, emptied
from semel.coordinator.txn.state import TransactionState
from semel.log.types import Epoch, Offset, ProducerId
from semel.records.read import Record
from semel.wire.codec import decode, encode
from semel.wire.spec.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions

NO_PRODUCER_ID = -1
NO_EPOCH = -1
LAST_EPOCH = (1 << 15) - 2
"""The last epoch that a producer may write with: one more is kept for the marker that ends its transaction."""

_VERSION = Struct(">h")
_KEY_VERSION = 0
_VALUE_VERSION = 1
# The fields of a value with a fixed size: version, producer id, epoch, timeout and status; the times of the last update
# and of the start.
_BEFORE_PARTITIONS = Struct(">hqhib")
_AFTER_PARTITIONS = Struct(">qq")
_PARTITIONS_AT = _BEFORE_PARTITIONS.size - _VERSION.size
_NULL = b"\0"
# So many are kept encoded: none at the end of a transaction, one of data and one of offsets while it is open.
_FEW_PARTITIONS = 4

TopicPartition = tuple[str, int]


class Transaction(NamedTuple):
    """The state of one transactional id. Never changed in place: each decision makes the next one."""

    transactional_id: str
    producer_id: ProducerId
    epoch: Epoch
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    # The producer id before the last overflow of the epoch; a late request may still carry it.
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    # What the producer was told to use once this transaction has ended, when that is another id (second generation).
    next_producer_id: ProducerId = NO_PRODUCER_ID
    # 2 when the producer speaks the second generation of the protocol.
    client_version: int = 0
    # The epoch whose transaction ran out of time: its producer is told so, not that it was fenced.
    timed_out_epoch: Epoch = NO_EPOCH
    # The epoch that its own producer asked to be raised (KIP-360): if the answer was lost, it will ask again.
    raised_from_epoch: Epoch = NO_EPOCH

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= 2

    def stepped(
        self,
        state: TransactionState,
        epoch: Epoch,
        partitions: frozenset[TopicPartition],
        started_ms: int,
        updated_ms: int,
        client_version: int,
        timed_out_epoch: Epoch = NO_EPOCH,
        raised_from_epoch: Epoch = NO_EPOCH,
    ) -> Transaction:
        """As `_replace`, of what every transaction changes three times, at a third of the cost."""
        return Transaction(
            self.transactional_id,
            self.producer_id,
            epoch,
            self.timeout_ms,
            state,
            partitions,
            started_ms,
            updated_ms,
            self.previous_producer_id,
            self.next_producer_id,
            client_version,
            timed_out_epoch,
            raised_from_epoch,
        )

    def left_ms(self, wall_ms: int) -> int:
        """How long it may still stay open, for whoever loads it: that knows only by wall clocks what has passed. They
        jump, and differ from node to node; so it is no less than nothing, and no more than the whole time."""
        return self.timeout_ms - min(max(wall_ms - self.started_ms, 0), self.timeout_ms)


def entry(transaction: Transaction) -> Entry:
    return Entry(_key(transaction.transactional_id), _value(transaction))


def tombstone(transactional_id: str) -> Entry:
    return Entry(_key(transactional_id), None)


@lru_cache(maxsize=4096)
def _key(transactional_id: str) -> bytes:
    key = TransactionLogKey(transactional_id=transactional_id)
    return _VERSION.pack(_KEY_VERSION) + encode(key, _KEY_VERSION)


@lru_cache(maxsize=4096)
def _id_in(key: bytes) -> str | None:
    (version,) = _VERSION.unpack_from(key)
    if version != _KEY_VERSION:
        return None
    return decode(TransactionLogKey, version, memoryview(key)[2:]).transactional_id


def _value(transaction: Transaction) -> bytes:
    """As the codec writes a TransactionLogValue. Three of them are written for each transaction, so what differs every
    time is packed here, and what mostly does not is kept as the codec wrote it."""
    partitions = transaction.partitions
    encoded = _encoded_few if len(partitions) <= _FEW_PARTITIONS else _encoded
    return b"".join(
        (
            _BEFORE_PARTITIONS.pack(
                _VALUE_VERSION,
                transaction.producer_id,
                transaction.epoch,
                transaction.timeout_ms,
                transaction.state,
            ),
            _NULL if transaction.state == TransactionState.EMPTY else encoded(partitions),
            _AFTER_PARTITIONS.pack(transaction.updated_ms, transaction.started_ms),
            _tags(
                transaction.previous_producer_id,
                transaction.next_producer_id,
                transaction.client_version,
                transaction.timed_out_epoch,
                transaction.raised_from_epoch,
            ),
        )
    )


def _encoded(partitions: frozenset[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    grouped = [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    encoded = encode(TransactionLogValue(transaction_partitions=grouped), _VALUE_VERSION)
    return encoded[_PARTITIONS_AT : -_AFTER_PARTITIONS.size - 1]


_encoded_few = lru_cache(maxsize=4096)(_encoded)


@lru_cache(maxsize=256)
def _tags(
    previous_producer_id: ProducerId,
    next_producer_id: ProducerId,
    client_version: int,
    timed_out_epoch: Epoch,
    raised_from_epoch: Epoch,
) -> bytes:
    tagged = TransactionLogValue(
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        client_transaction_version=client_version,
        timed_out_epoch=timed_out_epoch,
        raised_from_epoch=raised_from_epoch,
    )
    return encode(tagged, _VALUE_VERSION)[_PARTITIONS_AT + len(_NULL) + _AFTER_PARTITIONS.size :]


class Transactions:
    """The state of one shard."""

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        # Where the newest record of each stands: it is durable when the log is, up to there.
        self.offsets: dict[str, Offset] = {}

    def replay(self, record: Record, producer_id: ProducerId) -> None:
        transactional_id = None if record.key is None else _id_in(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self.by_id.pop(transactional_id, None)
            self.offsets.pop(transactional_id, None)
            return
        (version,) = _VERSION.unpack_from(record.value)
        value = decode(TransactionLogValue, version, memoryview(record.value)[2:])
        transaction = Transaction(
            transactional_id,
            value.producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            TransactionState(value.transaction_status),
            frozenset(
                (partitions.topic, index)
                for partitions in value.transaction_partitions or ()
                for index in partitions.partition_ids
            ),
            value.transaction_start_timestamp_ms,
            value.transaction_last_update_timestamp_ms,
            value.previous_producer_id,
            value.next_producer_id,
            value.client_transaction_version,
            value.timed_out_epoch,
            value.raised_from_epoch,
        )
        self.take(transaction, record.offset)

    def take(self, transaction: Transaction, offset: Offset) -> None:
        """Replays a record that says this: whoever has just written it need not decode it."""
        self.by_id[transaction.transactional_id] = transaction
        self.offsets[transaction.transactional_id] = offset

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Nobody writes to this topic inside a transaction."""

    def dropped(self) -> Iterator[None]:
        return emptied(self.by_id, self.offsets)
