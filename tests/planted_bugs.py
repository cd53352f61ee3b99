"""Bugs to be planted into the broker, so that a checker can show that it finds them. The broker knows nothing of them.

with planted("marker lost"): ...                                in this process
python tests/planted_bugs.py "marker lost" serve --data DIR     a node that has it
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from semel.broker.markers import LocalMarkers
from semel.coordinator.group.state import GroupState
from semel.coordinator.txn import coordinator, decisions
from semel.log.log import Log
from semel.log.producers import ENTRY, NO_SEQUENCE, OLDER, Draft, Entry, Producers
from semel.records.batch import BatchHeader
from semel.replication.partition import Partition

LOST_MARKER_EVERY = 7


def fencing_skipped(stack: ExitStack) -> None:
    """Whoever knows the producer id may go on, in every epoch."""
    check_owner, check = decisions.check_owner, Producers.check

    def own_anyway(transaction: Any, transactional_id: str, claimed: decisions.Identity) -> Any:
        if transaction is not None and claimed.producer_id == transaction.producer_id:
            claimed = decisions.Identity(transaction.producer_id, transaction.epoch)
        return check_owner(transaction, transactional_id, claimed)

    def check_anyway(self: Producers, header: BatchHeader, base_offset: int, now_ms: int) -> Draft:
        known = self.entry(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            sequence = known.last_sequence + 1
            header = header._replace(producer_epoch=known.epoch, base_sequence=sequence)
        return check(self, header, base_offset, now_ms)

    stack.enter_context(patch.object(decisions, "check_owner", own_anyway))
    stack.enter_context(patch.object(coordinator, "check_owner", own_anyway))
    stack.enter_context(patch.object(Producers, "check", check_anyway))


def window_of_four(stack: ExitStack) -> None:
    """Whichever path a batch takes: the fifth is forgotten before anything else happens."""
    appended, replay = Partition.appended, Producers.replay

    def forget_fifth(rows: dict[int, bytes]) -> None:
        for producer_id, row in rows.items():
            rows[producer_id] = row[: ENTRY.size + 3 * OLDER.size]

    def forgetful_appended(self: Partition) -> None:
        forget_fifth(self.log.producers.live_rows)
        appended(self)

    def forgetful_replay(self: Producers, *rest: Any) -> Any:
        ended = replay(self, *rest)
        forget_fifth(self.live_rows)
        return ended

    stack.enter_context(patch.object(Partition, "appended", forgetful_appended))
    stack.enter_context(patch.object(Producers, "replay", forgetful_replay))


def stable_offset_too_high(stack: ExitStack) -> None:
    right = Log.last_stable_offset.fget
    assert right is not None

    def too_high(self: Log) -> int:
        stable: int = right(self)
        return min(self.high_watermark, stable + 1)

    stack.enter_context(patch.object(Log, "last_stable_offset", property(too_high)))


def marker_lost(stack: ExitStack) -> None:
    """Now and then a marker is not written, but noted as written."""
    write_marker, numbers = LocalMarkers.write_marker, count(1)

    def forget(self: LocalMarkers, partition: tuple[str, int], *rest: Any) -> asyncio.Future[None] | None:
        if not partition[0].startswith("__") and next(numbers) % LOST_MARKER_EVERY == 0:
            return None
        return write_marker(self, partition, *rest)

    stack.enter_context(patch.object(LocalMarkers, "write_marker", forget))


def duplicate_after_restart(stack: ExitStack) -> None:
    """What was read back at the start of a node tells who the producers are, but not what they wrote last."""
    check, load, replay = Producers.check, Producers.load, Producers.replay

    def without_sequences(row: bytes) -> bytes:
        return ENTRY.pack(*Entry(*ENTRY.unpack_from(row))._replace(last_sequence=NO_SEQUENCE))

    def forgetful_load(self: Producers, rows: dict[int, bytes]) -> None:
        load(self, {producer_id: without_sequences(row) for producer_id, row in rows.items()})

    def forgetful_replay(self: Producers, header: BatchHeader, *rest: Any) -> Any:
        ended = replay(self, header, *rest)
        if header.producer_id in self.live_rows:
            self.live_rows[header.producer_id] = without_sequences(self.live_rows[header.producer_id])
        return ended

    def trusting_check(self: Producers, header: BatchHeader, base_offset: int, now_ms: int) -> Draft:
        known = self.entry(header.producer_id)
        if known is None or known.last_sequence != NO_SEQUENCE or known.epoch != header.producer_epoch:
            return check(self, header, base_offset, now_ms)
        return self._draft(header, self.live_rows[header.producer_id], base_offset, now_ms)

    stack.enter_context(patch.object(Producers, "load", forgetful_load))
    stack.enter_context(patch.object(Producers, "replay", forgetful_replay))
    stack.enter_context(patch.object(Producers, "check", trusting_check))


def offsets_outside(stack: ExitStack) -> None:
    """The offsets of a transaction count at once, whatever becomes of it."""
    right = GroupState._replay_offset

    def at_once(self: GroupState, key: Any, value: Any, offset: int, producer_id: int) -> None:
        right(self, key, value, offset, -1)

    stack.enter_context(patch.object(GroupState, "_replay_offset", at_once))


BUGS: dict[str, Callable[[ExitStack], None]] = {
    "fencing skipped": fencing_skipped,
    "window of four": window_of_four,
    "last stable offset one too high": stable_offset_too_high,
    "marker lost": marker_lost,
    "duplicate accepted after restart": duplicate_after_restart,
    "offsets committed outside the transaction": offsets_outside,
}


@contextmanager
def planted(name: str | None, bugs: Mapping[str, Callable[[ExitStack], None]] = BUGS) -> Iterator[None]:
    """Without a name: no bug."""
    with ExitStack() as stack:
        if name is not None:
            bugs[name](stack)
        yield


if __name__ == "__main__":
    from semel.cli.main import main

    with planted(sys.argv[1]):
        sys.exit(main(sys.argv[2:]))
