"""Idempotence: what one partition knows of every producer that wrote to it.

A producer is one packed row, at most 110 bytes: Kafka's snapshot entry (its newest batch, epoch and open transaction)
followed by up to four older batches, newest first. `row_kernel` has the rule for the next row. Rows are immutable:
`check` makes a draft row, `apply` puts it in place after the write, so a failed write leaves everything as it was. Open
transactions are kept beside the rows in the order of their first offsets, because the last stable offset is the first
of them.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from semel.log.errors import Refused
from semel.log.row_kernel import NO_ROW, follows, is_in_transaction, next_row
from semel.log.types import Epoch, Offset, ProducerId, Sequence
from semel.records.batch import BatchHeader
from semel.records.control import ControlMarker, ControlType
from semel.wire.errors import ErrorCode

WINDOW_BATCHES = 5
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_COORDINATOR = -1

# Kafka's snapshot entry: producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction.
ENTRY = Struct(">qhiqiqiq")
# One older batch of the window: last sequence, last offset, offset delta.
OLDER = Struct(">iqi")
_HALF = 1 << 30
_MASK = (1 << 31) - 1


class Entry(NamedTuple):
    """The newest state of one producer, unpacked for those who look at it."""

    producer_id: ProducerId
    epoch: Epoch
    last_sequence: Sequence
    last_offset: Offset
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: Epoch
    transaction_first_offset: Offset


def entry_of(row: bytes) -> Entry:
    return Entry(*ENTRY.unpack_from(row))


class Batch(NamedTuple):
    """One batch of the window: its sequences and where it stands in the log."""

    first_sequence: Sequence
    last_sequence: Sequence
    first_offset: Offset
    last_offset: Offset


class Draft(NamedTuple):
    """What an append will make of its producer. `duplicate_of` is set when the batch is in the log already."""

    producer_id: ProducerId
    row: bytes
    began: Offset = NO_OFFSET
    ended: Offset = NO_OFFSET
    duplicate_of: Batch | None = None


class EndedTransaction(NamedTuple):
    """A transaction whose marker was appended: where it began, where its marker stands, how it ended."""

    producer_id: ProducerId
    first_offset: Offset
    marker_offset: Offset
    aborted: bool


class Producers:
    """All producers of one partition."""

    def __init__(self) -> None:
        # Read and written by `append_kernel` as well, by the same rule.
        self.live_rows: dict[ProducerId, bytes] = {}
        # In order of first offset: appends grow, and loading sorts.
        self._open: dict[ProducerId, Offset] = {}
        # Ended, but the marker may not be committed yet: they still hold the last stable offset back.
        self._ended: deque[EndedTransaction] = deque()

    def __len__(self) -> int:
        return len(self.live_rows)

    def check(self, header: BatchHeader, base_offset: Offset, now_ms: int) -> Draft:
        """Judges a batch that wants to stand at `base_offset`; raises Refused, or says what applying it will change.

        A coordinator's batch inside a producer's transaction has no sequence: only its epoch is judged. One from a
        client without a sequence does not get this far (`validate`).
        """
        row = self.live_rows.get(header.producer_id, NO_ROW)
        if not follows(row, header.producer_epoch, header.base_sequence, header.is_transactional):
            return self._duplicate_or_refusal(header, row)
        return self._draft(header, row, base_offset, now_ms)

    def _draft(self, header: BatchHeader, row: bytes, base_offset: Offset, now_ms: int) -> Draft:
        after = next_row(
            row,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            base_offset,
            now_ms,
            header.is_transactional,
        )
        begins = header.is_transactional and not is_in_transaction(row)
        return Draft(header.producer_id, after, base_offset if begins else NO_OFFSET)

    def _duplicate_or_refusal(self, header: BatchHeader, row: bytes) -> Draft:
        """Says why a batch is not the next one of its producer: it is there already, or it raises Refused."""
        sequence = header.base_sequence
        if not row:
            raise Refused(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"producer {header.producer_id} is not known here (expired, or its data was never written), "
                f"so its first sequence must be 0, not {sequence}",
            )
        known = Entry(*ENTRY.unpack_from(row))
        if header.producer_epoch < known.epoch:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} writes with epoch {header.producer_epoch}, "
                f"but epoch {known.epoch} is known: a newer instance has taken over",
            )
        if header.producer_epoch > known.epoch and sequence > 0:
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {header.producer_epoch} at sequence {sequence}, not 0",
            )
        if header.producer_epoch == known.epoch and not follows(row, known.epoch, sequence, True):
            return self._behind_or_ahead(header, row, known)
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has a transaction open since offset {known.transaction_first_offset} "
            "and wrote a batch outside of it",
        )

    def _behind_or_ahead(self, header: BatchHeader, row: bytes, known: Entry) -> Draft:
        """A batch that is not the next one: a known duplicate, an older duplicate, or a gap."""
        last_of_batch = (header.base_sequence + header.last_offset_delta) & _MASK
        expected = (known.last_sequence + 1) & _MASK
        for batch in _window(row):
            if batch.first_sequence == header.base_sequence and batch.last_sequence == last_of_batch:
                self._refuse_if_of_ended_transaction(header, known, batch.first_offset)
                return Draft(header.producer_id, row, duplicate_of=batch)
        if known.last_sequence != NO_SEQUENCE and 0 < (expected - last_of_batch) & _MASK <= _HALF:
            self._refuse_if_of_ended_transaction(header, known, min(batch.first_offset for batch in _window(row)))
            raise Refused(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequences {header.base_sequence} to {last_of_batch} again: "
                f"they are in the log, but older than the last {WINDOW_BATCHES} batches",
            )
        raise Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, but {expected} comes next",
        )

    def _refuse_if_of_ended_transaction(self, header: BatchHeader, known: Entry, first_offset: Offset) -> None:
        """A producer sends its batches again until it ends the transaction that they belong to. One that comes later
        under the same sequence holds other records: librdkafka gives the sequence of a batch that it has given up, and
        that was written, to the next transaction. To call it a duplicate would lose those records, as Kafka does."""
        began = known.transaction_first_offset
        if header.is_transactional and (began == NO_OFFSET or first_offset < began):
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} again, which it has used in a "
                f"transaction that is over; {(known.last_sequence + 1) & _MASK} comes next",
            )

    def check_marker(
        self, producer_id: ProducerId, epoch: Epoch, coordinator_epoch: Epoch, now_ms: int, *, bumps_epoch: bool = False
    ) -> Draft:
        """Judges an end-of-transaction marker. `bumps_epoch`: the transaction's protocol raises the epoch at each end
        (KIP-890), so a marker with the stored epoch cannot end an open transaction: it belongs to an earlier one."""
        row = self.live_rows.get(producer_id)
        if row is None:
            entry = (producer_id, epoch, NO_SEQUENCE, NO_OFFSET, 0, now_ms, coordinator_epoch, NO_OFFSET)
            return Draft(producer_id, ENTRY.pack(*entry))
        known = Entry(*ENTRY.unpack_from(row))
        if epoch < known.epoch or (
            bumps_epoch and epoch == known.epoch and known.transaction_first_offset != NO_OFFSET
        ):
            raise Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker with epoch {epoch} came for producer {producer_id}, whose epoch is {known.epoch}",
            )
        if coordinator_epoch < known.coordinator_epoch:
            raise Refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of coordinator epoch {coordinator_epoch} came after one of epoch {known.coordinator_epoch}",
            )
        return Draft(
            producer_id,
            _after_marker(known, row, epoch, coordinator_epoch, now_ms),
            ended=known.transaction_first_offset,
        )

    def apply(self, draft: Draft) -> None:
        """Puts a data batch's draft in place, after the batch was written."""
        self.live_rows[draft.producer_id] = draft.row
        if draft.began != NO_OFFSET:
            self.begin_transaction(draft.producer_id, draft.began)

    def begin_transaction(self, producer_id: ProducerId, first_offset: Offset) -> None:
        """Its row says so already."""
        self._open[producer_id] = first_offset

    def apply_marker(self, draft: Draft, marker_offset: Offset, aborted: bool) -> EndedTransaction | None:
        """Puts a marker's draft in place; returns the transaction that it ended, if any data of it is here."""
        self.live_rows[draft.producer_id] = draft.row
        self._open.pop(draft.producer_id, None)
        if draft.ended == NO_OFFSET:
            return None
        ended = EndedTransaction(draft.producer_id, draft.ended, marker_offset, aborted)
        self._ended.append(ended)
        return ended

    def replay(self, header: BatchHeader, marker: ControlMarker | None, now_ms: int) -> EndedTransaction | None:
        """Applies a batch that is in the log already. Nothing is judged: it was, when it was written."""
        if header.is_control:
            if marker is None or marker.kind not in (ControlType.COMMIT, ControlType.ABORT):
                return None
            row = self.live_rows.get(header.producer_id)
            if row is None:
                draft = self.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch, now_ms)
            else:
                known = Entry(*ENTRY.unpack_from(row))
                row = _after_marker(known, row, header.producer_epoch, marker.coordinator_epoch, now_ms)
                draft = Draft(header.producer_id, row, ended=known.transaction_first_offset)
            return self.apply_marker(draft, header.base_offset, marker.kind == ControlType.ABORT)
        row = self.live_rows.get(header.producer_id, NO_ROW)
        self.apply(self._draft(header, row, header.base_offset, now_ms))
        return None

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """The first offset of the oldest transaction that is open, or whose marker is not committed yet."""
        while self._ended and self._ended[0].marker_offset < high_watermark:
            self._ended.popleft()
        first = next(iter(self._open.values()), None)
        for ended in self._ended:
            if first is None or ended.first_offset < first:
                first = ended.first_offset
        return first

    def oldest_open_offset(self) -> Offset | None:
        """The first offset of the oldest transaction without a marker."""
        return next(iter(self._open.values()), None)

    def entries(self) -> Iterator[Entry]:
        return map(entry_of, self.live_rows.values())

    def entry(self, producer_id: ProducerId) -> Entry | None:
        row = self.live_rows.get(producer_id)
        return None if row is None else Entry(*ENTRY.unpack_from(row))

    def window(self, producer_id: ProducerId) -> list[Batch]:
        """The remembered batches of a producer, newest first."""
        row = self.live_rows.get(producer_id)
        return [] if row is None else list(_window(row))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that have been silent for `expiration_ms` and have no transaction open."""
        silent = [
            entry.producer_id
            for entry in self.entries()
            if now_ms - entry.timestamp_ms >= expiration_ms and entry.transaction_first_offset == NO_OFFSET
        ]
        for producer_id in silent:
            del self.live_rows[producer_id]
        return len(silent)

    def rows(self) -> dict[ProducerId, bytes]:
        """A copy of the rows, for a snapshot: rows themselves are immutable."""
        return dict(self.live_rows)

    def load(self, rows: dict[ProducerId, bytes]) -> None:
        """Starts from the rows of a snapshot."""
        self.live_rows = dict(rows)
        open_transactions = [
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self.entries()
            if entry.transaction_first_offset != NO_OFFSET
        ]
        self._open = {producer_id: first for first, producer_id in sorted(open_transactions)}
        self._ended.clear()

    def take_over(self, other: "Producers") -> None:
        """Is what another was, which nobody uses any more."""
        self.live_rows, self._open, self._ended = other.live_rows, other._open, other._ended


def _window(row: bytes) -> Iterator[Batch]:
    _, _, last_sequence, last_offset, delta, _, _, _ = ENTRY.unpack_from(row)
    if last_sequence == NO_SEQUENCE:
        return
    yield Batch((last_sequence - delta) & _MASK, last_sequence, last_offset - delta, last_offset)
    for last_sequence, last_offset, delta in OLDER.iter_unpack(row[ENTRY.size :]):
        yield Batch((last_sequence - delta) & _MASK, last_sequence, last_offset - delta, last_offset)


def _after_marker(known: Entry, row: bytes, epoch: Epoch, coordinator_epoch: Epoch, now_ms: int) -> bytes:
    """The row after a marker: a raised epoch forgets the sequences, so that the next batch begins at zero."""
    if epoch != known.epoch:
        entry = (known.producer_id, epoch, NO_SEQUENCE, NO_OFFSET, 0, now_ms, coordinator_epoch, NO_OFFSET)
        return ENTRY.pack(*entry)
    kept = (known.last_sequence, known.last_offset, known.offset_delta, now_ms, coordinator_epoch, NO_OFFSET)
    return ENTRY.pack(known.producer_id, epoch, *kept) + row[ENTRY.size :]
