"""Whether the batches of each producer follow one another: none twice, none missing, none of an epoch that is over."""

from __future__ import annotations

from semel.log.inspection.findings import Findings, Kind
from semel.log.producers import NO_OFFSET, NO_SEQUENCE, Producers
from semel.log.types import Offset
from semel.records.batch import BatchHeader
from semel.records.sequences import next_sequence


class SequenceCheck:
    def __init__(self, producers: Producers, findings: Findings) -> None:
        self._producers = producers
        self._findings = findings

    def batch(self, path: str, position: int, header: BatchHeader, gap_end: Offset) -> None:
        """Judges a data batch before it is replayed. Batches below `gap_end` may be gone: what they were is unknown."""
        known = self._producers.entry(header.producer_id)
        if known is None:
            return
        who = f"producer {header.producer_id}"
        if header.producer_epoch < known.epoch:
            what = f"{who} writes with epoch {header.producer_epoch} after epoch {known.epoch} had begun"
            self._findings.add(Kind.OLD_EPOCH, path, what, position=position, offset=header.base_offset)
            return
        sequence = header.base_sequence
        if sequence == NO_SEQUENCE or known.last_offset == NO_OFFSET or known.last_offset < gap_end:
            return
        if header.producer_epoch > known.epoch:
            if sequence:
                what = f"{who} begins epoch {header.producer_epoch} with sequence {sequence}, not 0"
                self._findings.add(Kind.SEQUENCE_GAP, path, what, position=position, offset=header.base_offset)
            return
        if known.last_sequence == NO_SEQUENCE or sequence == next_sequence(known.last_sequence, 1):
            return
        for batch in self._producers.window(header.producer_id):
            if (batch.first_sequence, batch.last_sequence) == (sequence, header.last_sequence):
                what = (
                    f"{who} has sequences {sequence} to {header.last_sequence} here and at offset {batch.first_offset}"
                )
                self._findings.add(Kind.REPEATED_SEQUENCE, path, what, position=position, offset=header.base_offset)
                return
        if sequence:  # one that begins anew at 0 was forgotten in between
            what = f"{who} has sequence {sequence} here, but {next_sequence(known.last_sequence, 1)} comes next"
            self._findings.add(Kind.SEQUENCE_GAP, path, what, position=position, offset=header.base_offset)
