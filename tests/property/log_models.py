"""Naive models of the log room: plain lists and dicts, slow and obvious."""

from __future__ import annotations

from dataclasses import dataclass, field

from semel.wire.errors import ErrorCode

MODULUS = 2**31


@dataclass
class ProducerModel:
    epoch: int
    # (first sequence, last sequence, first offset, last offset), oldest first; all of the epoch, the last five count.
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    coordinator_epoch: int = -1
    transaction: int | None = None

    @property
    def window(self) -> list[tuple[int, int, int, int]]:
        return self.batches[-5:]


class ProducersModel:
    """Every producer with every batch it ever wrote in its epoch. Answers an offset, "duplicate", or an error code."""

    def __init__(self) -> None:
        self.producers: dict[int, ProducerModel] = {}
        self.ended: list[tuple[int, int]] = []

    def append(
        self, producer_id: int, epoch: int, sequence: int, count: int, transactional: bool, offset: int
    ) -> ErrorCode | int | None:
        """None: written at `offset`. A number: a duplicate, first written there."""
        known = self.producers.get(producer_id)
        last = (sequence + count - 1) % MODULUS
        if known is None:
            if sequence != 0:
                return ErrorCode.UNKNOWN_PRODUCER_ID
            known = ProducerModel(epoch)
        elif epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        elif epoch > known.epoch:
            if sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            expected = (known.batches[-1][1] + 1) % MODULUS if known.batches else 0
            if sequence != expected:
                for first_sequence, last_sequence, first_offset, _ in known.window:
                    if (first_sequence, last_sequence) == (sequence, last):
                        # Written in a transaction that is over: no repetition of that, but another record.
                        is_over = known.transaction is None or first_offset < known.transaction
                        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if transactional and is_over else first_offset
                behind = (expected - last) % MODULUS
                if known.batches and 0 < behind <= MODULUS // 2:
                    oldest = known.window[0][2]
                    if transactional and (known.transaction is None or oldest < known.transaction):
                        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                    return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if known.transaction is not None and not transactional:
            return ErrorCode.INVALID_TXN_STATE
        if epoch > known.epoch:
            known.epoch, known.batches = epoch, []
        self.producers[producer_id] = known
        known.batches.append((sequence, last, offset, offset + count - 1))
        if transactional and known.transaction is None:
            known.transaction = offset
        return None

    def mark(
        self, producer_id: int, epoch: int, coordinator_epoch: int, bumps_epoch: bool, offset: int
    ) -> ErrorCode | None:
        known = self.producers.get(producer_id)
        if known is None:
            self.producers[producer_id] = ProducerModel(epoch, coordinator_epoch=coordinator_epoch)
            return None
        if epoch < known.epoch or (bumps_epoch and epoch == known.epoch and known.transaction is not None):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if epoch > known.epoch:
            known.epoch, known.batches = epoch, []
        known.coordinator_epoch = coordinator_epoch
        if known.transaction is not None:
            self.ended.append((known.transaction, offset))
            known.transaction = None
        return None

    def first_unstable(self, high_watermark: int) -> int | None:
        held = [known.transaction for known in self.producers.values() if known.transaction is not None]
        held += [first for first, marker in self.ended if marker >= high_watermark]
        return min(held, default=None)
