"""Which publication may follow which: the rules by which a marker says "done", "go on" or "refused".

A stream's batches follow each other without a gap, and each is known by its number and a digest of its offsets. The
versions of a batch write only grow, as those of Delta's `txnVersion` do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from semel.spark.marker import Marker, batch_key, stream_key
from semel.spark.sink_errors import CheckpointRefused, Overtaken


class Succession(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def number(self) -> int: ...

    def is_done(self, found: Marker | None) -> bool:
        """Whether it was published already; False: it is the next one. Raises CheckpointRefused if it is neither, and
        Overtaken if it was, long ago."""

    def marker(self, transactional_id: str, run_id: str, record_count: int) -> Marker: ...


@dataclass(frozen=True)
class NextBatch:
    """A batch of a stream. "A marker at b or above means done" would lose batches after a checkpoint was restored."""

    query_id: str
    number: int
    digest: str
    previous_digest: str | None
    """Of the batch before, if the checkpoint still holds it."""
    transactional_id: str
    digest_of: Callable[[int], str | None] = lambda number: None
    """Of any batch that the checkpoint holds."""

    @property
    def key(self) -> str:
        return stream_key(self.query_id)

    def is_done(self, found: Marker | None) -> bool:
        if found is None:
            if self.number == 0:
                return False
            raise self._refused(
                f"the cluster has no marker of it, though batch {self.number} cannot be its first: the marker was "
                "lost, or this is another cluster, or the batches before were written by another sink"
            )
        if found.number == self.number:
            if found.digest == self.digest:
                return True
            raise self._refused(
                f"batch {self.number} was committed before, with other offsets of its sources: the checkpoint was "
                "restored from a backup, copied or edited"
            )
        if found.number > self.number and self.digest_of(found.number) == found.digest:
            # This very checkpoint has it: nobody has restored anything, another run has gone on.
            raise Overtaken(f"batch {self.number} is long done: another run of the query is at batch {found.number}")
        if found.number != self.number - 1:
            raise self._refused(
                f"batch {found.number} was committed last, and batch {self.number} does not follow it: the checkpoint "
                "was restored from a backup, copied or edited"
            )
        if self.previous_digest is not None and found.digest != self.previous_digest:
            raise self._refused(
                f"batch {found.number} was committed with other offsets of its sources than the checkpoint has: the "
                "checkpoint was restored from a backup, copied or edited"
            )
        if found.transactional_id != self.transactional_id:
            raise self._refused(
                f"batch {found.number} was committed as {found.transactional_id!r}, not as {self.transactional_id!r}: "
                "transactionalIdPrefix was changed, and a run with the old one could not be fenced"
            )
        return False

    def marker(self, transactional_id: str, run_id: str, record_count: int) -> Marker:
        return Marker(self.number, self.digest, transactional_id, run_id, record_count)

    def _refused(self, why: str) -> CheckpointRefused:
        return CheckpointRefused(f"batch {self.number} of query {self.query_id} is not published: {why}")


@dataclass(frozen=True)
class NextVersion:
    """A batch write with txnAppId and txnVersion: the same or a lower version than the last one is a re-run."""

    app_id: str
    number: int

    @property
    def key(self) -> str:
        return batch_key(self.app_id)

    def is_done(self, found: Marker | None) -> bool:
        return found is not None and found.number >= self.number

    def marker(self, transactional_id: str, run_id: str, record_count: int) -> Marker:
        return Marker(self.number, "", transactional_id, run_id, record_count)
