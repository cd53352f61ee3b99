"""Metadata transactions: changes that are larger than a batch, of which all records count or none.

Kafka's controllers open one for the first records of a cluster. What lies between a BeginTransactionRecord and its end
is held back; with an AbortTransactionRecord, which a new controller writes for what its predecessor left open, it is
dropped. A snapshot must not end inside of one.
"""

from __future__ import annotations

from collections.abc import Iterable

from semel.wire.spec.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)


class HeldRecords:
    """Stands between a log and an image: `admit` is given every record of the log in order, once. No snapshot is taken
    while a transaction `is_open`."""

    def __init__(self) -> None:
        self.is_open = False
        self._held: list[MetadataRecord] = []

    def admit(self, records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
        """The records that count from now on. Raises ValueError for a log in which transactions do not begin and end in
        turn."""
        counting: list[MetadataRecord] = []
        for record in records:
            if isinstance(record, BeginTransactionRecord):
                if self.is_open:
                    raise ValueError("a metadata transaction begins inside of another")
                self.is_open = True
            elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                if not self.is_open:
                    raise ValueError("a metadata transaction ends, and none is open")
                if isinstance(record, EndTransactionRecord):
                    counting += self._held
                self.is_open = False
                self._held = []
            elif self.is_open:
                self._held.append(record)
            else:
                counting.append(record)
        return counting
