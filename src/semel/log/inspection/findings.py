"""What a check can find: each kind with how bad it is and what follows from it, in one table.

DAMAGE: records are lost, hidden or shown that must not be, or will be. WARNING: something is not as it should be, and
records are safe. NOTE: worth knowing, nothing is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from semel.log.types import Offset

_KEPT_PER_FILE = 5


class Severity(Enum):
    DAMAGE = "damage"
    WARNING = "warning"
    NOTE = "note"


class Kind(Enum):
    """Name, severity, and what follows: what happens at the next start, or what to do."""

    # -- segments
    BAD_BATCH = (
        Severity.DAMAGE,
        "Its records cannot be read: a node keeps the bytes and does not serve them. After an unclean stop the "
        "partition is offline. Restore the file from a copy or a replica, or take the batch out with semel log "
        "accept-loss.",
    )
    UNREADABLE = (
        Severity.DAMAGE,
        "What stands here is not a batch, and does not say where the next one begins: reads that come across it fail, "
        "and after an unclean stop a node may refuse to start. Restore the file from a copy or a replica.",
    )
    WILL_BE_CUT = (
        Severity.WARNING,
        "The machine has been started since this was written: the next start takes it for a torn write and cuts the "
        "log here, with all whole batches after it. After a power loss that is right, none of it was durable. What is "
        "cut is kept aside.",
    )
    TORN_TAIL = (
        Severity.WARNING,
        "The last stop was not clean, and nothing shows that this was ever acknowledged: the next start cuts the "
        "segment here, and keeps aside what it cuts.",
    )
    GROWING_TAIL = (Severity.NOTE, "A node is writing to this segment: what stands at its end may be half written.")
    BAD_RECORDS = (
        Severity.DAMAGE,
        "The batch is as it was written, but its records cannot be read: a reader will stop at it.",
    )
    WRONG_OFFSET = (
        Severity.DAMAGE,
        "Offsets are not covered by the CRC. A node does not serve a batch whose offsets do not fit its place. Restore "
        "the file from a copy or a replica.",
    )
    WRONG_SEGMENT = (
        Severity.DAMAGE,
        "The file does not hold what its name says. Give the files their right names again, or restore them.",
    )
    MISSING_SEGMENT = (
        Severity.DAMAGE,
        "Its records are lost unless the file is brought back. If the node has noted it, the next start leaves the "
        "partition offline until the loss is accepted with semel log accept-loss; if not, readers skip to the next "
        "offset.",
    )
    MISSING_OFFSETS = (
        Severity.DAMAGE,
        "Nothing shows that this log was ever compacted, so these records are lost. Restore the file from a copy or a "
        "replica.",
    )
    COMPACTION_GAPS = (Severity.NOTE, "Compaction leaves such gaps; they cannot be told from records that were lost.")
    SHORT_LOG = (
        Severity.DAMAGE,
        "Records that were durable are gone, and new ones would get their offsets. Restore the newest segments before "
        "a node is started here.",
    )
    REPEATED_SEQUENCE = (Severity.DAMAGE, "A batch was written twice: readers get its records twice.")
    SEQUENCE_GAP = (Severity.DAMAGE, "Batches of this producer that stood before this one are not in the log any more.")
    OLD_EPOCH = (
        Severity.DAMAGE,
        "A producer that was fenced has written. Check whether what stands from this offset on was meant to be.",
    )
    WRONG_LEADER_EPOCH = (
        Severity.WARNING,
        "Leader epochs are not covered by the CRC. A consumer or follower that asks where logs part may get a wrong "
        "answer; the records themselves are right.",
    )
    WRONG_LENGTH = (
        Severity.DAMAGE,
        "A sealed segment never changes its length. The next start leaves the partition offline. Restore the file from "
        "a copy or a replica, or give up what is lost with semel log accept-loss.",
    )
    LOST_PARTITION = (
        Severity.DAMAGE,
        "The next start leaves the partition offline, and does not begin an empty one in its place. Restore the "
        "directory from a copy or a replica, or give it up with semel log accept-loss.",
    )
    KEPT_ASIDE = (
        Severity.NOTE,
        "No node reads it. It can be removed when nobody needs it; retention removes it with what stood around it.",
    )
    BAD_INVENTORY = (
        Severity.WARNING,
        "The next start takes the files of this partition as they are, and notes anew what they are.",
    )
    NOT_AS_WRITTEN = (Severity.WARNING, "Nothing is lost: the next start makes it anew from the log.")
    # -- indexes
    MISSING_INDEX = (
        Severity.WARNING,
        "Nothing is lost: without a time index the next start makes both anew; without an offset index, reads begin at "
        "the start of the segment. To have it made anew, stop the node and remove the .timeindex too.",
    )
    BROKEN_INDEX = (Severity.WARNING, "It is not a whole number of entries: the next start makes the indexes anew.")
    WRONG_INDEX_ENTRY = (
        Severity.WARNING,
        "Nothing is lost: reads look at the batch before they believe an entry, and begin at the start of the segment "
        "instead. To have it made anew, stop the node and remove .index and .timeindex of this segment.",
    )
    WRONG_TIME_ENTRY = (
        Severity.WARNING,
        "Searches by time and retention by age may answer wrongly. Stop the node and remove the .timeindex of this "
        "segment: the next start makes it anew.",
    )
    SHORT_INDEX = (
        Severity.NOTE,
        "Nothing is lost, but searches take longer. To have it made anew, stop the node and remove .index and "
        ".timeindex of this segment.",
    )
    SHORT_TIME_INDEX = (
        Severity.WARNING,
        "Searches by time may miss records, and retention by age may remove the segment too early. Stop the node and "
        "remove the .timeindex of this segment: the next start makes it anew.",
    )
    INDEX_TO_BE_REBUILT = (Severity.WARNING, "The last stop was not clean: the next start makes this index anew.")
    LEFT_OVER = (Severity.NOTE, "A removal was interrupted. Nobody reads what is left; it can be removed.")
    # -- transactions
    MISSING_ABORT = (
        Severity.DAMAGE,
        "Readers of committed data get the records of an aborted transaction. A start that knows what the file was "
        "(semel-inventory) makes it anew. For any other, stop the node and cut the .txnindex by a byte first.",
    )
    WRONG_ABORT = (
        Severity.DAMAGE,
        "Readers of committed data may miss records, or get aborted ones. A start that knows what the file was "
        "(semel-inventory) makes it anew. For any other, stop the node and cut the .txnindex by a byte first.",
    )
    BROKEN_ABORTED_INDEX = (
        Severity.WARNING,
        "It is not a whole number of entries: the next start makes it anew from the log.",
    )
    # -- producers
    BAD_SNAPSHOT = (
        Severity.WARNING,
        "The next start does not use it and replays the log from the snapshot before it, or from the beginning. "
        "Producers whose batches are all gone by then are forgotten.",
    )
    WRONG_SNAPSHOT = (
        Severity.DAMAGE,
        "The next start would believe it: duplicates could be written, or a producer refused. Stop the node and remove "
        "the .snapshot and .window of this offset: the state is then replayed from the log.",
    )
    MISSING_SNAPSHOT = (
        Severity.WARNING,
        "The next start replays the log from the snapshot before it, which takes longer; producers whose batches are "
        "all gone are forgotten.",
    )
    BAD_WINDOW = (
        Severity.WARNING,
        "After the next start only the newest batch of each producer is known as a duplicate, not the last five.",
    )
    WRONG_WINDOW = (
        Severity.DAMAGE,
        "The next start would believe it, and a repeated batch could be answered with a wrong offset. Stop the node "
        "and remove the .window of this offset.",
    )
    FORGOTTEN_PRODUCERS = (Severity.NOTE, "Producers that are silent for producer.id.expiration.ms are forgotten.")
    NOT_COMPARED = (Severity.NOTE, "Mend what comes before it, then check again.")
    # -- the rest
    BAD_EPOCHS = (
        Severity.WARNING,
        "The next start reads the epochs from the batches again if the file cannot be read. If it can, and is wrong: "
        "stop the node and remove it.",
    )
    STALE_EPOCHS = (
        Severity.WARNING,
        "Stop the node and remove the file: the next start reads the epochs from the log.",
    )
    BAD_IDENTITY = (Severity.WARNING, "Write the file again with the topic's id: version: 0, topic_id: ID.")
    WRONG_IDENTITY = (
        Severity.DAMAGE,
        "Unless the node has noted whose it is, the next start takes the directory for that of a deleted topic, and "
        "puts it aside as ...-stray. If the records are this topic's, correct the file before a node is started here.",
    )
    TORN_IDENTITY = (
        Severity.NOTE,
        "The last stop was not clean, and nothing in here was ever durable: the next start begins the log anew.",
    )
    MISSING_IDENTITY = (
        Severity.WARNING,
        "The next start takes the directory for this topic's. Should the topic be deleted and made again after a power "
        "loss, old records could come back. Write the file again with the topic's id.",
    )
    STRANGER = (Severity.NOTE, "The metadata knows no such topic: a node does not look into it.")
    SWAP_UNDER_WAY = (
        Severity.NOTE,
        "The next start ends the compaction that was interrupted; what is checked here is its result.",
    )
    BAD_MANIFEST = (
        Severity.DAMAGE,
        "The next start fails on it. Whether the old or the new segments count is not known.",
    )
    BAD_CHECKPOINT = (Severity.WARNING, "The next start does not use it: it reads more of the logs.")
    WRONG_CHECKPOINT = (
        Severity.WARNING,
        "The next start goes by semel-node, which has a checksum. Without that it takes the nearest offset that is in "
        "the log, reads more of it than it has to, or leaves the partition offline.",
    )
    BAD_METADATA_SNAPSHOT = (
        Severity.DAMAGE,
        "The next start does not use it, and fails if the metadata log does not begin at offset 0.",
    )
    BAD_PROPERTIES = (
        Severity.WARNING,
        "A node refuses to start here until the file is mended, or takes another identity.",
    )
    # -- two replicas
    DIFFERENT_BATCH = (
        Severity.DAMAGE,
        "Below the high watermark all replicas are the same: consumers get other records, depending on who leads. Find "
        "out which replica is right, stop the other node and remove the partition's directory there: it is copied "
        "again from the leader.",
    )
    MISSING_BATCH = (
        Severity.DAMAGE,
        "Below the high watermark all replicas are the same: records that were acknowledged are in one of them only. "
        "Should the other one lead, consumers miss them.",
    )
    DIFFERENT_KEY = (
        Severity.DAMAGE,
        "Compaction keeps the latest record of each key on every replica: readers of the whole topic get another "
        "state, depending on who leads.",
    )
    OTHER_TOPIC = (
        Severity.WARNING,
        "They are not replicas of each other: the topic was deleted and made again, and one of the nodes has not heard "
        "of it, or the directories are those of different clusters.",
    )
    BEHIND = (Severity.NOTE, "A follower that has not fetched everything yet, or the end of one that is not flushed.")
    NO_REPLICA = (Severity.NOTE, "There is nothing to compare it with: not every node has every partition.")
    NO_LOG = (Severity.NOTE, "There is nothing to check.")
    VANISHED = (Severity.NOTE, "A node is at work here: retention or compaction has removed it meanwhile.")

    def __init__(self, severity: Severity, meaning: str) -> None:
        self.severity = severity
        self.meaning = meaning

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


class Finding(NamedTuple):
    kind: Kind
    path: str
    what: str
    position: int | None = None
    offset: Offset | None = None

    @property
    def is_wrong(self) -> bool:
        return self.kind.severity is not Severity.NOTE

    def where(self) -> str:
        place = self.path
        if self.position is not None:
            place += f", byte {self.position}"
        if self.offset is not None:
            place += f", offset {self.offset}"
        return place


class Findings:
    """Collects findings; of one kind in one file the first few are kept and the others counted."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: Counter[tuple[Kind, str]] = Counter()

    def add(
        self, kind: Kind, path: str, what: str, *, position: int | None = None, offset: Offset | None = None
    ) -> None:
        self._counts[kind, path] += 1
        if self._counts[kind, path] <= _KEPT_PER_FILE:
            self._kept.append(Finding(kind, path, what, position, offset))

    def absorb(self, others: Findings) -> None:
        """Takes in what was found elsewhere."""
        self._kept += others._kept
        self._counts += others._counts

    def confirmed_by(self, again: Findings) -> Findings:
        """What a second look has found too, of what is wrong; and all that it notes."""
        confirmed = Findings()
        for finding in again:
            if not finding.is_wrong or finding in self._kept:
                confirmed._kept.append(finding)
                confirmed._counts[finding.kind, finding.path] = again._counts[finding.kind, finding.path]
        return confirmed

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._kept)

    def further(self) -> dict[tuple[Kind, str], int]:
        """How many of a kind in a file were counted and not kept."""
        return {key: count - _KEPT_PER_FILE for key, count in self._counts.items() if count > _KEPT_PER_FILE}

    @property
    def is_wrong(self) -> bool:
        return any(finding.is_wrong for finding in self._kept)

    def kinds(self) -> set[Kind]:
        return {finding.kind for finding in self._kept}
