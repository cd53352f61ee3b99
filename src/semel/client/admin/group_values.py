"""What the admin takes and gives for groups, producers and transactions. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from semel.client.metadata import Node, TopicPartition
from semel.client.values import OffsetAndMetadata

# -- groups

CLASSIC = "classic"
CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """State and kind are empty where the broker is too old to tell. Kind: classic, consumer (KIP-848), share, ..."""

    group_id: str
    protocol_type: str
    state: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member. What it said of itself in the classic protocol is kept as it came, too, since only members of the
    protocol type "consumer" speak in a form that is known."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack: str | None = None
    subscription: frozenset[str] = frozenset()
    pattern: str | None = None
    assignment: frozenset[TopicPartition] = frozenset()
    target: frozenset[TopicPartition] | None = None
    epoch: int | None = None
    metadata: bytes = b""
    assignment_bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`kind` is the protocol: classic or consumer (KIP-848). Epochs belong to the latter."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    coordinator: Node | None
    epoch: int | None = None
    target_epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        return not self.members


class PartitionLag(NamedTuple):
    """How far a group is behind. `committed` is None where nothing was committed, the ends are None where the topic is
    gone; then there is no lag to tell."""

    committed: OffsetAndMetadata | None
    start_offset: int | None
    end_offset: int | None
    member_id: str | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed.offset, 0)


# -- producers and transactions

EMPTY = "Empty"
ONGOING = "Ongoing"
PREPARE_COMMIT = "PrepareCommit"
PREPARE_ABORT = "PrepareAbort"
COMPLETE_COMMIT = "CompleteCommit"
COMPLETE_ABORT = "CompleteAbort"
DEAD = "Dead"
PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition remembers. `transaction_start` is where its open transaction begins, if it has one;
    `coordinator_epoch` is None if no transaction of it has ended here yet."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start: int | None


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`started_ms` is None when no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: frozenset[TopicPartition]
    coordinator_id: int


class FencedProducer(NamedTuple):
    """The id and the epoch that the transactional id has now; every producer with a lower epoch is fenced."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in one partition, and what its coordinator says of it, if one knows it."""

    partition: TopicPartition
    producer: ProducerState
    transaction: TransactionDescription | None

    @property
    def start_offset(self) -> int:
        return -1 if self.producer.transaction_start is None else self.producer.transaction_start

    @property
    def transactional_id(self) -> str | None:
        return None if self.transaction is None else self.transaction.transactional_id

    @property
    def is_hanging(self) -> bool:
        """No coordinator will ever end it here: readers of committed records stop at it until somebody aborts it."""
        return self.transaction is None or self.partition not in self.transaction.partitions

    @property
    def may_be_committed(self) -> bool:
        """It hangs, and the last transaction of its producer was committed: perhaps this one, whose marker never came.
        The second generation raises the epoch with the end, the first keeps it."""
        known = self.transaction
        return (
            known is not None
            and self.is_hanging
            and known.state == COMPLETE_COMMIT
            and self.producer.producer_epoch in (known.producer_epoch, known.producer_epoch - 1)
        )


OpenTransactions = Mapping[TopicPartition, tuple[OpenTransaction, ...]]
"""By partition, oldest first: the first one holds the last stable offset back."""
