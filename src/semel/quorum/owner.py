"""What a replica of the metadata log tells the one that it is held for, who knows what the records mean."""

from __future__ import annotations

from typing import Protocol

from semel.quorum.snapshot_files import SnapshotId
from semel.quorum.term import Term


class Owner(Protocol):
    """`committed_further` and `loaded` are awaited by one task, one at a time, whether this node leads or follows. The
    other two are called in between, and must not wait for anything.

    What was committed is never cut; what was not may be, after `leads_no_more`.
    """

    async def committed_further(self) -> None:
        """The log is committed further than before, or again after a snapshot was loaded: see its committed end."""

    async def loaded(self, snapshot: SnapshotId) -> None:
        """The log goes on from a snapshot that the leader has sent: what was read of it before is to be forgotten."""

    def leads(self, term: Term) -> None:
        """This node was elected. The first record of the term is written, and not committed yet."""

    def leads_no_more(self, term: Term) -> None:
        """The term is over, for whatever reason: once for each `leads`, before anything of a later epoch is taken."""
