"""Which publication may follow which: the rules by which a marker says "done", "go on" or "refused".

A stream's batches follow each other without a gap, and each is known by its query, its number and a digest of its
offsets. The versions of a batch write only grow, as those of Delta's `txnVersion` do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import Protocol

from semel.client.errors import BadSetting
from semel.spark.marker import Marker, batch_key, query_key
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
    app_id: str = ""
    """Of a write in `foreachBatch`, whose marker is named by it. The marker says itself of which query it is."""

    @property
    def key(self) -> str:
        return query_key(self.query_id, self.app_id)

    def is_done(self, found: Marker | None) -> bool:
        if found is None:
            if self.number == 0:
                return False
            raise self._refused(
                f"the cluster has no marker of it, though batch {self.number} cannot be its first: the marker was "
                "lost, or this is another cluster, or the batches before were written by another sink"
            )
        if self.app_id and found.query_id != self.query_id:
            self._check_unnamed(found)
            return False
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
        self._check_transactional_id(found)
        return False

    def _check_unnamed(self, found: Marker) -> None:
        """Refuses a marker of another query. One of an earlier version, or of a batch write, has nothing but a number.
        It counts as ours only if that is the number before, as the first batch of a new checkpoint has none before."""
        if found.query_id:
            raise self._refused(
                f"batch {found.number} of query {found.query_id} was committed last with this app id: this query has a "
                "new checkpoint, or two queries have one app id, and each needs its own"
            )
        if found.number != self.number - 1:
            raise self._refused(
                f"version {found.number} was committed last with this app id, by an earlier version of semel or by a "
                "batch write, and nothing says whether it was of this checkpoint"
            )
        self._check_transactional_id(found)

    def _check_transactional_id(self, found: Marker) -> None:
        if found.transactional_id != self.transactional_id:
            raise self._refused(
                f"batch {found.number} was committed as {found.transactional_id!r}, not as {self.transactional_id!r}: "
                "transactionalIdPrefix was changed, and a run with the old one could not be fenced"
            )

    def marker(self, transactional_id: str, run_id: str, record_count: int) -> Marker:
        query_id = self.query_id if self.app_id else ""
        return Marker(self.number, self.digest, transactional_id, run_id, record_count, query_id)

    def _refused(self, why: str) -> CheckpointRefused:
        app = f" as app id {self.app_id!r}" if self.app_id else ""
        text = f"batch {self.number} of query {self.query_id} is not published{app}: {why}"
        return CheckpointRefused(text, arguments=adopt_arguments(self.app_id))


@dataclass(frozen=True)
class NextVersion:
    """A batch write with txnAppId and txnVersion: the same or a lower version than the last one is a re-run."""

    app_id: str
    number: int

    @property
    def key(self) -> str:
        return batch_key(self.app_id)

    def is_done(self, found: Marker | None) -> bool:
        if found is not None and found.query_id:
            raise BadSetting(
                f"txnAppId: {self.app_id!r} names the batches of query {found.query_id}: choose another one"
            )
        return found is not None and found.number >= self.number

    def marker(self, transactional_id: str, run_id: str, record_count: int) -> Marker:
        return Marker(self.number, "", transactional_id, run_id, record_count)


def adopt_arguments(app_id: str) -> str:
    """What `semel pipeline adopt` needs for the marker of an app id."""
    return f"CHECKPOINT --address HOST:PORT --app-id {quote(app_id)}" if app_id else ""
